"""Fits recover what made the data, with error bars that cover; draws follow them; the choice is sensible."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from rooflinesim.acceptance import (
    AcceptanceCurve,
    PositionCounts,
    choose_curve,
    fit_form,
    sample,
    sample_acceptance_length,
    sample_assumed_length,
)


def simulate(curve, k, n_steps, rng):
    chain = (rng.random((n_steps, k)) < curve.conditional(k)).cumprod(axis=1).sum(axis=1)
    return PositionCounts.from_histogram(np.bincount(chain, minlength=k + 1))


@pytest.mark.parametrize(
    ("curve", "k", "n_steps"),
    [
        (AcceptanceCurve.geometric(c1=0.8, decay=0.95), 6, 2000),
        (AcceptanceCurve.beta(a=2.9, b=2.0), 7, 3000),
        (AcceptanceCurve.split(a1=0.3, b=0.81), 7, 2000),
    ],
)
def test_recovery_with_honest_errors(curve, k, n_steps):
    rng = np.random.default_rng(7)
    truth = np.array(curve.params)
    fits = [fit_form(simulate(curve, k, n_steps, rng), curve.form) for _ in range(120)]
    values, errors = np.array([f.values for f in fits]), np.array([f.stderr for f in fits])
    assert np.all(np.abs(values.mean(axis=0) - truth) < 0.35 * values.std(axis=0) + 1e-3)
    covered = (np.abs(values - truth) < 1.96 * errors).mean(axis=0)
    assert np.all(covered > 0.89)
    # not honest by being wide: the typical error bar is the typical spread
    np.testing.assert_allclose(np.median(errors, axis=0), values.std(axis=0), rtol=0.35)


def test_maximum_agrees_with_a_general_optimiser():
    counts = PositionCounts.from_histogram([300, 150, 120, 90, 60, 280])
    x, n = np.array(counts.accepted), np.array(counts.eligible)

    def loss(theta):
        c = np.clip(theta[0] * theta[1] ** np.arange(5), 1e-9, 1 - 1e-9)
        return -float(np.sum(x * np.log(c) + (n - x) * np.log1p(-c)))

    found = minimize(loss, [0.7, 1.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    fit = fit_form(counts, "geometric")
    np.testing.assert_allclose(fit.values, found.x, atol=1e-4)
    assert fit.log_likelihood == pytest.approx(-found.fun, abs=1e-6)


def test_errors_by_request_are_wider_and_cover():
    rng = np.random.default_rng(3)
    naive, robust = [], []
    for _ in range(80):
        requests = [simulate(AcceptanceCurve.geometric(c1=rng.beta(2.9, 2.0)), 6, 50, rng) for _ in range(60)]
        total = sum(requests[1:], requests[0])
        for covers, given in ((naive, ()), (robust, requests)):
            fit = fit_form(total, "beta", requests=given)
            covers.append(np.abs(np.array(fit.values) - [2.9, 2.0]) < 1.96 * np.array(fit.stderr))
    assert np.mean(robust) > 0.88
    assert np.mean(naive) < 0.85


def test_the_choice_names_the_form_that_made_the_data():
    rng = np.random.default_rng(11)
    decaying = simulate(AcceptanceCurve.geometric(c1=0.87, decay=0.95), 8, 5000, rng)
    assert choose_curve(decaying).form == "geometric"
    # n-gram: a rare first match, then flat; the first position lies far below the rest: the table
    lookup = choose_curve(simulate(AcceptanceCurve.split(a1=0.3, b=0.81), 7, 5000, rng))
    assert lookup.form == "table" and "split fits best" in lookup.reason
    # mildly rising, few steps: no proof of a rise, a short form stays
    mild = choose_curve(PositionCounts.from_histogram([40, 22, 13, 25]))
    assert mild.form != "table" and "AIC" in mild.reason


def test_certain_outcomes_keep_an_error_bar():
    fit = fit_form(PositionCounts.from_histogram([0, 0, 0, 10]), "geometric")
    assert 0.85 < fit.values[0] < 1.0
    assert 0.02 < fit.stderr[0] < 0.2
    none = fit_form(PositionCounts.from_histogram([10, 0, 0]), "geometric")
    assert 0.0 < none.values[0] < 0.1 and none.stderr[0] > 0.01


def test_draws_have_the_fit_s_spread_and_make_valid_curves():
    rng = np.random.default_rng(0)
    counts = PositionCounts.from_histogram([280, 290, 170, 260])
    for form in ("geometric", "split", "table"):
        fit = fit_form(counts, form)
        draws = sample(fit, 20_000, rng)
        assert draws.shape == (20_000, len(fit.values))
        np.testing.assert_allclose(draws.mean(axis=0), fit.values, atol=0.01)
        np.testing.assert_allclose(draws.std(axis=0), fit.stderr, rtol=0.08, atol=1e-4)
    lengths = sample_acceptance_length(fit_form(counts, "table"), np.arange(0, 6), 500, rng)
    assert lengths.shape == (500, 6)
    assert (
        np.all(lengths >= 1.0)
        and np.all(lengths <= np.arange(1, 7))
        and np.all(np.diff(lengths, axis=1) >= 0)
    )
    # AL at K = 3 is a mean of 1000 steps: its spread is the histogram's, sd/sqrt(n)
    spread = np.sqrt(np.average((np.arange(4) - 1.41) ** 2, weights=[280, 290, 170, 260]) / 1000)
    assert lengths[:, 3].std() == pytest.approx(spread, rel=0.15)


def test_draws_repeat_with_the_seed():
    fit = fit_form(PositionCounts.from_histogram([5, 5, 5]), "geometric")
    one, two = (sample(fit, 5, np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_assumed_curves_spread_by_the_stated_error():
    curve = AcceptanceCurve.geometric(c1=0.7, decay=0.95)
    lengths = sample_assumed_length(
        curve, k=[0, 1, 4], c1_stderr=0.05, n=20_000, rng=np.random.default_rng(2)
    )
    assert np.all(lengths[:, 0] == 1.0)
    assert lengths[:, 1].std() == pytest.approx(0.05, rel=0.1)
    assert lengths[:, 2].mean() == pytest.approx(float(curve.acceptance_length(4)), rel=0.02)


def test_one_position_and_biased_counts_are_said():
    one = choose_curve(PositionCounts.from_histogram([300, 700]))
    assert one.form == "geometric" and one.curve.params == pytest.approx((0.7, 1.0), abs=1e-6)
    assert any("one draft position" in warning for warning in one.warnings)
    biased = PositionCounts.from_counters(n_steps=1000, accepted_per_position=[700, 300], drafted_tokens=1500)
    assert any("lower bounds" in warning for warning in choose_curve(biased).warnings)
