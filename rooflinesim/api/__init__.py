"""The façade: what the command line, the app, notebooks and tests call. Every verb takes a Scenario.

``predict`` and ``evaluate`` load at once; the other verbs load what they need when they are first used, so
that a command starts without what it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.predict import Point, Prediction, Row, as_json, memory_json, predict
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.specs.scenario import Scenario

if TYPE_CHECKING:
    from rooflinesim.api.checking import check_schedule
    from rooflinesim.api.control import controller
    from rooflinesim.api.emitting import emit, lint_config
    from rooflinesim.api.explaining import explain
    from rooflinesim.api.logs import acceptance_from_files, times_from_files
    from rooflinesim.api.scheduling import schedule
    from rooflinesim.api.sweeping import sweep

#: verb -> module that holds it
_LATER = {
    "acceptance_from_files": "logs",
    "check_schedule": "checking",
    "controller": "control",
    "emit": "emitting",
    "explain": "explaining",
    "lint_config": "emitting",
    "schedule": "scheduling",
    "sweep": "sweeping",
    "times_from_files": "logs",
}

__all__ = [
    "Evaluation",
    "Point",
    "Prediction",
    "Resolved",
    "Row",
    "Scenario",
    "acceptance_from_files",
    "as_json",
    "check_schedule",
    "controller",
    "emit",
    "evaluate",
    "explain",
    "fit_memory",
    "lint_config",
    "memory_json",
    "predict",
    "resolve",
    "schedule",
    "sweep",
    "times_from_files",
]


if not TYPE_CHECKING:  # checkers see the imports above

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
