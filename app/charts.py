"""Charts as Vega-Lite specs (data stay apart, so that a moved slider sends data alone), and how one is shown.

Colours are those of Okabe and Ito, told apart with any colour vision, on light and dark; lines differ in dash
and points in shape as well.
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


def _q(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _o(field: str, title: str | None, **more: Any) -> Spec:
    return {"field": field, "type": "ordinal", "title": title, **more}


def _n(field: str, title: str | None, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", "title": title, **more}


def _tip(field: str, title: str, fmt: str | None = None) -> Spec:
    kind = "quantitative" if fmt else "nominal"
    return {"field": field, "type": kind, "title": title, **({"format": fmt} if fmt else {})}


def _colours(mapping: dict[str, str]) -> Spec:
    return {"domain": list(mapping), "range": list(mapping.values())}


def _legend(title: str | None = None) -> Spec:
    return {"orient": "bottom", "title": title, "columns": 3 if title else 5}


def _k_axis(k_max: int) -> Spec:
    return _q(
        "k",
        "K (drafted tokens per step)",
        scale={"domain": [0, k_max], "nice": False},
        axis={"tickMinStep": 1, "format": "d", "tickCount": k_max},
    )


def batch_axis(top: int, title: str = "batch size (sequences)") -> Spec:
    """Batch on a log axis with its powers of two."""
    return _q(
        "batch_size",
        title,
        scale={"type": "log", "base": 2, "domain": [1, top], "nice": False},
        axis={"values": [t for t in BATCH_TICKS if t <= top], "format": "d"},
    )


def _rule_at(value: float, text: str) -> list[Spec]:
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


# -- What-if ------------------------------------------------------------------------------------------------

_K_TIPS: Final = [
    _tip("k", "K", "d"),
    _tip("speedup", "speed-up over SD off", ".2f"),
    _tip("speedup_low", "low (10 %)", ".2f"),
    _tip("speedup_high", "high (90 %)", ".2f"),
    _tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
    _tip("acceptance_length", "acceptance length", ".2f"),
    _tip("step_ms", "step (ms)", ".2f"),
    _tip("p_best_percent", "chance to be best (%)", ".0f"),
    _tip("bound", "bound by"),
    _tip("note", "note"),
]


def speedup_by_k(k_max: int) -> Spec:
    """Speed-up against K with its band, the best K and its ties marked."""
    x = _k_axis(k_max)
    y = _q("speedup", "speed-up over SD off (×)", scale={"zero": True})
    marks = {"best": GREEN, "as good (within 1 %)": SKY, "other": BLUE}
    return {
        "layer": [
            {
                "mark": {"type": "area", "color": BLUE, "opacity": 0.18},
                "encoding": {"x": x, "y": {**y, "field": "speedup_low"}, "y2": {"field": "speedup_high"}},
            },
            *_rule_at(1.0, "SD off"),
            {"mark": {"type": "line", "color": BLUE}, "encoding": {"x": x, "y": y}},
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _n("mark", None, scale=_colours(marks), legend=_legend()),
                    "shape": _n(
                        "mark", None, scale={"domain": list(marks), "range": ["diamond", "circle", "circle"]}
                    ),
                    "size": _n(
                        "mark", None, scale={"domain": list(marks), "range": [260, 70, 45]}, legend=None
                    ),
                    "tooltip": _K_TIPS,
                },
            },
        ]
    }


def goodput_by_k() -> Spec:
    """Goodput of the whole batch per K; SD off first."""
    colours = {"best": GREEN, "as good (within 1 %)": SKY, "other": BLUE, "SD off": GREY}
    return {
        "mark": {"type": "bar"},
        "encoding": {
            "x": _o("label", "K (drafted tokens per step)", sort=None, axis={"labelAngle": 0}),
            "y": _q("goodput_tokens_per_s", "goodput (tokens/s)", axis={"format": "~s"}),
            "color": _n("mark", None, scale=_colours(colours), legend=_legend()),
            "tooltip": [
                _tip("label", "K"),
                _tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
                _tip("request_tokens_per_s", "one request (tokens/s)", ",.1f"),
                _tip("tpot_ms", "time per token (ms)", ".2f"),
            ],
        },
    }


def step_stack() -> Spec:
    """Where the time of a step goes, per K."""
    return {
        "mark": {"type": "bar"},
        "encoding": {
            "x": _o("label", "K (drafted tokens per step)", sort=None, axis={"labelAngle": 0}),
            "y": _q("part_ms", "one step (ms)", stack="zero"),
            "color": _n("part", None, scale=_colours(PARTS), legend=_legend(), sort=list(PARTS)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [
                _tip("label", "K"),
                _tip("part", "part"),
                _tip("part_ms", "time (ms)", ".3f"),
                _tip("step_ms", "whole step (ms)", ".2f"),
            ],
        },
    }


def speedup_by_batch(policies: list[str], top: int) -> Spec:
    """Speed-up against batch: SD off, fixed K, dynamic."""
    fixed = [p for p in policies if p.startswith("K =")]
    colours = {
        "SD off": GREY,
        **{p: FIXED_COLOURS[i % len(FIXED_COLOURS)] for i, p in enumerate(fixed)},
        "dynamic K": GREEN,
    }
    dashes = [[4, 4], *[FIXED_DASHES[i % len(FIXED_DASHES)] for i, _ in enumerate(fixed)], [1, 0]]
    domain = list(colours)
    x = batch_axis(top)
    return {
        "layer": [
            {
                "mark": {"type": "line", "interpolate": "linear"},
                "encoding": {
                    "x": x,
                    "y": _q("speedup", "speed-up over SD off (×)", scale={"zero": True}),
                    "color": _n("policy", None, scale=_colours(colours), legend=_legend()),
                    "strokeDash": _n("policy", None, scale={"domain": domain, "range": dashes}, legend=None),
                    "strokeWidth": {
                        "condition": {"test": "datum.policy === 'dynamic K'", "value": 4},
                        "value": 2,
                    },
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.01},
                "encoding": {
                    "x": x,
                    "y": _q("speedup", "speed-up over SD off (×)"),
                    "tooltip": [
                        _tip("policy", "policy"),
                        _tip("batch_size", "batch", "d"),
                        _tip("k", "K", "d"),
                        _tip("speedup", "speed-up", ".2f"),
                        _tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
                    ],
                },
            },
            {
                "transform": [{"filter": "datum.chosen"}, {"aggregate": [], "groupby": ["batch_size"]}],
                "mark": {"type": "rule", "color": GREY, "opacity": 0.6},
                "encoding": {"x": x},
            },
        ]
    }


# -- Best K map ---------------------------------------------------------------------------------------------


def best_k_map(k_max: int) -> Spec:
    """Heat map of speed-up on (batch, K); best K as steps, eager cells dotted, what does not fit crossed."""
    x = _o(
        "batch_size",
        "batch size (sequences)",
        axis={"labelAngle": 0, "labelOverlap": True},
        scale={"padding": 0},
    )
    y = _o("k", "K", sort="descending", scale={"padding": 0, "domain": list(range(k_max, -1, -1))})
    tips = [
        _tip("batch_size", "batch", "d"),
        _tip("k", "K", "d"),
        _tip("speedup", "speed-up over SD off", ".2f"),
        _tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
        _tip("lost_percent", "below the best here (%)", ".1f"),
        _tip("graph", "CUDA graph"),
        _tip("memory", "memory"),
    ]
    return {
        "layer": [
            {
                "transform": [{"filter": "datum.row === 'cell'"}],
                "mark": {"type": "rect"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _q(
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
                    "shape": _n(
                        "kind",
                        None,
                        scale={"domain": ["best K", "SD off"], "range": ["diamond", "square"]},
                        legend=None,
                    ),
                    "fill": _n(
                        "kind",
                        None,
                        scale={"domain": ["best K", "SD off"], "range": [GREEN, "#FFFFFF"]},
                        legend=None,
                    ),
                    "size": {"value": 90},
                    "tooltip": [
                        _tip("batch_size", "batch", "d"),
                        _tip("choice", "best choice"),
                        _tip("speedup", "speed-up of the best K", ".2f"),
                    ],
                },
            },
        ]
    }


# -- Why ----------------------------------------------------------------------------------------------------


def share_bars(names: list[str]) -> Spec:
    """Share of the step by op, coloured by what bounds it."""
    return {
        "height": {"step": 20},
        "mark": {"type": "bar"},
        "encoding": {
            "y": _n("op", None, sort=names, axis={"labelLimit": 220}),
            "x": _q("share_percent", "share of the step (%)"),
            "color": _n("bound", None, scale=_colours(BOUNDS), legend=_legend("bound by")),
            "tooltip": [
                _tip("op", "op"),
                _tip("share_percent", "share (%)", ".1f"),
                _tip("seconds_ms", "time (ms)", ".3f"),
                _tip("bound", "bound by"),
                _tip("count", "times", ",.0f"),
            ],
        },
    }


def roofline() -> Spec:
    """Every op as a point under the data-sheet roof; area by share of the step."""
    x = _q(
        "intensity_flops_per_byte",
        "FLOP per byte moved",
        scale={"type": "log", "domain": [0.1, 10000], "clamp": True},
        axis={"format": "~g", "tickCount": 5},
    )
    y = _q(
        "tflops_per_s",
        "TFLOP/s reached",
        scale={"type": "log", "domain": [0.01, 10000], "clamp": True},
        axis={"format": "~g", "tickCount": 6},
    )
    return {
        "height": 360,
        "layer": [
            {
                "transform": [{"filter": "datum.row === 'roof'"}],
                "mark": {"type": "line", "color": GREY, "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "op", "type": "nominal"},
                    "tooltip": [_tip("op", "roof"), _tip("ridge", "ridge (FLOP/byte)", ".0f")],
                },
            },
            {
                "transform": [{"filter": "datum.row === 'op'"}],
                "mark": {
                    "type": "point",
                    "filled": True,
                    "opacity": 0.85,
                    "stroke": "#FFFFFF",
                    "strokeWidth": 0.5,
                },
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _n("bound", None, scale=_colours(BOUNDS), legend=_legend("bound by")),
                    "shape": _n(
                        "bound", None, scale={"domain": list(SHAPES), "range": list(SHAPES.values())}
                    ),
                    "size": _q("share_percent", "share (%)", scale={"range": [30, 900]}, legend=None),
                    "tooltip": [
                        _tip("op", "op"),
                        _tip("share_percent", "share of the step (%)", ".1f"),
                        _tip("seconds_ms", "time (ms)", ".3f"),
                        _tip("bound", "bound by"),
                        _tip("intensity_flops_per_byte", "FLOP per byte", ".3~g"),
                        _tip("tflops_per_s", "TFLOP/s", ".3~g"),
                    ],
                },
            },
        ],
    }


def experts() -> Spec:
    """Distinct experts read against tokens in the step; the verify passes of this batch as points."""
    x = _q("n_tokens", "tokens in the step, N·(K+1)", scale={"type": "log", "base": 2}, axis={"format": ",d"})
    y = _q("experts_read", "experts read")
    tips = [
        _tip("n_tokens", "tokens", ",d"),
        _tip("experts_read", "experts read", ".1f"),
        _tip("experts_held", "experts held", ".0f"),
        _tip("label", "K"),
    ]
    return {
        "layer": [
            {
                "transform": [{"filter": "datum.series === 'curve'"}],
                "mark": {"type": "line", "color": GREY},
                "encoding": {"x": x, "y": y},
            },
            {
                "transform": [{"filter": "datum.series !== 'curve'"}],
                "mark": {"type": "point", "filled": True, "size": 80, "color": BLUE, "opacity": 1},
                "encoding": {"x": x, "y": y, "tooltip": tips},
            },
            {
                "transform": [{"filter": "datum.series !== 'curve'"}],
                "mark": {"type": "text", "dy": -11, "color": BLUE},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ]
    }


def next_token() -> Spec:
    """Gain and cost of each further drafted token, in percent."""
    colours = {"tokens gained": GREEN, "time paid": RED}
    return {
        "mark": {"type": "bar"},
        "encoding": {
            "x": _o("k", "going to K", axis={"labelAngle": 0}),
            "xOffset": _n("what", None, sort=list(colours)),
            "y": _q("percent", "change (%)"),
            "color": _n("what", None, scale=_colours(colours), legend=_legend()),
            "tooltip": [
                _tip("k", "to K", "d"),
                _tip("what", "what"),
                _tip("percent", "change (%)", ".1f"),
                _tip("detail", "in units"),
                _tip("pays", "verdict"),
            ],
        },
    }


def break_even() -> Spec:
    """The acceptance that would be needed at each K, beside the one that is there."""
    x = _o("k", "K", axis={"labelAngle": 0})
    colours = {"needed to break even": RED, "in this scenario": BLUE}
    return {
        "mark": {"type": "line", "point": {"filled": True, "size": 60}},
        "encoding": {
            "x": x,
            "y": _q("c1", "c₁", scale={"domain": [0, 1]}),
            "color": _n("what", None, scale=_colours(colours), legend=_legend()),
            "strokeDash": _n(
                "what", None, scale={"domain": list(colours), "range": [[1, 0], [5, 3]]}, legend=None
            ),
            "tooltip": [_tip("k", "K", "d"), _tip("what", "c₁"), _tip("c1", "value", ".3f")],
        },
    }


# -- Acceptance ---------------------------------------------------------------------------------------------


def acceptance(series: list[str]) -> Spec:
    """Conditional acceptance by position: curves as lines, measurements as points with intervals."""
    palette = (BLUE, ORANGE, GREEN, PINK)
    colours = {name: palette[i % len(palette)] for i, name in enumerate(series)}
    x = _q("k", "draft position", axis={"tickMinStep": 1, "format": "d"})
    y = _q("conditional", "conditional acceptance", scale={"domain": [0, 1]})
    colour = _n("series", None, scale=_colours(colours), legend=_legend())
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
                        _tip("series", "curve"),
                        _tip("k", "position", "d"),
                        _tip("conditional", "conditional", ".3f"),
                        _tip("marginal", "marginal", ".3f"),
                        _tip("acceptance_length", "AL at this K", ".2f"),
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
                        _tip("series", "data"),
                        _tip("k", "position", "d"),
                        _tip("conditional", "conditional", ".3f"),
                        _tip("low", "95 % low", ".3f"),
                        _tip("high", "95 % high", ".3f"),
                        _tip("n", "steps", ",.0f"),
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
            "x": _q("k", "K (drafted tokens per step)", axis={"tickMinStep": 1, "format": "d"}),
            "y": _q("acceptance_length", "AL (tokens per step)", scale={"zero": True}),
            "color": _n("series", None, scale=_colours(colours), legend=_legend()),
            "tooltip": [
                _tip("series", "curve"),
                _tip("k", "K", "d"),
                _tip("acceptance_length", "AL", ".3f"),
                _tip("mean_accepted_percent", "accepted of drafted (%)", ".1f"),
            ],
        },
    }


# -- Schedule, Compare, Accuracy ----------------------------------------------------------------------------


def schedule_steps(top: int, *, checked: bool) -> Spec:
    """K by batch: the schedule, the best K at every batch, and an uploaded schedule."""
    colours = {"schedule": BLUE, "best K": GREEN, **({"uploaded": ORANGE} if checked else {})}
    return {
        "height": 240,
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": batch_axis(top),
            "y": _q("k", "K", axis={"tickMinStep": 1, "format": "d"}, scale={"zero": True}),
            "color": _n("series", None, scale=_colours(colours), legend=_legend()),
            "strokeDash": _n(
                "series",
                None,
                scale={"domain": list(colours), "range": [[1, 0], [2, 2], [6, 3]]},
                legend=None,
            ),
            "strokeWidth": _n(
                "series", None, scale={"domain": list(colours), "range": [3, 1.5, 2.5]}, legend=None
            ),
            "tooltip": [_tip("series", "line"), _tip("batch_size", "batch", "d"), _tip("k", "K", "d")],
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
            "y": _q(field, title, scale={"zero": True}, axis={"format": "~s"}),
            "color": _n(
                "scenario",
                None,
                scale=_colours(colours),
                legend={**_legend(), "columns": 1, "labelLimit": 400},
            ),
            "strokeDash": _n(
                "scenario", None, scale={"domain": names, "range": list(dashes[: len(names)])}, legend=None
            ),
            "tooltip": [
                _tip("scenario", "scenario"),
                _tip("batch_size", "batch", "d"),
                _tip("choice", "choice"),
                _tip(field, title, ",.3~f"),
            ],
        },
    }


def scores(names: list[str]) -> Spec:
    """Error of each campaign beside the bound it has to keep."""
    colours = {"within its bound": BLUE, "beyond its bound": ORANGE}
    y = _n("campaign", None, sort=names, axis={"labelLimit": 320})
    x = {"type": "quantitative", "title": "error (%)"}
    tips = [
        _tip("campaign", "campaign"),
        _tip("statistic", "statistic"),
        _tip("n", "rows", "d"),
        _tip("error_percent", "error (%)", ".1f"),
        _tip("bias_percent", "bias (%)", ".1f"),
        _tip("limit_percent", "bound (%)", ".1f"),
    ]
    return {
        "height": {"step": 20},
        "layer": [
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "x": {**x, "field": "error_percent"},
                    "color": _n("verdict", None, scale=_colours(colours), legend=_legend()),
                    "tooltip": tips,
                },
            },
            {
                "mark": {"type": "tick", "color": "#888888", "thickness": 2},
                "encoding": {"y": y, "x": {**x, "field": "limit_percent"}},
            },
        ],
    }
