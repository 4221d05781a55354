"""The façade: what the command line, the app, notebooks and tests call. Every verb takes a Scenario."""

from rooflinesim.api.evaluate import Evaluation, evaluate, fit_memory
from rooflinesim.api.predict import Point, Prediction, Row, as_json, memory_json, predict
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.specs.scenario import Scenario

__all__ = [
    "Evaluation",
    "Point",
    "Prediction",
    "Resolved",
    "Row",
    "Scenario",
    "as_json",
    "evaluate",
    "fit_memory",
    "memory_json",
    "predict",
    "resolve",
]
