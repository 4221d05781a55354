"""From whatever a user knows about acceptance to a curve, with the conversion written out.

Engines and papers print four different numbers under the same name; each has its own function here, and each
says in ``Conversion.text`` what it took the number to be. A single number cannot say how acceptance changes
with position: those forms assume a flat conditional, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rooflinesim.acceptance.curve import AcceptanceCurve, check_fraction
from rooflinesim.acceptance.formulas import (
    FloatArray,
    acceptance_length_table,
    conditional_from_marginal,
    geometric_conditional,
)
from rooflinesim.errors import InputError

_FLAT: Final = "flat conditional assumed"
#: No engine drafts more tokens per step; larger numbers are slips of the pen.
MAX_K: Final = 1024


@dataclass(frozen=True)
class Conversion:
    """A curve, how it was obtained (``text``), and the depth up to which it rests on data (0: none)."""

    curve: AcceptanceCurve
    text: str
    measured_k: int = 0
    warnings: tuple[str, ...] = ()


def c1_for_acceptance_length(
    *, acceptance_length: ArrayLike, k: ArrayLike, decay: ArrayLike = 1.0
) -> FloatArray:
    """The c_1 at which AL(K) of the geometric curve equals a wanted value (vectorised).

    Solves 1 + Σ_{i<=K} Π_{j<=i} clip(c_1 · decay^(j-1)) = AL. acceptance_length tokens, k integers, decay
    ratio: shapes broadcast. Returns fractions; 0 where AL <= 1, nan where even c_1 = 1 does not reach AL.

    >>> c1_for_acceptance_length(acceptance_length=[1.0, 1.75, 3.0, 3.1], k=2).round(6).tolist()
    [0.0, 0.5, 1.0, nan]
    """
    wanted, depth, ratio = np.broadcast_arrays(
        np.asarray(acceptance_length, dtype=np.float64),
        np.asarray(k).astype(np.intp),
        np.asarray(decay, dtype=np.float64),
    )
    top, _ = _length_and_slope(np.ones(wanted.shape), depth, ratio)
    solve = _bisect if np.any(ratio > 1.0) else _newton
    c1 = solve(wanted, depth, ratio)
    return np.where(wanted <= 1.0, 0.0, np.where(top >= wanted * (1.0 - 1e-12), c1, np.nan))


def _length_and_slope(
    c1: FloatArray, depth: NDArray[np.intp], ratio: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """AL(depth) of the geometric curve and its derivative by c_1 (the derivative ignores the clip at 1)."""
    rate, survive, survive_slope = c1, np.ones(c1.shape), np.zeros(c1.shape)
    growth = np.ones(c1.shape)
    length, slope = np.ones(c1.shape), np.zeros(c1.shape)
    for i in range(1, int(depth.max()) + 1 if depth.size else 1):
        rate = np.minimum(c1 * growth, 1.0)
        survive_slope = survive_slope * rate + survive * growth
        survive = survive * rate
        growth = growth * ratio
        reached = depth >= i
        length = length + np.where(reached, survive, 0.0)
        slope = slope + np.where(reached, survive_slope, 0.0)
    return length, slope


def _newton(wanted: FloatArray, depth: NDArray[np.intp], ratio: FloatArray) -> FloatArray:
    """For decay <= 1: AL is convex in c_1 (no clip), and 1 + c_1 <= AL, so Newton falls to the root from AL
    - 1."""
    c1 = np.clip(wanted - 1.0, 0.0, 1.0)
    for _ in range(200):
        length, slope = _length_and_slope(c1, depth, ratio)
        move = np.divide(length - wanted, slope, out=np.zeros_like(slope), where=slope > 0)
        before, c1 = c1, np.clip(c1 - move, 0.0, 1.0)  # what cannot be reached stays at 1
        if np.all(np.abs(c1 - before) <= 1e-15 + 1e-13 * c1):
            break
    return c1


def _bisect(wanted: FloatArray, depth: NDArray[np.intp], ratio: FloatArray) -> FloatArray:
    """For any decay: the clip at 1 puts kinks into AL, and halving the interval does not mind them."""
    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    for _ in range(54):
        mid = 0.5 * (low + high)
        below = _length_and_slope(mid, depth, ratio)[0] < wanted
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    return high


def from_acceptance_length(*, k: int, acceptance_length: float, decay: float = 1.0) -> Conversion:
    """One AL (bonus included) at one K.

    >>> conversion = from_acceptance_length(k=3, acceptance_length=2.41)
    >>> conversion.text
    'AL 2.41 at K = 3: c solves 1 + c + ... + c^3 = 2.41, c = 0.6674 (flat conditional assumed)'
    """
    if not 1 <= k <= MAX_K:
        raise InputError(f"AL: K = {k} must be at least 1 and at most {MAX_K}")
    if not math.isfinite(acceptance_length) or not 1.0 <= acceptance_length <= k + 1:
        hint = "; is the bonus token left out?" if 0.0 <= acceptance_length < 1.0 else ""
        raise InputError(f"AL: {acceptance_length:g} at K = {k} is outside 1..{k + 1}{hint}")
    c1 = float(c1_for_acceptance_length(acceptance_length=acceptance_length, k=k, decay=decay))
    if math.isnan(c1):
        raise InputError(f"AL: {acceptance_length:g} at K = {k} cannot be reached with decay {decay:g}")
    if decay == 1.0:
        series = "1 + c" if k == 1 else "1 + c + c^2" if k == 2 else f"1 + c + ... + c^{k}"
        text = f"AL {acceptance_length:g} at K = {k}: c solves {series} = {acceptance_length:g}, c = {c1:.4g}"
        text += f" ({_FLAT})"
    else:
        text = (
            f"AL {acceptance_length:g} at K = {k}: c_1 = {c1:.4g} with decay {decay:g} per position (given)"
        )
    return Conversion(AcceptanceCurve.geometric(c1=c1, decay=decay, note=text), text, k)


def from_mean_acceptance(*, k: int, mean_accepted_frac: float, decay: float = 1.0) -> Conversion:
    """Accepted over drafted tokens (draft acceptance rate, DAR): AL = 1 + DAR · K, linear in it, then as an
    AL.

    >>> conversion = from_mean_acceptance(k=2, mean_accepted_frac=0.728)
    >>> conversion.curve.acceptance_length(2).round(3).item()
    2.456
    >>> conversion.text.split(";")[0]
    'accepted/drafted 0.728 at K = 2: AL = 1 + 0.728 x 2 = 2.456'
    """
    check_fraction(mean_accepted_frac, "accepted/drafted")
    if not 1 <= k <= MAX_K:
        raise InputError(f"accepted/drafted: K = {k} must be at least 1 and at most {MAX_K}")
    al = 1.0 + mean_accepted_frac * k
    inner = from_acceptance_length(k=k, acceptance_length=al, decay=decay)
    shown = f"{mean_accepted_frac:g}"
    text = f"accepted/drafted {shown} at K = {k}: AL = 1 + {shown} x {k} = {al:.4g}"
    return Conversion(inner.curve, f"{text}; {inner.text.split(': ', 1)[1]}", k)


def from_acceptance_lengths(lengths: Mapping[int, float]) -> Conversion:
    """AL measured separately at several K: least squares of (c_1, decay); one K falls back to the flat form.

    >>> from_acceptance_lengths({2: 2.18, 3: 2.44}).curve.acceptance_length([2, 3]).round(2).tolist()
    [2.18, 2.44]
    """
    if not lengths:
        raise InputError("AL: give at least one K:AL pair")
    for k, al in lengths.items():
        from_acceptance_length(k=k, acceptance_length=al)  # range checks
    if len(lengths) == 1:
        ((k, al),) = lengths.items()
        return from_acceptance_length(k=k, acceptance_length=al)
    ks = sorted(lengths)
    c1, decay, rmse = fit_acceptance_lengths(k=ks, acceptance_length=[lengths[k] for k in ks])
    pairs = ", ".join(f"{k}:{lengths[k]:g}" for k in ks)
    text = (
        f"AL at K = {pairs}: least squares of c_i = c_1 decay^(i-1) gives c_1 = {c1:.4g}, "
        f"decay = {decay:.4g}, RMSE {rmse:.3f} tokens"
    )
    return Conversion(AcceptanceCurve.geometric(c1=c1, decay=decay, note=text), text, ks[-1])


def fit_acceptance_lengths(
    *, k: Sequence[int], acceptance_length: Sequence[float]
) -> tuple[float, float, float]:
    """Least squares of (c_1, decay) on AL(K) points: a coarse grid, then damped Gauss-Newton steps.

    k integers, acceptance_length tokens, same length. Returns (c_1, decay, RMSE in tokens).
    Validity: separately measured AL, so the points' errors are independent; c_1 in 0..1, decay in 0.3..1.4.

    >>> c1, decay, rmse = fit_acceptance_lengths(k=[1, 3, 5], acceptance_length=[1.8, 2.8923, 3.4754])
    >>> round(c1, 2), round(decay, 2), rmse < 0.001
    (0.8, 0.97, True)
    """
    at = np.asarray(k, dtype=np.intp)
    wanted = np.asarray(acceptance_length, dtype=np.float64)
    lowest, highest = np.array([0.0, 0.3]), np.array([1.0, 1.4])

    def error(theta: FloatArray) -> FloatArray:
        shape = geometric_conditional(c1=theta[..., 0], decay=theta[..., 1], k_max=int(at.max()))
        out: FloatArray = acceptance_length_table(shape)[..., at] - wanted
        return out

    c_grid, d_grid = np.meshgrid(np.linspace(0, 1, 41), np.linspace(0.3, 1.4, 45), indexing="ij")
    grid = np.stack([c_grid.ravel(), d_grid.ravel()], axis=-1)
    theta = grid[int(np.argmin(np.sum(error(grid) ** 2, axis=-1)))]
    best, damping, step = float(np.sum(error(theta) ** 2)), 1e-3, 1e-6
    for _ in range(100):
        slope = (error(theta + step * np.eye(2)) - error(theta - step * np.eye(2))).T / (2 * step)
        normal = slope.T @ slope
        move = np.linalg.solve(
            normal + damping * (np.eye(2) + np.diag(np.diag(normal))), slope.T @ error(theta)
        )
        trial = np.clip(theta - move, lowest, highest)
        score = float(np.sum(error(trial) ** 2))
        if score < best:
            theta, best, damping = trial, score, max(damping / 5, 1e-12)
        else:
            damping *= 5
            if damping > 1e9:
                break
    return float(theta[0]), float(theta[1]), math.sqrt(best / at.size)


def from_conditional(conditional: Sequence[float]) -> Conversion:
    """Conditionals by position, as the EAGLE papers' n-alpha.

    >>> from_conditional([0.72, 0.6, 0.6]).text
    'conditional 0.72, 0.6, 0.6: used as a table; positions after 3 repeat 0.6'
    """
    curve = AcceptanceCurve.table(conditional=conditional)
    listed = ", ".join(f"{c:.4g}" for c in conditional)
    n = len(conditional)
    text = f"conditional {listed}: used as a table; positions after {n} repeat {curve.params[-1]:.4g}"
    return Conversion(curve, text, n)


def from_marginal(marginal: Sequence[float]) -> Conversion:
    """Marginals by position, as engines print them ("per-position acceptance rate"); they can never rise.

    >>> from_marginal([0.72, 0.43, 0.26]).text
    'marginal 0.72, 0.43, 0.26: c_i = p_i/p_(i-1) = 0.72, 0.5972, 0.6047; positions after 3 repeat 0.6047'
    """
    for i, p in enumerate(marginal):
        check_fraction(float(p), f"marginal[{i + 1}]")
        if i and p > marginal[i - 1] + 1e-12:
            raise InputError(
                f"marginal: position {i + 1} ({p:g}) is above position {i} ({marginal[i - 1]:g}); marginal "
                "rates cannot rise - give conditional rates as conditional"
            )
    conditional = conditional_from_marginal(list(marginal)).tolist()
    curve = AcceptanceCurve.table(conditional=conditional)
    listed, shown = (", ".join(f"{x:.4g}" for x in values) for values in (marginal, conditional))
    n = len(conditional)
    text = f"marginal {listed}: c_i = p_i/p_(i-1) = {shown}; positions after {n} repeat {conditional[-1]:.4g}"
    warnings: tuple[str, ...] = ()
    if any(b > a + 0.05 for a, b in pairwise(conditional)):
        warnings = (
            "conditional acceptance rises with position: kept as a table, a constant rate would mislead",
        )
    return Conversion(curve, text, n, warnings)


def from_c1(*, c1: float, decay: float = 1.0) -> Conversion:
    """First-position rate and its decay per position.

    >>> from_c1(c1=0.8).text
    'c_1 = 0.8: flat conditional assumed at every position'
    """
    curve = AcceptanceCurve.geometric(c1=c1, decay=decay)
    text = f"c_1 = {c1:g}: {_FLAT} at every position" if decay == 1.0 else f"c_i = {c1:g} x {decay:g}^(i-1)"
    return Conversion(curve, text)


def _numbers(text: str, field: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(";", ",").split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{field}: {text!r} is not a list of numbers with commas between them") from None


def parse_acceptance(
    *,
    accept: str | None = None,
    al: str | None = None,
    marginal: str | None = None,
    conditional: str | None = None,
    mean_accepted: str | None = None,
) -> Conversion:
    """One of the acceptance forms as people write them; exactly one must be given.

    ``accept`` "C1[,DECAY]" · ``al`` "K:AL[,K:AL...]" · ``marginal``, ``conditional`` "a,b,c" ·
    ``mean_accepted`` "K:FRACTION".

    >>> parse_acceptance(al="3:2.41").measured_k
    3
    >>> parse_acceptance(accept="0.8,0.97").text
    'c_i = 0.8 x 0.97^(i-1)'
    """
    forms = {
        "accept": accept,
        "al": al,
        "marginal": marginal,
        "conditional": conditional,
        "mean-accepted": mean_accepted,
    }
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) != 1:
        listed = ", ".join(f"--{name}" for name in given) or "none"
        raise InputError(
            f"acceptance: give exactly one of {', '.join('--' + n for n in forms)} (given: {listed})"
        )
    ((name, text),) = given.items()
    field = f"--{name}"
    if name in ("al", "mean-accepted"):
        pairs = _pairs(text, field)
        if name == "al":
            return from_acceptance_lengths(pairs)
        if len(pairs) != 1:
            raise InputError(f"{field}: {text!r} must be one K:FRACTION")
        ((k, frac),) = pairs.items()
        return from_mean_acceptance(k=k, mean_accepted_frac=frac)
    values = _numbers(text, field)
    if not values:
        raise InputError(f"{field}: {text!r} holds no number")
    if name == "marginal":
        return from_marginal(values)
    if name == "conditional":
        return from_conditional(values)
    if len(values) > 2:
        raise InputError(
            f"{field}: {text!r} must be C1 or C1,DECAY; for a list use --marginal or --conditional"
        )
    return from_c1(c1=values[0], decay=values[1] if len(values) == 2 else 1.0)


def _pairs(text: str, field: str) -> dict[int, float]:
    out: dict[int, float] = {}
    for part in (piece for piece in text.split(",") if piece.strip()):
        k_text, colon, value_text = part.partition(":")
        try:
            if not colon:
                raise ValueError
            out[int(k_text)] = float(value_text)
        except ValueError:
            raise InputError(f"{field}: {part.strip()!r} must be K:NUMBER, as in 3:2.41") from None
    if not out:
        raise InputError(f"{field}: {text!r} holds no K:NUMBER pair")
    return out
