"""Acceptance of drafted tokens: curves, counts, conversions, fits. Pure numbers; no hardware."""

from rooflinesim.acceptance.contexts import parse_context_table
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
from rooflinesim.acceptance.draws import sample, sample_acceptance_length, sample_assumed_length
from rooflinesim.acceptance.fit import (
    CurveChoice,
    CurveFit,
    choose_curve,
    fit_form,
)

__all__ = [
    "AcceptanceCurve",
    "Conversion",
    "CounterSummary",
    "CurveChoice",
    "CurveFit",
    "PositionCounts",
    "c1_for_acceptance_length",
    "choose_curve",
    "counter_summary",
    "fit_acceptance_lengths",
    "fit_form",
    "from_acceptance_length",
    "from_acceptance_lengths",
    "from_c1",
    "from_conditional",
    "from_marginal",
    "from_mean_acceptance",
    "parse_acceptance",
    "parse_context_table",
    "sample",
    "sample_acceptance_length",
    "sample_assumed_length",
    "step_shares",
    "wilson_interval",
]
