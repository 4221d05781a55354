"""Acceptance of drafted tokens: curves, counts, conversions, fits. Pure numbers; no hardware."""

from rooflinesim.acceptance.convert import (
    Conversion,
    c1_for_acceptance_length,
    fit_acceptance_lengths,
    from_acceptance_length,
    from_acceptance_lengths,
    from_c1,
    from_conditional,
    from_marginal,
    from_mean_acceptance,
    parse_acceptance,
)
from rooflinesim.acceptance.counts import CounterSummary, PositionCounts, counter_summary, wilson_interval
from rooflinesim.acceptance.curve import AcceptanceCurve, step_shares

__all__ = [
    "AcceptanceCurve",
    "Conversion",
    "CounterSummary",
    "PositionCounts",
    "c1_for_acceptance_length",
    "counter_summary",
    "fit_acceptance_lengths",
    "from_acceptance_length",
    "from_acceptance_lengths",
    "from_c1",
    "from_conditional",
    "from_marginal",
    "from_mean_acceptance",
    "parse_acceptance",
    "step_shares",
    "wilson_interval",
]
