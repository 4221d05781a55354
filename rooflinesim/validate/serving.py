"""Serving rows without speculation: TPOT (and TTFT) of a continuously batched engine against measured ones.

A campaign with rows of its own gives ``prompt_tokens`` and ``output_tokens`` (means over requests) with each.
The campaign of the shipped rows reads them from the installed package, and scores only the pairs of model and
accelerator that nothing was fitted on.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from rooflinesim.api.resolve import resolve
from rooflinesim.errors import InputError, RooflinesimError, unknown_name
from rooflinesim.measured.scoring import ScoredRow, predict_rows
from rooflinesim.measured.serving_rows import CAMPAIGN, probably_speculative, read_rows, split
from rooflinesim.measurements import Measurement
from rooflinesim.serving import Serving, serve
from rooflinesim.uncertainty import STEP_LOG_SD, family_log_sd
from rooflinesim.validate.campaign import Campaign, ScoreSpec
from rooflinesim.validate.observe import Predicted
from rooflinesim.validate.scores import Result, coverage_of, error_result

#: Subsets a score of the shipped rows may name: dense or expert models; answers at least 8 times the
#: prompt, whose TPOT holds little prompt work; no probable speculation and nothing faster than the roofline.
SUBSETS: Final = ("dense", "experts", "long answers", "plausible")


def serving(campaign: Campaign, spec: ScoreSpec) -> Result:
    """Errors, coverage of the 80 % band, and rows that are faster than the bare roofline allows."""
    predicted, skipped = _shipped(spec) if campaign.id == CAMPAIGN else _own(campaign, spec)
    if not predicted:
        raise InputError(f"{campaign.id}: no row could be predicted ({'; '.join(skipped[:1])})")
    fast = tuple(
        f"{p.row.group or 'row'} {p.row.line}: {p.row.value:.4g} s is below the roofline {p.floor_s:.4g} s"
        for p in predicted
        if p.floor_s > p.row.value
    )
    return error_result(
        campaign,
        spec,
        predicted,
        skipped,
        metric=f"{spec.metric} ({', '.join(spec.groups)})" if _names(campaign, spec) else spec.metric,
        coverage=coverage_of(predicted) if spec.metric == "tpot_s" else None,
        faster_than_roofline=fast,
    )


def _names(campaign: Campaign, spec: ScoreSpec) -> bool:
    return campaign.id == CAMPAIGN and bool(spec.groups)


def _serve(campaign: Campaign, group: str, rows: list[Measurement], *, ideal: bool) -> Serving:
    scenario = campaign.scenario(group).model_copy(update={"ideal": ideal, "draft": "none"})
    return serve(
        resolve(scenario).deployment,
        concurrency=np.array([row.batch_size for row in rows]),
        isl_tokens=np.array([row.prompt_tokens or np.nan for row in rows]),
        osl_tokens=np.array([row.output_tokens or np.nan for row in rows]),
    )


def _own(campaign: Campaign, spec: ScoreSpec) -> tuple[list[Predicted], list[str]]:
    rows = campaign.select(metric=spec.metric, groups=spec.groups)
    predicted: list[Predicted] = []
    skipped: list[str] = []
    for group in dict.fromkeys(row.group for row in rows):
        some = [row for row in rows if row.group == group]
        if any(not row.prompt_tokens or not row.output_tokens for row in some):
            raise InputError(f"{campaign.id}: serving rows need prompt_tokens and output_tokens")
        try:
            result, floor = (_serve(campaign, group, some, ideal=i) for i in (False, True))
        except RooflinesimError as error:
            skipped.extend(f"{group or 'all'} line {row.line}: {error}" for row in some)
            continue
        spread = np.hypot(family_log_sd(result.families, result.log_sd), STEP_LOG_SD)
        value, least = getattr(result, spec.metric), getattr(floor, spec.metric)
        predicted.extend(
            Predicted(row, float(value[i]), float(spread[i]), 1.0, 1.0, float(least[i]))
            for i, row in enumerate(some)
        )
    return predicted, skipped


@cache
def _scored() -> tuple[tuple[tuple[ScoredRow, ScoredRow], ...], frozenset[int]]:
    """(prediction, bare roofline) of every held-out row, and the rows that were probably speculative."""
    every = read_rows()
    _, rows = split(every)
    pairs = tuple(zip(predict_rows(rows), predict_rows(rows, ideal=True), strict=True))
    return pairs, probably_speculative(every)


def in_subset(scored: ScoredRow, floor: ScoredRow, *, names: tuple[str, ...], marked: frozenset[int]) -> bool:
    """Whether a row is in every named subset (``SUBSETS``)."""
    row = scored.row
    holds = {
        "dense": not row.is_moe,
        "experts": row.is_moe,
        "long answers": row.nominal[1] >= 8 * row.nominal[0],
        "plausible": row.row not in marked and not floor.tpot_s > row.tpot_s,
    }
    unknown = [name for name in names if name not in holds]
    if unknown:
        raise unknown_name("subset of the serving rows", unknown[0], SUBSETS)
    return all(holds[name] for name in names)


def _shipped(spec: ScoreSpec) -> tuple[list[Predicted], list[str]]:
    pairs, marked = _scored()
    some = [(s, f) for s, f in pairs if in_subset(s, f, names=spec.groups, marked=marked)]
    predicted = [
        Predicted(
            row=_measurement(s, spec.metric),
            value=getattr(s, spec.metric),
            log_sd=float(np.hypot(s.spread, STEP_LOG_SD)),
            acceptance_length=1.0,
            r=1.0,
            floor_s=getattr(f, spec.metric) if spec.metric == "tpot_s" else float("nan"),
        )
        for s, f in some
        if s.answered
    ]
    return predicted, [f"row {s.row.row}: {s.why_not}" for s, _ in some if not s.answered]


def _measurement(scored: ScoredRow, metric: str) -> Measurement:
    row = scored.row
    return Measurement(
        batch_size=row.concurrency,
        metric=metric,
        value=getattr(row, metric),
        group=f"{row.model} {row.gpu} {row.engine} {row.precision}",
        prompt_tokens=row.isl_tokens,
        output_tokens=row.osl_tokens,
        line=row.row,
    )
