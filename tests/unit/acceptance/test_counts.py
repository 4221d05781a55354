"""Position counts from every kind of log, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.acceptance import PositionCounts, wilson_interval
from rooflinesim.errors import InputError


def test_histogram_counters_and_steps_agree():
    # one ground truth: 1000 steps, 720/430/260 accepted per position
    accepted = np.repeat([0, 1, 2, 3], [280, 290, 170, 260])
    views = [
        PositionCounts.from_histogram([280, 290, 170, 260]),
        PositionCounts.from_counters(
            n_steps=1000, accepted_per_position=[720, 430, 260], drafted_tokens=3000
        ),
        PositionCounts.from_steps(accepted=accepted, drafted=np.full(1000, 3)),
        PositionCounts.from_rates(n_steps=1000, marginal=[0.72, 0.43, 0.26]),
    ]
    for view in views:
        assert view.acceptance_length == pytest.approx(2.41)
        assert view.mean_accepted_frac == pytest.approx(0.47)
        np.testing.assert_allclose(view.conditional, [0.72, 0.5972, 0.6047], atol=1e-4)
        np.testing.assert_allclose(view.marginal, [0.72, 0.43, 0.26])
        np.testing.assert_allclose(view.eligible, [1000, 720, 430])
        assert not view.biased


def test_variable_k_is_unbiased_from_steps_and_marked_from_counters():
    rng = np.random.default_rng(5)
    n, c = 20_000, 0.7
    drafted = rng.integers(0, 5, n)
    chain = (rng.random((n, 4)) < c).cumprod(axis=1).sum(axis=1)
    accepted = np.minimum(chain, drafted)
    counts = PositionCounts.from_steps(accepted=accepted, drafted=drafted)
    np.testing.assert_allclose(counts.conditional, c, atol=0.03)
    assert counts.n_steps == np.count_nonzero(drafted)
    totals = PositionCounts.from_counters(
        n_steps=counts.n_steps, accepted_per_position=counts.accepted, drafted_tokens=float(drafted.sum())
    )
    assert totals.biased and "too low" in totals.note
    assert totals.conditional[3] < c - 0.1


def test_steps_reach_a_position_only_if_it_was_drafted():
    # (accepted, drafted): 1/1 reaches position 2 in no try, 1/2 fails there
    counts = PositionCounts.from_steps(accepted=[1, 1], drafted=[1, 2])
    assert counts.eligible == (2.0, 1.0)
    assert counts.conditional.tolist() == [1.0, 0.0]


def test_adding_logs_of_different_depth():
    total = PositionCounts.from_histogram([1, 1]) + PositionCounts.from_histogram([0, 0, 2])
    assert total.n_steps == 4
    assert total.eligible == (4.0, 2.0)
    assert total.accepted == (3.0, 2.0)


def test_wilson_against_hand_values():
    # 8 of 10 at z = 1.96: (0.490, 0.943), a textbook case; empty is (0, 1)
    low, high = wilson_interval(accepted=[8.0, 0.0], eligible=[10.0, 0.0])
    np.testing.assert_allclose(low, [0.490, 0.0], atol=0.001)
    np.testing.assert_allclose(high, [0.943, 1.0], atol=0.001)


def test_wilson_covers():
    rng = np.random.default_rng(0)
    x = rng.binomial(30, 0.85, 4000).astype(float)
    low, high = wilson_interval(accepted=x, eligible=np.full(4000, 30.0))
    assert 0.93 < np.mean((low <= 0.85) & (high >= 0.85)) < 0.98


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PositionCounts((10.0,), (11.0,), 10.0), "accepted 11 of 10"),
        (lambda: PositionCounts((10.0, 10.0), (3.0, 4.0), 10.0), "cannot rise"),
        (lambda: PositionCounts((), (), 10.0), "at least one"),
        (lambda: PositionCounts((0.0,), (0.0,), 0.0), "nothing was drafted"),
        (lambda: PositionCounts((10.0,), (float("nan"),), 10.0), "finite"),
        (lambda: PositionCounts.from_histogram([5]), "K\\+1"),
        (lambda: PositionCounts.from_steps(accepted=[1], drafted=[1, 2]), "one for each"),
        (lambda: PositionCounts.from_steps(accepted=[3], drafted=[2]), "more than it drafted"),
        (lambda: PositionCounts.from_steps(accepted=[0], drafted=[0]), "nothing was drafted"),
    ],
)
def test_impossible_counts_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
