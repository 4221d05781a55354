"""Goodput, speed-up, break-even, and the gain and cost of each further drafted token. All arrays broadcast.

Symbols: N ``batch_size`` sequences, K drafted tokens, AL ``acceptance_length`` tokens per step and sequence
(bonus included), ``step_s`` seconds of one draft + verify step, ``off_step_s`` seconds of one step without
speculation, R = step_s / off_step_s. Speculation pays iff AL > R.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.acceptance import c1_for_acceptance_length
from rooflinesim.acceptance.formulas import FloatArray


def _float(x: ArrayLike) -> FloatArray:
    return np.asarray(x, dtype=np.float64)


def goodput_tokens_per_s(
    *, batch_size: ArrayLike, acceptance_length: ArrayLike, step_s: ArrayLike
) -> FloatArray:
    """(good) N · AL / step_s: accepted tokens per second over the whole batch.

    Shapes broadcast. Without speculation AL = 1. Source: goodput of TurboSpec (arXiv 2406.14066).

    >>> goodput_tokens_per_s(batch_size=10, acceptance_length=2.41, step_s=0.0096).round(1).item()
    2510.4
    """
    return _float(batch_size) * _float(acceptance_length) / _float(step_s)


def request_tokens_per_s(*, acceptance_length: ArrayLike, step_s: ArrayLike) -> FloatArray:
    """(good) AL / step_s: tokens per second that one request sees.

    >>> request_tokens_per_s(acceptance_length=2.41, step_s=0.0096).round(1).item()
    251.0
    """
    return _float(acceptance_length) / _float(step_s)


def tpot_s(*, acceptance_length: ArrayLike, step_s: ArrayLike) -> FloatArray:
    """(good) step_s / AL: mean seconds per output token of one request.

    >>> round(float(tpot_s(acceptance_length=2.41, step_s=0.0096)) * 1e3, 4)
    3.9834
    """
    return _float(step_s) / _float(acceptance_length)


def step_ratio(*, step_s: ArrayLike, off_step_s: ArrayLike) -> FloatArray:
    """(good) R = step_s / off_step_s: what a speculative step costs in plain steps; also the break-even AL.

    >>> step_ratio(step_s=0.817, off_step_s=0.281).round(3).item()
    2.907
    """
    return _float(step_s) / _float(off_step_s)


def speedup(*, acceptance_length: ArrayLike, step_s: ArrayLike, off_step_s: ArrayLike) -> FloatArray:
    """(good) AL / R: goodput over that of *SD off* at the same batch. Above 1 speculation pays.

    >>> speedup(acceptance_length=3.155, step_s=1.87, off_step_s=1.0).round(2).item()
    1.69
    """
    return _float(acceptance_length) * _float(off_step_s) / _float(step_s)


def break_even_c1(*, r: ArrayLike, k: ArrayLike, decay: ArrayLike = 1.0) -> FloatArray:
    """(even) The first-position acceptance at which AL(K) = R: above it speculation pays.

    Solves AL(c_1, decay, K) = r, vectorised. r ratio, k integers, decay ratio: shapes broadcast.
    Returns fractions: 0 where r <= 1 (pays at any acceptance), nan where no acceptance is enough (r > AL(c_1
    = 1)).

    >>> break_even_c1(r=[0.9, 2.907, 6.046], k=5).round(3).tolist()
    [0.0, 0.695, nan]
    """
    return c1_for_acceptance_length(acceptance_length=r, k=k, decay=decay)


def break_even_dar(*, r: ArrayLike, k: ArrayLike) -> FloatArray:
    """(even) (R - 1)/K: the accepted/drafted rate at which speculation starts to pay; above 1 it never does.

    Linear, since AL = 1 + DAR·K; no assumption on how acceptance is spread over positions. k >= 1.

    >>> break_even_dar(r=[2.907, 6.046], k=5).round(3).tolist()
    [0.381, 1.009]
    """
    return (_float(r) - 1.0) / _float(k)


def marginal_gain_tokens(*, acceptance_length: ArrayLike, k_axis: int = -2) -> FloatArray:
    """(even) AL(K_j) - AL(K_{j-1}) along the K axis: tokens per step that each further K brings; one shorter.

    For K = 0, 1, 2, ... this is the marginal acceptance p_K.

    >>> marginal_gain_tokens(acceptance_length=[1.0, 1.8, 2.4], k_axis=0).round(2).tolist()
    [0.8, 0.6]
    """
    return np.diff(_float(acceptance_length), axis=k_axis)


def marginal_cost_s(*, step_s: ArrayLike, k_axis: int = -2) -> FloatArray:
    """(even) step_s(K_j) - step_s(K_{j-1}) along the K axis: seconds that each further K costs; one shorter.

    >>> marginal_cost_s(step_s=[7.0, 9.5, 10.0], k_axis=0).tolist()
    [2.5, 0.5]
    """
    return np.diff(_float(step_s), axis=k_axis)


def marginal_worth(*, acceptance_length: ArrayLike, step_s: ArrayLike, k_axis: int = -2) -> FloatArray:
    """(even) Relative gain over relative cost of each further K: (ΔAL/AL) / (Δstep/step); above 1 it pays.

    AL, step at the smaller K of each pair. inf where the further token is free or makes the step faster.

    >>> marginal_worth(acceptance_length=[1.0, 1.5, 1.75], step_s=[2.0, 2.5, 3.0], k_axis=0).round(3).tolist()
    [2.0, 0.833]
    """
    al, step = _float(acceptance_length), _float(step_s)
    axis = range(max(al.ndim, step.ndim))[k_axis]
    al, step = np.broadcast_arrays(al, step)
    keep = [slice(None)] * al.ndim
    keep[axis] = slice(0, -1)
    gain = np.diff(al, axis=axis) / al[tuple(keep)]
    cost = np.diff(step, axis=axis) / step[tuple(keep)]
    out: FloatArray = np.divide(gain, cost, out=np.full(gain.shape, np.inf), where=cost > 0)
    return out
