"""Goodput and break-even against hand arithmetic and user reports."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.goodput import (
    break_even_c1,
    break_even_dar,
    goodput_tokens_per_s,
    marginal_cost_s,
    marginal_gain_tokens,
    marginal_worth,
    speedup,
    step_ratio,
    tpot_s,
)


def test_reported_run_is_consistent():
    # K2-03: RTX 3090, off 31.3 tok/s; DAR 79.35, 71.85, 63.49 % at K = 2, 3, 4 give 49.4, 52.9, 51.9 tok/s
    lengths = 1 + np.array([0.7935, 0.7185, 0.6349]) * np.array([2, 3, 4])
    measured = np.array([49.4, 52.9, 51.9])
    ratio = step_ratio(step_s=lengths / measured, off_step_s=1 / 31.3)
    np.testing.assert_allclose(ratio, [1.64, 1.87, 2.14], atol=0.01)
    gain = speedup(acceptance_length=lengths, step_s=lengths / measured, off_step_s=1 / 31.3)
    np.testing.assert_allclose(gain, measured / 31.3)


def test_goodput_broadcasts_on_the_fixed_axes():
    out = goodput_tokens_per_s(
        batch_size=np.array([1, 4])[:, None, None],
        acceptance_length=np.array([1.0, 2.0, 2.5])[None, :, None],
        step_s=np.full((2, 3, 5), 0.5),
    )
    assert out.shape == (2, 3, 5)
    np.testing.assert_allclose(out[1, :, 0], [8.0, 16.0, 20.0])
    assert float(tpot_s(acceptance_length=2.5, step_s=0.5)) == 0.2


def test_break_even_is_where_the_speedup_is_one():
    r = np.array([1.2, 1.9, 2.6])
    k = np.array([1, 3, 5])
    c1 = break_even_c1(r=r, k=k, decay=0.95)
    from rooflinesim.acceptance import AcceptanceCurve

    for value, ratio, depth in zip(c1, r, k, strict=True):
        length = AcceptanceCurve.geometric(c1=value, decay=0.95).acceptance_length(depth)
        assert float(speedup(acceptance_length=length, step_s=ratio, off_step_s=1.0)) == pytest.approx(1.0)
    # one draft: AL = 1 + c, so c = R - 1 and DAR = c
    assert float(break_even_c1(r=1.2, k=1)) == pytest.approx(0.2)
    assert float(break_even_dar(r=1.2, k=1)) == pytest.approx(0.2)


def test_no_acceptance_helps_when_the_step_costs_more_than_it_can_emit():
    # M3-01: GLM-4.5-Air, two rows cost 3.05 plain steps, at most 2 tokens come out
    assert np.isnan(break_even_c1(r=3.05, k=1))
    assert float(break_even_dar(r=3.05, k=1)) > 1
    # a decay limits even a perfect first position: 1 + 1 + 0.5 + 0.125 < 2.7
    assert np.isnan(break_even_c1(r=2.7, k=3, decay=0.5))


def test_gain_and_cost_of_each_further_token():
    step = np.array([10.0, 12.0, 12.5, 15.0]).reshape(1, 4, 1)
    length = np.array([1.0, 1.8, 2.4, 2.8]).reshape(1, 4, 1)
    np.testing.assert_allclose(marginal_gain_tokens(acceptance_length=length)[0, :, 0], [0.8, 0.6, 0.4])
    np.testing.assert_allclose(marginal_cost_s(step_s=step)[0, :, 0], [2.0, 0.5, 2.5])
    worth = marginal_worth(acceptance_length=length, step_s=step)[0, :, 0]
    # worth above 1 exactly where goodput rises: 0.100 -> 0.150 -> 0.192 -> 0.187
    assert (worth > 1).tolist() == [True, True, False]
    free = marginal_worth(acceptance_length=[1.0, 1.5], step_s=[1.0, 1.0], k_axis=0)
    assert np.isinf(free[0])
