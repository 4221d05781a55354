"""From an engine's counters to an :class:`AcceptanceRecord`, with the checks that every format shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from rooflinesim.acceptance import PositionCounts, counter_summary
from rooflinesim.engines.reading import MAX_POSITIONS
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.errors import InputError

#: A position that adds fewer tokens per step than this is not worth drafting.
MIN_MARGINAL: Final = 0.02


def pool(parts: Iterable[PositionCounts]) -> PositionCounts | None:
    """The sum of several counts; None when there are none."""
    total: PositionCounts | None = None
    for part in parts:
        total = part if total is None else total + part
    return total


def check_depth(n: int, *, field: str) -> None:
    """Refuse more draft positions than any engine has."""
    if n > MAX_POSITIONS:
        raise InputError(f"{field}: {n} draft positions, at most {MAX_POSITIONS} are read")


def counters(
    *,
    n_steps: float,
    accepted_per_position: Sequence[float],
    drafted_tokens: float | None,
    field: str,
) -> PositionCounts:
    """Engine counters as counts; positions the engine left out (never accepted) are added as zeros.

    >>> counters(n_steps=10, accepted_per_position=[7.0], drafted_tokens=20, field="x").drafted
    (10.0, 10.0)
    """
    accepted = list(accepted_per_position)
    if n_steps <= 0:
        raise InputError(f"{field}: no step drafted anything")
    if drafted_tokens is not None:
        depth = math.ceil(drafted_tokens / n_steps - 1e-9)
        check_depth(depth, field=field)
        accepted += [0.0] * (depth - len(accepted))
    check_depth(len(accepted), field=field)
    try:
        return PositionCounts.from_counters(
            n_steps=n_steps, accepted_per_position=accepted, drafted_tokens=drafted_tokens
        )
    except InputError as error:
        raise InputError(f"{field}: {error}") from None


def histogram(
    values: Sequence[float], *, field: str, k: int | None = None, drafted_tokens: float | None = None
) -> PositionCounts:
    """Steps by accepted drafts as counts; ``k`` lengthens a histogram that ends at the deepest acceptance.

    When the drafted tokens are known and are not steps·K, the counts are marked biased.

    >>> histogram([280, 290, 170, 260], field="x", drafted_tokens=3000).biased
    False
    >>> histogram([1, 2, 1, 0], field="x", drafted_tokens=10).biased
    True
    """
    dense = list(values)
    if k is not None:
        check_depth(k, field=field)
        if any(value > 0 for value in dense[k + 1 :]):
            raise InputError(f"{field}: {len(dense) - 1} accepted drafts in a step, but only {k} are drafted")
        dense = dense[: k + 1] + [0.0] * (k + 1 - len(dense))
    check_depth(len(dense) - 1, field=field)
    if len(dense) < 2 or sum(dense) <= 0:
        raise InputError(f"{field}: no step drafted anything")
    n_steps = sum(dense)
    accepted: list[float] = []
    reached = n_steps
    for value in dense[:-1]:
        reached = max(reached - value, 0.0)
        accepted.append(reached)
    return counters(
        n_steps=n_steps, accepted_per_position=accepted, drafted_tokens=drafted_tokens, field=field
    )


def from_counts(
    counts: PositionCounts,
    *,
    format: str,
    engine: str,
    source: str,
    reported: float | None = None,
    tolerance: float = 0.011,
    rate: float | None = None,
    al_by_k: tuple[tuple[int, float, float], ...] = (),
    warnings: Sequence[str] = (),
) -> AcceptanceRecord:
    """A record with per-position data, checked: AL = 1 + Σ marginals, bias, rising rates, useless
    positions."""
    notes = list(dict.fromkeys(warnings))
    length = counts.acceptance_length
    if reported is not None and abs(reported - length) > tolerance:
        notes.append(f"reported AL {reported:.4g} differs from 1 + sum of marginal rates = {length:.4g}")
    if counts.biased:
        notes.append(
            counts.note
            or "draft length varied: rates at deep positions are too low; measure with one fixed K"
        )
    if not counts.biased and min(counts.drafted) < counts.n_steps * (1 - 1e-9):
        at_k = 1.0 + float(counts.marginal.sum())
        notes.append(
            f"draft lengths differ (mean {sum(counts.drafted) / counts.n_steps:.3g}): "
            "the acceptance length is that of "
            f"the steps as they ran; with K = {counts.k_max} in every step it would be {at_k:.4g}"
        )
    if counts.rises():
        notes.append(
            "conditional acceptance rises with position: use the per-position "
            "table, a constant rate would mislead"
        )
    depth = counts.useful_depth(min_marginal=MIN_MARGINAL)
    if depth < counts.k_max:
        notes.append(
            f"positions after {depth} add less than {MIN_MARGINAL:g} tokens a step: "
            f"drafting K > {max(depth, 1)} is waste"
        )
    return AcceptanceRecord(
        format=format,
        engine=engine,
        source=source,
        counts=counts,
        k=counts.k_max,
        acceptance_length=length,
        n_steps=counts.n_steps,
        reported_acceptance_length=reported,
        draft_acceptance_rate=rate if rate is not None else counts.mean_accepted_frac,
        al_by_k=al_by_k,
        warnings=tuple(notes),
    )


def from_means(
    *,
    format: str,
    engine: str,
    source: str,
    acceptance_length: float,
    k: int | None,
    rate: float | None = None,
    n_steps: float | None = None,
    reported: float | None = None,
    al_by_k: tuple[tuple[int, float, float], ...] = (),
    warnings: Sequence[str] = (),
) -> AcceptanceRecord:
    """A record that knows means only; says so, and checks 1 <= AL <= K+1."""
    notes = [*dict.fromkeys(warnings), "no per-position data: acceptance is known as a mean only"]
    if not math.isfinite(acceptance_length) or acceptance_length < 1.0 - 1e-9:
        raise InputError(
            f"{source}: acceptance length {acceptance_length:g} is below 1 (the bonus token is included)"
        )
    if k is not None and acceptance_length > (k + 1) * 1.005 + 0.005:
        raise InputError(f"{source}: acceptance length {acceptance_length:.4g} is above K+1 = {k + 1}")
    if k is None:
        notes.append("K is not in the file: state it, or the mean cannot become an acceptance curve")
    return AcceptanceRecord(
        format=format,
        engine=engine,
        source=source,
        k=k,
        acceptance_length=min(acceptance_length, k + 1.0) if k is not None else acceptance_length,
        n_steps=n_steps,
        reported_acceptance_length=reported,
        draft_acceptance_rate=rate,
        al_by_k=al_by_k,
        warnings=tuple(notes),
    )


def mean_of_counters(
    *, n_steps: float, drafted_tokens: float, accepted_tokens: float, field: str
) -> tuple[float, float, float]:
    """(AL, accepted/drafted, mean K) of counters without positions.

    >>> al, rate, k = mean_of_counters(n_steps=4816, drafted_tokens=33712, accepted_tokens=12208, field="x")
    >>> round(al, 3), round(rate, 3), k
    (3.535, 0.362, 7.0)
    """
    try:
        summary = counter_summary(
            n_steps=n_steps, drafted_tokens=drafted_tokens, accepted_tokens=accepted_tokens
        )
    except InputError as error:
        raise InputError(f"{field}: {error}") from None
    return summary.acceptance_length, summary.mean_accepted_frac, summary.mean_k


def whole_k(mean_k: float) -> int | None:
    """K when the mean draft length is a whole number, else None.

    >>> whole_k(3.0), whole_k(2.6)
    (3, None)
    """
    k = round(mean_k)
    return k if k >= 1 and abs(mean_k - k) < 1e-6 else None


def consistent_k(
    *, acceptance_length: float, rate: float, al_digits: float = 0.005, rate_digits: float = 0.005
) -> list[int]:
    """Every K for which AL = 1 + rate·K holds within the printed digits.

    >>> consistent_k(acceptance_length=1.57, rate=0.19)
    [3]
    """
    gain = acceptance_length - 1.0
    if rate - rate_digits <= 0:
        return []
    low = (gain - al_digits) / (rate + rate_digits)
    high = (gain + al_digits) / (rate - rate_digits)
    return list(range(max(math.ceil(low), 1), min(math.floor(high), MAX_POSITIONS) + 1))
