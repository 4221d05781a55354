"""``predict``: one row per K at each batch and context, with best K and error bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflinesim import registry
from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.errors import InputError
from rooflinesim.memory import Footprint
from rooflinesim.solver import break_even_batch, break_even_context
from rooflinesim.specs.scenario import Parallel, Scenario
from rooflinesim.units import GIB

SCHEMA = 1
#: Rows with error bars: each holds hundreds of draws, so a larger table would fill the memory.
MAX_ROWS = 20_000


#: What can bound an op, in the order of its parts.
BOUNDS = ("compute", "memory", "link", "launch")
#: The fields of a row that are plain numbers on the grid.
NUMBERS = (
    "draft_s",
    "verify_s",
    "sample_s",
    "host_s",
    "step_s",
    "acceptance_length",
    "goodput_tokens_per_s",
    "speedup",
    "speedup_low",
    "speedup_high",
    "p_best",
)


@dataclass(frozen=True)
class Row:
    """One K at one batch and context. Seconds, tokens, ratios."""

    k: int
    draft_s: float
    verify_s: float
    sample_s: float
    host_s: float
    step_s: float
    acceptance_length: float
    goodput_tokens_per_s: float
    speedup: float
    speedup_low: float
    speedup_high: float
    p_best: float
    break_even_c1: float | None
    bound: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """All K at one batch and context. ``choice`` is ``off`` where plain decoding is as good as any K."""

    batch_size: int
    context_tokens: int
    best_k: int
    tie_band: tuple[int, int]
    choice: str
    break_even_c1: float | None
    off_step_s: float
    off_goodput_tokens_per_s: float
    p_off_best: float
    fits: bool
    short_bytes: float
    largest_batch: int
    rows: tuple[Row, ...]

    @property
    def best_row(self) -> Row:
        """The row of the best K."""
        return next(row for row in self.rows if row.k == self.best_k)


@dataclass(frozen=True)
class Prediction:
    """The answer to one scenario."""

    resolved: Resolved
    points: tuple[Point, ...]
    provenance: dict[str, str]

    def break_even_batches(self) -> dict[int, float]:
        """Context → the batch beyond which the best K no longer pays: 0 never, inf always; needs several
        batches."""
        out: dict[int, float] = {}
        for context in sorted({p.context_tokens for p in self.points}):
            rows = sorted(
                (p.batch_size, p.best_row.speedup) for p in self.points if p.context_tokens == context
            )
            if len(rows) > 1:
                n, gain = zip(*rows, strict=True)
                out[context] = float(break_even_batch(batch_size=n, speedup=gain))
        return out

    def break_even_contexts(self) -> dict[int, float]:
        """Batch → the context beyond which the best K no longer pays: 0 never, inf always; needs several
        contexts."""
        out: dict[int, float] = {}
        for batch in sorted({p.batch_size for p in self.points}):
            rows = sorted(
                (p.context_tokens, p.best_row.speedup) for p in self.points if p.batch_size == batch
            )
            if len(rows) > 1:
                n, gain = zip(*rows, strict=True)
                out[batch] = float(break_even_context(context_tokens=n, speedup=gain))
        return out


def predict(scenario: Scenario, *, seed: int = 0) -> Prediction:
    """Times, tokens gained, goodput and best K of every (batch, context) of the scenario.

    >>> answer = predict(Scenario(gpu="h100", batch_sizes=(64,)))
    >>> answer.points[0].batch_size, answer.points[0].rows[0].k
    (64, 0)
    """
    asked = len(scenario.batch_sizes) * len(scenario.context_tokens) * (scenario.k_max + 1)
    if asked > MAX_ROWS:
        raise InputError(
            f"predict: {asked:,} rows (batches x contexts x K), at most {MAX_ROWS:,}; "
            "sweep writes larger grids"
        )
    resolved = resolve(scenario)
    result = evaluate(resolved, seed=seed)
    columns = _columns(result)

    @cache
    def memory(context_tokens: int, k: int) -> Footprint:
        return fit_memory(resolved, context_tokens=context_tokens, k=k)

    points = tuple(
        _point(result, columns, memory, i, j)
        for i in range(result.grid.batch.size)
        for j in range(result.grid.context.size)
    )
    return Prediction(resolved=resolved, points=points, provenance=provenance(resolved))


def provenance(resolved: Resolved) -> dict[str, str]:
    """Where the numbers behind a scenario come from."""
    d = resolved.deployment
    out = {
        "gpu": registry.source_names(d.ceilings.gpu.memory_bandwidth.source),
        "calibration": f"{d.ceilings.calibration.id} ({d.ceilings.calibration.kind})",
        "model": d.target.source,
        "engine": d.profile.id,
        "acceptance": resolved.acceptance.text,
    }
    if d.draft is not None:
        out["draft"] = f"{d.draft.id}: {d.draft.source}"
    return out


def _columns(result: Evaluation) -> dict[str, NDArray[Any]]:
    """Every field of a row as an array on the whole grid."""
    step, nan = result.step, np.full((1, 1, 1), np.nan)
    out: dict[str, NDArray[Any]] = {
        "bound": dominant_bounds(result),
        "draft_s": step.draft_s,
        "verify_s": step.verify_s,
        "sample_s": step.sample_s,
        "host_s": step.host_s,
        "step_s": step.step_s,
        "acceptance_length": result.acceptance_length[None],
        "goodput_tokens_per_s": result.goodput,
        "speedup": result.speedup,
        "speedup_low": nan if result.speedup_low is None else result.speedup_low,
        "speedup_high": nan if result.speedup_high is None else result.speedup_high,
        "p_best": nan if result.p_best is None else result.p_best,
    }
    return {name: np.broadcast_to(array, result.grid.shape) for name, array in out.items()}


def _point(
    result: Evaluation,
    columns: dict[str, NDArray[Any]],
    memory_at: Callable[[int, int], Footprint],
    i: int,
    j: int,
) -> Point:
    resolved, grid, step = result.resolved, result.grid, result.step
    shape = grid.shape
    batch, context = int(grid.batch.ravel()[i]), int(grid.context.ravel()[j])
    ks = [int(k) for k in grid.k.ravel()]
    d = resolved.deployment
    best = int(result.best.k[i, j])
    memory = memory_at(context, best)
    short = memory.short_bytes(batch_size=batch, parallel=d.parallel)
    in_graph = np.broadcast_to(step.in_graph, shape)[i, :, j]
    bounds = columns["bound"][i, :, j]
    rows = []
    for n, k in enumerate(ks):
        flags = []
        if not d.ideal and d.graphs and not in_graph[n]:
            flags.append("eager: past the largest captured graph")
        if short > 0:
            flags.append("does not fit in memory")
        need = float(result.break_even_c1[i, n, j])
        rows.append(
            Row(
                k=k,
                **{name: float(columns[name][i, n, j]) for name in NUMBERS},
                break_even_c1=None if math.isnan(need) else need,
                bound=BOUNDS[bounds[n]],
                flags=tuple(flags),
            )
        )
    need_best = rows[ks.index(best)].break_even_c1
    off = float(np.broadcast_to(step.off_step_s, (shape[0], 1, shape[2]))[i, 0, j])
    return Point(
        batch_size=batch,
        context_tokens=context,
        best_k=best,
        tie_band=(int(result.best.band_low[i, j]), int(result.best.band_high[i, j])),
        choice="off" if bool(result.best.off_is_best[i, j]) else str(best),
        break_even_c1=need_best,
        off_step_s=off,
        off_goodput_tokens_per_s=float(result.off_goodput[i, j]),
        p_off_best=max(0.0, 1.0 - sum(row.p_best for row in rows)),
        fits=short <= 0,
        short_bytes=short,
        largest_batch=memory.largest_batch(parallel=d.parallel),
        rows=tuple(rows),
    )


def dominant_bounds(result: Evaluation) -> NDArray[np.intp]:
    """Index into ``BOUNDS``, on the grid: under which bound the verify pass spends most of its time."""
    shape = result.grid.shape
    spent = np.zeros((len(BOUNDS), *shape))
    at = np.arange(len(BOUNDS)).reshape(-1, 1, 1, 1)
    for timed in result.step.verify_pass.timed:
        parts = (timed.compute_s, timed.memory_s, timed.link_s, timed.fixed_s)
        own = np.broadcast_shapes(timed.total_shape, *(part.shape for part in parts))
        largest = np.argmax(np.stack([np.broadcast_to(part, own) for part in parts]), axis=0)
        spent += np.where(largest == at, timed.total_s, 0.0)
    families = result.step.verify_pass.families
    if "eager_launch" in families:
        spent[BOUNDS.index("launch")] += families["eager_launch"]
    out: NDArray[np.intp] = np.argmax(spent, axis=0)
    return out


def memory_json(memory: Footprint, *, parallel: Parallel) -> dict[str, Any]:
    """Where the memory of one rank goes, in bytes; keys may be added, never renamed."""
    return {
        "capacity_bytes": memory.capacity_bytes,
        "usable_bytes": memory.usable_bytes,
        "fixed": [{"name": f.name, "size_bytes": f.size_bytes, "note": f.note} for f in memory.fixed],
        "free_bytes": memory.free_bytes,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_bytes_per_seq": memory.kv_bytes_per_seq,
        "state_bytes_per_seq": memory.state_bytes_per_seq,
        "lookahead_bytes_per_seq": memory.lookahead_bytes_per_seq,
        "largest_batch": memory.largest_batch(parallel=parallel),
    }


def _num(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def as_json(prediction: Prediction) -> dict[str, Any]:
    """Schema 1: SI units in the names; keys may be added, never renamed."""
    return {
        "schema": SCHEMA,
        "scenario": prediction.resolved.scenario.model_dump(mode="json"),
        "assumed": list(prediction.resolved.assumed),
        "warnings": list(prediction.resolved.warnings),
        "points": [
            {
                "batch_size": p.batch_size,
                "context_tokens": p.context_tokens,
                "best_k": p.best_k,
                "tie_band": list(p.tie_band),
                "choice": p.choice,
                "break_even_c1": _num(p.break_even_c1),
                "off": {"step_s": p.off_step_s, "goodput_tokens_per_s": p.off_goodput_tokens_per_s},
                "p_off_best": p.p_off_best,
                "fits": p.fits,
                "short_gib": p.short_bytes / GIB,
                "largest_batch": p.largest_batch,
                "rows": [
                    {
                        "k": r.k,
                        "draft_s": r.draft_s,
                        "verify_s": r.verify_s,
                        "sample_s": r.sample_s,
                        "host_s": r.host_s,
                        "step_s": r.step_s,
                        "acceptance_length": r.acceptance_length,
                        "goodput_tokens_per_s": r.goodput_tokens_per_s,
                        "speedup": r.speedup,
                        "speedup_low": _num(r.speedup_low),
                        "speedup_high": _num(r.speedup_high),
                        "p_best": _num(r.p_best),
                        "break_even_c1": _num(r.break_even_c1),
                        "bound": r.bound,
                        "flags": list(r.flags),
                    }
                    for r in p.rows
                ],
            }
            for p in prediction.points
        ],
        "break_even_batch": {str(c): _num(b) for c, b in prediction.break_even_batches().items()},
        "break_even_context": {str(n): _num(c) for n, c in prediction.break_even_contexts().items()},
        "provenance": prediction.provenance,
    }
