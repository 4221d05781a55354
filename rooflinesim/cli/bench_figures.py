"""Figures of a measured campaign: measured points on model lines. Reads the committed files, measures
nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflinesim.api.resolve import resolve
from rooflinesim.errors import InputError
from rooflinesim.grid import Grid
from rooflinesim.measurements import Measurement
from rooflinesim.step import StepTime, step_time
from rooflinesim.validate.campaign import Campaign

#: Colours that differ in lightness too, one per K.
COLOURS = ("#1b1b1b", "#0b6fa4", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#7a3e9d")


def table(campaign: Campaign, metric: str, *, use: str = "score") -> dict[int, dict[float, Measurement]]:
    """Rows of one metric as K → batch size → row."""
    out: dict[int, dict[float, Measurement]] = defaultdict(dict)
    for row in campaign.select(metric=metric, groups=(), use=use):
        out[row.k][row.batch_size] = row
    return dict(out)


def predicted(campaign: Campaign, *, batches: Sequence[float], ks: Sequence[int], context: float) -> StepTime:
    """The cost model on a grid of this campaign's scenario."""
    return step_time(
        resolve(campaign.scenario("")).deployment, Grid.of(batch=list(batches), k=list(ks), context=[context])
    )


def lengths(campaign: Campaign) -> dict[int, float]:
    """Measured AL by K, 1 at K = 0."""
    return {0: 1.0, **{r.k: r.value for r in campaign.rows if r.metric == "acceptance_length"}}


def _context(campaign: Campaign) -> float:
    return float(np.mean([r.context_tokens for r in campaign.rows if r.context_tokens]))


def draw(campaign: Campaign, path: Path) -> Path:
    """Four panels: verify time, goodput over SD off, goodput by K, acceptance length; and save a PNG."""
    from rooflinesim.plots import pyplot

    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(12.5, 9.0), layout="constrained")
    verify = table(campaign, "verify_s")
    if not verify:
        raise InputError(f"{campaign.id}: no verify_s rows to draw")
    _draw_verify(axes[0, 0], campaign, verify)
    goodput = table(campaign, "output_tokens_per_s")
    _draw_speedup(axes[0, 1], campaign, goodput)
    _draw_best(axes[1, 0], campaign, goodput)
    _draw_lengths(axes[1, 1], campaign)
    figure.suptitle(
        f"{campaign.source.title} ({campaign.id}): points measured, lines predicted from primitives"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _lines(batches: list[float]) -> list[float]:
    """Whole batch sizes, evenly spread on a log axis."""
    return list(np.unique(np.round(np.geomspace(min(batches), max(batches), 60))))


def _draw_verify(axis: Any, campaign: Campaign, verify: dict[int, dict[float, Measurement]]) -> None:
    ks = sorted(verify)
    batches = sorted({b for column in verify.values() for b in column})
    fine = _lines(batches)
    model = predicted(campaign, batches=fine, ks=ks, context=_context(campaign))
    seconds = np.broadcast_to(model.verify_s, (len(fine), len(ks), 1))
    for i, k in enumerate(ks):
        colour = COLOURS[k % len(COLOURS)]
        axis.plot(np.array(fine) * (k + 1), 1e3 * seconds[:, i, 0], color=colour, lw=1.2)
        rows = [verify[k][b] for b in sorted(verify[k])]
        axis.errorbar(
            [r.batch_size * (k + 1) for r in rows],
            [1e3 * r.value for r in rows],
            yerr=[1e3 * r.value * (r.spread_frac or 0.0) / 2 for r in rows],
            fmt="o",
            ms=4,
            color=colour,
            label=f"K = {k}",
        )
    axis.set(xscale="log", yscale="log", xlabel="tokens in the pass, batch x (K+1)", ylabel="verify, ms")
    axis.set_title("Verify time")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3, which="both")


def _draw_speedup(axis: Any, campaign: Campaign, goodput: dict[int, dict[float, Measurement]]) -> None:
    ks = [k for k in sorted(goodput) if k > 0]
    batches = sorted(goodput[0])
    fine = _lines(batches)
    model = predicted(campaign, batches=fine, ks=ks, context=_context(campaign))
    al = lengths(campaign)
    for i, k in enumerate(ks):
        colour = COLOURS[k % len(COLOURS)]
        gain = al[k] * (model.off_step_s / model.step_s)[:, i, 0]
        axis.plot(fine, gain, color=colour, lw=1.2)
        own = [goodput[k][b].value / goodput[0][b].value for b in batches if b in goodput[k]]
        axis.plot([b for b in batches if b in goodput[k]], own, "o", ms=4, color=colour, label=f"K = {k}")
    axis.axhline(1.0, color="0.5", lw=0.8)
    axis.set(xscale="log", xlabel="batch size", ylabel="goodput / goodput of SD off")
    axis.set_title("Speed-up against SD off")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_best(axis: Any, campaign: Campaign, goodput: dict[int, dict[float, Measurement]]) -> None:
    ks = sorted(goodput)
    batches = sorted(goodput[0])
    al = lengths(campaign)
    model = predicted(campaign, batches=batches, ks=ks, context=_context(campaign))
    step = np.broadcast_to(model.step_s, (len(batches), len(ks), 1))[:, :, 0].copy()
    step[:, 0] = np.broadcast_to(model.off_step_s, (len(batches), 1, 1))[:, 0, 0]
    gain = np.array([al[k] for k in ks]) / step
    measured = np.array([[goodput[k][b].value for k in ks] for b in batches])
    places = np.arange(len(batches))
    axis.plot(
        places,
        [ks[i] for i in gain.argmax(axis=1)],
        "s--",
        mfc="none",
        ms=11,
        color="#d55e00",
        label="predicted",
    )
    axis.plot(places, [ks[i] for i in measured.argmax(axis=1)], "o", ms=6, color="#1b1b1b", label="measured")
    near = measured >= 0.97 * measured.max(axis=1, keepdims=True)
    for place, row in zip(places, near, strict=True):
        axis.plot([place] * int(row.sum()), np.array(ks)[row], "_", ms=16, color="0.55", zorder=0)
    axis.set_xticks(places, [f"{b:g}" for b in batches])
    axis.set(xlabel="batch size", ylabel="best K (0: SD off)", ylim=(-0.5, max(ks) + 0.5))
    axis.set_title("Best K (grey: within 3 % of the measured best)")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_lengths(axis: Any, campaign: Campaign) -> None:
    from rooflinesim.acceptance import fit_acceptance_lengths
    from rooflinesim.acceptance.curve import AcceptanceCurve

    rows = sorted((r for r in campaign.rows if r.metric == "acceptance_length"), key=lambda r: r.k)
    given = [r for r in rows if r.use == "given"]
    c1, decay, _ = fit_acceptance_lengths(k=[r.k for r in given], acceptance_length=[r.value for r in given])
    curve = AcceptanceCurve.geometric(c1=c1, decay=decay)
    ks = range(1, max(r.k for r in rows) + 1)
    line = [float(np.asarray(curve.acceptance_length(k))) for k in ks]
    axis.plot(
        list(ks), line, color="#0b6fa4", label=f"c1 = {c1:.3f}, decay = {decay:.3f}, from K <= {given[-1].k}"
    )
    axis.plot([r.k for r in given], [r.value for r in given], "o", mfc="none", color="#1b1b1b", label="given")
    rest = [r for r in rows if r.use == "score"]
    axis.plot([r.k for r in rest], [r.value for r in rest], "o", color="#1b1b1b", label="measured, not given")
    axis.set(xlabel="K", ylabel="acceptance length")
    axis.set_title("Acceptance length from (c1, decay)")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
