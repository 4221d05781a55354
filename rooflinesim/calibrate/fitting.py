"""Robust least squares on log ratios, with standard errors that respect clusters of like rows, and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinesim.grid import FloatArray
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import Score

#: 80 % of a normal distribution lies within this many standard deviations
_Z80 = 1.2815515655446004


@dataclass(frozen=True)
class Param:
    """One parameter of a form: its name, where the search starts, and its physical bounds."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class FitResult:
    """Parameters by name, and the value of the robust objective they reach."""

    estimates: dict[str, Estimate]
    cost: float

    @property
    def values(self) -> dict[str, float]:
        """Parameter name → value."""
        return {name: est.value for name, est in self.estimates.items()}


Model = Callable[[dict[str, float]], FloatArray]


def robust_fit(
    *,
    model: Model,
    measured_s: FloatArray,
    params: Sequence[Param],
    clusters: NDArray[np.int64] | None = None,
    weights: FloatArray | None = None,
    scale: float = 0.05,
    errors: bool = True,
) -> FitResult:
    """Minimise Σ ρ(w·log(model/measured)), ρ soft-L1 with knee ``scale`` (relative error).

    Standard errors are the sandwich H⁻¹·G·H⁻¹ with scores summed over ``clusters`` (rows of one shape err
    alike; each row its own cluster when ``None``), so that they do not shrink with rows that say the same. A
    parameter that ends on its bound has no standard error.
    """
    from scipy.optimize import least_squares  # only when something is fitted: start-up time

    w = np.ones(measured_s.size) if weights is None else weights
    log_measured = np.log(measured_s)
    low = np.array([p.low for p in params])
    high = np.array([p.high for p in params])
    span = high - low

    def values(unit: NDArray[np.float64]) -> dict[str, float]:
        x = low + unit * span
        return {p.name: float(v) for p, v in zip(params, x, strict=True)}

    def residual(unit: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((np.log(model(values(unit))) - log_measured) * w)

    start = np.clip((np.array([p.start for p in params]) - low) / span, 1e-6, 1.0 - 1e-6)
    found = least_squares(
        residual, start, bounds=(np.zeros(len(params)), np.ones(len(params))), loss="soft_l1", f_scale=scale
    )
    unit = np.asarray(found.x)
    stderr = _stderr(residual, unit, scale, clusters) * span if errors else np.full(len(params), np.nan)
    on_bound = (unit < 1e-4) | (unit > 1.0 - 1e-4)
    estimates = {
        p.name: Estimate(
            value=float(low[i] + unit[i] * span[i]),
            stderr=None if on_bound[i] or not np.isfinite(stderr[i]) else float(stderr[i]),
        )
        for i, p in enumerate(params)
    }
    return FitResult(estimates=estimates, cost=float(found.cost))


def _stderr(
    residual: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    at: NDArray[np.float64],
    scale: float,
    clusters: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    r = residual(at)
    columns = []
    for i in range(at.size):
        step = 1e-4 if at[i] < 0.5 else -1e-4
        moved = at.copy()
        moved[i] += step
        columns.append((residual(moved) - r) / step)
    jac = np.stack(columns, axis=1)
    free = (at > 1e-4) & (at < 1.0 - 1e-4)
    out = np.full(at.size, np.nan)
    if not free.any():
        return out
    jac = jac[:, free]
    influence = 1.0 / np.sqrt(1.0 + (r / scale) ** 2)
    curvature = (influence**3)[:, np.newaxis]  # second derivative of soft-L1: (1 + z²)^(−3/2)
    hessian = np.linalg.pinv((jac * curvature).T @ jac)
    rows = jac * (influence * r)[:, np.newaxis]
    if clusters is None:
        summed, n = rows, r.size
    else:
        _, code = np.unique(clusters, return_inverse=True)
        n = int(code.max()) + 1
        summed = np.zeros((n, rows.shape[1]))
        np.add.at(summed, code, rows)
    correction = n / max(n - rows.shape[1], 1)
    covariance = hessian @ (summed.T @ summed * correction) @ hessian
    out[free] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return out


def score(*, domain: str, model_s: FloatArray, measured_s: FloatArray) -> Score:
    """Relative errors of the model on rows it was not fitted on.

    >>> score(domain="x", model_s=np.array([1.1, 0.9]), measured_s=np.array([1.0, 1.0])).mape
    0.1
    """
    ratio = model_s / measured_s - 1.0
    error = np.abs(ratio)
    return Score(
        domain=domain,
        n=int(ratio.size),
        mape=round(float(error.mean()), 5),
        median=round(float(np.median(error)), 5),
        p90=round(float(np.quantile(error, 0.9)), 5),
        bias=round(float(np.median(ratio)), 5),
    )


def log_spread(*, model_s: FloatArray, measured_s: FloatArray) -> float:
    """σ of log(measured/model) whose ±1.28 σ holds 80 % of the rows, bias included.

    >>> log_spread(model_s=np.ones(5), measured_s=np.exp(np.array([-0.2, -0.1, 0.0, 0.1, 0.2])))
    0.15606
    """
    error = np.abs(np.log(measured_s / model_s))
    return round(float(np.quantile(error, 0.8)) / _Z80, 5)
