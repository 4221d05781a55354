"""How sure: spreads of the fits and of the acceptance, carried into every step time and every choice of K.

Each kernel family's time is off by a common factor exp(σ_f·z_f) (all shapes of a family err together on one
machine); families err independently. The same factors act on the plain and on the speculative step, so much
of the error cancels in the speed-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflinesim.grid import FloatArray
from rooflinesim.step import StepTime

#: Standard normal quantile of the 80 % band (10 % on each side).
Z80 = 1.2816
#: Spread of whole steps that kernel fits do not know: which kernels, fusions and host work a version has.
#: Common to the plain and the speculative step. Measured: what makes the 80 % band hold 80 % of the step,
#: draft and target-pass times in validation/, each campaign weighing the same; estimated without the campaign
#: it is tested on, it lies between 0.10 and 0.17.
STEP_LOG_SD = 0.14
#: The same for the speculative round alone (drafter's host work, rejection, trees): does not cancel in the
#: speed-up. Measured on the published speed-ups in the same way; 0.10 to 0.14 without the tested campaign.
ROUND_LOG_SD = 0.12


def family_log_sd(families: dict[str, FloatArray], log_sd: dict[str, float]) -> FloatArray:
    """σ of log Σ_f t_f when each family's time t_f is off by its own factor: √Σ_f (t_f/Σt · σ_f)².

    >>> two = {"gemm": np.array(3.0), "attention": np.array(1.0)}
    >>> float(family_log_sd(two, {"gemm": 0.1, "attention": 0.4}).round(4))
    0.125
    """
    total = sum(families.values(), np.zeros(()))
    variance: FloatArray = np.zeros(())
    for family, seconds in families.items():
        variance = variance + np.square(seconds / total * log_sd.get(family, 0.0))
    return np.sqrt(variance)


def model_log_sd(step: StepTime) -> tuple[float, float]:
    """(σ of every step, σ of the speculative round alone) beyond the kernel fits; nothing for the bare
    roofline."""
    known = any(sd > 0.0 for family, sd in step.log_sd.items() if family != "host")
    return (STEP_LOG_SD, ROUND_LOG_SD) if known else (0.0, 0.0)


def step_log_sd(step: StepTime) -> FloatArray:
    """σ of log step_s on the grid: √(Σ_f (share_f·σ_f)² + σ_step² + σ_round²)."""
    variance: FloatArray = np.zeros(())
    for family, seconds in step.families.items():
        share = seconds / step.step_s
        variance = variance + np.square(share * step.log_sd.get(family, 0.0))
    common, alone = model_log_sd(step)
    return np.sqrt(variance + common**2 + alone**2)


def speedup_log_sd(step: StepTime) -> FloatArray:
    """σ of log(off_step_s/step_s): common errors cancel, the round's own spread does not."""
    variance: FloatArray = np.zeros(())
    for family in sorted({*step.families, *step.off_families}):
        on = step.families.get(family, np.zeros(())) / step.step_s
        off = step.off_families.get(family, np.zeros(())) / step.off_step_s
        variance = variance + np.square((on - off) * step.log_sd.get(family, 0.0))
    return np.sqrt(variance + model_log_sd(step)[1] ** 2)


@dataclass(frozen=True)
class StepDraws:
    """Draws of step_s and off_step_s, shape (draws, batch, k, context)."""

    step_s: FloatArray
    off_step_s: FloatArray


def draw_steps(step: StepTime, *, n_draws: int, rng: np.random.Generator) -> StepDraws:
    """``n_draws`` joint draws of the speculative and the plain step; small grids only (memory is draws ×
    grid)."""
    total = np.zeros((n_draws, *np.broadcast_shapes(step.step_s.shape, (1, 1, 1))))
    off = np.zeros((n_draws, *np.broadcast_shapes(step.off_step_s.shape, (1, 1, 1))))
    scale_on = step.step_s / sum(np.asarray(s) for s in step.families.values())
    scale_off = step.off_step_s / sum(np.asarray(s) for s in step.off_families.values())
    for family in sorted({*step.families, *step.off_families}):
        sd = step.log_sd.get(family, 0.0)
        factor = np.exp(sd * rng.standard_normal(n_draws)).reshape(-1, 1, 1, 1)
        if family in step.families:
            total += factor * step.families[family] * scale_on
        if family in step.off_families:
            off += factor * step.off_families[family] * scale_off
    common, alone = model_log_sd(step)
    both = np.exp(common * rng.standard_normal(n_draws)).reshape(-1, 1, 1, 1)
    round_only = np.exp(alone * rng.standard_normal(n_draws)).reshape(-1, 1, 1, 1)
    return StepDraws(step_s=total * both * round_only, off_step_s=off * both)
