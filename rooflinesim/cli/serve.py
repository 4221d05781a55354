"""Streamlit's own command line, with what the page needs imported before the first visitor comes."""

from __future__ import annotations

import importlib

#: What the first page would otherwise wait for, about a second.
NEEDED = (
    "pandas",
    "pyarrow",
    "rooflinesim.api.tables",
    "rooflinesim.api.emitting",
    "rooflinesim.api.checking",
)


def warm_up() -> None:
    """Import what a page needs and look up one scenario, so that the registry's indexes are read."""
    for name in NEEDED:
        importlib.import_module(name)
    from rooflinesim.api import Scenario, predict

    predict(Scenario())


if __name__ == "__main__":
    from streamlit.web.cli import main

    warm_up()
    main(prog_name="streamlit")
