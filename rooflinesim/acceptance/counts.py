"""``PositionCounts``: what engines count about accepted drafts, reduced to one shape, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.acceptance.formulas import FloatArray, marginal_from_conditional
from rooflinesim.errors import InputError


@dataclass(frozen=True)
class PositionCounts:
    """Steps that drafted, reached and accepted each draft position i = 1..k_max.

    ``drafted[i-1]``: steps that drafted position i. ``accepted[i-1]``: steps in which position i was
    accepted (the *marginal* count). ``n_steps``: steps in which anything was drafted. ``eligible[i-1]``:
    steps that drafted position i and accepted all before it; left out, it is accepted[i-1] ·
    drafted[i]/drafted[i-1], exact at a fixed K. ``biased``: the draft length varied and its spread is
    unknown, so rates are lower bounds.

    >>> counts = PositionCounts.from_histogram([280, 290, 170, 260])
    >>> counts.acceptance_length, counts.conditional.round(4).tolist()
    (2.41, [0.72, 0.5972, 0.6047])
    """

    drafted: tuple[float, ...]
    accepted: tuple[float, ...]
    n_steps: float
    biased: bool = False
    note: str = ""
    eligible: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.drafted)
        if n == 0 or len(self.accepted) != n or len(self.eligible) not in (0, n):
            raise InputError(
                f"acceptance counts: {n} drafted, {len(self.accepted)} accepted, {len(self.eligible)} "
                "eligible; give the same number of each, at least one"
            )
        if not all(math.isfinite(x) and x >= 0 for x in (*self.drafted, *self.accepted, *self.eligible)):
            raise InputError("acceptance counts: every count must be finite and not negative")
        if not math.isfinite(self.n_steps) or self.n_steps <= 0:
            raise InputError(f"acceptance counts: n_steps = {self.n_steps:g}; nothing was drafted")
        before = self.n_steps
        for i, (d, a) in enumerate(zip(self.drafted, self.accepted, strict=True), start=1):
            if a > d * (1 + 1e-9) or d > self.n_steps * (1 + 1e-9):
                raise InputError(
                    f"acceptance counts: position {i} accepted {a:g} of {d:g} drafted, {self.n_steps:g} steps"
                )
            if a > before * (1 + 1e-9):
                raise InputError(
                    f"acceptance counts: position {i} accepted in {a:g} steps but position {i - 1} in "
                    f"{before:g}; marginal counts cannot rise (are these conditional rates?)"
                )
            before = a
        if not self.eligible:
            object.__setattr__(self, "eligible", self._eligible_at_fixed_k())
        for i, (e, a) in enumerate(zip(self.eligible, self.accepted, strict=True), start=1):
            if a > e * (1 + 1e-9):
                raise InputError(f"acceptance counts: position {i} accepted {a:g} times in {e:g} tries")

    def _eligible_at_fixed_k(self) -> tuple[float, ...]:
        out = [self.drafted[0]]
        for i in range(1, len(self.drafted)):
            share = self.drafted[i] / self.drafted[i - 1] if self.drafted[i - 1] > 0 else 0.0
            out.append(max(self.accepted[i - 1] * min(share, 1.0), self.accepted[i]))
        return tuple(out)

    # ---- constructors -------------------------------------------------------------------------------------

    @classmethod
    def from_histogram(cls, histogram: Sequence[float], *, note: str = "") -> PositionCounts:
        """From counts of steps by accepted drafts: histogram[j] steps accepted exactly j, K = len - 1 fixed.

        >>> PositionCounts.from_histogram([39, 1, 0, 3]).accepted
        (4.0, 3.0, 3.0)
        """
        counts = np.asarray(histogram, dtype=np.float64)
        if counts.ndim != 1 or counts.size < 2 or np.any(counts < 0) or not np.all(np.isfinite(counts)):
            raise InputError("acceptance histogram: give K+1 >= 2 counts that are not negative")
        n = float(counts.sum())
        reached = np.cumsum(counts[::-1])[::-1][1:]
        return cls((n,) * reached.size, tuple(reached.tolist()), n, note=note)

    @classmethod
    def from_steps(cls, *, accepted: ArrayLike, drafted: ArrayLike, note: str = "") -> PositionCounts:
        """From per-step arrays (accepted_j of drafted_j): unbiased even when the draft length varies.

        Steps that drafted nothing say nothing about acceptance and are left out.

        >>> PositionCounts.from_steps(accepted=[2, 0, 1], drafted=[2, 1, 2]).conditional.round(3).tolist()
        [0.667, 0.5]
        """
        acc, dra = np.asarray(accepted), np.asarray(drafted)
        if acc.shape != dra.shape or acc.ndim != 1:
            raise InputError(
                f"acceptance steps: {acc.size} accepted for {dra.size} drafted; give one for each"
            )
        acc, dra = acc[dra > 0], dra[dra > 0]
        if dra.size == 0:
            raise InputError("acceptance steps: nothing was drafted in any step")
        if np.any(acc > dra) or np.any(acc < 0):
            raise InputError("acceptance steps: a step accepted more than it drafted, or a negative number")
        k_max = int(dra.max())
        by_drafted = np.cumsum(np.bincount(dra.astype(np.intp), minlength=k_max + 1)[::-1])[::-1]
        by_accepted = np.cumsum(np.bincount(acc.astype(np.intp), minlength=k_max + 1)[::-1])[::-1]
        # reached position i+1: drafted > i and accepted >= i
        reach = np.minimum(acc + 1, dra).astype(np.intp)
        tries = np.cumsum(np.bincount(reach, minlength=k_max + 1)[::-1])[::-1]
        as_tuple = [tuple(float(x) for x in column[1:]) for column in (by_drafted, by_accepted, tries)]
        return cls(as_tuple[0], as_tuple[1], float(dra.size), note=note, eligible=as_tuple[2])

    @classmethod
    def from_counters(
        cls,
        *,
        n_steps: float,
        accepted_per_position: Sequence[float],
        drafted_tokens: float | None = None,
        note: str = "",
    ) -> PositionCounts:
        """From engine counters: steps, accepted by position and (if known) all drafted tokens.

        drafted_tokens != n_steps · K means that the draft length varied: the per-position denominators are
        then unknown, n_steps is used, and the result is marked ``biased`` (rates too low at deep positions).

        >>> counts = PositionCounts.from_counters(n_steps=1000, accepted_per_position=[720, 430, 260])
        >>> counts.acceptance_length
        2.41
        """
        k = len(accepted_per_position)
        biased = drafted_tokens is not None and abs(drafted_tokens - n_steps * k) > 1e-6 * n_steps * k + 0.5
        if biased and drafted_tokens is not None:
            mean_k = drafted_tokens / n_steps if n_steps else 0.0
            warning = f"draft length varied (mean {mean_k:.2f} of {k}): rates at deep positions are too low"
            note = f"{note}; {warning}" if note else warning
        accepted = tuple(float(x) for x in accepted_per_position)
        return cls((float(n_steps),) * k, accepted, float(n_steps), biased, note)

    @classmethod
    def from_rates(
        cls, *, n_steps: float, marginal: Sequence[float], biased: bool = False, note: str = ""
    ) -> PositionCounts:
        """From printed marginal rates and the number of steps (for logs that print no counts).

        >>> PositionCounts.from_rates(n_steps=100, marginal=[0.5, 0.25]).accepted
        (50.0, 25.0)
        """
        accepted = tuple(float(p) * n_steps for p in marginal)
        return cls((float(n_steps),) * len(accepted), accepted, float(n_steps), biased, note)

    def __add__(self, other: PositionCounts) -> PositionCounts:
        """Counts of two logs pooled, position by position."""
        n = max(len(self.drafted), len(other.drafted))

        def joined(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
            pad_a, pad_b = a + (0.0,) * (n - len(a)), b + (0.0,) * (n - len(b))
            return tuple(x + y for x, y in zip(pad_a, pad_b, strict=True))

        return PositionCounts(
            joined(self.drafted, other.drafted),
            joined(self.accepted, other.accepted),
            self.n_steps + other.n_steps,
            self.biased or other.biased,
            "; ".join(dict.fromkeys(text for text in (self.note, other.note) if text)),
            joined(self.eligible, other.eligible),
        )

    # ---- what they say ------------------------------------------------------------------------------------

    @property
    def k_max(self) -> int:
        """Deepest position drafted."""
        return len(self.drafted)

    @property
    def conditional(self) -> FloatArray:
        """c_i = accepted_i / eligible_i, fractions, shape (k_max,); 0 where no step reached position i."""
        accepted, eligible = np.asarray(self.accepted), np.asarray(self.eligible)
        out: FloatArray = np.divide(accepted, eligible, out=np.zeros_like(accepted), where=eligible > 0)
        return out

    @property
    def marginal(self) -> FloatArray:
        """p_i = c_1 ··· c_i, fractions, shape (k_max,): accepted_i / n_steps at a fixed K."""
        out: FloatArray = marginal_from_conditional(self.conditional)
        return out

    @property
    def acceptance_length(self) -> float:
        """AL = 1 + Σ accepted_i / n_steps, tokens per drafting step *as it ran* (whatever K it drafted)."""
        return 1.0 + sum(self.accepted) / self.n_steps

    @property
    def mean_accepted_frac(self) -> float:
        """Accepted over drafted tokens (the engines' "draft acceptance rate"); falls as K grows."""
        return sum(self.accepted) / sum(self.drafted)

    def wilson(self, *, z: float = 1.959964) -> tuple[FloatArray, FloatArray]:
        """Wilson score interval of each conditional: (low, high), fractions, shape (k_max,).

        >>> low, high = PositionCounts.from_histogram([39, 1, 0, 3]).wilson()
        >>> low.round(3).tolist(), high.round(3).tolist()
        ([0.037, 0.301, 0.439], [0.216, 0.954, 1.0])
        """
        return wilson_interval(accepted=self.accepted, eligible=self.eligible, z=z)

    def useful_depth(self, *, min_marginal: float = 0.02) -> int:
        """The deepest position that still adds ``min_marginal`` tokens a step; drafting beyond it is waste.

        >>> counts = PositionCounts.from_counters(n_steps=65, accepted_per_position=[39, 25, 14, 7, 4, 0, 0])
        >>> counts.useful_depth()
        5
        """
        useful = np.flatnonzero(self.marginal >= min_marginal)
        return int(useful[-1]) + 1 if useful.size else 0

    def rises(self, *, z: float = 1.959964) -> bool:
        """Whether a later conditional lies above the first by more than chance (disjoint Wilson intervals).

        >>> [PositionCounts.from_histogram(counts).rises() for counts in ([39, 1, 0, 3], [5, 5])]
        [True, False]
        """
        low, high = self.wilson(z=z)
        return bool(np.any(low[1:] > high[0]))


def wilson_interval(
    *, accepted: ArrayLike, eligible: ArrayLike, z: float = 1.959964
) -> tuple[FloatArray, FloatArray]:
    """Wilson score interval of a proportion x/n: centre (x + z²/2)/(n + z²), never outside [0, 1].

    accepted x, eligible n: counts, same shape; z: normal quantile (1.96 = 95 %). Returns (low, high); (0, 1)
    where n = 0. Source: Wilson 1927. Valid for small n; steps of one request are alike, so real spread is
    wider.

    >>> low, high = wilson_interval(accepted=[0.0, 5.0], eligible=[10.0, 10.0])
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.2366], [0.2775, 0.7634])
    """
    x, n = np.asarray(accepted, dtype=np.float64), np.asarray(eligible, dtype=np.float64)
    total = n + z * z
    centre = (x + 0.5 * z * z) / total
    safe_n = np.maximum(n, 1e-300)
    half = z / total * np.sqrt(np.maximum(x * (n - x) / safe_n, 0.0) + 0.25 * z * z)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


@dataclass(frozen=True)
class CounterSummary:
    """Totals without positions: enough for AL and the mean acceptance, not for a curve."""

    acceptance_length: float
    mean_accepted_frac: float
    mean_k: float


def counter_summary(*, n_steps: float, drafted_tokens: float, accepted_tokens: float) -> CounterSummary:
    """AL = 1 + accepted/steps, mean acceptance = accepted/drafted, mean K = drafted/steps.

    >>> summary = counter_summary(n_steps=4816, drafted_tokens=33712, accepted_tokens=12208)
    >>> round(summary.acceptance_length, 3), round(summary.mean_accepted_frac, 3), summary.mean_k
    (3.535, 0.362, 7.0)
    """
    if n_steps <= 0 or drafted_tokens <= 0 or not 0 <= accepted_tokens <= drafted_tokens:
        raise InputError(
            f"acceptance counters: {n_steps:g} steps, {drafted_tokens:g} drafted, {accepted_tokens:g} "
            "accepted; need steps and drafted above 0 and accepted between 0 and drafted"
        )
    return CounterSummary(
        1.0 + accepted_tokens / n_steps, accepted_tokens / drafted_tokens, drafted_tokens / n_steps
    )
