"""``bench model``: time a real decoder's decode, verify, draft passes and whole speculative steps; predict
them too.

Predictions come from the calibration of primitives (``device``) through the package's own ``step_time``.
Nothing here fits anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rooflinesim.efficiency import Ceilings
from rooflinesim.errors import InputError
from rooflinesim.grid import Grid
from rooflinesim.microbench.engine.drafters import Drafter
from rooflinesim.microbench.engine.loop import Engine
from rooflinesim.microbench.engine.state import Recorder, StepRecord
from rooflinesim.microbench.nn import Decoder, MoeMlp
from rooflinesim.microbench.timing import Canary, Clock, Gathered, gather, read_clock, spread_of
from rooflinesim.specs.calibration import Calibration
from rooflinesim.specs.engine import EngineProfile
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.model import DraftSpec, Layer, ModelSpec
from rooflinesim.specs.scenario import Formats, Parallel, Routing
from rooflinesim.step import Deployment, StepTime, step_time

#: Called with the share of the work done and what is measured now.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Cell:
    """One measured (batch, K): medians over undisturbed steps, and every step's acceptance."""

    batch_size: int
    k: int
    speculative: bool  # False: SD off
    context_tokens: float
    step_s: float
    draft_s: float
    verify_s: float
    sample_s: float
    spread_frac: float
    n: int
    aside_frac: float
    gated: bool
    accepted: tuple[int, ...] = ()
    distinct_experts: float = math.nan

    @property
    def noisy(self) -> bool:
        """Whether the cell's spread is too wide to be trusted."""
        return self.spread_frac > 0.10 or not self.gated


@dataclass
class Bencher:
    """How steps are sampled."""

    clock: Clock
    canary: Canary | None
    n_steps: int = 7
    budget_s: float = 0.5
    limit_factor: float = 1.4
    rounds: int = 1
    extra_rounds: int = (
        0  # only for cells that are still noisy: the canary and the spread say so, no prediction
    )
    progress: Progress | None = None
    done: int = field(default=0)


def distinct_experts(model: Decoder) -> float:
    """Mean number of distinct experts that the latest pass read per routed layer; NaN for a dense model."""
    counts = [b.mlp.last_distinct for b in model.stack.blocks if isinstance(b.mlp, MoeMlp)]
    return float(np.mean(counts)) if counts else math.nan


@dataclass(frozen=True)
class Steps:
    """The steps sampled for one (batch, K), over all rounds; every step's acceptance counts, disturbed or
    not."""

    sampled: Gathered[StepRecord]
    accepted: tuple[int, ...]
    distinct: tuple[float, ...]

    def __add__(self, other: Steps) -> Steps:
        """Two rounds together."""
        return Steps(
            self.sampled + other.sampled, self.accepted + other.accepted, self.distinct + other.distinct
        )

    def cell(self, *, speculative: bool) -> Cell:
        """Medians over the undisturbed steps."""
        records = self.sampled.chosen
        step_s, spread = spread_of([r.step_s for r in records])
        return Cell(
            batch_size=records[0].batch_size,
            k=records[0].k,
            speculative=speculative,
            context_tokens=float(np.mean([r.context_tokens for r in records])),
            step_s=step_s,
            draft_s=spread_of([r.draft_s for r in records])[0],
            verify_s=spread_of([r.verify_s for r in records])[0],
            sample_s=spread_of([r.sample_s for r in records])[0],
            spread_frac=spread,
            n=len(records),
            aside_frac=self.sampled.aside_frac,
            gated=self.sampled.gated,
            accepted=self.accepted,
            distinct_experts=float(np.mean(self.distinct)),
        )


def sample_steps(bench: Bencher, engine: Engine, *, k: int, room_tokens: int) -> Steps:
    """Steps with ``k`` drafts from the engine's present state, restored before the context outgrows the
    room."""
    saved = engine.snapshot()
    start, experts = engine.sequences.longest, []
    engine.step(k)  # warm-up of this shape; also leaves the drafter's window at width k+1

    def one() -> StepRecord:
        if engine.sequences.longest + k + 1 > start + room_tokens:
            engine.restore(saved)
            engine.step(k)
        record = engine.step(k)
        experts.append(distinct_experts(engine.target))
        return record

    first = len(engine.recorder.steps)
    sampled = gather(
        one,
        canary=bench.canary,
        n=bench.n_steps,
        budget_s=bench.budget_s,
        limit_s=bench.limit_factor * max(bench.budget_s, bench.n_steps * engine.recorder.steps[-1].step_s),
    )
    engine.restore(saved)
    accepted = tuple(a for r in engine.recorder.steps[first:] for a in r.accepted)
    return Steps(sampled, accepted, tuple(experts))


def measure_grid(
    bench: Bencher,
    *,
    target: Decoder,
    drafter: Drafter,
    prompts: Tensor,
    batches: Sequence[int],
    ks: Sequence[int],
    temperature: float = 1.0,
    room_tokens: int = 96,
    seed: int = 0,
) -> tuple[list[Cell], Recorder]:
    """SD off and every K at every batch size, in ``bench.rounds`` rounds so that no slow spell hits one
    cell alone.

    ``prompts`` (largest batch, P). One prefill per batch size, drafter and round.
    """
    recorder = Recorder()
    found: dict[tuple[int, int, bool], Steps] = {}
    if max(batches) > prompts.shape[0]:
        raise InputError(f"batches: {max(batches)} sequences need as many prompts, got {prompts.shape[0]}")
    slots = prompts.shape[1] + room_tokens + 2 * (max(ks) + 2)
    cells = [(batch, k, on) for batch in batches for on in (False, True) for k in (ks if on else [0])]
    total = (bench.rounds + bench.extra_rounds) * len(cells)
    for turn in range(bench.rounds + bench.extra_rounds):
        engine: Engine | None = None
        at: tuple[int, bool] | None = None
        for key in cells:
            bench.done += 1
            batch, k, on = key
            if turn >= bench.rounds and not found[key].cell(speculative=on).noisy:
                continue
            if at != (batch, on) or engine is None:
                at = (batch, on)
                engine = Engine(
                    target,
                    drafter if on else None,
                    temperature=temperature,
                    seed=seed + batch + 1000 * turn,
                    clock=bench.clock,
                )
                engine.begin(prompts[:batch], slots=slots)
                if on:
                    engine.recorder = recorder
            if bench.progress is not None:
                name = f"batch {batch}, K = {k}" if on else f"batch {batch}, SD off"
                bench.progress(bench.done / total, name)
            steps = sample_steps(bench, engine, k=k, room_tokens=room_tokens)
            found[key] = found[key] + steps if key in found else steps
    return [steps.cell(speculative=key[2]) for key, steps in found.items()], recorder


@torch.no_grad()
def measure_verify(
    bench: Bencher, target: Decoder, *, batch: int, query: int, context: int, room: int = 8
) -> tuple[float, float, int]:
    """Median seconds, spread and samples of one pass over ``query`` tokens per sequence on a cache of
    ``context``."""
    device = target.head.weight.device
    cache = target.new_cache(batch=batch, slots=context + query + room)
    cache.keys.normal_(0.0, 1.0)
    cache.values.normal_(0.0, 1.0)
    tokens = torch.randint(0, target.spec.vocab_size, (batch, query), device=device)
    positions = (context + torch.arange(query, device=device)).expand(batch, query)

    def once() -> float:
        start = read_clock(bench.clock)
        target.logits(target(tokens, positions, cache, context + query))
        return read_clock(bench.clock) - start

    once()
    found = gather(
        once, canary=bench.canary, n=bench.n_steps, budget_s=bench.budget_s, limit_s=10.0 * bench.budget_s
    )
    median_s, spread = spread_of(list(found.chosen))
    return median_s, spread, len(found.chosen)


def deployment(
    *,
    gpu: GpuSpec,
    calibration: Calibration,
    profile: EngineProfile,
    target: ModelSpec,
    fmt: str,
    method: str = "none",
    draft: DraftSpec | None = None,
    routing: Routing | None = None,
) -> Deployment:
    """What the cost model needs to predict the torch engine on this machine."""
    return Deployment(
        ceilings=Ceilings(gpu=gpu, calibration=calibration),
        target=target,
        parallel=Parallel(),
        formats=Formats(weights=fmt, activations=fmt, kv=fmt, draft_weights=fmt, draft_kv=fmt),
        routing=routing or Routing(),
        profile=profile,
        method=method,
        draft=draft,
        max_num_seqs=4096,
        graphs=False,
    )


def eagle_spec(layer: Layer, target: ModelSpec) -> DraftSpec:
    """The EAGLE head of ``microbench.nn`` as the cost model describes it."""
    return DraftSpec(
        id=f"{target.id}-eagle",
        method="eagle",
        target_id=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        layers=(layer,),
        fc_in_features=2 * target.hidden_size,
        source="built for measuring",
    )


def predict_grid(
    dep: Deployment, *, batches: Sequence[int], ks: Sequence[int], context_tokens: float
) -> StepTime:
    """The cost model on the measured grid at one context."""
    return step_time(dep, Grid.of(batch=list(batches), k=list(ks), context=[context_tokens]))


def acceptance_by_k(cells: Sequence[Cell]) -> dict[int, float]:
    """AL at each K, pooled over the batch sizes (acceptance does not depend on the batch)."""
    out: dict[int, float] = {}
    for k in sorted({c.k for c in cells if c.speculative}):
        rows = [a for c in cells if c.speculative and c.k == k for a in c.accepted]
        out[k] = 1.0 + float(np.mean(rows))
    return out


def marginal_of(cells: Sequence[Cell], k: int) -> list[float]:
    """p_1..p_k of the steps with exactly ``k`` drafts, pooled over the batch sizes."""
    rows = np.array([a for c in cells if c.speculative and c.k == k for a in c.accepted])
    return [float((rows >= i).mean()) for i in range(1, k + 1)]


def k_regret(measured: NDArray[np.float64], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Share of the best measured goodput that the chosen option loses, per batch. ``measured`` (batch,
    option).

    >>> k_regret(np.array([[1.0, 2.0], [4.0, 3.0]]), np.array([1, 1]))
    array([0.  , 0.25])
    """
    rows = np.arange(len(measured))
    return np.asarray(1.0 - measured[rows, chosen] / measured.max(axis=1))
