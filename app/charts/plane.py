"""Charts over batch sizes, and of scores."""

from __future__ import annotations

from charts.base import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    Spec,
    batch_axis,
    colour_scale,
    legend,
    nominal,
    ordered,
    quantity,
    tip,
)


def best_k_map(k_max: int) -> Spec:
    """Heat map of speed-up on (batch, K); best K as steps, eager cells dotted, what does not fit crossed."""
    x = ordered(
        "batch_size",
        "batch size (sequences)",
        axis={"labelAngle": 0, "labelOverlap": True},
        scale={"padding": 0},
    )
    y = ordered("k", "K", sort="descending", scale={"padding": 0, "domain": list(range(k_max, -1, -1))})
    tips = [
        tip("batch_size", "batch", "d"),
        tip("k", "K", "d"),
        tip("speedup", "speed-up over SD off", ".2f"),
        tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
        tip("lost_percent", "below the best here (%)", ".1f"),
        tip("graph", "CUDA graph"),
        tip("memory", "memory"),
    ]
    return {
        "layer": [
            {
                "transform": [{"filter": "datum.row === 'cell'"}],
                "mark": {"type": "rect"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": quantity(
                        "speedup",
                        "speed-up (×)",
                        scale={
                            "range": ["#B35806", "#F1A340", "#F7F7F7", "#92C5DE", "#053061"],
                            "domain": [0.4, 0.75, 1, 1.6, 3],
                            "clamp": True,
                        },
                        legend={"orient": "bottom", "gradientLength": 220, "title": "speed-up (×)"},
                    ),
                    "tooltip": tips,
                },
            },
            {
                "transform": [{"filter": "datum.row === 'cell' && datum.graph === 'eager'"}],
                "mark": {"type": "point", "shape": "circle", "size": 9, "filled": True, "color": "#333333"},
                "encoding": {"x": x, "y": y, "tooltip": tips},
            },
            {
                "transform": [{"filter": "datum.row === 'cell' && datum.memory === 'does not fit'"}],
                "mark": {
                    "type": "point",
                    "shape": "M-1,-1L1,1M-1,1L1,-1",
                    "size": 60,
                    "color": "#333333",
                    "strokeWidth": 1,
                },
                "encoding": {"x": x, "y": y, "tooltip": tips},
            },
            {
                "transform": [{"filter": "datum.row === 'best' && datum.chosen"}],
                "mark": {"type": "rule", "color": "#000000", "strokeDash": [3, 3], "strokeWidth": 1.5},
                "encoding": {"x": x},
            },
            {
                "transform": [{"filter": "datum.row === 'best'"}],
                "mark": {"type": "line", "interpolate": "step", "color": "#000000", "strokeWidth": 2.5},
                "encoding": {"x": x, "y": y},
            },
            {
                "transform": [{"filter": "datum.row === 'best'"}],
                "mark": {
                    "type": "point",
                    "filled": True,
                    "opacity": 1,
                    "stroke": "#000000",
                    "strokeWidth": 1,
                },
                "encoding": {
                    "x": x,
                    "y": y,
                    "shape": nominal(
                        "kind",
                        None,
                        scale={"domain": ["best K", "SD off"], "range": ["diamond", "square"]},
                        legend=None,
                    ),
                    "fill": nominal(
                        "kind",
                        None,
                        scale={"domain": ["best K", "SD off"], "range": [GREEN, "#FFFFFF"]},
                        legend=None,
                    ),
                    "size": {"value": 90},
                    "tooltip": [
                        tip("batch_size", "batch", "d"),
                        tip("choice", "best choice"),
                        tip("speedup", "speed-up of the best K", ".2f"),
                    ],
                },
            },
        ]
    }


def schedule_steps(top: int, *, checked: bool) -> Spec:
    """K by batch: the schedule, the best K at every batch, and an uploaded schedule."""
    colours = {"schedule": BLUE, "best K": GREEN, **({"uploaded": ORANGE} if checked else {})}
    return {
        "height": 240,
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": batch_axis(top),
            "y": quantity("k", "K", axis={"tickMinStep": 1, "format": "d"}, scale={"zero": True}),
            "color": nominal("series", None, scale=colour_scale(colours), legend=legend()),
            "strokeDash": nominal(
                "series",
                None,
                scale={"domain": list(colours), "range": [[1, 0], [2, 2], [6, 3]]},
                legend=None,
            ),
            "strokeWidth": nominal(
                "series", None, scale={"domain": list(colours), "range": [3, 1.5, 2.5]}, legend=None
            ),
            "tooltip": [tip("series", "line"), tip("batch_size", "batch", "d"), tip("k", "K", "d")],
        },
    }


def compared(names: list[str], *, field: str, title: str, top: int) -> Spec:
    """One line per scenario against batch."""
    palette = (BLUE, ORANGE, GREEN, PINK)
    dashes = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
    colours = {name: palette[i % 4] for i, name in enumerate(names)}
    return {
        "mark": {"type": "line", "point": {"filled": True, "size": 30}},
        "encoding": {
            "x": batch_axis(top),
            "y": quantity(field, title, scale={"zero": True}, axis={"format": "~s"}),
            "color": nominal(
                "scenario",
                None,
                scale=colour_scale(colours),
                legend={**legend(), "columns": 1, "labelLimit": 400},
            ),
            "strokeDash": nominal(
                "scenario", None, scale={"domain": names, "range": list(dashes[: len(names)])}, legend=None
            ),
            "tooltip": [
                tip("scenario", "scenario"),
                tip("batch_size", "batch", "d"),
                tip("choice", "choice"),
                tip(field, title, ",.3~f"),
            ],
        },
    }


def scores(names: list[str]) -> Spec:
    """Error of each campaign beside the bound it has to keep."""
    colours = {"within its bound": BLUE, "beyond its bound": ORANGE}
    y = nominal("campaign", None, sort=names, axis={"labelLimit": 320})
    x = {"type": "quantitative", "title": "error (%)"}
    tips = [
        tip("campaign", "campaign"),
        tip("statistic", "statistic"),
        tip("n", "rows", "d"),
        tip("error_percent", "error (%)", ".1f"),
        tip("bias_percent", "bias (%)", ".1f"),
        tip("limit_percent", "bound (%)", ".1f"),
    ]
    return {
        "height": {"step": 20},
        "layer": [
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "x": {**x, "field": "error_percent"},
                    "color": nominal("verdict", None, scale=colour_scale(colours), legend=legend()),
                    "tooltip": tips,
                },
            },
            {
                "mark": {"type": "tick", "color": "#888888", "thickness": 2},
                "encoding": {"y": y, "x": {**x, "field": "limit_percent"}},
            },
        ],
    }
