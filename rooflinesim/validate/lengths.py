"""Acceptance: how well two numbers describe acceptance lengths that were measured separately at each K."""

from __future__ import annotations

import numpy as np

from rooflinesim.acceptance import fit_acceptance_lengths
from rooflinesim.acceptance.curve import AcceptanceCurve
from rooflinesim.accuracy import rmse, score
from rooflinesim.errors import InputError
from rooflinesim.validate.campaign import Campaign, ScoreSpec
from rooflinesim.validate.scores import Result


def lengths(campaign: Campaign, spec: ScoreSpec) -> Result:
    """Per curve (group), a least-squares fit of (c_1, decay) to AL(K), and its RMSE; the median over curves
    is scored.

    With ``note: extrapolate`` only the rows marked ``given`` are fitted and the rest is predicted.
    """
    residuals: list[float] = []
    fitted: list[float] = []
    measured: list[float] = []
    groups = dict.fromkeys(r.group for r in campaign.rows if r.metric == spec.metric)
    for group in groups:
        rows = [r for r in campaign.rows if r.metric == spec.metric and r.group == group]
        base = [r for r in rows if r.use == "given"] or rows
        test = [r for r in rows if r.use == "score"]
        if len(base) < 2 or not test:
            continue
        c1, decay, _ = fit_acceptance_lengths(
            k=[r.k for r in base], acceptance_length=[r.value for r in base]
        )
        curve = AcceptanceCurve.geometric(c1=c1, decay=decay)
        predicted = [float(np.asarray(curve.acceptance_length(r.k))) for r in test]
        values = [r.value for r in test]
        residuals.append(rmse(predicted=predicted, measured=values))
        fitted += predicted
        measured += values
    if not residuals:
        raise InputError(f"{campaign.id}: no curve with two or more acceptance lengths")
    s = score(predicted=fitted, measured=measured)
    return Result(
        id=campaign.id,
        kind=spec.kind,
        metric=spec.metric,
        n=s.n,
        mape=s.mape,
        median=s.median,
        bias=s.bias,
        within_10=s.within_10,
        within_20=s.within_20,
        rmse=float(np.median(residuals)),
        bound=spec.bound,
        target=spec.target,
        note=spec.note,
    )
