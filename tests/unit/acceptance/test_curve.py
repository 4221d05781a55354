"""Acceptance curves: closed forms, limits, contexts, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rooflinesim.acceptance import AcceptanceCurve, step_shares
from rooflinesim.errors import InputError

HALF = AcceptanceCurve.geometric(c1=0.5)


@pytest.mark.parametrize("c", [0.1, 0.5, 0.72, 0.99])
def test_flat_curve_is_the_closed_form(c):
    k = np.arange(0, 33)
    expected = (1 - c ** (k + 1)) / (1 - c)
    np.testing.assert_allclose(AcceptanceCurve.geometric(c1=c).acceptance_length(k), expected, rtol=1e-12)


def test_beta_marginals_are_moments_of_the_beta_law():
    a, b = 2.9, 2.0
    log_beta = lambda p, q: math.lgamma(p) + math.lgamma(q) - math.lgamma(p + q)  # noqa: E731
    expected = [math.exp(log_beta(a + i, b) - log_beta(a, b)) for i in range(1, 9)]
    np.testing.assert_allclose(AcceptanceCurve.beta(a=a, b=b).marginal(8), expected, rtol=1e-12)


def test_beta_tends_to_flat_as_requests_become_alike():
    np.testing.assert_allclose(AcceptanceCurve.beta(a=7e6, b=3e6).conditional(8), 0.7, atol=1e-5)


def test_perfect_and_useless_drafters():
    k = np.arange(0, 9)
    for curve in (
        AcceptanceCurve.geometric(c1=1.0),
        AcceptanceCurve.split(a1=1.0, b=1.0),
        AcceptanceCurve.table(conditional=[1.0, 1.0]),
        AcceptanceCurve.geometric(c1=1.0, decay=1.2),
    ):
        np.testing.assert_array_equal(curve.acceptance_length(k), k + 1.0)
    np.testing.assert_array_equal(AcceptanceCurve.geometric(c1=0.0).acceptance_length(k), np.ones(9))


def test_decay_above_one_rises_until_the_clip():
    np.testing.assert_allclose(
        AcceptanceCurve.geometric(c1=0.8, decay=1.2).conditional(4), [0.8, 0.96, 1.0, 1.0]
    )


def test_table_beyond_its_end():
    given = [0.72, 0.5972, 0.6047]
    np.testing.assert_allclose(AcceptanceCurve.table(conditional=given).conditional(5)[3:], 0.6047)
    np.testing.assert_allclose(AcceptanceCurve.table(conditional=given, beyond=0.4).conditional(5)[3:], 0.4)
    stop = AcceptanceCurve.table(conditional=given, beyond="zero").acceptance_length([3, 4, 50])
    assert stop[0] == stop[1] == stop[2] == pytest.approx(1 + 0.72 + 0.72 * 0.5972 * (1 + 0.6047))


def test_mixture_is_by_steps_and_keeps_the_mean():
    easy, hard = AcceptanceCurve.geometric(c1=0.9), AcceptanceCurve.geometric(c1=0.5)
    mix = AcceptanceCurve.mixture(weights=[3, 1], curves=[easy, hard])
    lengths = 0.75 * easy.acceptance_length([1, 4, 9]) + 0.25 * hard.acceptance_length([1, 4, 9])
    np.testing.assert_allclose(mix.acceptance_length([1, 4, 9]), lengths)
    assert np.all(np.diff(mix.conditional(8)) > 0)  # the easy class survives


def test_step_shares_of_equal_token_shares():
    # 100 tokens of each class: 100 steps at AL 1, 50 steps at AL 2
    np.testing.assert_allclose(step_shares(token_shares=[1, 1], acceptance_length=[1, 2]), [2 / 3, 1 / 3])


def test_context_broadcasts_on_the_fixed_axes():
    points = [AcceptanceCurve.geometric(c1=c) for c in (0.8, 0.6, 0.4)]
    curve = AcceptanceCurve.by_context(context_tokens=[1000, 2000, 6000], curves=points)
    lengths = curve.acceptance_length(
        np.array([[0], [1]]), context_tokens=np.array([10, 1000, 1500, 4000, 99999])
    )
    assert lengths.shape == (2, 5)
    np.testing.assert_allclose(lengths[0], 1.0)
    np.testing.assert_allclose(lengths[1], [1.8, 1.8, 1.7, 1.5, 1.4])
    # position 2: the marginal is interpolated, (0.64 + 0.36)/2, not the conditional
    assert float(curve.acceptance_length(2, context_tokens=1500)) == pytest.approx(1 + 0.7 + 0.5)
    one = curve.conditional(3, context_tokens=2000.0)
    np.testing.assert_allclose(one, [0.6, 0.6, 0.6])
    with pytest.raises(InputError, match="context_tokens"):
        curve.acceptance_length(2)


def test_context_of_mixtures():
    mix = AcceptanceCurve.mixture(
        weights=[1, 1], curves=[AcceptanceCurve.geometric(c1=0.9), AcceptanceCurve.geometric(c1=0.1)]
    )
    curve = AcceptanceCurve.by_context(context_tokens=[100], curves=[mix])
    assert float(curve.acceptance_length(1, context_tokens=5)) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AcceptanceCurve.geometric(c1=72.0), "c1: 72 .*write 0.72"),
        (lambda: AcceptanceCurve.geometric(c1=0.7, decay=0.0), "decay"),
        (lambda: AcceptanceCurve.beta(a=float("nan"), b=1.0), "a: nan"),
        (lambda: AcceptanceCurve.table(conditional=[]), "empty"),
        (lambda: AcceptanceCurve.table(conditional=[0.5, -0.1]), r"conditional\[2\]"),
        (lambda: AcceptanceCurve.table(conditional=[0.5], beyond="last"), "hold, zero"),
        (lambda: AcceptanceCurve.mixture(weights=[1], curves=[]), "1 weights for 0 curves"),
        (lambda: AcceptanceCurve.mixture(weights=[0], curves=[AcceptanceCurve.geometric(c1=0.5)]), "zero"),
        (lambda: AcceptanceCurve.by_context(context_tokens=[5, 5], curves=[HALF] * 2), "rise"),
        (lambda: AcceptanceCurve.geometric(c1=0.5).acceptance_length([1, -1]), "k:"),
        (lambda: AcceptanceCurve.geometric(c1=0.5).acceptance_length(1.5), "whole"),
        (lambda: AcceptanceCurve.from_params("cubic", {}), "geometric, beta, split"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(make, words):
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
