"""Fits of the cost model's families to measured primitives: least squares on log(measured / model).

The model is the package's own ``time_op``; nothing of the roofline is repeated here. Each estimate carries
its standard error, from the residuals and the Jacobian in the logarithms of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinesim.efficiency import Ceilings, ideal_calibration
from rooflinesim.errors import InputError
from rooflinesim.microbench.primitives import Primitive
from rooflinesim.roofline import time_op
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import (
    AttentionFit,
    Calibration,
    ElementwiseFit,
    FamilyFit,
    GemmFit,
    MoeFit,
)
from rooflinesim.specs.gpu import GpuSpec

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Free:
    """One free parameter: start, and the bounds it stays within."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class Fitted:
    """What a fit found: values with standard errors, the spread of the residuals in log, rows used."""

    values: dict[str, Estimate]
    log_sd: float
    n: int


def least_squares_log(
    predict: Callable[[dict[str, float]], Vector], measured: Vector, free: Sequence[Free]
) -> Fitted:
    """Minimise Σ (log measured − log predicted(θ))² over log θ, robustly (soft L1 at 30 %).

    Standard errors: σ²·(JᵀJ)⁻¹ in log θ, so that stderr(θ) = θ·se; a parameter the rows do not determine
    gets a stderr as large as itself rather than none.
    """
    from scipy.optimize import least_squares

    if len(measured) <= len(free):
        raise InputError(f"calibration: {len(measured)} measured rows cannot fit {len(free)} parameters")
    low = np.log([f.low for f in free])
    high = np.log([f.high for f in free])

    def named(theta: Vector) -> dict[str, float]:
        return {f.name: float(np.exp(t)) for f, t in zip(free, theta, strict=True)}

    def residual(theta: Vector) -> Vector:
        return np.log(measured) - np.log(predict(named(theta)))

    found = least_squares(
        residual,
        np.clip(np.log([f.start for f in free]), low, high),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=0.3,
    )
    rest = residual(found.x)
    dof = max(1, len(rest) - len(free))
    sigma = float(np.sqrt((rest**2).sum() / dof))
    jac = np.asarray(found.jac)
    errors = sigma * np.sqrt(np.clip(np.diag(np.linalg.pinv(jac.T @ jac)), 0.0, None))
    flat = (jac**2).sum(axis=0) < 1e-8 * max(1.0, float((jac**2).sum()))
    errors = np.where(flat, 1.0, errors)  # no row feels this parameter: its error is as large as itself
    values = {
        f.name: Estimate(value=v, stderr=float(min(e, 1.0)) * v)
        for f, v, e in zip(free, named(found.x).values(), errors, strict=True)
    }
    return Fitted(values, sigma, len(rest))


_BASIC = (
    Free("t_fixed_s", 1e-5, 1e-9, 1e-2),
    Free("mem_eff", 0.5, 0.01, 2.0),
    Free("compute_eff", 0.5, 1e-4, 2.0),
)
_RIDGE = Free("ridge_p", 1.5, 1.0, 40.0)
FREE: dict[str, tuple[Free, ...]] = {
    "gemm": (*_BASIC, _RIDGE),
    "attention": (
        *_BASIC,
        Free("per_seq_head_s", 1e-6, 1e-10, 1e-3),
        Free("per_query_head_s", 1e-7, 1e-11, 1e-3),
    ),
    "moe": (
        *_BASIC,
        _RIDGE,
        Free("per_expert_s", 1e-5, 1e-8, 1e-2),
        Free("activation_passes", 1.0, 1e-2, 50.0),
    ),
    "elementwise": (Free("t_fixed_s", 1e-5, 1e-8, 1e-2), Free("mem_eff", 0.3, 1e-3, 2.0)),
}
#: Parameters that are picked from a short list instead of fitted: every value is tried, the best one kept.
#: Rows are not padded to tiles unless a tile explains the rows better; 16 rows are one AMX tile and one
#: tensor-core tile.
CHOICES: dict[str, list[dict[str, float]]] = {
    "gemm": [
        {"tile_m_min": 1, "tile_m_max": 1, "pad_frac": 0.0},
        {"tile_m_min": 16, "tile_m_max": 16, "pad_frac": 1.0},
        {"tile_m_min": 32, "tile_m_max": 32, "pad_frac": 1.0},
    ],
    "attention": [{"ridge_p": 1.0}, {"ridge_p": 2.0}, {"ridge_p": 4.0}],
    "moe": [{"tile_rows": 1}, {"tile_rows": 16}, {"tile_rows": 32}],
    "elementwise": [{}],
}
_CLASSES: dict[str, type[FamilyFit]] = {
    "gemm": GemmFit,
    "attention": AttentionFit,
    "moe": MoeFit,
    "elementwise": ElementwiseFit,
}


def _installed(base: Calibration, family: str, fmt: str, fit: FamilyFit) -> Calibration:
    return base.model_copy(update={family: fit if family == "elementwise" else {fmt: fit}})


def _build(family: str, values: dict[str, Estimate], choice: dict[str, float], **about: object) -> FamilyFit:
    chosen: dict[str, object] = {}
    for name, value in choice.items():
        as_estimate = _CLASSES[family].model_fields[name].annotation is Estimate
        chosen[name] = Estimate(value=value) if as_estimate else value
    return _CLASSES[family].model_validate({**chosen, **values, "log_sd": 0.0, **about})


def fit_family(
    family: str, rows: Sequence[Primitive], gpu: GpuSpec, *, fmt: str, source: str, kernel: str
) -> FamilyFit:
    """Fit one family of ``Calibration`` to its primitives; ``time_op`` predicts every row."""
    base = ideal_calibration(gpu.id)
    counted = [row for row in rows if row.op is not None]
    measured = np.array([row.timing.median_s for row in counted])
    best: tuple[float, dict[str, float], Fitted] | None = None
    for choice in CHOICES[family]:

        def predict(values: dict[str, float], choice: dict[str, float] = choice) -> Vector:
            fit = _build(family, {name: Estimate(value=v) for name, v in values.items()}, choice)
            ceilings = Ceilings(gpu=gpu, calibration=_installed(base, family, fmt, fit))
            return np.array(
                [float(time_op(row.op, ceilings).total_s) for row in counted if row.op is not None]
            )

        fitted = least_squares_log(predict, measured, FREE[family])
        if best is None or fitted.log_sd < best[0]:
            best = (fitted.log_sd, choice, fitted)
    assert best is not None  # CHOICES is never empty
    log_sd, choice, fitted = best
    return _build(family, fitted.values, choice, log_sd=log_sd, n=fitted.n, source=source, kernel=kernel)


def relative_errors(rows: Sequence[Primitive], ceilings: Ceilings) -> Vector:
    """(model − measured)/measured of every primitive that has a count."""
    return np.array(
        [
            float(time_op(row.op, ceilings).total_s) / row.timing.median_s - 1.0
            for row in rows
            if row.op is not None
        ]
    )
