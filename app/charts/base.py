"""What charts share: how one is shown, colours, channels.

Charts are Vega-Lite specs; data stay apart, so that a moved slider sends data alone. Colours are those of
Okabe and Ito, told apart with any colour vision, on light and dark; lines differ in dash and points in
shape as well.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import show as shown
import streamlit as st

Spec = dict[str, Any]

BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#8C8C8C",
)
PARTS: Final = {"draft": ORANGE, "verify": BLUE, "sample": GREEN, "host": GREY}
BOUNDS: Final = {"memory": BLUE, "compute": RED, "launch": ORANGE, "link": PINK, "host": GREY}
SHAPES: Final = {
    "memory": "circle",
    "compute": "square",
    "launch": "triangle-up",
    "link": "diamond",
    "host": "cross",
}
FIXED_COLOURS: Final = (SKY, BLUE, PINK, ORANGE)
FIXED_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
BATCH_TICKS: Final = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
HEIGHT: Final = 290
CONFIG: Final = {"legend": {"offset": 8, "padding": 0, "rowPadding": 2}, "axis": {"titlePadding": 8}}


def show(table: pd.DataFrame, spec: Spec, *, name: str, title: str, alt: str, note: str = "") -> None:
    """A titled chart with its data as CSV; its picture (PNG) is in the chart's own tool bar."""
    head = st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="small"
    )
    head.markdown(f"**{shown.plain(title)}**")
    head.download_button(
        "CSV",
        data=lambda: table.to_csv(index=False).encode(),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"csv_{name}",
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
        help="The data of this chart. Its picture (PNG): the tool bar that appears over the chart.",
    )
    st.vega_lite_chart(
        table, {"height": HEIGHT, "config": CONFIG, **spec}, width="stretch", alt=alt, key=f"chart_{name}"
    )
    if note:
        st.caption(note)


def quantity(field: str, title: str, **more: Any) -> Spec:
    """A quantitative channel."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def ordered(field: str, title: str | None, **more: Any) -> Spec:
    """An ordinal channel."""
    return {"field": field, "type": "ordinal", "title": title, **more}


def nominal(field: str, title: str | None, **more: Any) -> Spec:
    """A nominal channel."""
    return {"field": field, "type": "nominal", "title": title, **more}


def tip(field: str, title: str, fmt: str | None = None) -> Spec:
    """One line of a tooltip; a number where a format is given."""
    kind = "quantitative" if fmt else "nominal"
    return {"field": field, "type": kind, "title": title, **({"format": fmt} if fmt else {})}


def colour_scale(mapping: dict[str, str]) -> Spec:
    """Names and their colours."""
    return {"domain": list(mapping), "range": list(mapping.values())}


def legend(title: str | None = None) -> Spec:
    """A legend under the chart."""
    return {"orient": "bottom", "title": title, "columns": 3 if title else 5}


def k_axis(k_max: int) -> Spec:
    """K from 0 on, whole numbers."""
    return quantity(
        "k",
        "K (drafted tokens per step)",
        scale={"domain": [0, k_max], "nice": False},
        axis={"tickMinStep": 1, "format": "d", "tickCount": k_max},
    )


def batch_axis(top: int, title: str = "batch size (sequences)") -> Spec:
    """Batch on a log axis with its powers of two."""
    return quantity(
        "batch_size",
        title,
        scale={"type": "log", "base": 2, "domain": [1, top], "nice": False},
        axis={"values": [t for t in BATCH_TICKS if t <= top], "format": "d"},
    )


def rule_at(value: float, text: str) -> list[Spec]:
    """A dashed line across the chart with its name."""
    data = {"values": [{"at": value, "text": text}]}
    return [
        {
            "data": data,
            "mark": {"type": "rule", "strokeDash": [4, 4], "color": GREY},
            "encoding": {"y": {"field": "at", "type": "quantitative"}},
        },
        {
            "data": data,
            "mark": {
                "type": "text",
                "align": "right",
                "baseline": "bottom",
                "dx": -4,
                "dy": -3,
                "color": GREY,
            },
            "encoding": {
                "y": {"field": "at", "type": "quantitative"},
                "x": {"value": "width"},
                "text": {"field": "text"},
            },
        },
    ]
