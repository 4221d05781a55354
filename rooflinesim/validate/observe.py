"""What the model says about a measured row: the same quantity, at the same point, with its spread and its
floor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rooflinesim.api.resolve import Resolved
from rooflinesim.efficiency import ideal_calibration
from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray, Grid
from rooflinesim.measurements import Measurement
from rooflinesim.serving import prefill_pass
from rooflinesim.step import StepTime, step_time
from rooflinesim.uncertainty import family_log_sd, model_log_sd, speedup_log_sd, step_log_sd

#: Context when a row gives none: short chat prompts with their answer half generated.
DEFAULT_CONTEXT_TOKENS = 512.0
#: Metrics in seconds: those the bare roofline bounds from below.
TIMES = frozenset({"step_s", "off_step_s", "verify_s", "draft_s", "tpot_s"})
#: Batches searched when a source prints the peak over batches alone.
PEAK_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
#: Metrics that need the acceptance length.
PER_TOKEN = frozenset(
    {"tpot_s", "output_tokens_per_s", "request_tokens_per_s", "speedup", "acceptance_length"}
)


@dataclass(frozen=True)
class Predicted:
    """A row, what the model predicts for it, the relative spread of that, and the bare roofline's value.

    ``floor_s``: seconds no kernel can beat (times only; ``nan`` otherwise).
    """

    row: Measurement
    value: float
    log_sd: float
    acceptance_length: float
    r: float
    floor_s: float = float("nan")


def given_lengths(rows: Iterable[Measurement]) -> dict[tuple[str, int], list[Measurement]]:
    """Measured acceptance lengths by (group, K)."""
    table: dict[tuple[str, int], list[Measurement]] = {}
    for row in rows:
        if row.metric == "acceptance_length":
            table.setdefault((row.group, row.k), []).append(row)
    return table


def length_at(
    row: Measurement, given: Mapping[tuple[str, int], Sequence[Measurement]], resolved: Resolved
) -> float:
    """The acceptance length to use at a row: measured at the same point, else the mean measured at the same
    K, else the scenario's curve (its depth is the number of draft steps for a tree)."""
    if row.k == 0:
        return 1.0
    rows = given.get((row.group, row.k), [])
    for same in (
        [g for g in rows if g.batch_size == row.batch_size and g.context_tokens == row.context_tokens],
        [g for g in rows if g.batch_size == row.batch_size],
        [g for g in rows if g.context_tokens == row.context_tokens],
        rows,
    ):
        near = [
            g for g in same if g.draft_steps == row.draft_steps and g.draft_topk == row.draft_topk
        ] or same
        if near:
            return float(np.mean([g.value for g in near]))
    curve = resolved.acceptance.curve
    context = row.context_tokens if curve.depends_on_context else None
    depth = row.draft_steps or row.k
    return float(np.asarray(curve.acceptance_length(depth, context_tokens=context)))


def _static_step(resolved: Resolved, rows: Sequence[Measurement], k: float) -> tuple[StepTime, Grid]:
    """One step of a server configured with this K alone (nothing else is captured or drafted)."""
    grid = Grid.of(
        batch=sorted({row.batch_size for row in rows}),
        k=[k],
        context=sorted({context_of(row) for row in rows}),
    )
    return step_time(resolved.deployment, grid), grid


def context_of(row: Measurement) -> float:
    """Context of a row; the documented default when it gives none."""
    return row.context_tokens if row.context_tokens else DEFAULT_CONTEXT_TOKENS


def _ideal(resolved: Resolved) -> Resolved:
    d = resolved.deployment
    ceilings = replace(d.ceilings, calibration=ideal_calibration(d.ceilings.gpu.id))
    return replace(resolved, deployment=replace(d, ceilings=ceilings, ideal=True))


def _k_of(row: Measurement) -> float:
    return row.query_tokens - 1.0 if row.query_tokens is not None else float(row.k)


def implied_lengths(
    resolved: Resolved, rows: Sequence[Measurement]
) -> dict[tuple[str, int], list[Measurement]]:
    """Acceptance lengths that rows marked ``fit`` imply, AL = speed-up · R, for sources that print none.

    Such a row is spent: it gives one input and is never scored.
    """
    spent = [r for r in rows if r.metric in {"speedup", "e2e_speedup"} and r.use == "fit"]
    spent = [replace(r, metric="speedup") for r in spent]
    one = {(r.group, r.k): [replace(r, metric="acceptance_length", value=1.0)] for r in spent}
    table: dict[tuple[str, int], list[Measurement]] = {}
    for p in predict_rows(resolved, spent, one) if spent else []:
        length = min(p.row.value * p.r, p.row.k + 1.0)
        row = replace(p.row, metric="acceptance_length", value=length, context_tokens=None)
        table.setdefault((row.group, row.k), []).append(row)
    return table


def predict_rows(
    resolved: Resolved,
    rows: Sequence[Measurement],
    given: Mapping[tuple[str, int], Sequence[Measurement]],
    *,
    with_floor: bool = True,
) -> list[Predicted]:
    """Predictions of rows that share one scenario, in their order; ``with_floor`` also runs the bare
    roofline."""
    floor = _ideal(resolved) if with_floor and any(row.metric in TIMES for row in rows) else None
    by_k: dict[tuple[float, int | None], list[Measurement]] = {}
    for row in rows:
        by_k.setdefault((_k_of(row), row.draft_steps), []).append(row)
    out: dict[int, Predicted] = {}
    for (k, steps), some in by_k.items():
        step, grid = _static_step(resolved, some, k)
        if steps is not None and steps != k:
            step = _tree(step, _static_step(resolved, some, float(steps))[0])
        ideal = _static_step(floor, some, k)[0] if floor is not None else None
        for row in some:
            if row.metric == "peak_speedup":
                out[id(row)] = _peak(resolved, row, length_at(row, given, resolved))
                continue
            at = _index(row, grid)
            length = length_at(row, given, resolved)
            value, sd = _value(resolved, row, step, at, length)
            low = float("nan")
            if ideal is not None and row.metric in TIMES:
                low = _value(resolved, row, ideal, at, length)[0]
            ratio = _at(step.step_s, step, at) / _at(step.off_step_s, step, at)
            out[id(row)] = Predicted(row, value, sd, length, 1.0 if row.k == 0 else ratio, low)
    return [out[id(row)] for row in rows]


def _peak(resolved: Resolved, row: Measurement, length: float) -> Predicted:
    """Largest speed-up over the batch, for sources that print only the peak."""
    grid = Grid.of(batch=PEAK_BATCHES, k=[_k_of(row)], context=[context_of(row)])
    step = step_time(resolved.deployment, grid)
    gain = (length * step.off_step_s / step.step_s).ravel()
    best = int(np.argmax(gain))
    sd = float(np.broadcast_to(speedup_log_sd(step), step.step_s.shape).ravel()[best])
    return Predicted(row, float(gain[best]), sd, length, length / float(gain[best]))


def _index(row: Measurement, grid: Grid) -> tuple[int, int, int]:
    batch, context = grid.batch.ravel(), grid.context.ravel()
    return (
        int(np.flatnonzero(batch == row.batch_size)[0]),
        0,
        int(np.flatnonzero(context == context_of(row))[0]),
    )


def _tree(wide: StepTime, deep: StepTime) -> StepTime:
    """A tree step: ``wide`` verifies its nodes; ``deep`` has as many drafter passes as the tree is deep.

    Passes carry the tree's branches as extra rows; at small batch the weights they read dominate, so that
    is left out.
    """
    families = {**wide.families, "draft_depth": deep.draft_s - wide.draft_s}
    step = wide.step_s - wide.draft_s + deep.draft_s
    return replace(wide, draft_s=deep.draft_s, step_s=step, families=families)


def _at(array: FloatArray, step: StepTime, at: tuple[int, int, int]) -> float:
    shape = np.broadcast_shapes(step.step_s.shape, array.shape)
    return float(np.broadcast_to(array, shape)[at])


def _e2e_speedup(resolved: Resolved, row: Measurement, *, on: float, off: float, length: float) -> float:
    """Ratio of end-to-end latencies in a closed loop of N requests: while one answers, N prompts are read.

    (N·t_p + O·off) / (N·t_p + O·on/AL), O output tokens, t_p seconds of one prompt.
    """
    if row.prompt_tokens is None or row.output_tokens is None:
        raise InputError(f"line {row.line}: e2e_speedup needs prompt_tokens and output_tokens")
    one = np.ones((1, 1, 1))
    prompt = prefill_pass(
        resolved.deployment,
        prompts=one,
        chunk_tokens=one * row.prompt_tokens,
        cached_tokens=0.0 * one,
        decoding=0.0 * one,
        context_tokens=one,
    )
    prompts_s = row.batch_size * float(np.ravel(prompt.total_s)[0])
    plain, fast = row.output_tokens * off, row.output_tokens * on / length
    return (prompts_s + plain) / (prompts_s + fast)


def _value(
    resolved: Resolved, row: Measurement, step: StepTime, at: tuple[int, int, int], length: float
) -> tuple[float, float]:
    """(predicted value in the row's unit, relative spread)."""
    on, off = _at(step.step_s, step, at), _at(step.off_step_s, step, at)
    if row.metric == "verify_s":
        fits = _at(family_log_sd(step.verify_pass.families, step.log_sd), step, at)
        return _at(step.verify_s, step, at), math.hypot(fits, model_log_sd(step)[0])
    if row.metric == "draft_s":
        families: dict[str, FloatArray] = {}
        for _, times, draft in step.draft_passes:
            for name, each in draft.families.items():
                families[name] = families.get(name, np.zeros(())) + times * each
        fits = _at(family_log_sd(families, step.log_sd), step, at) if families else 0.0
        return _at(step.draft_s, step, at), math.hypot(fits, *model_log_sd(step))
    if row.metric == "verify_ratio":
        plain = off - _at(step.off_pass.total_s, step, at)
        return (_at(step.verify_s, step, at) + plain) / off, _at(speedup_log_sd(step), step, at)
    seconds = off if row.k == 0 or row.metric == "off_step_s" else on
    sd = _at(step_log_sd(step), step, at)
    if row.k == 0 or row.metric == "off_step_s":
        fits = _at(family_log_sd(step.off_families, step.log_sd), step, at)
        sd = math.hypot(fits, model_log_sd(step)[0])
    if row.metric in {"step_s", "off_step_s"}:
        return seconds, sd
    if row.metric == "tpot_s":
        return seconds / length, sd
    if row.metric == "output_tokens_per_s":
        return row.batch_size * length / seconds, sd
    if row.metric == "request_tokens_per_s":
        return length / seconds, sd
    if row.metric == "e2e_speedup":
        ratio_sd = _at(speedup_log_sd(step), step, at)
        return _e2e_speedup(resolved, row, on=on, off=off, length=length), ratio_sd
    if row.metric == "speedup":
        return length * off / seconds, _at(speedup_log_sd(step), step, at)
    raise InputError(f"line {row.line}: metric {row.metric!r} is an input, not something to predict")
