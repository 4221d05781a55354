"""One scenario on a grid: step times, tokens gained, goodput, best K, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rooflinesim.acceptance import sample_assumed_length
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.goodput import break_even_c1, goodput_tokens_per_s, speedup
from rooflinesim.grid import FloatArray, Grid
from rooflinesim.memory import Footprint, footprint
from rooflinesim.solver import BestK, best_k, goodput_band, goodput_grid, probability_best
from rooflinesim.specs.scenario import Scenario
from rooflinesim.step import StepTime, step_time
from rooflinesim.uncertainty import draw_steps

#: Spread of the first-position acceptance of a default curve that nobody measured for this pair and data.
ASSUMED_C1_STDERR = 0.06
#: Spread left when the user measured the acceptance.
MEASURED_C1_STDERR = 0.01
N_DRAWS = 400


@dataclass(frozen=True)
class Evaluation:
    """Everything about one scenario on a grid; arrays on (batch, k, context), AL on (k, context).

    Draw-based fields are ``None`` when no draws were asked for.
    """

    resolved: Resolved
    grid: Grid
    step: StepTime
    acceptance_length: FloatArray
    goodput: FloatArray
    off_goodput: FloatArray
    speedup: FloatArray
    best: BestK
    break_even_c1: FloatArray
    speedup_low: FloatArray | None = None
    speedup_high: FloatArray | None = None
    p_best: FloatArray | None = None


def evaluate(
    scenario: Scenario | Resolved,
    *,
    batch_sizes: Sequence[int] | None = None,
    k_values: Sequence[int] | None = None,
    context_tokens: Sequence[int] | None = None,
    tie_frac: float = 0.01,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Evaluation:
    """Evaluate a scenario on its own batches and contexts, or on the ones given, for K = 0..k_max.

    ``n_draws`` = 0 skips error bars (large sweeps). Nothing is checked against memory here: see
    :func:`fit_memory`.
    """
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    asked = resolved.scenario
    ks = list(range(asked.k_max + 1)) if k_values is None else sorted({*k_values})
    if resolved.deployment.method == "none":
        ks = [0]
    grid = Grid.of(
        batch=asked.batch_sizes if batch_sizes is None else batch_sizes,
        k=ks,
        context=asked.context_tokens if context_tokens is None else context_tokens,
    )
    step = measured_or_modelled(resolved, grid)
    curve = resolved.acceptance.curve
    lengths = np.stack(
        [
            np.asarray(curve.acceptance_length(np.asarray(ks), context_tokens=float(c)), dtype=np.float64)
            for c in (grid.context.ravel() if curve.depends_on_context else grid.context.ravel()[:1])
        ],
        axis=-1,
    )
    batch = grid.batch.ravel()
    goodput = goodput_grid(batch_size=batch, acceptance_length=lengths, step_s=step.step_s)
    off = goodput_tokens_per_s(batch_size=grid.batch, acceptance_length=1.0, step_s=step.off_step_s)[:, 0, :]
    gain = speedup(acceptance_length=lengths, step_s=step.step_s, off_step_s=step.off_step_s)
    best = best_k(k=ks, goodput=goodput, off_goodput=off, tie_frac=tie_frac)
    ratio = step.step_s / step.off_step_s
    decay = curve.named_params.get("decay", 1.0)
    need = np.full(ratio.shape, np.nan)
    positive = [i for i, k in enumerate(ks) if k > 0]
    if positive and n_draws > 0:
        need[:, positive, :] = break_even_c1(
            r=ratio[:, positive, :], k=np.asarray(ks)[positive][None, :, None], decay=decay
        )
    low = high = p_best = None
    if n_draws > 0:
        low, high, p_best = _draws(resolved, grid, step, lengths, n_draws=n_draws, seed=seed)
    return Evaluation(
        resolved=resolved,
        grid=grid,
        step=step,
        acceptance_length=lengths,
        goodput=goodput,
        off_goodput=off,
        speedup=gain,
        best=best,
        break_even_c1=need,
        speedup_low=low,
        speedup_high=high,
        p_best=p_best,
    )


def measured_or_modelled(resolved: Resolved, grid: Grid) -> StepTime:
    """The modelled step, with the verify curve replaced by a measured one when the scenario names it."""
    step = step_time(resolved.deployment, grid)
    if resolved.scenario.verify_curve is None:
        return step
    from rooflinesim.api.curves import read_verify_curve, with_verify_curve

    return with_verify_curve(
        step, grid, read_verify_curve(resolved.scenario.verify_curve), resolved.deployment
    )


def _draws(
    resolved: Resolved, grid: Grid, step: StepTime, lengths: FloatArray, *, n_draws: int, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    steps = draw_steps(step, n_draws=n_draws, rng=rng)
    measured = resolved.acceptance.measured_k > 0
    curve = resolved.acceptance.curve
    contexts = grid.context.ravel() if curve.depends_on_context else [None]
    al = np.stack(
        [
            sample_assumed_length(
                curve,
                k=grid.k.ravel().astype(int),
                c1_stderr=MEASURED_C1_STDERR if measured else ASSUMED_C1_STDERR,
                n=n_draws,
                rng=np.random.default_rng([seed, 1]),  # one shift for all contexts of a draw
                context_tokens=None if at is None else float(at),
            )
            for at in contexts
        ],
        axis=-1,
    )[:, None]
    n = grid.batch[None]
    good = n * al / steps.step_s
    off = n / steps.off_step_s
    low, high = goodput_band(draws=good / off)
    p_best = probability_best(
        goodput_draws=good,
        off_goodput_draws=np.broadcast_to(off, (*off.shape[:2], 1, off.shape[3]))[:, :, 0, :],
    )
    return low, high, p_best


def fit_memory(resolved: Resolved, *, context_tokens: int, k: int) -> Footprint:
    """Memory of one rank of this deployment at one context and K."""
    d = resolved.deployment
    return footprint(
        gpu=d.ceilings.gpu,
        target=d.target,
        parallel=d.parallel,
        formats=d.formats,
        profile=d.profile,
        context_tokens=context_tokens,
        k=k,
        method=d.method,
        draft=d.draft,
    )
