"""Printing: one console, JSON to stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType


def show(view: RenderableType) -> None:
    """Print a report; wide tables keep their width when the output is not a terminal."""
    console = Console() if sys.stdout.isatty() else Console(width=130)
    console.print(view, soft_wrap=False)


def show_json(data: dict[str, Any]) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
