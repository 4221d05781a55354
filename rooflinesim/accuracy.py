"""How far off predictions are: errors, K-regret, sign, coverage of the error bars. Pure numbers.

Relative error of one row: predicted / measured − 1. A positive bias means the prediction is too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray

#: A measured speed-up this close to 1 has no sign: repeated runs of one setting differ by as much.
SIGN_TIE_FRAC = 0.02


@dataclass(frozen=True)
class Score:
    """Errors over ``n`` rows; fractions."""

    n: int
    mape: float
    median: float
    bias: float
    within_10: float
    within_20: float


def _pair(predicted: ArrayLike, measured: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, m = np.asarray(predicted, dtype=np.float64).ravel(), np.asarray(measured, dtype=np.float64).ravel()
    if p.size != m.size or p.size == 0:
        raise InputError(
            f"accuracy: {p.size} predictions for {m.size} measurements; needs equal, non-zero numbers"
        )
    if not (np.isfinite(p).all() and np.isfinite(m).all() and (m > 0).all()):
        raise InputError("accuracy: every number must be finite and every measurement above 0")
    return p, m


def relative_error(*, predicted: ArrayLike, measured: ArrayLike) -> FloatArray:
    """predicted / measured − 1 of each row.

    >>> relative_error(predicted=[11.0, 9.0], measured=[10.0, 10.0]).round(3).tolist()
    [0.1, -0.1]
    """
    p, m = _pair(predicted, measured)
    return p / m - 1.0


def score(*, predicted: ArrayLike, measured: ArrayLike) -> Score:
    """MAPE = mean|e|, median|e|, bias = mean e, and the shares with |e| <= 10 % and 20 %.

    >>> s = score(predicted=[11.0, 9.0, 13.0], measured=[10.0, 10.0, 10.0])
    >>> s.n, round(s.mape, 4), round(s.median, 4), round(s.bias, 4), round(s.within_10, 4)
    (3, 0.1667, 0.1, 0.1, 0.6667)
    """
    error = relative_error(predicted=predicted, measured=measured)
    size = np.abs(error)
    return Score(
        n=int(error.size),
        mape=float(size.mean()),
        median=float(np.median(size)),
        bias=float(error.mean()),
        within_10=float((size <= 0.10 + 1e-12).mean()),
        within_20=float((size <= 0.20 + 1e-12).mean()),
    )


def k_regret(*, measured_goodput: Mapping[int, float], predicted_k: int) -> float:
    """Goodput lost, by the measured curve, when K is what was predicted: 1 − G(K_predicted)/max_K G(K).

    ``measured_goodput`` maps K (0: no speculation) to goodput. 0 when the choice was the measured best.

    >>> round(k_regret(measured_goodput={0: 100.0, 2: 140.0, 4: 133.0}, predicted_k=4), 3)
    0.05
    """
    if predicted_k not in measured_goodput:
        known = ", ".join(map(str, sorted(measured_goodput)))
        raise InputError(f"K-regret: K = {predicted_k} was not measured; measured are {known}")
    best = max(measured_goodput.values())
    if best <= 0:
        raise InputError("K-regret: the measured goodput must be above 0")
    return 1.0 - measured_goodput[predicted_k] / best


def same_sign(
    *, predicted_speedup: ArrayLike, measured_speedup: ArrayLike, tie_frac: float = SIGN_TIE_FRAC
) -> tuple[int, int]:
    """How many cells the verdict "speculation pays" (AL > R, speed-up > 1) is right in: (right, cells with a
    sign).

    Cells measured within ``tie_frac`` of 1 have no sign and are left out.

    >>> same_sign(predicted_speedup=[1.2, 0.9, 1.1, 1.3], measured_speedup=[1.4, 0.8, 0.95, 1.01])
    (2, 3)
    """
    p, m = _pair(predicted_speedup, measured_speedup)
    has_sign = np.abs(m - 1.0) > tie_frac
    right = (p > 1.0) == (m > 1.0)
    return int((right & has_sign).sum()), int(has_sign.sum())


def band_coverage(*, low: ArrayLike, high: ArrayLike, measured: ArrayLike) -> float:
    """Share of measurements inside their band. An 80 % band should hold about 0.8.

    >>> band_coverage(low=[1.0, 2.0], high=[3.0, 2.5], measured=[2.0, 3.0])
    0.5
    """
    lo, m = _pair(low, measured)
    hi, _ = _pair(high, measured)
    return float(((m >= lo) & (m <= hi)).mean())


def rmse(*, predicted: ArrayLike, measured: ArrayLike) -> float:
    """√ mean (predicted − measured)², in the unit of the rows.

    >>> rmse(predicted=[1.0, 2.0], measured=[1.0, 4.0])
    1.4142135623730951
    """
    p, m = _pair(predicted, measured)
    return float(np.sqrt(np.square(p - m).mean()))


def inconsistent_ratios(
    *, printed: Sequence[float], recomputed: Sequence[float], rel_tol: float = 0.005
) -> list[int]:
    """Indexes whose printed ratio differs from the one its own times give by more than rounding.

    >>> inconsistent_ratios(printed=[1.64, 1.568], recomputed=[1.638, 1.578])
    [1]
    """
    p, r = _pair(printed, recomputed)
    return [int(i) for i in np.flatnonzero(np.abs(p / r - 1.0) > rel_tol)]
