"""``explain``: where the time of one step goes, op by op, and what the next drafted token costs and
brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflinesim.api.evaluate import Evaluation, evaluate
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.goodput import marginal_cost_s, marginal_gain_tokens
from rooflinesim.ops.base import MoeOp, Op
from rooflinesim.passtime import PassTime
from rooflinesim.specs.scenario import Scenario


@dataclass(frozen=True)
class OpRow:
    """One op of one pass at one grid point; all its occurrences together. ``experts_read`` is per layer."""

    part: str
    name: str
    family: str
    count: float
    seconds: float
    share: float
    bound: str
    flops: float
    moved_bytes: float
    comm_bytes: float
    intensity_flops_per_byte: float
    achieved_flops_per_s: float
    experts_read: float | None


@dataclass(frozen=True)
class Marginal:
    """Going from K−1 to K: tokens gained and seconds paid per step."""

    k: int
    gain_tokens: float
    cost_s: float


@dataclass(frozen=True)
class Explanation:
    """The step at one (batch, K, context)."""

    resolved: Resolved
    batch_size: int
    k: int
    context_tokens: int
    step_s: float
    off_step_s: float
    in_graph: bool
    rows: tuple[OpRow, ...]
    marginal: tuple[Marginal, ...]
    sentences: tuple[str, ...]

    @property
    def by_part(self) -> dict[str, float]:
        """Seconds by part of the step: draft passes, verify, sample, host."""
        out: dict[str, float] = {}
        for row in self.rows:
            out[row.part] = out.get(row.part, 0.0) + row.seconds
        return out

    @property
    def by_bound(self) -> dict[str, float]:
        """Seconds by what bounds them."""
        out: dict[str, float] = {}
        for row in self.rows:
            out[row.bound] = out.get(row.bound, 0.0) + row.seconds
        return out


def explain(scenario: Scenario, *, batch_size: int, k: int, context_tokens: int) -> Explanation:
    """Every op of the draft, verify, sampling and host part of one step, its bound and its share.

    >>> answer = explain(Scenario(gpu="h100"), batch_size=64, k=3, context_tokens=1024)
    >>> abs(sum(row.share for row in answer.rows) - 1.0) < 1e-6
    True
    """
    resolved = resolve(scenario)
    k_top = max(k, scenario.k_max)
    result = evaluate(
        resolved,
        batch_sizes=[batch_size],
        k_values=range(k_top + 1),
        context_tokens=[context_tokens],
        n_draws=0,
    )
    n = 0 if result.grid.k.size == 1 else k
    at = (0, n, 0)
    step = result.step
    total = _at(step.step_s, at)
    rows: list[OpRow] = []
    for label, times, one in step.draft_passes:
        rows.extend(_rows(label, one, at, total, scale=_at(times, at)))
    rows.extend(_rows("verify", step.verify_pass, at, total, scale=1.0))
    rows.append(_plain("sample", "sample/reject", "sampling", _at(step.sample_s, at), total, "memory"))
    rows.append(_plain("host", "host", "host", _at(step.host_s, at), total, "host"))
    missing = total - sum(row.seconds for row in rows)
    if missing > 1e-9 * total:
        rows.append(_plain("other", "pipeline stages and launch floors", "host", missing, total, "launch"))
    gains = marginal_gain_tokens(acceptance_length=result.acceptance_length[:, 0], k_axis=0)
    costs = marginal_cost_s(step_s=np.broadcast_to(step.step_s, result.grid.shape)[0, :, 0], k_axis=0)
    marginal = tuple(
        Marginal(k=i + 1, gain_tokens=float(g), cost_s=float(c))
        for i, (g, c) in enumerate(zip(gains, costs, strict=True))
    )
    explanation = Explanation(
        resolved=resolved,
        batch_size=batch_size,
        k=k if n else 0,
        context_tokens=context_tokens,
        step_s=total,
        off_step_s=float(np.asarray(step.off_step_s).ravel()[0]),
        in_graph=bool(np.broadcast_to(step.in_graph, result.grid.shape)[at]),
        rows=tuple(rows),
        marginal=marginal,
        sentences=(),
    )
    return Explanation(**{**explanation.__dict__, "sentences": _sentences(explanation, result)})


def _at(array: np.ndarray[Any, Any], at: tuple[int, int, int]) -> float:
    array = np.asarray(array)
    array = array.reshape((1,) * (3 - array.ndim) + array.shape)
    return float(array[tuple(0 if size == 1 else i for i, size in zip(at, array.shape, strict=True))])


def _rows(part: str, one: PassTime, at: tuple[int, int, int], total: float, *, scale: float) -> list[OpRow]:
    rows = []
    for timed in one.timed:
        op, seconds = timed.op, _at(timed.total_s, at) * scale
        if seconds <= 0.0:
            continue
        flops = _at(op.flops, at) * op.count * scale
        moved = _at(op.moved_bytes, at) * op.count * scale
        shape = timed.total_shape
        inside = tuple(0 if size == 1 else i for i, size in zip(at, shape, strict=True))
        rows.append(
            OpRow(
                part=part,
                name=op.name,
                family=op.family,
                count=op.count * scale,
                seconds=seconds,
                share=seconds / total,
                bound=timed.bound(inside),
                flops=flops,
                moved_bytes=moved,
                comm_bytes=_at(op.comm_bytes, at) * op.count * scale,
                intensity_flops_per_byte=flops / moved if moved > 0 else 0.0,
                achieved_flops_per_s=flops / seconds,
                experts_read=_experts(op, at),
            )
        )
    if "eager_launch" in one.families:
        extra = _at(one.families["eager_launch"], at) * scale
        if extra > 0:
            rows.append(_plain(part, "eager launches", "host", extra, total, "launch"))
    return rows


def _experts(op: Op, at: tuple[int, int, int]) -> float | None:
    return _at(op.experts_read, at) if isinstance(op, MoeOp) else None


def _plain(part: str, name: str, family: str, seconds: float, total: float, bound: str) -> OpRow:
    return OpRow(part, name, family, 1.0, seconds, seconds / total, bound, 0.0, 0.0, 0.0, 0.0, 0.0, None)


#: Below this share of its experts a step still has experts to bring in.
MOST_EXPERTS_FRAC = 0.9
#: Attention above this share of the step is worth a word.
CACHE_FRAC = 0.3


def _sentences(answer: Explanation, result: Evaluation) -> tuple[str, ...]:
    """What limits this step and what would help, in plain words."""
    out = []
    by_bound = answer.by_bound
    bound = max(by_bound, key=lambda name: by_bound[name])
    share = by_bound[bound] / answer.step_s
    experts = [row.experts_read for row in answer.rows if row.part == "verify" and row.experts_read]
    moe = [layer.moe for layer in answer.resolved.deployment.target.layers if layer.moe is not None]
    local = moe[0].n_experts / answer.resolved.deployment.parallel.ep if moe else 0.0
    more_experts = bool(experts and moe) and experts[0] < MOST_EXPERTS_FRAC * local
    token = (
        "each drafted token brings in further experts"
        if more_experts
        else "a drafted token is nearly free until compute catches up"
    )
    what = {
        "memory": f"reading weights and cache from device memory; {token}; smaller formats or more "
        "bandwidth help",
        "compute": "arithmetic; every further drafted token is paid in full; a faster number format or "
        "fewer drafts help",
        "launch": "fixed costs per kernel; wider batches and fewer, larger kernels help, "
        "more bandwidth does not",
        "link": "messages between ranks; less tensor parallelism or a faster link helps",
        "host": "the host between steps; a faster engine loop helps, a faster accelerator does not",
    }[bound]
    out.append(f"{share:.0%} of the step is bound by {what}.")
    draft = sum(s for part, s in answer.by_part.items() if part.startswith("draft"))
    if draft > 0:
        out.append(f"Drafting takes {draft / answer.step_s:.0%} of the step.")
    cache = sum(row.seconds for row in answer.rows if row.part == "verify" and row.family == "attention")
    if cache > CACHE_FRAC * answer.step_s:
        out.append(
            f"Attention over the cache takes {cache / answer.step_s:.0%}: an FP8 cache or a shorter context "
            "helps."
        )
    if experts and moe:
        out.append(
            f"Verification reads {experts[0]:.0f} of {local:.0f} experts per layer on the slowest rank."
        )
    if not answer.in_graph and not answer.resolved.deployment.ideal:
        out.append("This batch is past the largest captured CUDA graph: the host launches every kernel.")
    index = {int(k): i for i, k in enumerate(result.grid.k.ravel())}
    if answer.k in index:
        gain = float(result.speedup[0, index[answer.k], 0])
        verdict = "pays" if gain > 1.0 else "does not pay"
        out.append(f"At K = {answer.k} speculation {verdict}: {gain:.2f}x the throughput of SD off.")
        # the drafting time at which AL·t_off = step: what a smaller (or larger) drafter has to stay under
        budget_s = gain * answer.step_s - (answer.step_s - draft)
        if draft > 0 and budget_s > 0:
            out.append(
                f"It pays while drafting takes less than {budget_s * 1e3:.2f} ms a step "
                f"(now {draft * 1e3:.2f} ms): a drafter of up to {budget_s / draft:.2g} times the cost "
                "of this one, at the same acceptance."
            )
        elif draft > 0:
            out.append("No drafter, however small, pays here at this acceptance.")
    return tuple(out)


def explain_json(answer: Explanation) -> dict[str, Any]:
    """The explanation as plain data (schema 1)."""
    return {
        "schema": 1,
        "batch_size": answer.batch_size,
        "k": answer.k,
        "context_tokens": answer.context_tokens,
        "step_s": answer.step_s,
        "off_step_s": answer.off_step_s,
        "in_graph": answer.in_graph,
        "ops": [row.__dict__ for row in answer.rows],
        "marginal": [m.__dict__ for m in answer.marginal],
        "sentences": list(answer.sentences),
    }
