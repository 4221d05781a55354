"""Figures: goodput and step time against K, speed-up against batch, the best-K map, the roofline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from rooflinesim.api.evaluate import Evaluation
from rooflinesim.api.predict import Point, Prediction
from rooflinesim.errors import InputError
from rooflinesim.output import write_bytes

FORMATS = ("png", "svg", "pdf")
#: Okabe-Ito: distinguishable with every common colour vision.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#7F7F7F"
PARTS = (
    ("draft_s", "draft", ORANGE),
    ("verify_s", "verify", BLUE),
    ("sample_s", "sample", GREEN),
    ("host_s", "host", GREY),
)


def pyplot() -> Any:
    """pyplot without a window, in the style of every figure here."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "savefig.bbox": "tight",
        }
    )
    return pyplot


def _batch_axis(axis: Any) -> None:
    """Batch sizes on a log axis, with plain numbers."""
    from matplotlib.ticker import FuncFormatter

    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def save(figure: Any, path: str, *, force: bool) -> Path:
    """Write a figure; the suffix chooses the format."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise InputError(f"--plot: {path!r} must end in {', '.join('.' + f for f in FORMATS)}")
    return write_bytes(path, image_bytes(figure, kind), force=force)


def image_bytes(figure: Any, kind: str = "png") -> bytes:
    """A figure as the bytes of an image file; the figure is closed."""
    sink = io.BytesIO()
    figure.savefig(sink, format=kind, dpi=150)
    pyplot().close(figure)
    return sink.getvalue()


def save_prediction(prediction: Prediction, path: str, *, force: bool = False) -> Path:
    """One batch: speed-up with its band and the step's parts against K. Several: speed-up against batch."""
    if Path(path).exists() and not force:
        raise InputError(f"{path}: exists already; use --force to replace it")
    figure = _one(prediction.points[0], prediction) if len(prediction.points) == 1 else _several(prediction)
    return save(figure, path, force=force)


def title(prediction: Prediction) -> str:
    """Model, accelerator and drafter on one line."""
    d = prediction.resolved.deployment
    return f"{d.target.id} on {d.parallel.n_gpus} x {d.ceilings.gpu.id}, {d.profile.engine}, {d.method}"


def _one(point: Point, prediction: Prediction) -> Any:
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    k = np.array([row.k for row in point.rows])
    gain = np.array([row.speedup for row in point.rows])
    low = np.array([row.speedup_low for row in point.rows])
    high = np.array([row.speedup_high for row in point.rows])
    left.fill_between(k, low, high, color=BLUE, alpha=0.18, lw=0, label="80 % band")
    left.plot(k, gain, color=BLUE, marker="o", ms=4)
    best = point.best_row
    left.plot(best.k, best.speedup, marker="*", ms=14, color=RED, ls="", label=f"best K = {best.k}")
    left.axhline(1.0, color=GREY, lw=1, ls="--")
    left.text(k[-1], 1.0, "SD off", ha="right", va="bottom", color=GREY)
    left.set(xlabel="drafted tokens K", ylabel="speed-up over SD off", xticks=k)
    left.set_ylim(bottom=0)
    left.legend(loc="lower center")
    bottom = np.zeros(k.size)
    for field, name, colour in PARTS:
        height = np.array([getattr(row, field) for row in point.rows]) * 1e3
        right.bar(k, height, bottom=bottom, color=colour, label=name, width=0.7)
        bottom += height
    right.axhline(point.off_step_s * 1e3, color="black", lw=1, ls="--", label="step with SD off")
    right.set(xlabel="drafted tokens K", ylabel="step time, ms", xticks=k)
    right.legend(loc="upper left", ncols=2)
    right.set_ylim(top=bottom.max() * 1.25)
    figure.suptitle(
        f"{title(prediction)}, batch {point.batch_size}, context {point.context_tokens}", fontsize=9
    )
    figure.tight_layout()
    return figure


def _several(prediction: Prediction) -> Any:
    plt = pyplot()
    contexts = sorted({p.context_tokens for p in prediction.points})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    for colour, context in zip((BLUE, ORANGE, GREEN, RED, PURPLE), contexts, strict=False):
        points = [p for p in prediction.points if p.context_tokens == context]
        n = np.array([p.batch_size for p in points])
        gain = np.array(
            [max(1.0, p.best_row.speedup) if p.choice == "off" else p.best_row.speedup for p in points]
        )
        axes[0].plot(n, gain, color=colour, marker="o", ms=3, label=f"dynamic K, context {context}")
        fixed = [next((r.speedup for r in p.rows if r.k == 3), np.nan) for p in points]
        axes[0].plot(n, fixed, color=colour, ls=":", label="fixed K = 3" if context == contexts[0] else None)
        axes[1].step(
            n,
            [0 if p.choice == "off" else p.best_k for p in points],
            where="mid",
            color=colour,
            label=f"context {context}",
        )
    axes[0].axhline(1.0, color=GREY, lw=1, ls="--")
    axes[0].set(xlabel="batch size", ylabel="speed-up over SD off", xscale="log")
    axes[1].set(xlabel="batch size", ylabel="best K (0: off)", xscale="log")
    axes[1].set_ylim(bottom=-0.2)
    for axis in axes:
        _batch_axis(axis)
        axis.legend()
    figure.suptitle(title(prediction), fontsize=9)
    figure.tight_layout()
    return figure


def best_k_map(panels: list[tuple[str, Evaluation]]) -> Any:
    """Goodput relative to the best K over (batch, K), one panel per evaluation, with best K as steps."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False)
    for axis, (name, result) in zip(axes[0], panels, strict=True):
        table = result.goodput[:, :, 0] / result.goodput[:, :, 0].max(axis=1, keepdims=True)
        n, k = result.grid.batch.ravel(), result.grid.k.ravel()
        edges = np.concatenate([[n[0] / 1.2], np.sqrt(n[1:] * n[:-1]), [n[-1] * 1.2]]) if n.size > 1 else n
        image = axis.pcolormesh(
            edges, np.append(k, k[-1] + 1) - 0.5, table.T, cmap="cividis", vmin=0.6, vmax=1.0
        )
        axis.step(n, result.best.k[:, 0], where="mid", color=RED, lw=2, label="best K")
        axis.set(xscale="log", xlabel="batch size", ylabel="drafted tokens K", title=name)
        _batch_axis(axis)
        axis.grid(False)
        axis.legend(loc="upper right", labelcolor="white")
        figure.colorbar(image, ax=axis, label="goodput / best")
    figure.tight_layout()
    return figure
