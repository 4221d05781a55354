"""35 published TPOT points of Llama-3.1-70B FP8 on vLLM: the committed bound, and no slope over TP or
batch.
"""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.validate.campaign import campaigns
from rooflinesim.validate.scores import Result, score_campaign


@pytest.fixture(scope="module")
def result() -> Result:
    (campaign,) = campaigns(["2025_llama70b_fp8_vllm"])
    (found,) = score_campaign(campaign)
    return found


def test_bound(result: Result) -> None:
    assert result.n == 35
    assert result.ok
    assert (
        result.mape is not None and result.mape < 0.057
    )  # aiconfigurator's agg mode: 5.7 %, refusing 4 of them


def test_no_slope(result: Result) -> None:
    """A good average can hide a slope (a peer: +21 % at TP 1 to -26 % at TP 8): the mean error of each TP
    and batch.
    """
    errors = np.array([p.value / p.row.value - 1.0 for p in result.rows])
    tp = np.array([int(p.row.group[-1]) for p in result.rows])
    batch = np.array([p.row.batch_size for p in result.rows])
    for ranks in (1, 2, 4, 8):
        assert abs(errors[tp == ranks].mean()) < 0.06
    for n in (4, 8, 16, 32, 64):
        assert abs(errors[batch == n].mean()) < 0.09


def test_nothing_beats_the_roofline(result: Result) -> None:
    assert result.faster_than_roofline == ()
