"""Numbers as people read them: the only place of the app with prefixes and rounding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from rooflinesim.units import GIB, KILO, MEGA, MICRO, MILLI, TERA

_COLUMNS = {
    "_s": ("_ms", MILLI),
    "_frac": ("_percent", 0.01),
    "_bytes": ("_gib", GIB),
}


def frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table with human units in the column names (ms, percent, GiB)."""
    names: dict[str, tuple[str, float]] = {}
    return pd.DataFrame([_shown(row, names) for row in rows])


def _shown(row: dict[str, Any], names: dict[str, tuple[str, float]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in row.items():
        shown, scale = names.get(name) or names.setdefault(name, _unit(name))
        out[shown] = value if scale == 1.0 or value is None else value / scale
    return out


def _unit(name: str) -> tuple[str, float]:
    """The column's name and divisor in human units."""
    for ending, (shown, scale) in _COLUMNS.items():
        if name.endswith(ending) and not name.endswith("_per_s"):
            return name.removesuffix(ending) + shown, scale
    return name, 1.0


def ms(seconds: float) -> str:
    """0.0123 → '12.3 ms'; microseconds below 0.1 ms."""
    if seconds < 1e-4:
        return f"{seconds / MICRO:.1f} µs"
    return f"{seconds / MILLI:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"


def gib(size_bytes: float) -> str:
    """Bytes as GiB."""
    return f"{size_bytes / GIB:.1f} GiB"


def count(number: float) -> str:
    """12345 → '12.3 k'."""
    if number >= MEGA:
        return f"{number / MEGA:.3g} M"
    return f"{number / KILO:.3g} k" if number >= 10 * KILO else f"{number:,.0f}"


def tokens(number: int) -> str:
    """Context lengths: 8192 → '8k'."""
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else f"{number:,}"


def percent(fraction: float) -> str:
    """0.123 → '12 %'."""
    return f"{fraction:.0%}".replace("%", " %")


def tera(flops_per_s: float) -> float:
    """FLOP/s as TFLOP/s."""
    return flops_per_s / TERA


def fraction(shown_percent: float) -> float:
    """What a percent slider means."""
    return shown_percent * 0.01


def plain(text: str) -> str:
    """Text with Markdown's characters escaped: a name from a link or a file stays a name."""
    for mark in "\\`*_[]$~<>":
        text = text.replace(mark, "\\" + mark)
    return text
