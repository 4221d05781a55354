"""``tune``: read, fit, solve, compare, and say what to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from rooflinesim.acceptance import CurveFit
from rooflinesim.api.emitting import emit, lint_config, plan_points
from rooflinesim.api.evaluate import fit_memory
from rooflinesim.api.logs import MeasuredAcceptance
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.api.scheduling import (
    ScheduleAnswer,
    default_max_batch,
    follows_k,
    graph_limit,
    rate,
    schedule,
)
from rooflinesim.engines import EngineText, Finding, parse_schedule
from rooflinesim.errors import InputError, RooflinesimError
from rooflinesim.schedule import Schedule, SolvedSchedule
from rooflinesim.specs.scenario import Scenario
from rooflinesim.tuning.gains import Draws, Gain, Rival, draw, gains, probe_batches
from rooflinesim.tuning.overhead import Overhead, fit_overhead
from rooflinesim.tuning.sources import NamedConfig, Sources, read_sources

#: Acceptance lengths of two sources farther apart than this come from different traffic.
DIFFERENT_FRAC: Final = 0.05
#: Points of the plan that the answer lists.
MAX_NEXT: Final = 16
#: Batch sizes at switches among them.
N_SWITCHES: Final = 4
_FORMS: Final = ("accept", "al", "marginal", "conditional", "accept_file", "accept_by_ctx")


@dataclass(frozen=True)
class GivenSchedule:
    """A schedule that was among the files, as its engine runs it, rated by the fitted model."""

    path: str
    rated: SolvedSchedule
    findings: tuple[Finding, ...]

    @property
    def schedule(self) -> Schedule:
        """Its ranges."""
        return self.rated.schedule


@dataclass(frozen=True)
class NextPoint:
    """A setting to measure: K = 0 is a server without speculation; ``why`` names what it settles."""

    batch_size: int
    k: int
    context_tokens: int
    why: str


@dataclass(frozen=True)
class TuneAnswer:
    """Everything ``tune`` found. ``acceptance`` is None when the files hold none or a flag states it."""

    sources: Sources
    acceptance: MeasuredAcceptance | None
    overhead: Overhead
    answer: ScheduleAnswer
    texts: tuple[EngineText, ...]
    given: tuple[GivenSchedule, ...]
    gains: tuple[Gain, ...]
    gains_at_load: tuple[Gain, ...]
    draws: Draws
    measure_next: tuple[NextPoint, ...]
    next_texts: tuple[EngineText, ...]
    findings: tuple[tuple[str, Finding], ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def resolved(self) -> Resolved:
        """The deployment with what was fitted put in."""
        return self.answer.resolved


def tune(
    scenario: Scenario,
    files: Sequence[Path | str],
    *,
    k: int | None = None,
    emit_as: str | None = None,
    max_batch: int | None = None,
    max_regret_frac: float = 0.01,
    max_distinct: int | None = None,
    seed: int = 0,
) -> TuneAnswer:
    """Fit acceptance and overhead to ``files``, solve K by batch for the engine, and rate that.

    ``scenario`` describes the server; engine and context are taken from the files where it does not say.
    ``k`` answers where a format does not hold K. ``emit_as`` is vllm, sglang or trtllm (default: the engine).

    Errors: InputError for a file that is of no use, and for a deployment that cannot be.
    """
    sources = read_sources(files, k=k)
    scenario, learned = informed(scenario, sources)
    measured, curve_fit, conflicts = _acceptance(scenario, sources)
    resolved = resolve(scenario)
    if resolved.deployment.method == "none":
        raise InputError("tune: --draft none has no K to choose")
    if measured is not None:
        kept = tuple(line for line in resolved.assumed if not line.startswith("acceptance:"))
        resolved = replace(resolved, acceptance=measured.conversion, assumed=kept)
    overhead = fit_overhead(resolved, sources.times)
    top = max_batch or default_max_batch(overhead.resolved)
    answer = schedule(
        overhead.resolved, max_batch=top, max_regret_frac=max_regret_frac, max_distinct=max_distinct
    )
    given, bad = _rate_given(overhead.resolved, sources.schedules, top)
    rivals = _rivals(answer, given, measured)
    load = sorted({r.batch_size for r in sources.times if r.batch_size <= top})
    batches = probe_batches(top, load)

    def draw_to(k_max: int) -> Draws:
        return draw(overhead, acceptance=curve_fit, batch_sizes=batches, k_max=k_max, seed=seed)

    if follows_k(answer.resolved):
        draws = draw_to(max([scenario.k_max, *(r.schedule.k_max for r in rivals if r.schedule is not None)]))
    else:
        draws = draw_to(answer.schedule.k_max)
        rivals = [replace(r, draws=draw_to(r.schedule.k_max)) if r.schedule else r for r in rivals]
    texts = emit(answer, emit_as or answer.resolved.deployment.profile.engine)
    return TuneAnswer(
        sources=sources,
        acceptance=measured,
        overhead=overhead,
        answer=answer,
        texts=texts,
        given=given,
        gains=gains(draws, answer.schedule, rivals),
        gains_at_load=gains(draws, answer.schedule, rivals, batches=load) if load else (),
        draws=draws,
        measure_next=_next(answer, overhead),
        next_texts=(*emit(answer, "bench-forward"), *emit(answer, "bench-sweep")),
        findings=_findings(overhead.resolved, sources, load, given),
        assumed=(*resolved.assumed, *learned),
        warnings=tuple(
            dict.fromkeys(
                (
                    *resolved.warnings,
                    *sources.warnings,
                    *(measured.warnings if measured is not None else ()),
                    *conflicts,
                    *bad,
                    *_memory(overhead.resolved, max_batch),
                    *overhead.warnings,
                    *_graph_cliffs(answer),
                    *(w for text in texts for w in text.warnings),
                )
            )
        ),
    )


def informed(scenario: Scenario, sources: Sources) -> tuple[Scenario, list[str]]:
    """The scenario with what the files say of the server where the user did not, and that in words."""
    given = scenario.model_fields_set
    update: dict[str, Any] = {}
    learned = []
    if "engine" not in given and len(sources.engines) == 1:
        update["engine"] = sources.engines[0]
        learned.append(f"engine {sources.engines[0]} (it wrote the files)")
    contexts = [r.context_tokens for r in sources.times if r.context_tokens is not None]
    if "context_tokens" not in given and contexts:
        typical = max(round(median(contexts)), 1)
        update["context_tokens"] = (typical,)
        learned.append(f"context {typical} tokens (median of the files)")
    return scenario.model_copy(update=update) if update else scenario, learned


def _acceptance(
    scenario: Scenario, sources: Sources
) -> tuple[MeasuredAcceptance | None, CurveFit | None, list[str]]:
    """The acceptance to use, the fit its draws come from, and where sources disagree."""
    notes = []
    stated = next((name for name in _FORMS if getattr(scenario, name) is not None), None)
    if stated is not None:
        if sources.acceptance:
            flag = stated.replace("_", "-")
            notes.append(f"--{flag} is used for the acceptance, not what the files say")
        return None, None, notes
    if not sources.acceptance:
        notes.append("no acceptance in the files: the drafter's default curve is used")
        return None, None, notes
    best, *others = sources.acceptance
    for other in others:
        depth = other.record.k
        if depth is None or other.record.biased:
            continue
        ours = float(best.conversion.curve.acceptance_length(depth))
        theirs = other.record.acceptance_length
        if abs(theirs / ours - 1.0) > DIFFERENT_FRAC:
            notes.append(
                f"{other.record.source}: acceptance length {theirs:.3g} at K = {depth}, "
                f"{best.record.source} gives {ours:.3g}: different traffic? The latter is used"
            )
    choice = best.choice
    return best, choice.fit(choice.form) if choice is not None else None, notes


def _rate_given(
    resolved: Resolved, schedules: Sequence[NamedConfig], top: int
) -> tuple[tuple[GivenSchedule, ...], list[str]]:
    out, notes = [], []
    for named in schedules:
        try:
            read = parse_schedule(named.config, max_batch=top)
            expanded = Schedule.from_k_by_batch(list(read.expand(top)))
        except RooflinesimError as error:
            notes.append(f"{named.path}: its schedule is not rated ({error})")
            continue
        out.append(GivenSchedule(named.path, rate(resolved, expanded, max_batch=top), read.findings))
    return tuple(out), notes


def _rivals(
    answer: ScheduleAnswer, given: Sequence[GivenSchedule], measured: MeasuredAcceptance | None
) -> list[Rival]:
    """SD off; every schedule that was given, else the K that the files ran with; the best fixed K."""
    top = answer.max_batch
    rivals = [Rival("SD off", None)]
    rivals += [Rival(f"the schedule in {item.path}", item.schedule) for item in given]
    current = measured.record.k if measured is not None else None
    if current is not None and not given:
        rivals.append(Rival(f"K = {current}, as in the files", Schedule(((1, top, current),))))
    best = answer.solved.best_fixed
    rivals.append(Rival(f"the best fixed K = {best}", Schedule(((1, top, best),))))
    return rivals


def _next(answer: ScheduleAnswer, overhead: Overhead) -> tuple[NextPoint, ...]:
    """What settles a refused number first, then switches of K over the batch; nothing measured already."""
    points: dict[tuple[int, int, int], str] = {}
    for refused in overhead.fit.refused if overhead.fit is not None else ():
        for batch, k, context in refused.measure:
            points.setdefault((batch, k, context), f"settles {refused.name}")
    if overhead.fit is None:
        context = answer.resolved.scenario.context_tokens[0]
        for batch in sorted({1, round(answer.max_batch**0.5), answer.max_batch}):
            k = max(int(answer.schedule.lookup(batch)), 1)
            points |= {(batch, depth, context): "settles host overhead and efficiency" for depth in (0, k)}
    plan = plan_points(answer)
    batches = sorted({batch for batch, _, _ in plan})
    step = max(1, -(-len(batches) // N_SWITCHES))
    for point in plan:
        if point[0] in batches[::step]:
            points.setdefault(point, "a switch of K hangs on it")
    have = {(c.batch_size, c.k, round(c.context_tokens)) for c in overhead.compared}
    return tuple(NextPoint(*at, why) for at, why in points.items() if at not in have)[:MAX_NEXT]


def _findings(
    resolved: Resolved, sources: Sources, load: Sequence[int], given: Sequence[GivenSchedule]
) -> tuple[tuple[str, Finding], ...]:
    """Lints of every configuration and schedule among the files, with the file each is about."""
    found: list[tuple[str, Finding]] = []
    for named in sources.configs:
        for finding in lint_config(resolved, named.config, batch_size=load[-1] if load else None):
            found.append((named.path, finding))
    found += [(item.path, finding) for item in given for finding in item.findings]
    seen: dict[tuple[str, str], tuple[str, Finding]] = {}
    for path, finding in found:
        seen.setdefault((path, finding.message), (path, finding))
    return tuple(seen.values())


def _memory(resolved: Resolved, max_batch: int | None) -> list[str]:
    """A warning when the weights, or the batch that was asked for, do not fit into memory."""
    context = max(resolved.scenario.context_tokens)
    fits = fit_memory(resolved, context_tokens=context, k=resolved.scenario.k_max).largest_batch(
        parallel=resolved.deployment.parallel
    )
    if fits >= (max_batch or 1):
        return []
    name = resolved.deployment.target.id
    if fits < 1:
        return [f"{name} does not fit into memory at context {context}: the schedule is hypothetical"]
    return [f"memory holds {fits} sequences of {context} tokens, --max-batch is {max_batch}"]


def _graph_cliffs(answer: ScheduleAnswer) -> list[str]:
    out = []
    for low, high, k in answer.schedule.ranges:
        limit = graph_limit(answer.resolved, k)
        if high > limit:
            out.append(
                f"batches {max(low, limit + 1)}-{high} at K = {k} run without a CUDA graph (last: {limit}): "
                "raise the capture sizes"
            )
    return out
