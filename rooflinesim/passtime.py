"""Seconds of one pass: its ops timed on the ceilings, summed by kernel family, in a graph or eagerly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinesim.efficiency import Ceilings
from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import Op
from rooflinesim.roofline import TimedOp, time_op


@dataclass(frozen=True)
class PassTime:
    """Seconds of one pass on the slowest rank. Arrays broadcast on (batch, k, context).

    ``families`` maps kernel family → seconds (they add up to ``total_s``); ``log_sd`` its relative spread.
    """

    timed: tuple[TimedOp, ...]
    total_s: FloatArray
    families: dict[str, FloatArray]
    log_sd: dict[str, float]
    launches: float


def time_pass(
    ops: Sequence[Op],
    ceilings: Ceilings,
    *,
    in_graph: NDArray[np.bool_] | None = None,
    eager_launch_s: float = 0.0,
) -> PassTime:
    """Time every op. Where ``in_graph`` is false the host feeds the kernels one by one: the pass takes at
    least launches·eager_launch_s, and collectives pay their eager latency."""
    timed = tuple(time_op(op, ceilings) for op in ops)
    families: dict[str, FloatArray] = {}
    log_sd: dict[str, float] = {}
    for item in timed:
        key = item.op.family
        families[key] = families.get(key, np.zeros(())) + item.total_s
        log_sd[key] = max(log_sd.get(key, 0.0), item.log_sd)
    launches = float(sum(op.count * op.launches for op in ops))
    total: FloatArray = np.asarray(sum(families.values()))
    if in_graph is not None and not in_graph.all() and eager_launch_s > 0.0:
        eager = sum(
            time_op(item.op, ceilings, graph=False).total_s - item.total_s
            for item in timed
            if item.op.family == "collective"
        )
        slow = np.maximum(total + eager, launches * eager_launch_s)
        extra = np.where(in_graph, 0.0, slow - total)
        families["eager_launch"] = extra
        log_sd["eager_launch"] = 0.4
        total = total + extra
    return PassTime(timed=timed, total_s=total, families=families, log_sd=log_sd, launches=launches)
