"""Which K is best: exhaustive, with ties, against *SD off*, with break-even batches and probabilities.

Arrays lie on the fixed axes (batch, k, context); draws, where there are any, lead: (draws, batch, k,
context). *SD off* (no drafter loaded) and *SD on, K = 0* (drafter kept warm) are different candidates, since
K = 0 has a cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rooflinesim.acceptance.formulas import FloatArray
from rooflinesim.errors import InputError
from rooflinesim.goodput import goodput_tokens_per_s

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: ``choice`` where *SD off* is the best candidate.
OFF: Final = -1
K_AXIS: Final = -2


@dataclass(frozen=True)
class BestK:
    """The answer of ``best_k`` on the axes (batch, context); K values are numbers of drafted tokens, not
    indices.

    ``k``: best with speculation on, ties to the smaller. ``band_low``, ``band_high``: smallest and largest K
    within the tie fraction of the best. ``argmax_k``: the bare maximum. ``choice``: ``k``, or ``OFF`` where
    SD off is as good. ``goodput`` of ``k``, ``off_goodput``, ``choice_goodput``: tokens/s of the whole batch.
    """

    k: IntArray
    band_low: IntArray
    band_high: IntArray
    argmax_k: IntArray
    choice: IntArray
    goodput: FloatArray
    off_goodput: FloatArray | None
    choice_goodput: FloatArray

    @property
    def off_is_best(self) -> BoolArray:
        """Where speculation should be switched off altogether."""
        out: BoolArray = self.choice == OFF
        return out


def goodput_grid(*, batch_size: ArrayLike, acceptance_length: ArrayLike, step_s: ArrayLike) -> FloatArray:
    """(good) goodput on (..., batch, k, context): batch_size (batch,), acceptance_length (k,) or (..., k,
    context).

    >>> step_s = np.ones((2, 2, 1))
    >>> goodput_grid(batch_size=[1, 2], acceptance_length=[1.0, 1.5], step_s=step_s)[:, :, 0].tolist()
    [[1.0, 1.5], [2.0, 3.0]]
    """
    step = _three(step_s)
    al = np.asarray(acceptance_length, dtype=np.float64)
    if al.ndim == 1:
        al = al[:, None]
    n = np.asarray(batch_size, dtype=np.float64)[:, None, None]
    return goodput_tokens_per_s(batch_size=n, acceptance_length=al, step_s=step)


def _three(x: ArrayLike) -> FloatArray:
    out = np.asarray(x, dtype=np.float64)
    if out.ndim < 3:
        raise InputError(f"solver: shape {out.shape} has no (batch, k, context) axes")
    return out


def best_k(
    *,
    k: ArrayLike,
    goodput: ArrayLike,
    off_goodput: ArrayLike | None = None,
    tie_frac: float = 0.01,
) -> BestK:
    """(k*) argmax of goodput over every K given (never stops at the first fall), ties to the smaller K.

    k: (K,) rising integers. goodput: (batch, K, context) tokens/s. off_goodput: (batch, context), of *SD
    off*. tie_frac: candidates this close to the best count as equal. SD off competes as the smallest
    candidate: it is chosen where it is within tie_frac of the best, so the choice never loses more than
    tie_frac and, against SD off, never loses at all.

    >>> out = best_k(k=[0, 2, 3, 4], goodput=np.array([31.0, 49.4, 52.9, 52.5]).reshape(1, 4, 1))
    >>> out.k.item(), (out.band_low.item(), out.band_high.item())
    (3, (3, 4))
    """
    ks = np.asarray(k, dtype=np.int64)
    table = _three(goodput)
    if ks.ndim != 1 or ks.size != table.shape[K_AXIS] or np.any(np.diff(ks) <= 0) or np.any(ks < 0):
        raise InputError(f"solver: k must be {table.shape[K_AXIS]} rising whole numbers, got {ks.tolist()}")
    if not 0.0 <= tie_frac < 1.0:
        raise InputError(f"solver: tie_frac = {tie_frac:g} must be in 0..1")
    # where a point cannot run (does not fit), its goodput is nan: it never wins
    table = np.where(np.isnan(table), -np.inf, table)
    top = table.max(axis=K_AXIS, keepdims=True)
    in_band = table >= top * (1.0 - tie_frac)
    low = np.argmax(in_band, axis=K_AXIS)
    high = ks.size - 1 - np.argmax(np.flip(in_band, axis=K_AXIS), axis=K_AXIS)
    chosen = np.take_along_axis(table, np.expand_dims(low, K_AXIS), axis=K_AXIS).squeeze(K_AXIS)
    choice, choice_goodput = ks[low], chosen
    off = None
    if off_goodput is not None:
        off = np.broadcast_to(np.asarray(off_goodput, dtype=np.float64), chosen.shape)
        best = np.maximum(top.squeeze(K_AXIS), off)
        off_wins = off >= best * (1.0 - tie_frac)
        choice = np.where(off_wins, OFF, choice)
        choice_goodput = np.where(off_wins, off, chosen)
    return BestK(
        k=ks[low],
        band_low=ks[low],
        band_high=ks[high],
        argmax_k=ks[np.argmax(table, axis=K_AXIS)],
        choice=choice,
        goodput=chosen,
        off_goodput=off,
        choice_goodput=choice_goodput,
    )


@dataclass(frozen=True)
class BestFixed:
    """One K for all batches: ``k``, its mean goodput (tokens/s), and that of every K."""

    k: int
    goodput_mean: float
    goodput_mean_by_k: FloatArray


def best_fixed_k(*, k: ArrayLike, goodput: ArrayLike, weights: ArrayLike | None = None) -> BestFixed:
    """(k*) The one K that maximises Σ w_b · goodput[b, K] (a table on (batch, k)).

    weights: share of *time* spent at each batch, shape (batch,); left out, every batch counts by its own best
    (goodput divided by the row's maximum), so that large batches do not decide alone.

    >>> fixed = best_fixed_k(k=[0, 3], goodput=[[10.0, 20.0], [100.0, 90.0]])
    >>> fixed.k, round(fixed.goodput_mean, 3)
    (3, 0.95)
    """
    ks, table = np.asarray(k, dtype=np.int64), np.asarray(goodput, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != ks.size:
        raise InputError(f"solver: goodput of shape {table.shape} is not (batch, {ks.size})")
    if weights is None:
        table = table / table.max(axis=1, keepdims=True)
        share = np.full(table.shape[0], 1.0 / table.shape[0])
    else:
        share = np.asarray(weights, dtype=np.float64)
        if share.shape != table.shape[:1] or np.any(share < 0) or share.sum() <= 0:
            raise InputError(f"solver: weights must be {table.shape[0]} shares that are not negative")
        share = share / share.sum()
    means: FloatArray = share @ table
    at = int(np.argmax(means))
    return BestFixed(int(ks[at]), float(means[at]), means)


def break_even_batch(*, batch_size: ArrayLike, speedup: ArrayLike) -> FloatArray:
    """(even) The batch beyond which speculation no longer pays: the last crossing of speed-up = 1,
    interpolated.

    batch_size: (batch,) rising. speedup: (batch, ...), for example (batch, k) for a crossover per K, or the
    best over K. Returns the trailing shape: 0 where it never pays, inf where it still pays at the largest
    batch.

    >>> gains = [[2.0, 0.9, 1.3], [1.2, 0.8, 1.2], [0.8, 0.7, 1.1]]
    >>> break_even_batch(batch_size=[1, 10, 20], speedup=gains).tolist()
    [15.0, 0.0, inf]
    """
    return _last_crossing(np.asarray(batch_size, dtype=np.float64), np.asarray(speedup, dtype=np.float64))


def break_even_context(*, context_tokens: ArrayLike, speedup: ArrayLike) -> FloatArray:
    """(even) The context beyond which speculation no longer pays (acceptance can fall with it), interpolated.

    context_tokens: (context,) rising. speedup: (..., context). Returns the leading shape, in tokens; 0 and
    inf as in ``break_even_batch``.

    >>> break_even_context(context_tokens=[100, 34_000, 86_000], speedup=[2.5, 1.44, 0.96]).round().item()
    81667.0
    """
    gain = np.moveaxis(np.asarray(speedup, dtype=np.float64), -1, 0)
    return _last_crossing(np.asarray(context_tokens, dtype=np.float64), gain)


def _last_crossing(x: FloatArray, gain: FloatArray) -> FloatArray:
    """The x at which ``gain`` (first axis along x) falls below 1 for good."""
    flat = gain.reshape(x.size, -1)
    pays = flat >= 1.0
    last = x.size - 1 - np.argmax(pays[::-1], axis=0)
    never, always = ~pays.any(axis=0), pays[-1]
    here = np.minimum(last, max(x.size - 2, 0))
    after = np.minimum(here + 1, x.size - 1)
    columns = np.arange(flat.shape[1])
    fall = flat[here, columns] - flat[after, columns]
    part = np.divide(flat[here, columns] - 1.0, fall, out=np.zeros_like(fall), where=fall > 0)
    crossing = x[here] + part * (x[after] - x[here])
    out: FloatArray = np.where(never, 0.0, np.where(always, np.inf, crossing)).reshape(gain.shape[1:])
    return out


def probability_best(*, goodput_draws: ArrayLike, off_goodput_draws: ArrayLike | None = None) -> FloatArray:
    """P(K is best) over draws of calibration and acceptance errors.

    goodput_draws: (draws, batch, K, context). off_goodput_draws: (draws, batch, context): SD off then
    competes too and what is missing to 1 is its probability. Returns fractions, shape (batch, K, context).

    >>> draws = np.array([[1.0, 2.0], [1.0, 3.0], [2.0, 1.0], [1.0, 5.0]]).reshape(4, 1, 2, 1)
    >>> probability_best(goodput_draws=draws)[0, :, 0].tolist()
    [0.25, 0.75]
    """
    draws = np.asarray(goodput_draws, dtype=np.float64)
    if draws.ndim != 4:
        raise InputError(f"solver: draws of shape {draws.shape} are not on (draws, batch, k, context)")
    winner = np.argmax(draws, axis=K_AXIS)
    hit = winner[:, :, None, :] == np.arange(draws.shape[K_AXIS])[:, None]
    if off_goodput_draws is not None:
        off = np.asarray(off_goodput_draws, dtype=np.float64)[:, :, None, :]
        hit = hit & (draws.max(axis=K_AXIS, keepdims=True) > off)
    out: FloatArray = hit.mean(axis=0, dtype=np.float64)
    return out


def goodput_band(*, draws: ArrayLike, low: float = 0.1, high: float = 0.9) -> tuple[FloatArray, FloatArray]:
    """The ``low`` and ``high`` quantiles over the leading draws axis (goodput, speed-up, anything drawn).

    >>> goodput_band(draws=[[1.0], [2.0], [3.0]], low=0.0, high=1.0)
    (array([1.]), array([3.]))
    """
    bounds = np.quantile(np.asarray(draws, dtype=np.float64), [low, high], axis=0)
    return bounds[0], bounds[1]


@dataclass(frozen=True)
class DynamicLedger:
    """What choosing K per batch brings, on (batch, context): gains as fractions of the policy compared with.

    ``over_off`` is never negative; ``over_fixed[..., j, ...]`` (batch, K, context) is never below -tie_frac.
    """

    over_off: FloatArray
    over_fixed: FloatArray
    fixed_loses_to_off: BoolArray


def dynamic_ledger(*, best: BestK, goodput: ArrayLike) -> DynamicLedger:
    """(k*) Gains of the dynamic choice (``best.choice``, off included) over SD off and over every fixed K.

    ``fixed_loses_to_off`` marks where a fixed K is slower than no speculation: fact (a) of why K must be
    dynamic.

    >>> table = np.array([[1.0, 2.0], [10.0, 9.0]])[:, :, None]
    >>> best = best_k(k=[0, 3], goodput=table, off_goodput=[[1.1], [11.0]])
    >>> ledger = dynamic_ledger(best=best, goodput=table)
    >>> ledger.over_off[:, 0].round(2).tolist(), ledger.fixed_loses_to_off[:, 1, 0].tolist()
    ([0.82, 0.0], [False, True])
    """
    if best.off_goodput is None:
        raise InputError("solver: the ledger needs the goodput of SD off")
    table = _three(goodput)
    over_fixed = np.expand_dims(best.choice_goodput, K_AXIS) / table - 1.0
    return DynamicLedger(
        over_off=best.choice_goodput / best.off_goodput - 1.0,
        over_fixed=over_fixed,
        fixed_loses_to_off=table < np.expand_dims(best.off_goodput, K_AXIS),
    )
