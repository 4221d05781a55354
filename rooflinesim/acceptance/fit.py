"""Maximum-likelihood fits of acceptance curves to position counts, with honest standard errors.

Given the steps that reached position i (n_i) and those that accepted it (x_i), the likelihood factorises:
Π_i c_i^{x_i} (1-c_i)^{n_i-x_i}, for a flat rate, a decaying one and a Beta mixture alike (its hazard *is*
c_i). So one scoring loop on two or three numbers fits every form; no optimiser library is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rooflinesim.acceptance.counts import PositionCounts
from rooflinesim.acceptance.curve import PARAMETERS, AcceptanceCurve
from rooflinesim.acceptance.formulas import (
    FloatArray,
    beta_conditional,
    geometric_conditional,
    split_conditional,
)
from rooflinesim.errors import InputError

EDGE: Final = 1e-9  # conditionals are kept this far from 0 and 1 inside logarithms
_LOGIT_MAX: Final = 12.0
_LOG_RATIO_MAX: Final = math.log(20.0)
_LOG_SPREAD: Final = (math.log(0.02), math.log(1e5))  # a+b of the Beta law; at the top it is a flat rate


def logistic(x: FloatArray) -> FloatArray:
    out: FloatArray = 1.0 / (1.0 + np.exp(-x))
    return out


def _logit(p: float) -> float:
    p = min(max(p, 1e-5), 1 - 1e-5)
    return math.log(p / (1.0 - p))


# Each form lives on an unbounded scale theta, where errors are closer to normal than on its own scale.
def _geometric_params(theta: FloatArray) -> FloatArray:
    return np.stack([logistic(theta[..., 0]), np.exp(theta[..., 1])], axis=-1)


def _beta_params(theta: FloatArray) -> FloatArray:
    mean, total = logistic(theta[..., 0]), np.exp(theta[..., 1])
    return np.stack([mean * total, (1.0 - mean) * total], axis=-1)


def _split_params(theta: FloatArray) -> FloatArray:
    rho = np.exp(theta[..., 2]) if theta.shape[-1] == 3 else np.ones(theta.shape[:-1])
    return np.stack([logistic(theta[..., 0]), logistic(theta[..., 1]), rho], axis=-1)


_PARAMS: Final[dict[str, Callable[[FloatArray], FloatArray]]] = {
    "geometric": _geometric_params,
    "beta": _beta_params,
    "split": _split_params,
}


def conditional_of(form: str, params: FloatArray, k_max: int) -> FloatArray:
    """c_1..c_k_max of a form for arrays of its parameters (last axis as in ``PARAMETERS``); shape S +
    (k_max,).

    >>> conditional_of("geometric", np.array([[0.8, 0.5], [0.5, 1.0]]), 2).tolist()
    [[0.8, 0.4], [0.5, 0.5]]
    """
    if form == "geometric":
        return geometric_conditional(c1=params[..., 0], decay=params[..., 1], k_max=k_max)
    if form == "beta":
        return beta_conditional(a=params[..., 0], b=params[..., 1], k_max=k_max)
    return split_conditional(a1=params[..., 0], b=params[..., 1], rho=params[..., 2], k_max=k_max)


@dataclass(frozen=True)
class CurveFit:
    """A fitted form: ``values`` ± ``stderr`` by name, log-likelihood, AIC, and what it rests on.

    ``dispersion``: Pearson chi² per degree of freedom where above 1, else 1; standard errors are already
    widened by its root (lack of fit, requests that differ). ``theta``, ``covariance``: the scale draws are
    made on.
    """

    form: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    stderr: tuple[float, ...]
    log_likelihood: float
    aic: float
    n_steps: float
    n_positions: int
    dispersion: float
    curve: AcceptanceCurve
    theta: tuple[float, ...] = field(default=(), repr=False)
    covariance: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    counts: PositionCounts | None = field(default=None, repr=False)

    @property
    def named(self) -> dict[str, tuple[float, float]]:
        """``{name: (value, stderr)}``."""
        return {name: (v, s) for name, v, s in zip(self.names, self.values, self.stderr, strict=True)}


@dataclass(frozen=True)
class CurveChoice:
    """The curve to use, which form it is and why, what to warn about, and every fit that was tried."""

    curve: AcceptanceCurve
    form: str
    reason: str
    warnings: tuple[str, ...]
    fits: tuple[CurveFit, ...]

    def fit(self, form: str) -> CurveFit | None:
        """The fit of ``form``, or None where the counts cannot carry it."""
        return next((fit for fit in self.fits if fit.form == form), None)

    @property
    def best(self) -> CurveFit:
        """The fit behind ``curve``."""
        return next(fit for fit in self.fits if fit.form == self.form)


def _log_likelihood(x: FloatArray, n: FloatArray, c: FloatArray) -> FloatArray:
    c = np.clip(c, EDGE, 1.0 - EDGE)
    out: FloatArray = np.sum(x * np.log(c) + (n - x) * np.log1p(-c), axis=-1)
    return out


def used(counts: PositionCounts) -> tuple[FloatArray, FloatArray]:
    x, n = np.asarray(counts.accepted, dtype=np.float64), np.asarray(counts.eligible, dtype=np.float64)
    used = int(np.flatnonzero(n > 0)[-1]) + 1 if np.any(n > 0) else 0
    if used == 0:
        raise InputError("acceptance fit: no step drafted anything")
    return x[:used], n[:used]


def _start(form: str, x: FloatArray, n: FloatArray) -> FloatArray:
    c = (x + 0.5) / (n + 1.0)
    later = float((x[1:].sum() + 0.5) / (n[1:].sum() + 1.0)) if x.size > 1 else float(c[0])
    if form == "geometric":
        ratio = math.log(max(later, 1e-3) / float(c[0])) / max(0.5 * x.size, 1.0) if x.size > 1 else 0.0
        theta = [_logit(float(c[0])), ratio]
        return np.array(theta[: 1 if x.size == 1 else 2])
    if form == "beta":
        return np.array([_logit(float(c[0])), math.log(5.0)])
    return np.array([_logit(float(c[0])), _logit(later), 0.0][: 3 if x.size >= 4 else 2])


def bounds(form: str, size: int) -> tuple[FloatArray, FloatArray]:
    high = {
        "geometric": [_LOGIT_MAX, _LOG_RATIO_MAX],
        "beta": [_LOGIT_MAX, _LOG_SPREAD[1]],
        "split": [_LOGIT_MAX, _LOGIT_MAX, _LOG_RATIO_MAX],
    }[form]
    low = [-h for h in high]
    if form == "beta":
        low[1] = _LOG_SPREAD[0]
    return np.array(low[:size]), np.array(high[:size])


def params_of(form: str, theta: FloatArray) -> FloatArray:
    if form == "geometric" and theta.shape[-1] == 1:  # one position only: the decay cannot be seen
        theta = np.concatenate([theta, np.zeros_like(theta)], axis=-1)
    return _PARAMS[form](theta)


def _half_counts(x: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Positions with no failure or no success, given half a one of each."""
    edge = (n > 0) & ((x <= 0) | (x >= n))
    return np.where(edge, x + 0.5, x), np.where(edge, n + 1.0, n)


def _maximise(
    form: str, x: FloatArray, n: FloatArray, rate: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Damped Fisher scoring from a moment start; never accepts a worse point."""
    start = _start(form, x, n)
    low, high = bounds(form, start.size)
    theta, step, damping = np.clip(start, low, high), 1e-5, 1e-4
    best = float(_log_likelihood(x, n, rate(theta)))
    for _ in range(200):
        eye = np.eye(theta.size) * step
        slope = (rate(theta + eye) - rate(theta - eye)).T / (2 * step)
        c = rate(theta)
        gradient = slope.T @ ((x - n * c) / (c * (1 - c)))
        information = slope.T @ (slope * (n / (c * (1 - c)))[:, None])
        scale = np.diag(np.diag(information) * damping + 1e-10)
        trial = np.clip(theta + np.linalg.solve(information + scale, gradient), low, high)
        if np.max(np.abs(trial - theta)) < 1e-9:
            break
        score = float(_log_likelihood(x, n, rate(trial)))
        if score > best + 1e-12:
            theta, best, damping = trial, score, max(damping / 10, 1e-12)
        else:
            damping *= 10
            if damping > 1e12:
                break
    return theta


def fit_form(counts: PositionCounts, form: str, *, requests: Sequence[PositionCounts] = ()) -> CurveFit:
    """Maximum likelihood of one form (``geometric``, ``beta``, ``split`` or the saturated ``table``).

    Fisher scoring on the unbounded scale; the covariance is the inverse observed Hessian there (positions
    with no failure or no success count half a one for it), times the dispersion; errors of the named numbers
    by the delta method. That takes steps as independent, but steps of one request are alike: with the counts
    of each request in ``requests`` (two or more) the error is the cluster-robust (sandwich) one instead,
    which is right for heterogeneous requests and typically 1.5-2 times as wide.

    >>> counts = PositionCounts.from_rates(n_steps=1000, marginal=[0.7, 0.49, 0.343])
    >>> fit = fit_form(counts, "geometric")
    >>> [round(v, 3) for v in fit.values], [round(s, 3) for s in fit.stderr]
    ([0.7, 1.0], [0.014, 0.018])
    """
    x, n = used(counts)
    if form == "table":
        return _table_fit(counts, x, n)
    if form not in PARAMETERS:
        raise InputError(f"acceptance fit: form {form!r} is not one of {', '.join([*PARAMETERS, 'table'])}")
    if form != "geometric" and x.size < 2:
        raise InputError(
            f"acceptance fit: the {form} form needs two draft positions, the counts hold {x.size}"
        )
    size = x.size

    def rate(theta: FloatArray) -> FloatArray:
        return np.clip(conditional_of(form, params_of(form, theta), size), EDGE, 1.0 - EDGE)

    x_half, n_half = _half_counts(x, n)
    theta = _maximise(form, x, n, rate)
    low, high = bounds(form, theta.size)
    if np.any(np.abs(theta) >= _LOGIT_MAX - 1e-3):
        # a rate of exactly 0 or 1 has no error bar: half a success and half a failure give it one
        theta = _maximise(form, x_half, n_half, rate)
    best = -float(_log_likelihood(x, n, rate(theta)))
    step = 1e-5
    free = (theta > low + 1e-6) & (theta < high - 1e-6)
    chi2 = float(np.sum((x - n * rate(theta)) ** 2 / np.maximum(n * rate(theta) * (1 - rate(theta)), 0.5)))
    dof = size - theta.size
    dispersion = max(1.0, chi2 / dof) if dof > 0 else 1.0
    covariance = _covariance(theta, free, x_half, n_half, rate)
    if len(requests) >= 2:
        covariance = covariance @ _request_scores(theta, requests, rate, size) @ covariance
    else:
        covariance = covariance * dispersion
    jacobian = np.stack(
        [
            (params_of(form, theta + e) - params_of(form, theta - e)) / (2 * step)
            for e in np.eye(theta.size) * step
        ],
        axis=-1,
    )
    values = params_of(form, theta)
    stderr = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian), 0.0))
    numbers = tuple(float(v) for v in values)
    note = f"{form} fit to {counts.n_steps:g} steps, {size} positions"
    curve = AcceptanceCurve(form, numbers, note=note)  # type: ignore[arg-type]
    return CurveFit(
        form,
        PARAMETERS[form],
        numbers,
        tuple(float(s) for s in stderr),
        -best,
        2.0 * theta.size + 2.0 * best,
        counts.n_steps,
        size,
        dispersion,
        curve,
        tuple(float(t) for t in theta),
        tuple(tuple(float(v) for v in row) for row in covariance),
        counts,
    )


def _request_scores(
    theta: FloatArray,
    requests: Sequence[PositionCounts],
    rate: Callable[[FloatArray], FloatArray],
    size: int,
) -> FloatArray:
    """Σ_r s_r s_rᵀ · R/(R-1): the spread of the score between requests (the filling of the sandwich)."""
    x, n = np.zeros((len(requests), size)), np.zeros((len(requests), size))
    for row, counts in enumerate(requests):
        width = min(counts.k_max, size)
        x[row, :width], n[row, :width] = counts.accepted[:width], counts.eligible[:width]
    eye = np.eye(theta.size) * 1e-5
    slope = (rate(theta + eye) - rate(theta - eye)).T / 2e-5
    c = rate(theta)
    scores = ((x - n * c) / (c * (1 - c))) @ slope
    out: FloatArray = scores.T @ scores * (len(requests) / (len(requests) - 1))
    return out


def _covariance(
    theta: FloatArray,
    free: np.ndarray,
    x: FloatArray,
    n: FloatArray,
    rate: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Inverse observed Hessian on the free coordinates; 0 for one that sits at its bound."""
    size, step = theta.size, 1e-4
    hessian = np.zeros((size, size))

    def loss(point: FloatArray) -> float:
        return -float(_log_likelihood(x, n, rate(point)))

    for i in range(size):
        for j in range(size):
            ei, ej = np.eye(size)[i] * step, np.eye(size)[j] * step
            corners = (
                loss(theta + ei + ej) - loss(theta + ei - ej) - loss(theta - ei + ej) + loss(theta - ei - ej)
            )
            hessian[i, j] = corners / (4 * step * step)
    out = np.zeros((size, size))
    at = np.flatnonzero(free)
    if at.size:
        block = hessian[np.ix_(at, at)]
        # a flat or bent direction (clipped rates) is capped at a spread of 3 on the logit or log scale
        values, vectors = np.linalg.eigh(0.5 * (block + block.T))
        inverse = 1.0 / np.maximum(values, 1.0 / 9.0)
        out[np.ix_(at, at)] = (vectors * inverse) @ vectors.T
    return out


def _table_fit(counts: PositionCounts, x: FloatArray, n: FloatArray) -> CurveFit:
    c = np.divide(x, n, out=np.zeros_like(x), where=n > 0)
    # Agresti-Coull-like half counts, so that 3 of 3 has an error too
    c_half = (x + 0.5) / (n + 1.0)
    stderr = np.sqrt(c_half * (1 - c_half) / (n + 1.0))
    log_likelihood = float(_log_likelihood(x, n, c))
    # deeper than measured: the pooled rate of positions 2.., not the last one (which may rest on a few steps)
    tail_x, tail_n = (x[1:], n[1:]) if x.size > 1 else (x, n)
    beyond = float((tail_x.sum() + 0.5) / (tail_n.sum() + 1.0)) if x[-1] > 0 else 0.0
    note = f"measured at {x.size} positions over {counts.n_steps:g} steps; deeper positions are extrapolated"
    curve = AcceptanceCurve.table(conditional=[float(v) for v in c], beyond=beyond, note=note)
    return CurveFit(
        "table",
        tuple(f"c{i + 1}" for i in range(x.size)),
        tuple(float(v) for v in c),
        tuple(float(s) for s in stderr),
        log_likelihood,
        2.0 * x.size - 2.0 * log_likelihood,
        counts.n_steps,
        x.size,
        1.0,
        curve,
        counts=counts,
    )


def choose_curve(counts: PositionCounts, *, requests: Sequence[PositionCounts] = ()) -> CurveChoice:
    """Fit every form the counts can carry and choose: the table where acceptance rises, else the lowest AIC.

    Rising: a later Wilson interval lies above the first; a geometric curve (and any single p) would then
    mislead. AIC = 2·(numbers) - 2·log-likelihood; within 2 of the lowest, the form with fewer numbers wins.

    >>> choice = choose_curve(PositionCounts.from_histogram([39, 1, 0, 3]))
    >>> choice.form, choice.curve.conditional(3).round(3).tolist()
    ('table', [0.093, 0.75, 1.0])
    >>> choice.warnings[0].split(":")[0]
    'conditional acceptance rises with position (0.093, 0.75, 1)'
    """
    x, _ = used(counts)
    forms = ["geometric"] if x.size == 1 else ["geometric", "beta", "split", "table"]
    fits = tuple(fit_form(counts, form, requests=requests) for form in forms)
    warnings = []
    if counts.biased:
        warnings.append(
            "the draft length varied during the measurement: rates at deep positions are lower bounds; "
            "measure with one fixed K, or give per-step arrays"
        )
    if x.size == 1:
        warnings.append("only one draft position was reached: deeper ones assume the same rate")
    if counts.n_steps < 100:
        warnings.append(f"only {counts.n_steps:g} steps: the intervals are wide")
    if counts.rises():
        listed = ", ".join(f"{c:.3g}" for c in counts.conditional[: x.size])
        warnings.insert(
            0,
            f"conditional acceptance rises with position ({listed}): one constant rate would mislead, "
            "the table is used instead",
        )
        table = next(fit for fit in fits if fit.form == "table")
        rank = min((fit for fit in fits if fit.form != "table"), key=lambda fit: fit.aic)
        reason = f"rising conditionals: measured table; of the short forms {rank.form} fits best"
        return CurveChoice(table.curve, "table", reason, tuple(warnings), fits)
    lowest = min(fit.aic for fit in fits)
    near = [fit for fit in fits if fit.aic <= lowest + 2.0]
    best = min(near, key=lambda fit: (len(fit.theta) or len(fit.names), round(fit.aic, 3)))
    ranking = ", ".join(f"{fit.form} {fit.aic - lowest:.1f}" for fit in sorted(fits, key=lambda fit: fit.aic))
    reason = (
        f"{best.form} by AIC (above the lowest: {ranking})" if len(fits) > 1 else "one position: flat rate"
    )
    return CurveChoice(best.curve, best.form, reason, tuple(warnings), fits)
