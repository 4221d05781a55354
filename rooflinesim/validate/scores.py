"""One function per kind of score. Each takes a campaign and one score's specification, and returns what came
out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from rooflinesim.accuracy import band_coverage, k_regret, same_sign, score
from rooflinesim.api.resolve import resolve
from rooflinesim.errors import InputError, RooflinesimError
from rooflinesim.measurements import Measurement
from rooflinesim.uncertainty import Z80
from rooflinesim.validate.campaign import Campaign, ScoreSpec
from rooflinesim.validate.observe import Predicted, given_lengths, implied_lengths, predict_rows

#: Ties: a K whose predicted goodput is within this of the best counts as as good, and the smaller K is taken.
TIE_FRAC = 0.01
#: Statistics for which larger is better; every other bound is an upper limit.
LARGER_IS_BETTER = frozenset({"sign_correct", "within_10", "within_20", "claims_held"})


@dataclass(frozen=True)
class Decision:
    """One choice of K: what was measured best, what was predicted, and what that costs."""

    group: str
    batch_size: float
    context_tokens: float | None
    best_k: int
    predicted_k: int
    regret: float


@dataclass(frozen=True)
class Result:
    """One score of one campaign. Statistics that do not apply are ``None``."""

    id: str
    kind: str
    metric: str
    n: int
    n_skipped: int = 0
    mape: float | None = None
    median: float | None = None
    bias: float | None = None
    within_10: float | None = None
    within_20: float | None = None
    k_regret: float | None = None
    k_regret_worst: float | None = None
    sign_correct: float | None = None
    n_sign: int | None = None
    rmse: float | None = None
    claims_held: float | None = None
    coverage: float | None = None
    bound: dict[str, float] = field(default_factory=dict)
    target: dict[str, float] = field(default_factory=dict)
    note: str = ""
    published: bool = True
    skipped: tuple[str, ...] = ()
    faster_than_roofline: tuple[str, ...] = ()
    rows: tuple[Predicted, ...] = ()
    decisions: tuple[Decision, ...] = ()

    def holds(self, limits: dict[str, float]) -> bool:
        """Whether every statistic named in ``limits`` keeps its limit."""
        for name, limit in limits.items():
            value = getattr(self, name)
            if value is None or (value < limit if name in LARGER_IS_BETTER else value > limit):
                return False
        return True

    @property
    def ok(self) -> bool:
        """Whether the committed bound holds."""
        return self.holds(self.bound)


def predict_all(campaign: Campaign, rows: list[Measurement]) -> tuple[list[Predicted], list[str]]:
    """Predictions of the rows, group by group; what cannot be answered is skipped with its reason."""
    given = given_lengths(campaign.rows)
    out: list[Predicted] = []
    skipped: list[str] = []
    for group in dict.fromkeys(row.group for row in rows):
        some = [row for row in rows if row.group == group]
        try:
            resolved = resolve(campaign.scenario(group))
            own = [row for row in campaign.rows if row.group == group]
            known = {**implied_lengths(resolved, own), **given} if not _has(given, group) else given
            out.extend(predict_rows(resolved, some, known))
        except RooflinesimError as error:
            skipped.extend(f"{group or 'all'} line {row.line}: {error}" for row in some)
    return out, skipped


def _has(given: dict[tuple[str, int], list[Measurement]], group: str) -> bool:
    return any(name == group for name, _ in given)


def coverage_of(predicted: list[Predicted]) -> float | None:
    """Share of rows inside their 80 % band, value·exp(± z·σ)."""
    if not predicted:
        return None
    value = np.asarray([p.value for p in predicted])
    width = np.exp(Z80 * np.asarray([p.log_sd for p in predicted]))
    return band_coverage(low=value / width, high=value * width, measured=[p.row.value for p in predicted])


def error_result(
    campaign: Campaign,
    spec: ScoreSpec,
    predicted: list[Predicted],
    skipped: list[str],
    *,
    metric: str,
    coverage: float | None,
    faster_than_roofline: tuple[str, ...],
) -> Result:
    """Relative errors of the rows as the result of one score."""
    s = score(predicted=[p.value for p in predicted], measured=[p.row.value for p in predicted])
    return Result(
        id=campaign.id,
        kind=spec.kind,
        metric=metric,
        n=s.n,
        n_skipped=len(skipped),
        mape=s.mape,
        median=s.median,
        bias=s.bias,
        within_10=s.within_10,
        within_20=s.within_20,
        coverage=coverage,
        bound=spec.bound,
        target=spec.target,
        note=spec.note,
        skipped=tuple(skipped),
        faster_than_roofline=faster_than_roofline,
        rows=tuple(predicted),
    )


def _errors(campaign: Campaign, spec: ScoreSpec) -> Result:
    rows = campaign.select(metric=spec.metric, groups=spec.groups)
    predicted, skipped = predict_all(campaign, rows)
    if not predicted:
        raise InputError(
            f"{campaign.id}: no row of {spec.metric} could be predicted ({'; '.join(skipped[:1])})"
        )
    fast = tuple(
        f"line {p.row.line}: {p.row.value:.4g} s is below the roofline {p.floor_s:.4g} s: byte model wrong"
        for p in predicted
        if p.floor_s > p.row.value
    )
    return error_result(
        campaign,
        spec,
        predicted,
        skipped,
        metric=spec.metric,
        coverage=coverage_of(predicted),
        faster_than_roofline=fast,
    )


def timing(campaign: Campaign, spec: ScoreSpec) -> Result:
    """Seconds (or tokens per second) against measured ones."""
    return _errors(campaign, spec)


def speedup(campaign: Campaign, spec: ScoreSpec) -> Result:
    """Speed-up against *SD off*: relative errors, and how often the verdict "it pays" is right."""
    result = _errors(campaign, spec)
    right, n = same_sign(
        predicted_speedup=[p.value for p in result.rows], measured_speedup=[p.row.value for p in result.rows]
    )
    return replace(result, sign_correct=right / n if n else None, n_sign=n)


def _goodput(row: Measurement) -> float:
    """Tokens per second of the batch, from whichever metric was measured."""
    return row.batch_size / row.value if row.metric == "tpot_s" else row.value


def predicted_choice(predicted: list[Predicted], tie_frac: float = TIE_FRAC) -> int:
    """The smallest K within ``tie_frac`` of the best predicted goodput."""
    goodput = {p.row.k: (1.0 / p.value if p.row.metric == "tpot_s" else p.value) for p in predicted}
    best = max(goodput.values())
    return min(k for k, g in goodput.items() if g >= best * (1.0 - tie_frac))


def choice(campaign: Campaign, spec: ScoreSpec) -> Result:
    """K-regret: goodput lost by the measured curve when K is the predicted one, at each batch and context."""
    rows = campaign.select(metric=spec.metric, groups=spec.groups)
    predicted, skipped = predict_all(campaign, rows)
    decisions = []
    for at in dict.fromkeys((p.row.group, p.row.batch_size, p.row.context_tokens) for p in predicted):
        some = [p for p in predicted if (p.row.group, p.row.batch_size, p.row.context_tokens) == at]
        curve = {p.row.k: _goodput(p.row) for p in some}
        if len(curve) < 2:
            continue
        chosen = predicted_choice(some)
        decisions.append(
            Decision(
                group=at[0],
                batch_size=at[1],
                context_tokens=at[2],
                best_k=max(curve, key=lambda k: curve[k]),
                predicted_k=chosen,
                regret=k_regret(measured_goodput=curve, predicted_k=chosen),
            )
        )
    if not decisions:
        raise InputError(
            f"{campaign.id}: no batch with two or more K of {spec.metric} ({'; '.join(skipped[:1])})"
        )
    regrets = [d.regret for d in decisions]
    return Result(
        id=campaign.id,
        kind=spec.kind,
        metric=spec.metric,
        n=len(decisions),
        n_skipped=len(skipped),
        k_regret=float(np.mean(regrets)),
        k_regret_worst=float(np.max(regrets)),
        bound=spec.bound,
        target=spec.target,
        note=spec.note,
        skipped=tuple(skipped),
        rows=tuple(predicted),
        decisions=tuple(decisions),
    )


def _lengths(campaign: Campaign, spec: ScoreSpec) -> Result:
    from rooflinesim.validate.lengths import lengths

    return lengths(campaign, spec)


def _claims(campaign: Campaign, spec: ScoreSpec) -> Result:
    from rooflinesim.validate.claims import claims

    return claims(campaign, spec)


def _serving(campaign: Campaign, spec: ScoreSpec) -> Result:
    from rooflinesim.validate.serving import serving

    return serving(campaign, spec)


#: Kind of score → the function that computes it.
KINDS: dict[str, Callable[[Campaign, ScoreSpec], Result]] = {
    "timing": timing,
    "speedup": speedup,
    "choice": choice,
    "lengths": _lengths,
    "claims": _claims,
    "serving": _serving,
}


def score_campaign(campaign: Campaign) -> list[Result]:
    """All scores of one campaign."""
    results = [KINDS[spec.kind](campaign, spec) for spec in campaign.spec.scores]
    return [replace(result, published=campaign.source.published) for result in results]
