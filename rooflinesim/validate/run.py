"""Recompute campaigns; the JSON of ``validate``; how well the error bars cover."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflinesim.errors import InputError, RooflinesimError
from rooflinesim.validate.campaign import campaigns
from rooflinesim.validate.scores import Result, coverage_of, score_campaign

SCHEMA = 1
_KEYS = ("mape", "median", "bias", "within_10", "within_20", "k_regret", "sign_correct")
_MORE = ("k_regret_worst", "rmse", "claims_held", "coverage")


def run(names: list[str] | None = None, *, fast_only: bool = False) -> list[Result]:
    """Every score of the named campaigns (all when none is named), recomputed now."""
    out: list[Result] = []
    for campaign in campaigns(names):
        if fast_only and not campaign.spec.fast:
            continue
        try:
            out.extend(score_campaign(campaign))
        except RooflinesimError as error:
            if names or campaign.spec.fast:
                raise InputError(f"{campaign.id}: {error}") from None
            # a slow campaign reads rows from an optional package: without it the others are still worth
            # seeing
            first = campaign.spec.scores[0]
            out.append(Result(campaign.id, first.kind, first.metric, 0, skipped=(str(error),)))
    return out


def pooled_coverage(results: list[Result]) -> tuple[float, int] | None:
    """Share of held-out rows inside their 80 % band, each campaign weighing the same, and the number of
    rows."""
    shares = [(r.coverage, len(r.rows)) for r in results if r.coverage is not None]
    if not shares:
        return None
    return sum(c for c, _ in shares) / len(shares), sum(n for _, n in shares)


def mean_k_regret(results: list[Result]) -> tuple[float, float, int] | None:
    """(mean, worst, number of decisions) of K-regret over every decision of every campaign."""
    regrets = [d.regret for r in results for d in r.decisions]
    return (sum(regrets) / len(regrets), max(regrets), len(regrets)) if regrets else None


def sign_correct(results: list[Result]) -> tuple[float, int] | None:
    """(share right, cells) of the verdict "speculation pays", over every cell that has a sign."""
    n = sum(r.n_sign or 0 for r in results)
    right = sum((r.sign_correct or 0.0) * (r.n_sign or 0) for r in results)
    return (right / n, n) if n else None


def speedup_error(results: list[Result]) -> tuple[float, int] | None:
    """(median |error| over every speed-up cell of every campaign, cells)."""
    errors = [abs(p.value / p.row.value - 1.0) for r in results if r.kind == "speedup" for p in r.rows]
    return (float(np.median(errors)), len(errors)) if errors else None


def as_json(results: list[Result]) -> dict[str, Any]:
    """The document that ``validate --json`` prints."""
    return {
        "schema": SCHEMA,
        "campaigns": [
            {
                "id": r.id,
                "kind": r.kind,
                "metric": r.metric,
                "n": r.n,
                "n_skipped": r.n_skipped,
                **{key: getattr(r, key) for key in (*_KEYS, *_MORE)},
                "bound": r.bound,
                "target": r.target,
                "ok": r.ok,
                "target_met": r.holds(r.target) if r.target else None,
                "faster_than_roofline": list(r.faster_than_roofline),
            }
            for r in results
        ],
    }


__all__ = [
    "SCHEMA",
    "as_json",
    "coverage_of",
    "mean_k_regret",
    "pooled_coverage",
    "run",
    "sign_correct",
    "speedup_error",
]
