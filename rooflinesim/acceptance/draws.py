"""Draws of acceptance: vectorised uncertainty of a fitted or an assumed curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.acceptance.curve import AcceptanceCurve
from rooflinesim.acceptance.fit import EDGE, CurveFit, bounds, conditional_of, logistic, params_of, used
from rooflinesim.acceptance.formulas import FloatArray, acceptance_length_table
from rooflinesim.errors import InputError


def sample(fit: CurveFit, n: int, rng: np.random.Generator) -> FloatArray:
    """``n`` draws of the fit's numbers, shape (n, numbers): columns as ``fit.names`` (c1, decay for
    geometric).

    Normal on the unbounded scale, so every draw is a valid curve. A table draws each position from its Beta
    posterior (half a success and half a failure as prior).

    >>> from rooflinesim.acceptance import PositionCounts, fit_form
    >>> fit = fit_form(PositionCounts.from_rates(n_steps=1000, marginal=[0.7, 0.49]), "geometric")
    >>> sample(fit, 4000, np.random.default_rng(1)).mean(axis=0).round(2).tolist()
    [0.7, 1.0]
    """
    if fit.form == "table":
        if fit.counts is None:
            raise InputError("acceptance draws: the table fit carries no counts")
        x, total = used(fit.counts)
        return rng.beta(x + 0.5, total - x + 0.5, size=(n, x.size))
    low, high = bounds(fit.form, len(fit.theta))
    theta = rng.multivariate_normal(fit.theta, np.asarray(fit.covariance), size=n, method="eigh")
    return params_of(fit.form, np.clip(theta, low, high))


def sample_acceptance_length(fit: CurveFit, k: ArrayLike, n: int, rng: np.random.Generator) -> FloatArray:
    """``n`` draws of AL(K) in tokens: shape (n,) + k.shape, from draws of the fit's numbers.

    >>> from rooflinesim.acceptance import PositionCounts, fit_form
    >>> fit = fit_form(PositionCounts.from_rates(n_steps=400, marginal=[0.5, 0.25]), "geometric")
    >>> draws = sample_acceptance_length(fit, [0, 1, 2], 2000, np.random.default_rng(0))
    >>> draws.mean(axis=0).round(2).tolist()
    [1.0, 1.5, 1.75]
    """
    index = np.asarray(k).astype(np.intp)
    k_max = int(index.max()) if index.size else 0
    draws = sample(fit, n, rng)
    if fit.form == "table":
        deeper = np.full((n, max(k_max - draws.shape[1], 0)), fit.curve.beyond)
        conditional = np.concatenate([draws, deeper], axis=1)[:, :k_max]
    else:
        conditional = conditional_of(fit.form, draws, k_max)
    out: FloatArray = acceptance_length_table(conditional)[:, index]
    return out


def sample_assumed_length(
    curve: AcceptanceCurve,
    *,
    k: ArrayLike,
    c1_stderr: float,
    n: int,
    rng: np.random.Generator,
    context_tokens: float | None = None,
) -> FloatArray:
    """``n`` draws of AL(K) around a curve that nobody measured: every conditional moves by one common logit
    shift.

    The shift's size makes position 1 vary by ``c1_stderr`` (a fraction). k: integers; returns (n,) + k.shape.

    >>> flat = AcceptanceCurve.geometric(c1=0.7)
    >>> draws = sample_assumed_length(flat, k=[1], c1_stderr=0.05, n=4000, rng=np.random.default_rng(0))
    >>> round(float(draws.std()), 2)
    0.05
    """
    index = np.asarray(k).astype(np.intp)
    k_max = max(int(index.max()), 1) if index.size else 1
    c = np.clip(curve.conditional(k_max, context_tokens=context_tokens), EDGE, 1.0 - EDGE)
    shift = rng.normal(0.0, c1_stderr / max(float(c[0] * (1.0 - c[0])), 1e-3), size=(n, 1))
    moved = logistic(np.log(c / (1.0 - c)) + shift)
    out: FloatArray = acceptance_length_table(moved)[:, index]
    return out
