"""A user's own measurements against the model: AL, R, break-even, implied efficiency, and what to
recalibrate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rooflinesim.accuracy import Score, inconsistent_ratios, k_regret, score
from rooflinesim.api.resolve import Resolved
from rooflinesim.errors import InputError
from rooflinesim.goodput import break_even_c1
from rooflinesim.measurements import Measurement, metric_of
from rooflinesim.validate.observe import Predicted, context_of, given_lengths, length_at, predict_rows
from rooflinesim.validate.scores import predicted_choice

#: Metrics a step time can be worked out from, the most direct first.
STEP_METRICS = ("step_s", "tpot_s", "output_tokens_per_s", "request_tokens_per_s")
#: Throughput within this share of its maximum counts as saturated.
SATURATED_FRAC = 0.95
#: A systematic error above this is worth a calibration.
WORTH_FRAC = 0.10


@dataclass(frozen=True)
class UserRow:
    """One measured K. ``efficiency_frac``: bare roofline over measured; above 1 the byte model is wrong."""

    k: int
    acceptance_length: float
    length_is_measured: bool
    step_s: float
    r: float | None
    speedup: float | None
    printed_speedup: float | None
    printed_is_consistent: bool | None
    break_even_c1: float | None
    predicted_step_s: float
    error: float
    roofline_s: float
    efficiency_frac: float
    flags: tuple[str, ...]


@dataclass(frozen=True)
class UserPoint:
    """One batch and context of one group, all measured K."""

    group: str
    batch_size: float
    context_tokens: float
    best_k: int
    predicted_k: int
    regret: float
    rows: tuple[UserRow, ...]


@dataclass(frozen=True)
class UserReport:
    """Everything about one CSV."""

    points: tuple[UserPoint, ...]
    score: Score
    findings: tuple[str, ...]
    recalibrate: tuple[str, ...]


def measured_step_s(row: Measurement, length: float) -> float:
    """Seconds of a step from what was measured: TPOT·AL, N·AL/throughput, or the step itself."""
    if row.value <= 0:
        raise InputError(f"line {row.line}: {row.metric}: must be above 0")
    if length < 1.0:
        raise InputError(
            f"line {row.line}: acceptance length {length:g} at K = {row.k} is below 1: "
            "is the bonus token left out?"
        )
    if row.metric == "step_s":
        return row.value
    if row.metric == "tpot_s":
        return row.value * length
    if row.metric == "output_tokens_per_s":
        return row.batch_size * length / row.value
    return length / row.value


def validate_user(
    resolved: Resolved, rows: Sequence[Measurement], *, metric: str | None = None
) -> UserReport:
    """Compare a user's rows with the model of ``resolved``; ``metric`` picks one where several were measured.

    Errors: InputError when no row gives a step time, or the wanted metric is not there.
    """
    check_drafter(resolved, rows)
    chosen = _step_rows(rows, metric)
    given = given_lengths(rows)
    points, predicted_all = [], []
    findings: list[str] = []
    by_point: dict[tuple[str, float, float], list[Measurement]] = {}
    for row in chosen:
        by_point.setdefault((row.group, row.batch_size, context_of(row)), []).append(row)
    for (group, batch, context), some in by_point.items():
        if len({r.k for r in some}) < len(some):
            some = _mean_of_repeats(some)
        lengths = {r.k: length_at(r, given, resolved) for r in some}
        steps = [
            replace(r, metric="step_s", value=measured_step_s(r, lengths[r.k]))
            for r in sorted(some, key=lambda r: r.k)
        ]
        predicted = predict_rows(resolved, steps, given)
        predicted_all += predicted
        printed = {
            r.k: r.value
            for r in rows
            if r.metric == "speedup" and (r.group, r.batch_size, context_of(r)) == (group, batch, context)
        }
        point, notes = _point(group, batch, context, predicted, lengths, given, printed)
        points.append(point)
        findings += notes
    findings += _saturation(rows)
    s = score(predicted=[p.value for p in predicted_all], measured=[p.row.value for p in predicted_all])
    return UserReport(
        points=tuple(points),
        score=s,
        findings=tuple(findings),
        recalibrate=tuple(_recalibrate(predicted_all)),
    )


def check_drafter(resolved: Resolved, rows: Iterable[Measurement]) -> None:
    """Rows with drafted tokens need a drafter in the scenario."""
    drafted = next((r for r in rows if r.k > 0 and r.metric in STEP_METRICS), None)
    if drafted is not None and not resolved.deployment.speculative:
        raise InputError(f"line {drafted.line}: K = {drafted.k}, but --draft is none: name the drafter")


def _step_rows(rows: Sequence[Measurement], metric: str | None) -> list[Measurement]:
    there = [m for m in STEP_METRICS if any(r.metric == m for r in rows)]
    if metric is not None:
        wanted, _ = metric_of(metric)
        if wanted not in there:
            raise InputError(
                f"--metric: no row of {wanted}; the file has {', '.join(there) or 'no step times'}"
            )
        there = [wanted]
    if not there:
        raise InputError(f"no row gives a step time; needs one of {', '.join(STEP_METRICS)}")
    return [r for r in rows if r.metric == there[0]]


def _mean_of_repeats(rows: list[Measurement]) -> list[Measurement]:
    out = []
    for k in dict.fromkeys(r.k for r in rows):
        same = [r for r in rows if r.k == k]
        out.append(replace(same[0], value=float(np.mean([r.value for r in same]))))
    return out


def _point(
    group: str,
    batch: float,
    context: float,
    predicted: list[Predicted],
    lengths: dict[int, float],
    given: dict[tuple[str, int], list[Measurement]],
    printed: dict[int, float],
) -> tuple[UserPoint, list[str]]:
    where = f"{group + ': ' if group else ''}batch {batch:g}"
    plain = next((p.row.value for p in predicted if p.row.k == 0), None)
    notes: list[str] = []
    out = []
    for p in predicted:
        k, step = p.row.k, p.row.value
        r = step / plain if plain is not None and k > 0 else None
        gain = lengths[k] / r if r is not None else None
        flags = []
        if step < p.floor_s:
            flags.append("byte model wrong: faster than the roofline")
            notes.append(
                f"{where}, K = {k}: {step * 1e3:.4g} ms is below the bare roofline of "
                f"{p.floor_s * 1e3:.4g} ms "
                f"({p.floor_s / step:.0%} of peak): byte model wrong (formats, experts read, shared cache?)"
            )
        ok = None
        if k in printed and gain is not None:
            ok = not inconsistent_ratios(printed=[printed[k]], recomputed=[gain])
            if not ok:
                flags.append("printed speed-up contradicts the times")
                notes.append(f"{where}, K = {k}: printed speed-up {printed[k]:g}, the times give {gain:.3f}")
        measured_length = k == 0 or (group, k) in given
        if not measured_length:
            flags.append("acceptance length assumed")
        if k > 0 and lengths[k] > k + 1:
            notes.append(f"{where}, K = {k}: acceptance length {lengths[k]:g} is above K + 1")
        need = None
        if r is not None:
            value = float(np.asarray(break_even_c1(r=r, k=k)))
            need = None if np.isnan(value) else value
        out.append(
            UserRow(
                k=k,
                acceptance_length=lengths[k],
                length_is_measured=measured_length,
                step_s=step,
                r=r,
                speedup=gain,
                printed_speedup=printed.get(k),
                printed_is_consistent=ok,
                break_even_c1=need,
                predicted_step_s=p.value,
                error=p.value / step - 1.0,
                roofline_s=p.floor_s,
                efficiency_frac=p.floor_s / step,
                flags=tuple(flags),
            )
        )
    curve = {row.k: lengths[row.k] / row.step_s for row in out}
    chosen = predicted_choice(
        [
            replace(p, row=replace(p.row, metric="request_tokens_per_s"), value=lengths[p.row.k] / p.value)
            for p in predicted
        ]
    )
    point = UserPoint(
        group=group,
        batch_size=batch,
        context_tokens=context,
        best_k=max(curve, key=lambda k: curve[k]),
        predicted_k=chosen,
        regret=k_regret(measured_goodput=curve, predicted_k=chosen),
        rows=tuple(out),
    )
    return point, notes


def _saturation(rows: Iterable[Measurement]) -> list[str]:
    """Where throughput stops rising with concurrency: beyond it requests wait, and concurrency is not the
    batch."""
    notes = []
    table: dict[tuple[str, int, float | None], dict[float, float]] = {}
    for row in rows:
        if row.metric == "output_tokens_per_s":
            table.setdefault((row.group, row.k, row.context_tokens), {})[row.batch_size] = row.value
    for (group, k, _), curve in table.items():
        if len(curve) < 2:
            continue
        most = max(curve.values())
        first = min(b for b, v in curve.items() if v >= SATURATED_FRAC * most)
        last = max(curve)
        if last >= 4 * first:
            notes.append(
                f"{group + ': ' if group else ''}K = {k}: throughput saturates at concurrency {first:g} "
                f"({curve[first] / most:.0%} of its maximum, {most:.5g} tokens/s); up to {last:g} "
                "requests only queue: "
                "keep a limit on the time to first token, and do not read higher concurrency as batch size"
            )
    return notes


def _recalibrate(predicted: list[Predicted]) -> list[str]:
    """Which constants the errors point at. Errors are measured minus predicted seconds."""
    if not predicted:
        return []
    hints = []
    plain = [p for p in predicted if p.row.k == 0]
    drafted = [p for p in predicted if p.row.k > 0]
    if plain:
        ratio = np.asarray([p.row.value / p.value for p in plain])
        gap = np.asarray([p.row.value - p.value for p in plain])
        if abs(np.median(ratio) - 1.0) > WORTH_FRAC:
            even = len(plain) > 1 and np.std(gap) < 0.3 * abs(np.mean(gap)) and np.std(ratio) > 0.03
            what = "the host time of a plain step (off_host_s)" if even else "memory efficiency (mem_eff)"
            hints.append(f"plain steps are {np.median(ratio) - 1.0:+.0%} off the model: recalibrate {what}")
    slopes = []
    for at in dict.fromkeys((p.row.group, p.row.batch_size, context_of(p.row)) for p in drafted):
        some = [p for p in drafted if (p.row.group, p.row.batch_size, context_of(p.row)) == at]
        ks = np.asarray([p.row.k for p in some], dtype=float)
        if np.unique(ks).size >= 2:
            measured = np.polyfit(ks, [p.row.value for p in some], 1)
            model = np.polyfit(ks, [p.value for p in some], 1)
            slopes.append((at, measured, model))
    for (group, batch, _), measured, model in slopes:
        step = float(np.mean([p.row.value for p in drafted]))
        name = f"{group + ': ' if group else ''}batch {batch:g}: "
        if abs(measured[0] - model[0]) > 0.02 * step:
            hints.append(
                f"{name}a further drafted token costs {measured[0] * 1e3:.2f} ms, the model says "
                f"{model[0] * 1e3:.2f} ms: recalibrate the draft pass (draft_pass_s, and compute_eff at "
                "large batch)"
            )
        if abs(measured[1] - model[1]) > WORTH_FRAC * step:
            hints.append(
                f"{name}a speculative round has {1e3 * (measured[1] - model[1]):+.2f} ms that do not "
                "depend on K: "
                "recalibrate its host time (sd_host_s)"
            )
    return hints


def user_json(report: UserReport) -> dict[str, Any]:
    """The document that ``validate my.csv --json`` prints."""
    s = report.score
    return {
        "schema": 1,
        "score": {
            "n": s.n,
            "mape": s.mape,
            "median": s.median,
            "bias": s.bias,
            "within_10": s.within_10,
            "within_20": s.within_20,
        },
        "points": [
            {
                "group": p.group,
                "batch_size": p.batch_size,
                "context_tokens": p.context_tokens,
                "best_k": p.best_k,
                "predicted_k": p.predicted_k,
                "k_regret": p.regret,
                "rows": [{**row.__dict__, "flags": list(row.flags)} for row in p.rows],
            }
            for p in report.points
        ],
        "findings": list(report.findings),
        "recalibrate": list(report.recalibrate),
    }
