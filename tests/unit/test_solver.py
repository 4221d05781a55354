"""The K solver: ties, shelves, SD off against K = 0, break-even batches, probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.errors import InputError
from rooflinesim.solver import (
    OFF,
    best_fixed_k,
    best_k,
    break_even_batch,
    dynamic_ledger,
    goodput_grid,
    probability_best,
)


def one(row, **kwargs):
    table = np.asarray(row, dtype=float).reshape(1, -1, 1)
    return best_k(k=kwargs.pop("k", np.arange(table.size)), goodput=table, **kwargs)


def test_k2_13_within_one_percent_the_smaller_k_and_the_band_is_shown():
    out = one([100.0, 150.0, 199.5, 200.0, 190.0])
    assert (out.k.item(), out.argmax_k.item()) == (2, 3)
    assert (out.band_low.item(), out.band_high.item()) == (2, 3)
    strict = one([100.0, 150.0, 199.5, 200.0, 190.0], tie_frac=0.0)
    assert strict.k.item() == 3


def test_k2_13_non_monotone_optima_are_kept():
    # a first token that costs much (MoE), then cheap ones: a greedy search would stop at K = 0
    out = one([100.0, 80.0, 95.0, 120.0, 125.0, 110.0])
    assert out.k.item() == 4


def test_k2_03_near_tie_outside_one_percent():
    # 52.9 against 51.9 tok/s is 1.9 %: no tie at 1 %, one at 2 %
    ks, rates = [0, 2, 3, 4], [31.3, 49.4, 52.9, 51.9]
    assert one(rates, k=ks).band_high.item() == 3
    wide = one(rates, k=ks, tie_frac=0.02)
    assert (wide.k.item(), wide.band_high.item()) == (3, 4)


def test_k2_09_and_k2_11_reported_bests():
    assert one([21.47, 27.25, 24.17, 21.54]).k.item() == 1
    plateau = one([30.7, 43.9, 42.0, 43.7, 39.7, 33.5], k=[0, 2, 3, 4, 5, 6])
    assert (plateau.k.item(), plateau.band_high.item()) == (2, 4)


def test_off_is_another_candidate_than_k_zero():
    # K = 0 with a warm drafter loses 17 % to no speculation at all
    table = np.array([[[0.83], [0.90], [0.70]]])
    out = best_k(k=[0, 1, 2], goodput=table, off_goodput=[[1.0]])
    assert out.k.item() == 1
    assert out.choice.item() == OFF and out.off_is_best.item()
    assert out.choice_goodput.item() == 1.0
    # within the tie off is the simplest candidate and wins
    assert best_k(k=[0, 1], goodput=[[[0.8], [1.005]]], off_goodput=[[1.0]]).choice.item() == OFF
    assert best_k(k=[0, 1], goodput=[[[0.8], [1.02]]], off_goodput=[[1.0]]).choice.item() == 1


def test_points_that_do_not_run_never_win():
    out = one([10.0, np.nan, 12.0, np.nan])
    assert (out.k.item(), out.band_high.item()) == (2, 2)


def test_axes_and_refusals():
    table = np.ones((3, 2, 4))
    out = best_k(k=[0, 5], goodput=table, off_goodput=np.ones((3, 4)))
    assert out.k.shape == (3, 4) and out.choice.shape == (3, 4)
    for bad in ([0, 1, 2], [1, 0], [-1, 0]):
        with pytest.raises(InputError, match="rising whole numbers"):
            best_k(k=bad, goodput=table)
    with pytest.raises(InputError, match="axes"):
        best_k(k=[0, 1], goodput=np.ones((3, 2)))
    with pytest.raises(InputError, match="tie_frac"):
        best_k(k=[0, 5], goodput=table, tie_frac=1.5)


def test_goodput_grid_takes_lengths_by_k_or_by_context():
    step = np.full((2, 3, 2), 2.0)
    by_k = goodput_grid(batch_size=[1, 10], acceptance_length=[1, 2, 3], step_s=step)
    np.testing.assert_allclose(by_k[1, :, 0], [5, 10, 15])
    by_context = goodput_grid(batch_size=[1, 10], acceptance_length=[[1, 1], [2, 1], [3, 1]], step_s=step)
    np.testing.assert_allclose(by_context[0], [[0.5, 0.5], [1.0, 0.5], [1.5, 0.5]])


def test_best_fixed_weighs_time_or_batches():
    table = [[10.0, 20.0], [100.0, 60.0]]
    # all time at batch 1, at the large one, and every batch alike (0.5+1.0 against 1.0+0.6)
    assert best_fixed_k(k=[0, 3], goodput=table, weights=[1, 0]).k == 3
    assert best_fixed_k(k=[0, 3], goodput=table, weights=[1, 1]).k == 0
    assert best_fixed_k(k=[0, 3], goodput=table).k == 3
    with pytest.raises(InputError, match="weights"):
        best_fixed_k(k=[0, 3], goodput=table, weights=[1])


def test_crossover_moves_left_as_k_grows():
    # R = 1 + K·N/64 for a dense model past its ridge; AL = 1.6, 2.2: N* = 0.6·64, 1.2·64/3
    n = np.arange(1, 129, 4.0)[:, None]
    gain = np.array([1.6, 2.2]) / (1 + np.array([1, 3]) * n / 64)
    cross = break_even_batch(batch_size=n[:, 0], speedup=gain)
    np.testing.assert_allclose(cross, [38.4, 25.6], rtol=0.01)
    assert cross[1] < cross[0]


def test_crossover_takes_the_last_one_of_a_valley():
    # slower at batch 1, pays in the middle, slower again
    assert float(break_even_batch(batch_size=[1, 2, 16, 64, 256], speedup=[0.9, 1.1, 1.5, 1.2, 0.8])) == 160.0
    assert float(break_even_batch(batch_size=[4], speedup=[1.3])) == np.inf
    assert float(break_even_batch(batch_size=[4], speedup=[0.3])) == 0.0


def test_probabilities_add_up():
    rng = np.random.default_rng(0)
    draws = rng.normal(1.0, 0.1, (4000, 2, 3, 1))
    draws[:, 1, 2] += 0.5
    p = probability_best(goodput_draws=draws)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p[0, :, 0], 1 / 3, atol=0.03)
    assert p[1, 2, 0] > 0.95
    with_off = probability_best(goodput_draws=draws, off_goodput_draws=np.full((4000, 2, 1), 9.0))
    assert with_off.sum() == 0.0


def test_ledger_shows_where_a_fixed_k_loses():
    # Command A as told: fixed K = 3 behind no SD at 256, ahead at 64
    table = np.array([[[1.0], [1.6]], [[1.0], [0.95]]]) * np.array([64, 256.0])[:, None, None]
    best = best_k(k=[1, 3], goodput=table, off_goodput=[[64 * 0.9], [256 * 0.99]])
    ledger = dynamic_ledger(best=best, goodput=table)
    assert np.all(ledger.over_off >= 0)
    assert ledger.fixed_loses_to_off[:, 1, 0].tolist() == [False, True]
    np.testing.assert_allclose(ledger.over_fixed[0, :, 0], [0.6, 0.0])
