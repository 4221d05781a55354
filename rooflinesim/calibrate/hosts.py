"""Host costs of the engines from measured serving rows: what a step costs beside its kernels.

Only the third of the (model, accelerator) pairs that is never scored is used. Left out: runs that look
speculative, rows faster than their bare roofline, and local files whose loads cannot have computed their
prompts.

log TPOT = log(t_model + h_0 + h_1·n) + ε, n the running requests per replica and streamed step: robust least
squares.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray
from rooflinesim.measured.scoring import predict_rows
from rooflinesim.measured.serving_rows import ServingRow, probably_speculative, read_rows, split

#: Nominal lengths of local files whose TPOT leaves no room for the prompts (a prefix cache was probably on).
CACHED_LOADS: Final = ((4000, 1000),)
#: SGLang versions of the local files, older than the profile that serves the rest.
OLD_SGLANG: Final = ("0.5.1.post1", "0.5.8.post1")
GROUPS: Final = ("vllm-0.12", "vllm", "sglang-0.5.1", "sglang", "trtllm")


@dataclass(frozen=True)
class HostFit:
    """h_0 [s] and h_1 [s per request] of one engine with standard errors; ``mape`` on the fitted rows."""

    group: str
    n: int
    off_step_s: float
    off_step_stderr_s: float
    per_request_s: float
    per_request_stderr_s: float
    mape: float
    cost: float


def group_of(row: ServingRow) -> str:
    """Which host cost a row informs."""
    if row.scenario is None:
        return ""
    if row.engine == "sglang":
        return "sglang-0.5.1" if row.run.split(" ")[0] in OLD_SGLANG and not row.is_moe else "sglang"
    return row.scenario.engine


def usable(rows: Iterable[ServingRow]) -> list[ServingRow]:
    """The rows that host costs are fitted on, of all rows."""
    every = list(rows)
    fitted, _ = split(every)
    marked = probably_speculative(every)
    floors = {f.row.row: f.tpot_s for f in predict_rows(fitted, ideal=True) if f.answered}
    return [
        r
        for r in fitted
        if r.row in floors
        and floors[r.row] <= r.tpot_s
        and r.row not in marked
        and r.gpu != "gb200"  # multi-node totals and a server that was not in a steady state
        and r.nominal not in CACHED_LOADS
        and not (r.engine == "vllm" and r.provenance == "author" and r.nominal[0] % 1000 == 0)
    ]


def fit_hosts(*, skew: float | None = None, rows: Iterable[ServingRow] | None = None) -> dict[str, HostFit]:
    """h_0 and h_1 of every engine; ``skew`` replaces the expert popularity exponent of the campaign.

    Errors: InputError when the package with the rows is not installed, or no row is usable.
    """
    found = usable(read_rows() if rows is None else rows)
    if not found:
        raise InputError("host costs: no usable serving row")
    out = {}
    for group in GROUPS:
        some = [r for r in found if group_of(r) == group]
        if skew is not None:
            some = [_with_skew(r, skew) for r in some]
        if some:
            out[group] = _fit(group, some)
    return out


def _with_skew(row: ServingRow, skew: float) -> ServingRow:
    if row.scenario is None or not row.is_moe:
        return row
    return replace(row, scenario=row.scenario.model_copy(update={"skew": skew}))


def _fit(group: str, rows: list[ServingRow]) -> HostFit:
    from scipy.optimize import least_squares  # only when fitted: start-up time

    scored = [s for s in predict_rows(rows) if s.answered]
    base = np.array([s.tpot_s - s.families.get("host", 0.0) for s in scored])
    measured = np.array([s.row.tpot_s for s in scored])
    replicas = np.array([s.row.scenario.dp if s.row.scenario else 1 for s in scored])
    busy = np.array([s.running for s in scored]) / replicas
    streams = busy / np.array([s.row.stream_interval for s in scored])

    def residual(x: FloatArray) -> FloatArray:
        return np.asarray(np.log((base + 1e-3 * x[0] + 1e-6 * x[1] * streams) / measured))

    result = least_squares(
        residual, [0.8, 10.0], bounds=([0.0, 0.0], [8.0, 100.0]), loss="soft_l1", f_scale=0.07
    )
    error = residual(result.x)
    jacobian: FloatArray = np.asarray(result.jac, dtype=np.float64)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * error.var()
    return HostFit(
        group=group,
        n=len(scored),
        off_step_s=float(result.x[0]) * 1e-3,
        off_step_stderr_s=float(np.sqrt(covariance[0, 0])) * 1e-3,
        per_request_s=float(result.x[1]) * 1e-6,
        per_request_stderr_s=float(np.sqrt(covariance[1, 1])) * 1e-6,
        mape=float(np.abs(np.expm1(error)).mean()),
        cost=float(result.cost),
    )
