"""Acceptance, solver and schedule: what holds for every input."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rooflinesim.acceptance import (
    AcceptanceCurve,
    PositionCounts,
    choose_curve,
    from_acceptance_length,
    from_mean_acceptance,
)
from rooflinesim.schedule import Schedule, schedule_regret, solve_schedule
from rooflinesim.solver import OFF, best_k, dynamic_ledger

fraction = st.floats(0.0, 1.0)
decay = st.floats(0.5, 1.3)
depth = st.integers(0, 40)


@st.composite
def curves(draw, nested=True):
    kind = draw(st.sampled_from(["geometric", "beta", "split", "table", *(["mixture"] if nested else [])]))
    if kind == "geometric":
        return AcceptanceCurve.geometric(c1=draw(fraction), decay=draw(decay))
    if kind == "beta":
        positive = st.floats(0.01, 100.0)
        return AcceptanceCurve.beta(a=draw(positive), b=draw(positive))
    if kind == "split":
        return AcceptanceCurve.split(a1=draw(fraction), b=draw(fraction), rho=draw(decay))
    if kind == "table":
        listed = draw(st.lists(fraction, min_size=1, max_size=8))
        return AcceptanceCurve.table(conditional=listed, beyond=draw(st.sampled_from(["hold", "zero"])))
    parts = draw(st.lists(curves(nested=False), min_size=1, max_size=3))
    weights = draw(st.lists(st.floats(0.1, 9.0), min_size=len(parts), max_size=len(parts)))
    return AcceptanceCurve.mixture(weights=weights, curves=parts)


@given(curves(), depth)
def test_length_is_between_one_and_k_plus_one_and_concave(curve, k_max):
    lengths = curve.acceptance_length(np.arange(k_max + 1))
    assert lengths[0] == 1.0
    assert np.all(lengths <= np.arange(1, k_max + 2) * (1 + 1e-12))
    gains = np.diff(lengths)
    assert np.all(gains >= 0) and np.all(np.diff(gains) <= 1e-12)
    np.testing.assert_allclose(gains, curve.marginal(k_max), atol=1e-12)


@given(st.lists(fraction, min_size=1, max_size=6), st.integers(0, 60))
def test_context_curves_lie_between_their_parts(c1s, at):
    parts = [AcceptanceCurve.geometric(c1=c) for c in c1s]
    curve = AcceptanceCurve.by_context(context_tokens=list(range(0, 10 * len(parts), 10)), curves=parts)
    length = float(curve.acceptance_length(4, context_tokens=at))
    ends = [float(part.acceptance_length(4)) for part in parts]
    assert min(ends) - 1e-9 <= length <= max(ends) + 1e-9


@given(st.integers(1, 16), fraction)
def test_dar_is_linear_and_p_is_geometric(k, frac):
    curve = from_mean_acceptance(k=k, mean_accepted_frac=frac).curve
    np.testing.assert_allclose(float(curve.acceptance_length(k)), 1 + frac * k, atol=1e-9)
    # a probability p gives less than 1 + pK, so reading a DAR as p understates AL
    assert float(AcceptanceCurve.geometric(c1=frac).acceptance_length(k)) <= 1 + frac * k + 1e-9


@given(st.integers(1, 12), fraction, st.floats(0.8, 1.1))
def test_length_to_curve_and_back(k, c1, ratio):
    length = float(AcceptanceCurve.geometric(c1=c1, decay=ratio).acceptance_length(k))
    back = from_acceptance_length(k=k, acceptance_length=length, decay=ratio).curve
    np.testing.assert_allclose(float(back.acceptance_length(k)), length, atol=1e-9)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=9).filter(lambda h: sum(h) > 0))
@settings(max_examples=60, deadline=None)
def test_any_histogram_gives_a_valid_choice(histogram):
    counts = PositionCounts.from_histogram(histogram)
    steps = np.repeat(np.arange(len(histogram)), histogram)
    again = PositionCounts.from_steps(accepted=steps, drafted=np.full(steps.size, len(histogram) - 1))
    assert again == counts
    assert np.isclose(counts.acceptance_length, 1 + steps.mean())
    low, high = counts.wilson()
    assert np.all(low <= counts.conditional + 1e-9) and np.all(counts.conditional <= high + 1e-9)
    choice = choose_curve(counts)
    lengths = choice.curve.acceptance_length(np.arange(20))
    assert np.all(np.isfinite(lengths)) and np.all(lengths <= np.arange(1, 21) + 1e-9)
    for fit in choice.fits:
        assert np.all(np.isfinite(fit.stderr)) and fit.aic >= -1e-6
        if fit.form != "table":
            # no form fits better than the saturated table
            assert fit.log_likelihood <= choice.fits[-1].log_likelihood + 1e-6 or len(choice.fits) == 1


positive_table = arrays(
    np.float64, st.tuples(st.integers(1, 7), st.integers(1, 5)), elements=st.floats(0.1, 10.0)
)


@given(positive_table, st.floats(0.0, 0.2))
def test_solver_never_loses_more_than_the_tie_and_never_to_off(table, tie):
    goodput = table[:, :, None]
    off = table.mean(axis=1)[:, None]
    best = best_k(k=np.arange(table.shape[1]), goodput=goodput, off_goodput=off, tie_frac=tie)
    ledger = dynamic_ledger(best=best, goodput=goodput)
    assert np.all(ledger.over_off >= -1e-12)
    assert np.all(ledger.over_fixed >= -tie - 1e-9)
    assert np.all(best.k <= best.argmax_k) and np.all(best.argmax_k <= best.band_high)
    assert np.all((best.choice == OFF) | (best.choice == best.k))


def brute_force(table, bound, limit):
    """(fewest ranges, least total regret) over every assignment of K to batches; None where no one fits."""
    regret = 1 - table / table.max(axis=1, keepdims=True)
    found = None
    for path in product(range(table.shape[1]), repeat=table.shape[0]):
        lost = [regret[i, j] for i, j in enumerate(path)]
        if max(lost) > bound + 1e-12 or (limit is not None and len(set(path) - {0}) > limit):
            continue
        ranges = 1 + sum(a != b for a, b in pairwise(path))
        if found is None or (ranges, sum(lost)) < found:
            found = (ranges, sum(lost))
    return found


@given(
    arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 4)), elements=st.floats(0.5, 2.0)),
    st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    st.sampled_from([None, 1, 2]),
)
@settings(max_examples=150, deadline=None)
def test_schedule_is_as_good_as_brute_force(table, bound, limit):
    n, ks = np.arange(1, table.shape[0] + 1), np.arange(table.shape[1])
    solved = solve_schedule(batch_size=n, k=ks, goodput=table, max_regret_frac=bound, max_distinct=limit)
    expected = brute_force(table, bound, limit)
    if expected is None:  # the bound cannot be kept: the least reachable one is
        assert solved.notes and solved.regret_max > bound
        least = min(
            b for b in np.unique(1 - table / table.max(axis=1, keepdims=True)) if brute_force(table, b, limit)
        )
        np.testing.assert_allclose(solved.regret_max, least, atol=1e-9)
        expected = brute_force(table, least, limit)
    ranges, total = expected
    assert len(solved.schedule.ranges) == ranges
    regret = schedule_regret(schedule=solved.schedule, batch_size=n, k=ks, goodput=table)
    np.testing.assert_allclose(regret.sum(), total, atol=1e-6)
    np.testing.assert_allclose(regret.max(), solved.regret_max)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(0, 6))
def test_schedule_round_trip_and_clamp(ks, k_max):
    schedule = Schedule.from_k_by_batch(ks)
    assert schedule.expand(len(ks)).tolist() == ks
    assert schedule.merged() == schedule
    assert schedule.clamped(k_max).expand(len(ks)).tolist() == [min(k, k_max) for k in ks]
    assert schedule.lookup(10_000) == ks[-1]
