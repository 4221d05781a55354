"""``predict``: one row per K at each batch and context, with best K and error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.errors import InputError
from rooflinesim.memory import Footprint
from rooflinesim.solver import break_even_batch
from rooflinesim.specs.scenario import Parallel, Scenario
from rooflinesim.units import GIB

SCHEMA = 1
#: Rows with error bars: each holds hundreds of draws, so a larger table would fill the memory.
MAX_ROWS = 50_000


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
    points = tuple(
        _point(result, i, j) for i in range(result.grid.batch.size) for j in range(result.grid.context.size)
    )
    return Prediction(resolved=resolved, points=points, provenance=provenance(resolved))


def provenance(resolved: Resolved) -> dict[str, str]:
    """Where the numbers behind a scenario come from."""
    d = resolved.deployment
    out = {
        "gpu": d.ceilings.gpu.memory_bandwidth.source,
        "calibration": f"{d.ceilings.calibration.id} ({d.ceilings.calibration.kind})",
        "model": d.target.source,
        "engine": d.profile.id,
        "acceptance": resolved.acceptance.text,
    }
    if d.draft is not None:
        out["draft"] = f"{d.draft.id}: {d.draft.source}"
    return out


def _at(array: np.ndarray[Any, Any], index: tuple[int, int, int], shape: tuple[int, ...]) -> float:
    return float(np.broadcast_to(array, shape)[index])


def _point(result: Evaluation, i: int, j: int) -> Point:
    resolved, grid, step = result.resolved, result.grid, result.step
    shape = grid.shape
    batch, context = int(grid.batch.ravel()[i]), int(grid.context.ravel()[j])
    ks = [int(k) for k in grid.k.ravel()]
    d = resolved.deployment
    best = int(result.best.k[i, j])
    memory = fit_memory(resolved, context_tokens=context, k=best)
    short = memory.short_bytes(batch_size=batch, parallel=d.parallel)
    rows = []
    for n, k in enumerate(ks):
        at = (i, n, j)
        flags = []
        if not d.ideal and d.graphs and not _at(step.in_graph, at, shape):
            flags.append("eager: past the largest captured graph")
        if short > 0:
            flags.append("does not fit in memory")
        need = float(result.break_even_c1[at])
        rows.append(
            Row(
                k=k,
                draft_s=_at(step.draft_s, at, shape),
                verify_s=_at(step.verify_s, at, shape),
                sample_s=_at(step.sample_s, at, shape),
                host_s=_at(step.host_s, at, shape),
                step_s=_at(step.step_s, at, shape),
                acceptance_length=_at(result.acceptance_length[None], at, shape),
                goodput_tokens_per_s=float(result.goodput[at]),
                speedup=float(result.speedup[at]),
                speedup_low=_at(_known(result.speedup_low), at, shape),
                speedup_high=_at(_known(result.speedup_high), at, shape),
                p_best=_at(_known(result.p_best), at, shape),
                break_even_c1=None if math.isnan(need) else need,
                bound=dominant_bound(result, at),
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


def _known(array: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    return np.full((1, 1, 1), np.nan) if array is None else array


def dominant_bound(result: Evaluation, at: tuple[int, int, int]) -> str:
    """The bound under which the verify pass spends most of its time at one grid point."""
    shape = result.grid.shape
    spent: dict[str, float] = {}
    for timed in result.step.verify_pass.timed:
        name = timed.bound(_within(at, timed.total_shape))
        spent[name] = spent.get(name, 0.0) + _at(timed.total_s, at, shape)
    if "eager_launch" in result.step.verify_pass.families:
        spent["launch"] = spent.get("launch", 0.0) + _at(
            result.step.verify_pass.families["eager_launch"], at, shape
        )
    return max(spent, key=lambda name: spent[name])


def _within(at: tuple[int, int, int], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(0 if size == 1 else index for index, size in zip(at, shape, strict=True))


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
        "provenance": prediction.provenance,
    }
