"""What a schedule brings over its rivals, with an 80 % band from the errors of fits and acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rooflinesim.acceptance import CurveFit, sample_acceptance_length, sample_assumed_length
from rooflinesim.api.evaluate import ASSUMED_C1_STDERR, MEASURED_C1_STDERR, Evaluation, evaluate
from rooflinesim.api.resolve import Resolved
from rooflinesim.api.scheduling import server_of
from rooflinesim.grid import FloatArray
from rooflinesim.schedule import Schedule
from rooflinesim.solver import goodput_band
from rooflinesim.tuning.overhead import Compared, Overhead
from rooflinesim.uncertainty import StepDraws, draw_steps

#: Batches at which draws are made: enough for a mean over all of them.
N_BATCHES: Final = 128
N_DRAWS: Final = 400
#: Contexts of timed steps, beside the scenario's own, at which draws are made.
N_CONTEXTS: Final = 4
#: Timed steps count as at most so many independent ones: the model's errors repeat from setting to setting.
INDEPENDENT: Final = 12
#: Batch sizes of the files that are listed one by one.
MAX_NAMED: Final = 6
#: A timed step is never surer than this.
NOISE_LOG_SD: Final = 0.02


@dataclass(frozen=True)
class Gain:
    """Mean gain in goodput (a fraction) over ``over`` at the batches ``where``, 80 % band, P(gain > 0)."""

    over: str
    where: str
    mean_frac: float
    low_frac: float
    high_frac: float
    p_positive: float


@dataclass(frozen=True)
class Draws:
    """Goodput (tokens/s of the whole batch) drawn on (draw, batch, K), and of *SD off* on (draw, batch)."""

    evaluation: Evaluation
    goodput: FloatArray
    off_goodput: FloatArray

    @property
    def batches(self) -> FloatArray:
        """The batch sizes."""
        return self.evaluation.grid.batch.ravel()

    @property
    def k(self) -> FloatArray:
        """The K."""
        return self.evaluation.grid.k.ravel()


@dataclass(frozen=True)
class Rival:
    """What the schedule is compared with; ``schedule`` None is *SD off*.

    ``draws``: its own, where the engine's drafter always runs the configured K, so that another largest K
    is another server; the common ones when left out.
    """

    name: str
    schedule: Schedule | None
    draws: Draws | None = None


def draw(
    overhead: Overhead,
    *,
    acceptance: CurveFit | None,
    batch_sizes: Sequence[int],
    k_max: int,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Draws:
    """Joint draws of step times and acceptance at ``batch_sizes``, the scenario's contexts averaged.

    ``acceptance``: the fit to counts, whose own errors are drawn; without one the curve moves by the spread
    of a stated (or, where nothing was measured, of an assumed) first position.
    """
    resolved = server_of(overhead.resolved, k_max)
    rng = np.random.default_rng(seed)
    asked = [int(c) for c in resolved.scenario.context_tokens]
    timed = [c for c in overhead.compared if c.metric == "step_s" and c.batch_size in set(batch_sizes)]
    near = sorted({max(round(c.context_tokens), 1) for c in timed} - set(asked))
    whole = evaluate(
        resolved,
        batch_sizes=batch_sizes,
        k_values=range(k_max + 1),
        context_tokens=[*asked, *near[:: len(near) // N_CONTEXTS + 1]],
        n_draws=0,
    )
    steps = draw_steps(whole.step, n_draws=n_draws, rng=rng)
    if overhead.fit is not None and timed:
        steps = condition(steps, whole, timed, residual_log_sd=overhead.fit.residual_log_sd, rng=rng)
    kept = [whole.grid.context.ravel().tolist().index(c) for c in asked]
    ks = whole.grid.k.ravel().astype(int)
    al = _lengths(resolved, acceptance, ks, np.asarray(asked, dtype=np.float64), n_draws, rng)
    n = whole.grid.batch[None]
    result = evaluate(resolved, batch_sizes=batch_sizes, k_values=range(k_max + 1), n_draws=0)
    return Draws(
        evaluation=result,
        goodput=(n * al / steps.step_s[..., kept]).mean(axis=3),
        off_goodput=(n / steps.off_step_s[..., kept])[:, :, 0].mean(axis=2),
    )


def condition(
    steps: StepDraws,
    whole: Evaluation,
    timed: Sequence[Compared],
    *,
    residual_log_sd: float,
    rng: np.random.Generator,
) -> StepDraws:
    """Draws that agree with the timed steps the model was fitted to.

    x ← x - C_xh·(C_hh + R)⁻¹·(h + ε), x the log errors of all steps, h those at the timed ones, C their
    covariances over the draws, R = diag(r²) and ε ~ N(0, R) with r the spread the fit left (the ensemble form
    of conditioning a Gaussian; source: G. Evensen, Ocean Dynamics 53 (2003) 343). Timed steps err alike, so
    any number of them counts as at most ``INDEPENDENT`` ones. The spread left is put on every speculative
    step again, since it is that of settings not timed.
    """
    nominal = np.broadcast_to(whole.step.step_s, steps.step_s.shape[1:])
    nominal_off = np.broadcast_to(whole.step.off_step_s, steps.off_step_s.shape[1:])
    on, off = np.log(steps.step_s / nominal), np.log(steps.off_step_s / nominal_off)
    grid = whole.grid
    n_draws = on.shape[0]
    batches, ks = grid.batch.ravel().tolist(), grid.k.ravel().tolist()
    seen = []
    for item in timed:
        context = int(np.argmin(np.abs(np.log(grid.context.ravel() / item.context_tokens))))
        row = batches.index(item.batch_size)
        if item.k == 0:
            seen.append(off[:, row, 0, context])
        elif item.k in ks:
            seen.append(on[:, row, ks.index(item.k), context])
    if not seen:
        return steps
    h = np.stack(seen, axis=1)
    r = max(residual_log_sd, NOISE_LOG_SD) * np.sqrt(max(1.0, h.shape[1] / INDEPENDENT))
    state = np.concatenate([on.reshape(n_draws, -1), off.reshape(n_draws, -1)], axis=1)
    centred, deviation = state - state.mean(axis=0), h - h.mean(axis=0)
    noise = r**2 * np.eye(h.shape[1])
    gain = np.linalg.solve(
        deviation.T @ deviation / (n_draws - 1) + noise, deviation.T @ centred / (n_draws - 1)
    )
    state = state - (h + r * rng.standard_normal(h.shape)) @ gain
    again = residual_log_sd * rng.standard_normal((n_draws, 1, 1, 1))
    split = on[0].size
    return StepDraws(
        step_s=nominal * np.exp(state[:, :split].reshape(on.shape) + again),
        off_step_s=nominal_off * np.exp(state[:, split:].reshape(off.shape)),
    )


def _lengths(
    resolved: Resolved,
    acceptance: CurveFit | None,
    ks: np.ndarray,
    contexts: FloatArray,
    n: int,
    rng: np.random.Generator,
) -> FloatArray:
    """AL on (draw, 1, k, context or 1)."""
    if acceptance is not None:
        return sample_acceptance_length(acceptance, ks, n, rng)[:, None, :, None]
    curve = resolved.acceptance.curve
    stderr = MEASURED_C1_STDERR if resolved.acceptance.measured_k > 0 else ASSUMED_C1_STDERR
    seed = int(rng.integers(2**31))  # one shift for all contexts of a draw
    each = [
        sample_assumed_length(
            curve,
            k=ks,
            c1_stderr=stderr,
            n=n,
            rng=np.random.default_rng(seed),
            context_tokens=float(at) if curve.depends_on_context else None,
        )
        for at in (contexts if curve.depends_on_context else contexts[:1])
    ]
    return np.stack(each, axis=-1)[:, None]


def gains(
    draws: Draws, schedule: Schedule, rivals: Sequence[Rival], *, batches: Sequence[int] | None = None
) -> tuple[Gain, ...]:
    """Mean over batches of goodput(schedule)/goodput(rival) - 1: nominal, 80 % band and P(gain > 0).

    ``batches`` picks some of the drawn ones; all of them when left out.
    """
    chosen = list(range(draws.batches.size))
    where = f"batches {int(draws.batches[0])}-{int(draws.batches[-1])}"
    if batches is not None:
        chosen = [i for i, n in enumerate(draws.batches) if int(n) in set(batches)]
        named = [str(int(draws.batches[i])) for i in chosen]
        if len(named) > MAX_NAMED:
            named = [f"{len(named)} from {named[0]} to {named[-1]}"]
        where = f"batches of the files: {', '.join(named)}"
    rows = np.asarray(chosen, dtype=np.intp)
    mine, _ = _goodput(draws, schedule)
    out = []
    for rival in rivals:
        theirs, off = _goodput(rival.draws or draws, rival.schedule or schedule)
        if rival.schedule is None:
            theirs = off
        each = (mine[:, rows] / theirs[:, rows]).mean(axis=1) - 1.0
        low, high = goodput_band(draws=each[1:])
        out.append(
            Gain(
                over=rival.name,
                where=where,
                mean_frac=float(each[0]),
                low_frac=float(low),
                high_frac=float(high),
                p_positive=float(np.mean(each[1:] > 0.0)),
            )
        )
    return tuple(out)


def _goodput(draws: Draws, schedule: Schedule) -> tuple[FloatArray, FloatArray]:
    """Goodput under the schedule and with SD off, (1 + draws, batch): the nominal values come first."""
    at = _columns(draws, schedule)
    rows = np.arange(draws.batches.size)
    nominal = draws.evaluation.goodput.mean(axis=2)[None]
    nominal_off = draws.evaluation.off_goodput.mean(axis=1)[None]
    on = np.concatenate([nominal[:, rows, at], draws.goodput[:, rows, at]])
    return on, np.concatenate([nominal_off, draws.off_goodput])


def _columns(draws: Draws, schedule: Schedule) -> np.ndarray:
    return np.searchsorted(draws.k.astype(int), schedule.lookup(draws.batches.astype(np.int64)))


def probe_batches(max_batch: int, extra: Sequence[int]) -> list[int]:
    """Batches for the draws: evenly spread (the mean is over all batches alike), and those of the files.

    >>> probe_batches(4, [3, 9])
    [1, 2, 3, 4]
    """
    spread = np.unique(np.linspace(1, max_batch, min(max_batch, N_BATCHES)).round().astype(int))
    return sorted({*spread.tolist(), *(n for n in extra if 1 <= n <= max_batch)})
