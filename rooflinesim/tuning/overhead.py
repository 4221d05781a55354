"""The user's own overhead: imported times as measurements, fitted, and set beside the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from rooflinesim.api.resolve import Resolved
from rooflinesim.calibrate.user import FACTOR_RANGE, UserFit, fit_user
from rooflinesim.engines import TimingRecord
from rooflinesim.errors import InputError
from rooflinesim.measurements import Measurement
from rooflinesim.validate.observe import predict_rows

#: A log of every iteration holds more settings than a fit needs: beyond this they are thinned.
MAX_ROWS: Final = 240
#: Measured times farther than this from the fitted model's: the scenario is not the server.
FAR_FRAC: Final = 0.25
#: A host time below this is none: the fit ended on its bound.
NO_HOST_S: Final = 1e-5
#: A factor this close to the end of its range is at it.
EDGE: Final = 1.01
#: Imported kind of time and clock → metric of a measurement. A whole step on the GPU clock is the sum of two
#: others and would count twice.
_METRICS: Final = {
    ("step", "wall"): "step_s",
    ("decode", "wall"): "step_s",
    ("verify", "gpu"): "verify_s",
    ("decode", "gpu"): "verify_s",
    ("draft", "gpu"): "draft_s",
}


@dataclass(frozen=True)
class Compared:
    """One measured time beside the model's, before and after the fit; ``k`` = 0 is *SD off*."""

    batch_size: int
    k: int
    context_tokens: float
    metric: str
    n_samples: int
    measured_s: float
    before_s: float
    after_s: float


@dataclass(frozen=True)
class Overhead:
    """What the times determine. ``fit`` is None, with a ``refusal``, when they determine nothing."""

    resolved: Resolved
    fit: UserFit | None
    refusal: str
    compared: tuple[Compared, ...]
    warnings: tuple[str, ...]


def measurements_of(
    times: Sequence[TimingRecord], *, context_tokens: float
) -> tuple[list[Measurement], list[str]]:
    """Imported times as rows for the fit, equal settings pooled, and in words what was left out.

    ``context_tokens`` stands in where a format does not say. Steps with speculation on at K = 0 are left
    out: they are no *SD off* steps.
    """
    left: dict[str, None] = {}
    pools: dict[tuple[str, int, int, str], list[TimingRecord]] = {}
    for record in times:
        metric = _METRICS.get((record.what, record.clock))
        if record.what == "step" and record.k == 0:
            left["steps with speculation on at K = 0 are shown to no fit: they are not steps with SD off"] = (
                None
            )
        elif metric is not None:
            context = record.context_tokens if record.context_tokens is not None else context_tokens
            pools.setdefault((metric, record.batch_size, record.k, f"{context:.2g}"), []).append(record)
    rows = []
    for (metric, batch, k, _), some in sorted(pools.items()):
        contexts = [r.context_tokens if r.context_tokens is not None else context_tokens for r in some]
        rows.append(
            Measurement(
                batch_size=float(batch),
                metric=metric,
                value=median(r.seconds for r in some),
                k=k,
                context_tokens=float(round(median(contexts))),
                n=sum(r.n_samples for r in some),
            )
        )
    if len(rows) > MAX_ROWS:
        left[f"{len(rows)} settings were timed; {MAX_ROWS}, spread over the batch, are used"] = None
        rows = [rows[round(i * (len(rows) - 1) / (MAX_ROWS - 1))] for i in range(MAX_ROWS)]
    return rows, list(left)


def fit_overhead(resolved: Resolved, times: Sequence[TimingRecord]) -> Overhead:
    """Fit host times and efficiencies to imported times; what is under-determined keeps its prior."""
    if resolved.scenario.ideal:
        raise InputError("--ideal: the bare roofline has no overhead to fit; leave it out")
    rows, left = measurements_of(times, context_tokens=float(resolved.scenario.context_tokens[0]))
    if not rows:
        reason = "no step time in the files: host overhead and efficiencies are those of the engine profile"
        return Overhead(resolved, None, reason, (), tuple(left))
    fit, refusal = None, ""
    if resolved.scenario.verify_curve is not None:
        refusal = "--verify-curve replaces the modelled times: nothing is fitted beside it"
    else:
        try:
            fit = fit_user(resolved, rows, calibration_id="tuned")
        except InputError as error:
            refusal = f"overhead is not fitted: {error}"
    fitted = resolved if fit is None else with_fit(resolved, fit)
    compared = _compare(resolved, fitted, rows)
    return Overhead(fitted, fit, refusal, compared, (*left, *_at_bound(fit), *_far(compared)))


def with_fit(resolved: Resolved, fit: UserFit) -> Resolved:
    """The deployment with the fitted calibration (host times are part of it)."""
    d = resolved.deployment
    ceilings = replace(d.ceilings, calibration=fit.calibration)
    return replace(resolved, deployment=replace(d, ceilings=ceilings))


def _compare(before: Resolved, after: Resolved, rows: Sequence[Measurement]) -> tuple[Compared, ...]:
    first = predict_rows(before, rows, {})
    second = predict_rows(after, rows, {}) if after is not before else first
    return tuple(
        Compared(
            batch_size=int(row.batch_size),
            k=row.k,
            context_tokens=float(row.context_tokens or 0.0),
            metric=row.metric,
            n_samples=row.n or 1,
            measured_s=row.value,
            before_s=old.value,
            after_s=new.value,
        )
        for row, old, new in zip(rows, first, second, strict=True)
    )


def _at_bound(fit: UserFit | None) -> list[str]:
    """A warning for each number that ended at the edge of its range: the scenario may not be the server."""
    out = []
    for item in fit.fitted if fit is not None else ():
        if item.unit == "s" and item.value < NO_HOST_S:
            out.append(f"{item.name} is fitted as 0: steps are faster than the modelled accelerator alone")
        elif item.unit == "factor" and not EDGE * FACTOR_RANGE[0] < item.value < FACTOR_RANGE[1] / EDGE:
            out.append(
                f"{item.name} is fitted as {item.value:.2f}, the edge of what is allowed: check --gpu, --tp, "
                "--weights and --model against the server"
            )
    return out


def _far(compared: Sequence[Compared]) -> list[str]:
    """A warning where even the fitted model is far from what was measured."""
    if not compared:
        return []
    ratio = median(row.measured_s / row.after_s for row in compared)
    if abs(ratio - 1.0) <= FAR_FRAC:
        return []
    return [
        f"measured times are {ratio:.2f} x the model's: check --gpu, --tp, --weights, --model and --ctx "
        "against the server, or measure more points, before trusting the schedule"
    ]
