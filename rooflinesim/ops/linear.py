"""Dense products."""

from __future__ import annotations

import numpy as np

from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import GemmOp
from rooflinesim.units import WEIGHT_BYTES


def gemm(
    *,
    name: str,
    rows: FloatArray,
    in_features: float,
    out_features: float,
    weight_format: str,
    activation_bytes: float = 2.0,
    count: float = 1.0,
    launches: float = 1.0,
) -> GemmOp:
    """(lin) F = 2·n·d_in·d_out;  Q = w·d_in·d_out + a·n·(d_in + d_out).

    ``rows`` n [tokens], ``in_features`` d_in, ``out_features`` d_out (both already sharded),
    ``weight_format`` sets w [bytes per element, block scales included], ``activation_bytes`` a [bytes per
    element].

    >>> op = gemm(name="x", rows=np.array(8.0), in_features=4096, out_features=4096, weight_format="bf16")
    >>> float(op.flops), float(op.weight_bytes)
    (268435456.0, 33554432.0)
    """
    return GemmOp(
        name=name,
        count=count,
        launches=launches,
        flops=2.0 * rows * in_features * out_features,
        weight_bytes=np.asarray(WEIGHT_BYTES[weight_format] * in_features * out_features),
        activation_bytes=activation_bytes * rows * (in_features + out_features),
        rows=np.asarray(rows, dtype=np.float64),
        in_features=in_features,
        out_features=out_features,
        weight_format=weight_format,
    )
