"""Printing: one console, JSON to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table

#: Wider than any table: what a table would take if it could.
_ROOM = 1_000


def show(view: RenderableType) -> None:
    """Print a report; tables keep their width, text is wrapped.

    On a narrow terminal a line of a table that the terminal breaks can be read, a column of dots cannot.
    """
    console = Console() if sys.stdout.isatty() else Console(width=130)
    width = console.width
    for part in _parts(view):
        console.width = width
        if isinstance(part, Table):
            natural = Measurement.get(console, console.options.update(width=_ROOM), part).maximum
            console.width = max(width, natural)
        console.print(part, soft_wrap=False)


def _parts(view: RenderableType) -> Iterator[RenderableType]:
    if isinstance(view, Group):
        for part in view.renderables:
            yield from _parts(part)
    else:
        yield view


@contextmanager
def working(text: str) -> Iterator[None]:
    """A sign of life on the terminal while something takes long; nothing where there is no terminal."""
    with Console(stderr=True).status(text):
        yield


def show_json(data: dict[str, Any]) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
