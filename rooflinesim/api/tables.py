"""Ready-made tables for charts and notebooks: lists of plain rows, one per mark, SI units in the names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rooflinesim.acceptance import AcceptanceCurve
from rooflinesim.api.checking import CheckedSchedule
from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.logs import MeasuredAcceptance
from rooflinesim.api.predict import Point
from rooflinesim.api.resolve import Resolved
from rooflinesim.api.scheduling import ScheduleAnswer
from rooflinesim.goodput import request_tokens_per_s, tpot_s
from rooflinesim.grid import FloatArray
from rooflinesim.ops.moe import distinct_experts, effective_tokens, overlap_discount
from rooflinesim.solver import best_fixed_k

Row = dict[str, Any]

#: Batch sizes at which curves and maps are drawn: close enough that no captured graph size is stepped over.
CHART_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
CHART_CONTEXTS: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
#: Points of the curve of experts read.
EXPERT_TOKENS: Final = (
    1,
    2,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    2048,
    4096,
)


def chart_batches(include: int | None = None) -> list[int]:
    """The batches of a chart, with ``include`` among them.

    >>> chart_batches(5)[:5], chart_batches(600)[-1]
    ([1, 2, 3, 4, 5], 600)
    """
    return sorted({*CHART_BATCHES, *([] if include is None else [include])})


def request_table(answer_rows: Sequence[Any]) -> list[Row]:
    """Per K what one request sees: tokens per second and seconds per token (rows of a ``Point``)."""
    return [
        {
            "k": row.k,
            "request_tokens_per_s": float(
                request_tokens_per_s(acceptance_length=row.acceptance_length, step_s=row.step_s)
            ),
            "tpot_s": float(tpot_s(acceptance_length=row.acceptance_length, step_s=row.step_s)),
        }
        for row in answer_rows
    ]


def batch_evaluation(resolved: Resolved, *, context_tokens: int, batch_sizes: Sequence[int]) -> Evaluation:
    """The scenario at one context over many batches, without error draws."""
    return evaluate(resolved, batch_sizes=batch_sizes, context_tokens=[context_tokens], n_draws=0)


def policy_table(result: Evaluation, *, fixed_k: Sequence[int]) -> list[Row]:
    """Speed-up and goodput by batch of SD off, each fixed K, and the best choice (off included)."""
    rows: list[Row] = []
    ks = [int(k) for k in result.grid.k.ravel()]
    for i, batch in enumerate(int(b) for b in result.grid.batch.ravel()):
        off = float(result.off_goodput[i, 0])
        rows.append(_policy("SD off", batch, 0, 1.0, off))
        for k in fixed_k:
            if k in ks:
                n = ks.index(k)
                rows.append(
                    _policy(
                        f"K = {k}", batch, k, float(result.speedup[i, n, 0]), float(result.goodput[i, n, 0])
                    )
                )
        best = float(result.best.choice_goodput[i, 0])
        rows.append(_policy("dynamic K", batch, max(0, int(result.best.choice[i, 0])), best / off, best))
    return rows


def _policy(policy: str, batch: int, k: int, gain: float, goodput: float) -> Row:
    return {
        "policy": policy,
        "batch_size": batch,
        "k": k,
        "speedup": gain,
        "goodput_tokens_per_s": goodput,
    }


def best_single_k(result: Evaluation) -> int:
    """The one K to fix when every batch size counts the same."""
    return best_fixed_k(k=result.grid.k.ravel().astype(int), goodput=result.goodput[:, :, 0]).k


def map_table(result: Evaluation) -> tuple[list[Row], list[Row]]:
    """The (batch, K) map: one row per cell, and one per batch with its best K (or ``off``).

    A cell has its speed-up over SD off, the share of that batch's best goodput it loses, whether it replays a
    captured graph and whether it fits in memory.
    """
    d = result.resolved.deployment
    ks = [int(k) for k in result.grid.k.ravel()]
    context = int(result.grid.context.ravel()[0])
    largest = {
        k: fit_memory(result.resolved, context_tokens=context, k=k).largest_batch(parallel=d.parallel)
        for k in ks
    }
    in_graph = np.broadcast_to(result.step.in_graph, result.grid.shape)
    always = d.ideal or not d.graphs
    cells: list[Row] = []
    best: list[Row] = []
    for i, batch in enumerate(int(b) for b in result.grid.batch.ravel()):
        top = max(float(result.goodput[i, :, 0].max()), float(result.off_goodput[i, 0]))
        for n, k in enumerate(ks):
            good = float(result.goodput[i, n, 0])
            cells.append(
                {
                    "batch_size": batch,
                    "k": k,
                    "speedup": float(result.speedup[i, n, 0]),
                    "goodput_tokens_per_s": good,
                    "lost_frac": 1.0 - good / top,
                    "graph": "captured" if always or bool(in_graph[i, n, 0]) else "eager",
                    "memory": "fits" if batch <= largest[k] else "does not fit",
                }
            )
        off = bool(result.best.off_is_best[i, 0])
        k_best = int(result.best.k[i, 0])
        best.append(
            {
                "batch_size": batch,
                "best_k": k_best,
                "choice": "off" if off else f"K = {k_best}",
                "speedup": float(result.speedup[i, ks.index(k_best), 0]),
                "memory": "fits" if batch <= largest[k_best] else "does not fit",
            }
        )
    return cells, best


def acceptance_table(curve: AcceptanceCurve, *, k_max: int, context_tokens: int | None = None) -> list[Row]:
    """Position by position: conditional, marginal, and AL, mean accepted share and tokens at K = position.

    >>> table = acceptance_table(AcceptanceCurve.geometric(c1=0.5), k_max=2)
    >>> [row["acceptance_length"] for row in table], table[1]["mean_accepted_frac"]
    ([1.5, 1.75], 0.375)
    """
    at = context_tokens if curve.depends_on_context else None
    conditional = curve.conditional(k_max, context_tokens=at)
    marginal = curve.marginal(k_max, context_tokens=at)
    length = curve.acceptance_length(np.arange(1, k_max + 1), context_tokens=at)
    return [
        {
            "k": i + 1,
            "conditional": float(conditional[i]),
            "marginal": float(marginal[i]),
            "acceptance_length": float(length[i]),
            "mean_accepted_frac": float((length[i] - 1.0) / (i + 1)),
        }
        for i in range(k_max)
    ]


def conditional_text(curve: AcceptanceCurve, *, k_max: int) -> str:
    """The curve as the list that ``--conditional`` reads.

    >>> conditional_text(AcceptanceCurve.beta(a=2.9, b=2.0), k_max=2)
    '0.5918,0.661'
    """
    return ",".join(f"{c:.4g}" for c in curve.conditional(k_max))


def experts_table(resolved: Resolved, *, batch_size: int, k_max: int) -> list[Row]:
    """Distinct experts read per MoE layer and rank against tokens in the step; empty for dense models.

    ``series`` is ``curve`` for unrelated tokens, ``this batch`` for the verify pass of each K at the batch
    (tokens of one sequence may share experts).
    """
    d = resolved.deployment
    moe = next((layer.moe for layer in d.target.layers if layer.moe is not None), None)
    if moe is None:
        return []
    rho = overlap_discount(overlap=d.routing.overlap, n_experts=moe.n_experts, top_k=moe.top_k)
    ks = np.arange(k_max + 1, dtype=np.float64)

    def read(n_tokens: FloatArray) -> FloatArray:
        return distinct_experts(
            n_tokens=n_tokens,
            n_experts=moe.n_experts,
            top_k=moe.top_k,
            skew=d.routing.skew,
            ep=d.parallel.ep,
        )

    curve = read(np.asarray(EXPERT_TOKENS, dtype=np.float64))
    asked = read(effective_tokens(batch=np.asarray(float(batch_size)), query_tokens=ks + 1.0, rho=rho))
    held = moe.n_experts / d.parallel.ep
    rows = [
        {"series": "curve", "k": None, "n_tokens": t, "experts_read": float(e), "experts_held": held}
        for t, e in zip(EXPERT_TOKENS, curve, strict=True)
    ]
    rows += [
        {
            "series": "this batch",
            "k": int(k),
            "n_tokens": batch_size * (int(k) + 1),
            "experts_read": float(e),
            "experts_held": held,
        }
        for k, e in zip(ks, asked, strict=True)
    ]
    return rows


def roof_table(resolved: Resolved, *, low: float = 0.1, high: float = 10_000.0) -> list[Row]:
    """The data-sheet roofline: FLOP/s against FLOP per byte, a line per arithmetic the weights run in."""
    d = resolved.deployment
    bandwidth = d.ceilings.mem_bytes_per_s
    rows: list[Row] = []
    formats = dict.fromkeys(
        [d.formats.weights, d.formats.experts or d.formats.weights, d.formats.activations]
    )
    for peak, names in _by_peak(resolved, list(formats)).items():
        ridge = peak / bandwidth
        for x in sorted({low, ridge, high}):
            rows.append(
                {
                    "roof": f"{names} peak",
                    "intensity_flops_per_byte": x,
                    "flops_per_s": min(peak, x * bandwidth),
                    "ridge_flops_per_byte": ridge,
                }
            )
    return rows


def _by_peak(resolved: Resolved, formats: list[str]) -> dict[float, str]:
    out: dict[float, str] = {}
    for name in formats:
        peak = resolved.deployment.ceilings.peak_flops_per_s(name)
        out[peak] = f"{out[peak]}, {name}" if peak in out else name
    return out


def memory_table(resolved: Resolved, *, k: int, contexts: Sequence[int] = CHART_CONTEXTS) -> list[Row]:
    """Largest batch by context, up to the model's own context limit; 0 where not even one sequence fits."""
    d = resolved.deployment
    rows: list[Row] = []
    for context in contexts:
        if context > d.target.max_context_tokens:
            break
        foot = fit_memory(resolved, context_tokens=context, k=k)
        rows.append(
            {
                "context_tokens": context,
                "largest_batch": foot.largest_batch(parallel=d.parallel),
                "seq_bytes": foot.bytes_per_seq,
            }
        )
    return rows


def facts(resolved: Resolved) -> dict[str, str]:
    """What a scenario is made of, in words: the rows of a comparison."""
    d = resolved.deployment
    layout = {"tp": d.parallel.tp, "ep": d.parallel.ep, "pp": d.parallel.pp, "dp": d.parallel.dp}
    return {
        "GPU": d.ceilings.gpu.id,
        "GPUs": str(d.parallel.n_gpus),
        "layout": " · ".join(f"{name.upper()} {size}" for name, size in layout.items() if size > 1)
        or "one GPU",
        "model": d.target.id,
        "drafter": d.method if d.draft is None else f"{d.draft.id} ({d.method})",
        "engine": d.profile.id,
        "weights": d.formats.weights
        if d.formats.experts is None
        else f"{d.formats.weights}, experts {d.formats.experts}",
        "KV cache": d.formats.kv,
        "CUDA graphs": "on" if d.graphs else "off (eager)",
        "acceptance": resolved.acceptance.text,
        "efficiencies": f"{d.ceilings.calibration.id} ({d.ceilings.calibration.kind})",
    }


def next_token_table(point: Point) -> list[Row]:
    """What each further drafted token brings and costs, relative to the K before it (for K = 1: SD off).

    It pays where ``gain_frac`` (of tokens per step) exceeds ``cost_frac`` (of the step).
    """
    rows: list[Row] = []
    step_s, length, verify_s = point.off_step_s, 1.0, point.rows[0].verify_s
    for row in point.rows:
        if row.k == 0:
            continue
        gain, cost = row.acceptance_length - length, row.step_s - step_s
        rows.append(
            {
                "k": row.k,
                "gain_tokens": gain,
                "cost_s": cost,
                "verify_cost_s": row.verify_s - verify_s,
                "gain_frac": gain / length,
                "cost_frac": cost / step_s,
                "pays": "pays" if gain / length > cost / step_s else "does not pay",
            }
        )
        step_s, length, verify_s = row.step_s, row.acceptance_length, row.verify_s
    return rows


def choice_table(result: Evaluation) -> list[Row]:
    """The best choice at every batch of an evaluation at one context, SD off included."""
    rows = [row for row in policy_table(result, fixed_k=()) if row["policy"] == "dynamic K"]
    for row, choice in zip(rows, result.best.choice[:, 0], strict=True):
        row["choice"] = "SD off" if int(choice) < 0 else f"K = {int(choice)}"
    return rows


def measured_table(measured: MeasuredAcceptance) -> list[Row]:
    """Measured conditionals by position with 95 % intervals where the file has counts."""
    record = measured.record
    counts = record.counts
    conditional = record.conditional
    if counts is None:
        return [
            {"series": "measured", "k": i + 1, "conditional": c, "low": c, "high": c, "n": None}
            for i, c in enumerate(conditional)
        ]
    low, high = counts.wilson()
    return [
        {
            "series": "measured",
            "k": i + 1,
            "conditional": c,
            "low": float(low[i]),
            "high": float(high[i]),
            "n": counts.eligible[i],
        }
        for i, c in enumerate(conditional)
    ]


def schedule_table(answer: ScheduleAnswer, checked: CheckedSchedule | None = None) -> list[Row]:
    """K by batch: the schedule, the best K at every batch, and a schedule that was checked."""
    best = answer.evaluation.best.k[:, 0]
    lines = {"schedule": answer.schedule.expand(answer.max_batch), "best K": best}
    if checked is not None:
        lines["uploaded"] = checked.rated.schedule.expand(answer.max_batch)
    return [
        {"series": series, "batch_size": i + 1, "k": int(k)}
        for series, ks in lines.items()
        for i, k in enumerate(ks)
        if i in (0, len(ks) - 1) or ks[i] != ks[i - 1]
    ]
