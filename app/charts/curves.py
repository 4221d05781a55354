"""Charts of acceptance."""

from __future__ import annotations

from charts.base import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    Spec,
    colour_scale,
    legend,
    nominal,
    quantity,
    tip,
)


def acceptance(series: list[str]) -> Spec:
    """Conditional acceptance by position: curves as lines, measurements as points with intervals."""
    palette = (BLUE, ORANGE, GREEN, PINK)
    colours = {name: palette[i % len(palette)] for i, name in enumerate(series)}
    x = quantity("k", "draft position", axis={"tickMinStep": 1, "format": "d"})
    y = quantity("conditional", "conditional acceptance", scale={"domain": [0, 1]})
    colour = nominal("series", None, scale=colour_scale(colours), legend=legend())
    return {
        "layer": [
            {
                "transform": [{"filter": "!isValid(datum.low)"}],
                "mark": {"type": "line", "point": {"filled": True, "size": 35}},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colour,
                    "tooltip": [
                        tip("series", "curve"),
                        tip("k", "position", "d"),
                        tip("conditional", "conditional", ".3f"),
                        tip("marginal", "marginal", ".3f"),
                        tip("acceptance_length", "AL at this K", ".2f"),
                    ],
                },
            },
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "point", "filled": True, "size": 90, "shape": "square", "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colour,
                    "tooltip": [
                        tip("series", "data"),
                        tip("k", "position", "d"),
                        tip("conditional", "conditional", ".3f"),
                        tip("low", "95 % low", ".3f"),
                        tip("high", "95 % high", ".3f"),
                        tip("n", "steps", ",.0f"),
                    ],
                },
            },
        ]
    }


def acceptance_length(series: list[str]) -> Spec:
    """AL against K."""
    palette = (BLUE, ORANGE, GREEN, PINK)
    colours = {name: palette[i % len(palette)] for i, name in enumerate(series)}
    return {
        "mark": {"type": "line", "point": {"filled": True, "size": 45}},
        "encoding": {
            "x": quantity("k", "K (drafted tokens per step)", axis={"tickMinStep": 1, "format": "d"}),
            "y": quantity("acceptance_length", "AL (tokens per step)", scale={"zero": True}),
            "color": nominal("series", None, scale=colour_scale(colours), legend=legend()),
            "tooltip": [
                tip("series", "curve"),
                tip("k", "K", "d"),
                tip("acceptance_length", "AL", ".3f"),
                tip("mean_accepted_percent", "accepted of drafted (%)", ".1f"),
            ],
        },
    }
