"""A scenario as what a person would type: the command line, and the Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from rooflinesim.specs.scenario import Scenario

#: Scenario fields whose flag is not the field's name with dashes.
_FLAG: Final = {
    "batch_sizes": "--bs",
    "context_tokens": "--ctx",
    "draft_kv_budget_tokens": "--draft-kv-budget",
}


def given_fields(scenario: Scenario) -> dict[str, Any]:
    """The fields that were set, and differ from the default, in the order of the class."""
    fields = type(scenario).model_fields
    return {
        name: getattr(scenario, name)
        for name in fields
        if name in scenario.model_fields_set and getattr(scenario, name) is not None
    }


def as_command(scenario: Scenario, *, verb: str = "predict", extra: Mapping[str, str] | None = None) -> str:
    """The command that asks the same.

    >>> as_command(Scenario(gpu="h100-sxm", batch_sizes=(64,), accept="0.8,0.97"))
    'rooflinesim predict --gpu h100-sxm --bs 64 --accept 0.8,0.97'
    """
    words = ["rooflinesim", verb]
    for name, value in given_fields(scenario).items():
        flag = _FLAG.get(name, "--" + name.replace("_", "-"))
        if name == "graphs":
            words += ["--graphs" if value else "--eager"]
        elif isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, tuple):
            words += [flag, ",".join(str(item) for item in value)]
        else:
            words += [flag, str(value)]
    for flag, text in (extra or {}).items():
        words += [flag, text]
    return shlex.join(words)


def as_python(scenario: Scenario) -> str:
    """The Python that asks the same.

    >>> print(as_python(Scenario(gpu="h100-sxm")))
    from rooflinesim.api import Scenario, predict
    <BLANKLINE>
    answer = predict(Scenario(gpu='h100-sxm'))
    for point in answer.points:
        print(point.batch_size, point.context_tokens, point.choice, point.best_row.speedup)
    """
    inside = ", ".join(f"{name}={value!r}" for name, value in given_fields(scenario).items())
    return (
        "from rooflinesim.api import Scenario, predict\n\n"
        f"answer = predict(Scenario({inside}))\n"
        "for point in answer.points:\n"
        "    print(point.batch_size, point.context_tokens, point.choice, point.best_row.speedup)"
    )
