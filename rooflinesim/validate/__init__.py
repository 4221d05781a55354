"""Validation: measured numbers nobody here chose, recomputed, scored and held to committed bounds."""

from rooflinesim.validate.campaign import Campaign, campaign_names, campaigns, load_campaign
from rooflinesim.validate.run import as_json, mean_k_regret, pooled_coverage, run, sign_correct
from rooflinesim.validate.scores import Result, score_campaign

__all__ = [
    "Campaign",
    "Result",
    "as_json",
    "campaign_names",
    "campaigns",
    "load_campaign",
    "mean_k_regret",
    "pooled_coverage",
    "run",
    "score_campaign",
    "sign_correct",
]
