"""Measured serving rows without speculation: time per output token of continuously batched engines."""

from __future__ import annotations

import numpy as np

from rooflinesim.accuracy import band_coverage, score
from rooflinesim.errors import InputError
from rooflinesim.uncertainty import STEP_LOG_SD, Z80, family_log_sd
from rooflinesim.validate.campaign import Campaign, ScoreSpec
from rooflinesim.validate.scores import Result


def serving(campaign: Campaign, spec: ScoreSpec) -> Result:
    """TPOT of the rows that nothing was fitted on; rows that cannot be answered count as skipped."""
    try:
        from rooflinesim.measured.scoring import predict_rows
        from rooflinesim.measured.serving_rows import read_rows, split

        _, held_out = split(read_rows())
    except ImportError:
        raise InputError(
            f"{campaign.id}: needs the measured rows: pip install rooflinesim[validation]"
        ) from None
    scored = predict_rows(held_out)
    there = [s for s in scored if s.answered]
    skipped = tuple(f"row {s.row.row}: {s.why_not}" for s in scored if not s.answered)
    if not there:
        raise InputError(f"{campaign.id}: no row could be answered ({'; '.join(skipped[:1])})")
    predicted = np.asarray([s.tpot_s for s in there])
    measured = np.asarray([s.row.tpot_s for s in there])
    width = np.asarray(
        [
            float(family_log_sd({k: np.asarray(v) for k, v in s.families.items()}, s.log_sd).ravel()[0])
            for s in there
        ]
    )
    width = np.hypot(width, STEP_LOG_SD)
    s = score(predicted=predicted, measured=measured)
    return Result(
        id=campaign.id,
        kind=spec.kind,
        metric=spec.metric,
        n=s.n,
        n_skipped=len(skipped),
        mape=s.mape,
        median=s.median,
        bias=s.bias,
        within_10=s.within_10,
        within_20=s.within_20,
        coverage=band_coverage(
            low=predicted * np.exp(-Z80 * width), high=predicted * np.exp(Z80 * width), measured=measured
        ),
        bound=spec.bound,
        target=spec.target,
        note=spec.note,
        skipped=skipped,
    )
