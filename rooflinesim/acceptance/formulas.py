"""Acceptance formulas on plain arrays: conditional rates by position, marginals, acceptance length.

Symbols (positions i = 1..k_max lie on the last axis; any leading axes broadcast, e.g. draws or contexts):

- conditional c_i = P(position i accepted | positions 1..i-1 accepted), a fraction;
- marginal p_i = c_1 c_2 ... c_i, a fraction, never rising with i;
- acceptance length AL(K) = 1 + p_1 + ... + p_K, tokens per step, the bonus token included: 1 <= AL <= K+1.

A flat conditional is the independence assumption of Leviathan et al. 2023 (arXiv 2211.17192, eq. 1); the
decay and the Beta mixture are the two ways in which measured drafters leave it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def _positions(k_max: int) -> FloatArray:
    return np.arange(k_max, dtype=np.float64)


def geometric_conditional(*, c1: ArrayLike, decay: ArrayLike = 1.0, k_max: int) -> FloatArray:
    """(acc) c_i = clip(c1 · decay^(i-1), 0, 1): a first rate and its decay from position to position.

    c1: fraction, shape S. decay: ratio > 0, shape S (1 = flat; block drafters 0.93-0.98; above 1 rises until
    the clip). Returns fractions, shape S + (k_max,). Source: two-parameter form of the published AL(K)
    curves.

    >>> geometric_conditional(c1=0.8, decay=0.5, k_max=3).tolist()
    [0.8, 0.4, 0.2]
    """
    first = np.asarray(c1, dtype=np.float64)[..., None]
    ratio = np.asarray(decay, dtype=np.float64)[..., None]
    return np.clip(first * ratio ** _positions(k_max), 0.0, 1.0)


def beta_conditional(*, a: ArrayLike, b: ArrayLike, k_max: int) -> FloatArray:
    """(acc) c_i = (a+i-1)/(a+b+i-1): every request has its own flat rate c ~ Beta(a, b).

    Then p_i = E[c^i] = B(a+i, b)/B(a, b), and conditionals *rise*, because the steps that reach position i
    come from easy requests. a, b > 0, shape S; returns fractions, shape S + (k_max,). Source: moments of the
    Beta law.

    >>> beta_conditional(a=2.0, b=2.0, k_max=3).tolist()
    [0.5, 0.6, 0.6666666666666666]
    """
    alpha = np.asarray(a, dtype=np.float64)[..., None] + _positions(k_max)
    out: FloatArray = alpha / (alpha + np.asarray(b, dtype=np.float64)[..., None])
    return out


def split_conditional(*, a1: ArrayLike, b: ArrayLike, rho: ArrayLike = 1.0, k_max: int) -> FloatArray:
    """(acc) c_1 = a1, c_i = clip(b · rho^(i-2), 0, 1) for i >= 2: the first position apart.

    For n-gram and suffix lookup: a match is rare (a1), but once a span matches it tends to go on (b).
    a1, b fractions, rho ratio > 0, shape S; returns fractions, shape S + (k_max,).

    >>> split_conditional(a1=0.16, b=0.66, k_max=3).tolist()
    [0.16, 0.66, 0.66]
    """
    later = geometric_conditional(c1=b, decay=rho, k_max=max(k_max - 1, 0))
    first = np.broadcast_to(np.asarray(a1, dtype=np.float64)[..., None], (*later.shape[:-1], 1))
    return np.concatenate([first, later], axis=-1)[..., :k_max]


def marginal_from_conditional(conditional: ArrayLike) -> FloatArray:
    """(acc) p_i = c_1 ··· c_i along the last axis.

    >>> marginal_from_conditional([0.5, 0.5, 1.0]).tolist()
    [0.5, 0.25, 0.25]
    """
    out: FloatArray = np.multiply.accumulate(np.asarray(conditional, dtype=np.float64), axis=-1)
    return out


def conditional_from_marginal(marginal: ArrayLike) -> FloatArray:
    """(acc) c_i = p_i / p_(i-1) with p_0 = 1, along the last axis; 0 where nothing reaches position i.

    >>> conditional_from_marginal([0.5, 0.25, 0.0, 0.0]).tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    p = np.asarray(marginal, dtype=np.float64)
    before = np.concatenate([np.ones((*p.shape[:-1], 1)), p[..., :-1]], axis=-1)
    out: FloatArray = np.divide(p, before, out=np.zeros_like(p), where=before > 0)
    return out


def acceptance_length_table(conditional: ArrayLike) -> FloatArray:
    """(acc) AL(K) = 1 + Σ_{i<=K} p_i for every K = 0..k_max.

    conditional: fractions, shape S + (k_max,). Returns tokens per step, shape S + (k_max+1,).
    For a flat c this is (1 - c^(K+1))/(1 - c).

    >>> acceptance_length_table([0.5, 0.5]).tolist()
    [1.0, 1.5, 1.75]
    """
    p = marginal_from_conditional(conditional)
    head = np.ones((*p.shape[:-1], 1))
    return np.cumsum(np.concatenate([head, p], axis=-1), axis=-1)
