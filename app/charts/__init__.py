"""Vega-Lite specs of every chart, and how one is shown."""

from __future__ import annotations

from charts.base import show
from charts.curves import acceptance, acceptance_length
from charts.plane import best_k_map, compared, schedule_steps, scores
from charts.step import (
    break_even,
    experts,
    goodput_by_k,
    next_token,
    roofline,
    share_bars,
    speedup_by_batch,
    speedup_by_k,
    step_stack,
)

__all__ = [
    "acceptance",
    "acceptance_length",
    "best_k_map",
    "break_even",
    "compared",
    "experts",
    "goodput_by_k",
    "next_token",
    "roofline",
    "schedule_steps",
    "scores",
    "share_bars",
    "show",
    "speedup_by_batch",
    "speedup_by_k",
    "step_stack",
]
