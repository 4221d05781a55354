"""The fixed axes of every array: (batch, k, context). Defined here once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Arrays of seconds, bytes, FLOPs: float64, broadcastable on (batch, k, context).
FloatArray = NDArray[np.float64]

BATCH_AXIS = 0
K_AXIS = 1
CONTEXT_AXIS = 2


@dataclass(frozen=True)
class Grid:
    """Batch sizes, draft lengths and contexts, shaped so that they broadcast to (batch, k, context).

    >>> grid = Grid.of(batch=[1, 8], k=[0, 1, 2], context=[1024])
    >>> grid.shape, grid.batch.shape, grid.k.shape
    ((2, 3, 1), (2, 1, 1), (1, 3, 1))
    """

    batch: FloatArray
    k: FloatArray
    context: FloatArray

    @classmethod
    def of(cls, *, batch: Sequence[float], k: Sequence[float], context: Sequence[float]) -> Grid:
        """Build from flat lists."""
        return cls(
            batch=np.asarray(batch, dtype=np.float64).reshape(-1, 1, 1),
            k=np.asarray(k, dtype=np.float64).reshape(1, -1, 1),
            context=np.asarray(context, dtype=np.float64).reshape(1, 1, -1),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Lengths of the three axes."""
        return (self.batch.size, self.k.size, self.context.size)
