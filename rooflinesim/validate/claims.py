"""Published statements without absolute numbers: what the model says to each, and whether the statement
holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rooflinesim.api.evaluate import Evaluation, evaluate
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.errors import InputError
from rooflinesim.measurements import Measurement
from rooflinesim.ops.moe import distinct_experts, effective_tokens, overlap_discount
from rooflinesim.validate.campaign import Campaign, ScoreSpec
from rooflinesim.validate.observe import Predicted, context_of
from rooflinesim.validate.scores import TIE_FRAC, Result


@dataclass(frozen=True)
class Point:
    """One batch and context of a scenario, evaluated for every K up to its k_max."""

    resolved: Resolved
    result: Evaluation  # batch 1 and the row's batch
    row: Measurement

    @property
    def at(self) -> int:
        """Index of the row's batch."""
        return int(np.flatnonzero(self.result.grid.batch.ravel() == self.row.batch_size)[0])

    def goodput(self, k: int) -> float:
        """Tokens per second at a configured K (0: the engine with speculation, nothing drafted)."""
        ks = list(self.result.grid.k.ravel().astype(int))
        return float(self.result.goodput[self.at, ks.index(k), 0])

    @property
    def off(self) -> float:
        """Tokens per second without speculation."""
        return float(self.result.off_goodput[self.at, 0])


def _best_goodput(point: Point) -> float:
    return max(point.off, *(point.goodput(k) for k in range(1, point.resolved.scenario.k_max + 1)))


def _over_fixed(point: Point) -> float:
    """Gain of the best K (or none) over always drafting ``row.k``."""
    return _best_goodput(point) / point.goodput(point.row.k) - 1.0


def _over_off(point: Point) -> float:
    return _best_goodput(point) / point.off - 1.0


def _best_k(point: Point) -> float:
    """Smallest K within the tie of the best, 0 where no speculation is as good."""
    best = _best_goodput(point) * (1.0 - TIE_FRAC)
    if point.off >= best:
        return 0.0
    return float(next(k for k in range(1, point.resolved.scenario.k_max + 1) if point.goodput(k) >= best))


def _step(point: Point, k: int) -> int:
    return list(point.result.grid.k.ravel().astype(int)).index(k)


def _verify_ratio(point: Point) -> float:
    step = point.result.step
    verify = np.broadcast_to(step.verify_s, step.step_s.shape)[point.at, _step(point, point.row.k), 0]
    return float(verify / step.off_pass.total_s.ravel()[point.at])


def _draft_ratio(point: Point) -> float:
    """One drafter pass over one plain pass of the target."""
    step = point.result.step
    draft = np.broadcast_to(step.draft_s, step.step_s.shape)[point.at, _step(point, point.row.k), 0]
    return float(draft / point.row.k / step.off_pass.total_s.ravel()[point.at])


def _experts_ratio(point: Point) -> float:
    """Distinct experts of K + 1 tokens of one sequence over those of one token."""
    d = point.resolved.deployment
    moe = next((layer.moe for layer in d.target.layers if layer.moe is not None), None)
    if moe is None:
        raise InputError(f"experts_ratio: {d.target.id} has no experts")
    rho = overlap_discount(overlap=d.routing.overlap, n_experts=moe.n_experts, top_k=moe.top_k)
    tokens = effective_tokens(batch=np.array(1.0), query_tokens=np.array(point.row.k + 1.0), rho=rho)
    read = distinct_experts(n_tokens=tokens, n_experts=moe.n_experts, top_k=moe.top_k, skew=d.routing.skew)
    return float(read / moe.top_k)


def _drop(point: Point) -> float:
    """Share of the speed-up at batch 1 that is lost at the row's batch, both at K."""
    gain = point.result.speedup[:, _step(point, point.row.k), 0]
    return float(1.0 - gain[point.at] / gain[0])


#: Metric → (what the model says, how far it may be from the statement for it to hold).
CLAIMS: dict[str, tuple[Callable[[Point], float], Callable[[float, float], bool]]] = {
    "gain_over_fixed_frac": (_over_fixed, lambda p, m: p > 0.01 and abs(p - m) <= 0.15),
    "gain_over_off_frac": (_over_off, lambda p, m: p >= 0.0 and abs(p - m) <= 0.15),
    "best_k": (_best_k, lambda p, m: abs(p - m) <= 1.0),
    "speedup_drop_frac": (_drop, lambda p, m: abs(p - m) <= 0.05),
    "pass_ratio": (_verify_ratio, lambda p, m: abs(p / m - 1.0) <= 0.25),
    "draft_ratio": (_draft_ratio, lambda p, m: abs(p / m - 1.0) <= 0.5),
    "experts_ratio": (_experts_ratio, lambda p, m: abs(p / m - 1.0) <= 0.15),
}


def claims(campaign: Campaign, spec: ScoreSpec) -> Result:
    """Share of the statements that hold; each keeps its own predicted number."""
    rows = [
        row
        for row in campaign.rows
        if row.use == "score" and row.metric in CLAIMS and (not spec.groups or row.group in spec.groups)
    ]
    predicted: list[Predicted] = []
    held = 0
    for row in rows:
        resolved = resolve(campaign.scenario(row.group))
        result = evaluate(
            resolved,
            batch_sizes=sorted({1, int(row.batch_size)}),
            context_tokens=[int(context_of(row))],
            n_draws=0,
        )
        say, holds = CLAIMS[row.metric]
        value = say(Point(resolved, result, row))
        held += holds(value, row.value)
        predicted.append(Predicted(row, value, 0.0, 0.0, 0.0))
    if not rows:
        raise InputError(f"{campaign.id}: no statement of a known kind ({', '.join(CLAIMS)})")
    return Result(
        id=campaign.id,
        kind=spec.kind,
        metric=spec.metric or "claims",
        n=len(rows),
        claims_held=held / len(rows),
        bound=spec.bound,
        target=spec.target,
        note=spec.note,
        rows=tuple(predicted),
    )
