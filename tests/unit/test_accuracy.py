"""Accuracy figures on numbers worked out by hand."""

import numpy as np
import pytest

from rooflinesim.accuracy import (
    band_coverage,
    inconsistent_ratios,
    k_regret,
    relative_error,
    rmse,
    same_sign,
    score,
)
from rooflinesim.errors import InputError


def test_score_of_four_rows_by_hand():
    # errors +10 %, -10 %, +30 %, 0 %
    s = score(predicted=[110, 90, 130, 100], measured=[100, 100, 100, 100])
    assert s.n == 4
    assert s.mape == pytest.approx(0.125)
    assert s.median == pytest.approx(0.10)
    assert s.bias == pytest.approx(0.075)
    assert s.within_10 == 0.75
    assert s.within_20 == 0.75


def test_relative_error_is_signed_and_relative_to_the_measurement():
    assert relative_error(predicted=[2.0], measured=[4.0]).tolist() == [-0.5]


@pytest.mark.parametrize(
    ("predicted", "measured"), [([1.0], [0.0]), ([1.0, 2.0], [1.0]), ([], []), ([np.nan], [1.0])]
)
def test_rows_without_a_meaning_are_refused(predicted, measured):
    with pytest.raises(InputError):
        score(predicted=predicted, measured=measured)


def test_k_regret_uses_the_measured_curve():
    # vllm#4 table of the vLLM Gemma thread would do; here: best is K = 3 at 150, the choice K = 5 gives 120
    curve = {0: 100.0, 1: 130.0, 3: 150.0, 5: 120.0}
    assert k_regret(measured_goodput=curve, predicted_k=5) == pytest.approx(0.2)
    assert k_regret(measured_goodput=curve, predicted_k=3) == 0.0
    assert k_regret(measured_goodput=curve, predicted_k=0) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="K = 4 was not measured"):
        k_regret(measured_goodput=curve, predicted_k=4)


def test_sign_ignores_cells_without_one():
    right, n = same_sign(
        predicted_speedup=[1.2, 0.8, 1.1, 0.9, 1.0], measured_speedup=[1.5, 0.9, 0.9, 1.01, 2]
    )
    assert (right, n) == (2, 4)  # the fourth has no sign; exactly 1.0 does not pay


def test_coverage_counts_both_edges_in():
    assert band_coverage(low=[1, 1, 1, 1], high=[2, 2, 2, 2], measured=[1, 2, 0.99, 2.01]) == 0.5


def test_rmse_by_hand():
    assert rmse(predicted=[3.0, 4.0], measured=[6.0, 8.0]) == pytest.approx(np.sqrt(12.5))


def test_the_three_bad_cells_of_vllm_20780():
    """User case K2-01: printed speed-ups of EAGLE at K = 2..7 against its times (baseline 7.07 ms)."""
    times = [4.37, 4.29, 4.48, 4.71, 4.94, 5.20]
    printed = [1.618, 1.648, 1.568, 1.610, 1.544, 1.360]
    assert inconsistent_ratios(printed=printed, recomputed=[7.07 / t for t in times]) == [2, 3, 4]
