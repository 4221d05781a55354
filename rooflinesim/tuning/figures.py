"""The two plots of the report: measured against modelled step times, and goodput per K with the schedule."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rooflinesim.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, image_bytes, pyplot
from rooflinesim.solver import goodput_band
from rooflinesim.tuning.core import TuneAnswer

#: One colour per K in both plots; K beyond them is drawn in grey.
COLOURS: Final = ("black", PURPLE, BLUE, GREEN, ORANGE, RED, "#56B4E9", "#F0E442", "#8C564B")
#: Speculative K drawn at most: more lines than this cannot be told apart.
MAX_LINES: Final = 6


def colour_of(k: int) -> str:
    """The colour of a K."""
    return COLOURS[k] if k < len(COLOURS) else GREY


def _batch_axis(axis: Any) -> None:
    """Batch size on a logarithmic axis with whole numbers."""
    axis.set(xlabel="batch size")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:.0f}")


def step_figure(found: TuneAnswer) -> bytes:
    """Step time over batch: the fitted model as lines, measured times as dots, a colour per K; PNG bytes."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 4.0))
    result = found.draws.evaluation
    n = result.grid.batch.ravel()
    known = result.grid.k.ravel().astype(int).tolist()
    steps = [c for c in found.overhead.compared if c.metric == "step_s"]
    timed = sorted({c.k for c in steps})
    drawn = [k for k in timed if k in known and k > 0] or list(found.answer.schedule.distinct_k)
    axis.plot(n, result.step.off_step_s[:, 0, 0] * 1e3, color=colour_of(0), lw=1.4, label="model, SD off")
    whole = np.broadcast_to(result.step.step_s, result.goodput.shape)
    for k in [k for k in drawn if k > 0][:MAX_LINES]:
        line = whole[:, known.index(k), 0] * 1e3
        axis.plot(n, line, color=colour_of(k), lw=1.4, label=f"model, K = {k}")
    for k in timed:
        some = [c for c in steps if c.k == k]
        axis.plot(
            [c.batch_size for c in some],
            [c.measured_s * 1e3 for c in some],
            color=colour_of(k),
            ls="",
            marker="o",
            ms=6,
            mec="white",
            label=f"measured, {'SD off' if k == 0 else f'K = {k}'}",
        )
    if not steps:
        axis.set_title("no step time among the files", fontsize=9, color=GREY)
    context = int(result.grid.context.ravel()[0])
    axis.set(ylabel=f"step time, ms (context {context} tokens)")
    _batch_axis(axis)
    axis.set_ylim(bottom=0)
    axis.legend(ncols=2, loc="upper left")
    figure.tight_layout()
    return image_bytes(figure)


def goodput_figure(found: TuneAnswer) -> bytes:
    """Tokens per second and request over batch, a line per K, the schedule with its band on top; as PNG."""
    plt = pyplot()
    figure, (axis, strip) = plt.subplots(
        2, 1, figsize=(7.2, 4.6), height_ratios=(5, 1), sharex=True, layout="constrained"
    )
    result = found.draws.evaluation
    n = result.grid.batch.ravel()
    per_request = result.goodput.mean(axis=2) / n[:, None]
    known = result.grid.k.ravel().astype(int).tolist()
    axis.plot(n, result.off_goodput.mean(axis=1) / n, color="black", ls="--", lw=1.2, label="SD off")
    schedule = found.answer.schedule
    shown = sorted({*schedule.distinct_k, found.answer.solved.best_fixed, 1} - {0})
    for k in [k for k in shown if k in known][:MAX_LINES]:
        axis.plot(n, per_request[:, known.index(k)], color=colour_of(k), lw=1.0, label=f"K = {k}")
    chosen = schedule.lookup(n.astype(np.int64))
    at = np.searchsorted(known, chosen)
    rows = np.arange(n.size)
    low, high = goodput_band(draws=found.draws.goodput[:, rows, at] / n)
    axis.fill_between(n, low, high, color=GREY, alpha=0.3, lw=0, label="schedule, 80 % band")
    axis.plot(n, per_request[rows, at], color="black", lw=2.2, alpha=0.7, label="schedule")
    axis.set(ylabel="tokens/s per request")
    axis.set_ylim(bottom=0)
    axis.legend(ncols=3, loc="lower left")
    strip.step(n, chosen, where="post", color="black", lw=1.6)
    strip.set(ylabel="K", yticks=sorted({0, *schedule.distinct_k}))
    strip.set_ylim(-0.4, max(chosen.max(), 1) + 0.6)
    _batch_axis(strip)
    return image_bytes(figure)
