"""Charts of one step: speed-up, goodput and time by K; ops; the next token."""

from __future__ import annotations

from typing import Final

from charts.base import (
    BLUE,
    BOUNDS,
    FIXED_COLOURS,
    FIXED_DASHES,
    GREEN,
    GREY,
    PARTS,
    RED,
    SHAPES,
    SKY,
    Spec,
    batch_axis,
    colour_scale,
    k_axis,
    legend,
    nominal,
    ordered,
    quantity,
    rule_at,
    tip,
)

_K_TIPS: Final = [
    tip("k", "K", "d"),
    tip("speedup", "speed-up over SD off", ".2f"),
    tip("speedup_low", "low (10 %)", ".2f"),
    tip("speedup_high", "high (90 %)", ".2f"),
    tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
    tip("acceptance_length", "acceptance length", ".2f"),
    tip("step_ms", "step (ms)", ".2f"),
    tip("p_best_percent", "chance to be best (%)", ".0f"),
    tip("bound", "bound by"),
    tip("note", "note"),
]


def speedup_by_k(k_max: int) -> Spec:
    """Speed-up against K with its band, the best K and its ties marked."""
    x = k_axis(k_max)
    y = quantity("speedup", "speed-up over SD off (×)", scale={"zero": True})
    marks = {"best": GREEN, "as good (within 1 %)": SKY, "other": BLUE}
    return {
        "layer": [
            {
                "mark": {"type": "area", "color": BLUE, "opacity": 0.18},
                "encoding": {"x": x, "y": {**y, "field": "speedup_low"}, "y2": {"field": "speedup_high"}},
            },
            *rule_at(1.0, "SD off"),
            {"mark": {"type": "line", "color": BLUE}, "encoding": {"x": x, "y": y}},
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": nominal("mark", None, scale=colour_scale(marks), legend=legend()),
                    "shape": nominal(
                        "mark", None, scale={"domain": list(marks), "range": ["diamond", "circle", "circle"]}
                    ),
                    "size": nominal(
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
            "x": ordered("label", "K (drafted tokens per step)", sort=None, axis={"labelAngle": 0}),
            "y": quantity("goodput_tokens_per_s", "goodput (tokens/s)", axis={"format": "~s"}),
            "color": nominal("mark", None, scale=colour_scale(colours), legend=legend()),
            "tooltip": [
                tip("label", "K"),
                tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
                tip("request_tokens_per_s", "one request (tokens/s)", ",.1f"),
                tip("tpot_ms", "time per token (ms)", ".2f"),
            ],
        },
    }


def step_stack() -> Spec:
    """Where the time of a step goes, per K."""
    return {
        "mark": {"type": "bar"},
        "encoding": {
            "x": ordered("label", "K (drafted tokens per step)", sort=None, axis={"labelAngle": 0}),
            "y": quantity("part_ms", "one step (ms)", stack="zero"),
            "color": nominal("part", None, scale=colour_scale(PARTS), legend=legend(), sort=list(PARTS)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [
                tip("label", "K"),
                tip("part", "part"),
                tip("part_ms", "time (ms)", ".3f"),
                tip("step_ms", "whole step (ms)", ".2f"),
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
                    "y": quantity("speedup", "speed-up over SD off (×)", scale={"zero": True}),
                    "color": nominal("policy", None, scale=colour_scale(colours), legend=legend()),
                    "strokeDash": nominal(
                        "policy", None, scale={"domain": domain, "range": dashes}, legend=None
                    ),
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
                    "y": quantity("speedup", "speed-up over SD off (×)"),
                    "tooltip": [
                        tip("policy", "policy"),
                        tip("batch_size", "batch", "d"),
                        tip("k", "K", "d"),
                        tip("speedup", "speed-up", ".2f"),
                        tip("goodput_tokens_per_s", "goodput (tokens/s)", ",.0f"),
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


def share_bars(names: list[str]) -> Spec:
    """Share of the step by op, coloured by what bounds it."""
    return {
        "height": {"step": 20},
        "mark": {"type": "bar"},
        "encoding": {
            "y": nominal("op", None, sort=names, axis={"labelLimit": 220}),
            "x": quantity("share_percent", "share of the step (%)"),
            "color": nominal("bound", None, scale=colour_scale(BOUNDS), legend=legend("bound by")),
            "tooltip": [
                tip("op", "op"),
                tip("share_percent", "share (%)", ".1f"),
                tip("seconds_ms", "time (ms)", ".3f"),
                tip("bound", "bound by"),
                tip("count", "times", ",.0f"),
            ],
        },
    }


def roofline() -> Spec:
    """Every op as a point under the data-sheet roof; area by share of the step."""
    x = quantity(
        "intensity_flops_per_byte",
        "FLOP per byte moved",
        scale={"type": "log", "domain": [0.1, 10000], "clamp": True},
        axis={"format": "~g", "tickCount": 5},
    )
    y = quantity(
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
                    "tooltip": [tip("op", "roof"), tip("ridge", "ridge (FLOP/byte)", ".0f")],
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
                    "color": nominal("bound", None, scale=colour_scale(BOUNDS), legend=legend("bound by")),
                    "shape": nominal(
                        "bound", None, scale={"domain": list(SHAPES), "range": list(SHAPES.values())}
                    ),
                    "size": quantity("share_percent", "share (%)", scale={"range": [30, 900]}, legend=None),
                    "tooltip": [
                        tip("op", "op"),
                        tip("share_percent", "share of the step (%)", ".1f"),
                        tip("seconds_ms", "time (ms)", ".3f"),
                        tip("bound", "bound by"),
                        tip("intensity_flops_per_byte", "FLOP per byte", ".3~g"),
                        tip("tflops_per_s", "TFLOP/s", ".3~g"),
                    ],
                },
            },
        ],
    }


def experts() -> Spec:
    """Distinct experts read against tokens in the step; the verify passes of this batch as points."""
    x = quantity(
        "n_tokens", "tokens in the step, N·(K+1)", scale={"type": "log", "base": 2}, axis={"format": ",d"}
    )
    y = quantity("experts_read", "experts read")
    tips = [
        tip("n_tokens", "tokens", ",d"),
        tip("experts_read", "experts read", ".1f"),
        tip("experts_held", "experts held", ".0f"),
        tip("label", "K"),
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
            "x": ordered("k", "going to K", axis={"labelAngle": 0}),
            "xOffset": nominal("what", None, sort=list(colours)),
            "y": quantity("percent", "change (%)"),
            "color": nominal("what", None, scale=colour_scale(colours), legend=legend()),
            "tooltip": [
                tip("k", "to K", "d"),
                tip("what", "what"),
                tip("percent", "change (%)", ".1f"),
                tip("detail", "in units"),
                tip("pays", "verdict"),
            ],
        },
    }


def break_even() -> Spec:
    """The acceptance that would be needed at each K, beside the one that is there."""
    x = ordered("k", "K", axis={"labelAngle": 0})
    colours = {"needed to break even": RED, "in this scenario": BLUE}
    return {
        "mark": {"type": "line", "point": {"filled": True, "size": 60}},
        "encoding": {
            "x": x,
            "y": quantity("c1", "c₁", scale={"domain": [0, 1]}),
            "color": nominal("what", None, scale=colour_scale(colours), legend=legend()),
            "strokeDash": nominal(
                "what", None, scale={"domain": list(colours), "range": [[1, 0], [5, 3]]}, legend=None
            ),
            "tooltip": [tip("k", "K", "d"), tip("what", "c₁"), tip("c1", "value", ".3f")],
        },
    }
