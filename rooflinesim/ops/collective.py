"""Messages between ranks."""

from __future__ import annotations

from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import CollectiveOp


def collective(
    *, name: str, pattern: str, message_bytes: FloatArray, n_ranks: int, count: float = 1.0
) -> CollectiveOp:
    """(col) one collective: ``message_bytes`` is what one rank holds (all-reduce: the tensor; all-gather:
    its shard times ranks; all-to-all: what it sends)."""
    return CollectiveOp(name=name, pattern=pattern, comm_bytes=message_bytes, n_ranks=n_ranks, count=count)
