"""What the pages show, computed by the package and remembered for a moment, per session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import streamlit as st
from state import scenario_of, values

from rooflinesim.api import Evaluation, Prediction, Resolved, Scenario, predict, resolve
from rooflinesim.api.tables import batch_evaluation, chart_batches

T = TypeVar("T")
_KEEP = 32


def remembered(key: Hashable, make: Callable[[], T]) -> T:
    """The value of ``make`` for this key; the last few are kept in the session."""
    memo: OrderedDict[Hashable, T] = st.session_state.setdefault("_memo", OrderedDict())
    if key in memo:
        memo.move_to_end(key)
        return memo[key]
    value = make()
    memo[key] = value
    while len(memo) > _KEEP:
        memo.popitem(last=False)
    return value


@dataclass(frozen=True)
class Asked:
    """The scenario on the screen."""

    scenario: Scenario
    shown: Scenario  # with the user's own file names
    resolved: Resolved

    @property
    def batch(self) -> int:
        """The chosen batch."""
        return self.scenario.batch_sizes[0]

    @property
    def context(self) -> int:
        """The chosen context."""
        return self.scenario.context_tokens[0]

    @property
    def speculative(self) -> bool:
        """Whether there is a drafter at all."""
        return self.resolved.deployment.speculative


def asked() -> Asked:
    """The scenario on the screen, resolved. One-line errors for what does not go together."""
    held = values()
    scenario = scenario_of(held)
    return Asked(
        scenario=scenario,
        shown=scenario_of(held, shown=True),
        resolved=remembered(("resolve", scenario), lambda: resolve(scenario)),
    )


def prediction(scenario: Scenario) -> Prediction:
    """All K at the scenario's batch and context."""
    return remembered(("predict", scenario), lambda: predict(scenario))


def over_batches(resolved: Resolved, *, context: int, include: int | None = None) -> Evaluation:
    """The scenario over the charts' batches."""
    scenario = resolved.scenario.model_copy(update={"batch_sizes": (1,), "context_tokens": (context,)})
    return remembered(
        ("batches", scenario, include),
        lambda: batch_evaluation(resolved, context_tokens=context, batch_sizes=chart_batches(include)),
    )
