"""``schedule``: K by batch size for one engine, with what it brings and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.engines import EngineText, emit_schedule
from rooflinesim.errors import InputError
from rooflinesim.graphs import captured_requests, max_graph_batch
from rooflinesim.memory import Footprint
from rooflinesim.schedule import (
    CaptureCost,
    ContextSchedule,
    Schedule,
    SolvedSchedule,
    capture_cost,
    evaluate_schedule,
    solve_schedule,
    solve_schedule_over_context,
)
from rooflinesim.specs.scenario import Scenario
from rooflinesim.units import GIB

#: Seconds to capture one graph: vLLM reports 67 full graphs of an 8B model in about 20 s on H100 (a guess
#: elsewhere).
CAPTURE_S = 0.3


@dataclass(frozen=True)
class ScheduleAnswer:
    """A solved schedule for one deployment."""

    resolved: Resolved
    evaluation: Evaluation
    solved: SolvedSchedule
    by_context: ContextSchedule | None
    capture: CaptureCost
    max_batch: int
    notes: tuple[str, ...]

    @property
    def schedule(self) -> Schedule:
        """The ranges."""
        return self.solved.schedule


#: The table is solved at every batch from 1 on; no engine runs more requests at once than this.
MAX_BATCH = 16_384
MAX_K = 64


def default_max_batch(resolved: Resolved) -> int:
    """Largest batch worth scheduling: what the engine admits and the memory holds, at least 1."""
    fits = _memory(resolved).largest_batch(parallel=resolved.deployment.parallel)
    return max(1, min(resolved.deployment.max_num_seqs, fits, MAX_BATCH))


def checked_max_batch(resolved: Resolved, asked: int | None) -> int:
    """The batch asked for, within reason, else the default."""
    if asked is None:
        return default_max_batch(resolved)
    if not 1 <= asked <= MAX_BATCH:
        raise InputError(f"--max-batch: {asked} is not in 1..{MAX_BATCH}")
    return asked


def _memory(resolved: Resolved) -> Footprint:
    """The footprint at the longest context and the largest K."""
    scenario = resolved.scenario
    return fit_memory(resolved, context_tokens=max(scenario.context_tokens), k=scenario.k_max)


def _memory_notes(resolved: Resolved, top: int) -> tuple[str, ...]:
    """Words for a table that reaches past what fits."""
    memory, parallel = _memory(resolved), resolved.deployment.parallel
    short = memory.short_bytes(batch_size=top, parallel=parallel)
    if short <= 0:
        return ()
    fits = memory.largest_batch(parallel=parallel)
    return (
        f"batch {top} does not fit in memory, short by {short / GIB:.1f} GiB per rank "
        f"(largest batch that fits: {fits}); the table ignores that",
    )


def schedule(
    scenario: Scenario | Resolved,
    *,
    max_batch: int | None = None,
    max_regret_frac: float = 0.01,
    max_distinct: int | None = None,
    min_range_batches: int = 1,
    context_weights: Sequence[float] | None = None,
) -> ScheduleAnswer:
    """Solve K over every batch 1..max_batch and compress it to the fewest ranges.

    With several contexts in the scenario the table is solved at each and collapsed for ``context_weights``
    (equal when not given); engines that ship today index K by batch alone.
    """
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    if resolved.deployment.method == "none":
        raise InputError("schedule: --draft none has no K to choose")
    top = checked_max_batch(resolved, max_batch)
    options: dict[str, Any] = {
        "max_regret_frac": max_regret_frac,
        "max_distinct": max_distinct,
        "min_range_batches": min_range_batches,
    }
    if follows_k(resolved):
        return _solve(resolved, resolved.scenario.k_max, top, context_weights, options)
    # the drafter always runs the server's largest K: each largest K is another server, the best one wins
    answers = [
        _solve(server_of(resolved, k), k, top, context_weights, options)
        for k in range(1, max(resolved.scenario.k_max, 1) + 1)
    ]
    return max(answers, key=lambda one: one.solved.gain_over_off or 0.0)


def follows_k(resolved: Resolved) -> bool:
    """Whether the drafter runs the scheduled K; some engines' drafters always run the largest one."""
    law = resolved.deployment.profile.law(resolved.deployment.method)
    return law is None or law.follows_k


def server_of(resolved: Resolved, k: int) -> Resolved:
    """The same deployment started with ``k`` as its largest K."""
    return replace(resolved, deployment=replace(resolved.deployment, configured_k=k))


def _solve(
    resolved: Resolved,
    k_max: int,
    top: int,
    context_weights: Sequence[float] | None,
    options: dict[str, Any],
) -> ScheduleAnswer:
    batches = np.arange(1, top + 1)
    result = evaluate(resolved, batch_sizes=batches.tolist(), k_values=range(k_max + 1), n_draws=0)
    ks = result.grid.k.ravel().astype(int)
    by_context = None
    if result.grid.context.size > 1:
        weights = context_weights or [1.0] * result.grid.context.size
        by_context = solve_schedule_over_context(
            batch_size=batches,
            k=ks,
            goodput=result.goodput,
            off_goodput=result.off_goodput,
            context_weights=weights,
            **options,
        )
        solved = by_context.collapsed
    else:
        solved = solve_schedule(
            batch_size=batches,
            k=ks,
            goodput=result.goodput[:, :, 0],
            off_goodput=result.off_goodput[:, 0],
            **options,
        )
    return ScheduleAnswer(
        resolved=resolved,
        evaluation=result,
        solved=solved,
        by_context=by_context,
        capture=graph_cost(resolved, solved.schedule.distinct_k),
        max_batch=top,
        notes=(*solved.notes, *_memory_notes(resolved, top)),
    )


def rate(scenario: Scenario | Resolved, given: Schedule, *, max_batch: int) -> SolvedSchedule:
    """Regret and gains of a schedule that came from elsewhere, by our own goodput table."""
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    batches = np.arange(1, max_batch + 1)
    if given.k_max > MAX_K:
        raise InputError(f"schedule: K = {given.k_max} is above {MAX_K}, the largest that is priced")
    top = max(resolved.scenario.k_max, given.k_max)
    result = evaluate(
        server_of(resolved, given.k_max), batch_sizes=batches.tolist(), k_values=range(top + 1), n_draws=0
    )
    return evaluate_schedule(
        schedule=given,
        batch_size=batches,
        k=result.grid.k.ravel().astype(int),
        goodput=result.goodput.mean(axis=2),
        off_goodput=result.off_goodput.mean(axis=1),
    )


def graph_cost(resolved: Resolved, ks: Sequence[int]) -> CaptureCost:
    """CUDA graphs, seconds and bytes that these K cost at start-up."""
    d = resolved.deployment

    def sizes(k: int) -> int:
        return int(
            captured_requests(
                profile=d.profile,
                arch_target=d.ceilings.gpu.arch_target,
                query_tokens=k + 1,
                max_num_seqs=d.max_num_seqs,
                max_num_batched_tokens=d.profile.max_num_batched_tokens,
            ).size
        )

    return capture_cost(ks=ks, sizes=sizes, capture_s=CAPTURE_S, graph_bytes=d.profile.graph_bytes)


def graph_limit(resolved: Resolved, k: int) -> int:
    """Largest batch that still replays a captured graph at this K."""
    d = resolved.deployment
    return max_graph_batch(profile=d.profile, gpu=d.ceilings.gpu, k=k, max_num_seqs=d.max_num_seqs)


def schedule_json(answer: ScheduleAnswer, engine_text: str) -> dict[str, Any]:
    """Schema 1."""
    solved = answer.solved
    return {
        "schema": 1,
        "scenario": answer.resolved.scenario.model_dump(mode="json"),
        "assumed": list(answer.resolved.assumed),
        "ranges": [list(r) for r in answer.schedule.ranges],
        "regret_max": solved.regret_max,
        "gain_over_off": solved.gain_over_off,
        "gain_over_best_fixed": solved.gain_over_best_fixed,
        "best_fixed_k": solved.best_fixed,
        "off_altogether": solved.off_altogether,
        "graphs": {
            "n": answer.capture.n_graphs,
            "capture_s": answer.capture.capture_s,
            "graph_bytes": answer.capture.graph_bytes,
        },
        "by_range": [r.__dict__ for r in solved.ranges],
        "notes": list(answer.notes),
        "engine_text": engine_text,
    }


#: Our method names where an engine's own differ; both MTP laws are one method to the engines.
_ENGINE_METHOD = {"mtp_multi": "mtp"}


def engine_text(answer: ScheduleAnswer, *, engine: str | None = None) -> EngineText:
    """The schedule as ``engine`` (default: the scenario's) reads it, with launch line, settings and
    warnings."""
    d = answer.resolved.deployment
    return emit_schedule(
        answer.schedule.ranges,
        engine=engine or d.profile.engine,
        method=_ENGINE_METHOD.get(d.method, d.method),
        max_batch=answer.max_batch,
        model=d.target.id,
        draft_model=d.draft.id if d.draft is not None and "#" not in d.draft.id else None,
        tensor_parallel=d.parallel.tp,
        data_parallel=d.parallel.dp,
    )
