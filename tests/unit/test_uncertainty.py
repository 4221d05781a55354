"""Error bars: draws and closed forms agree; common errors cancel; the bare roofline has none."""

import numpy as np
import pytest

from rooflinesim.api import Scenario, evaluate, resolve
from rooflinesim.grid import Grid
from rooflinesim.step import step_time
from rooflinesim.uncertainty import (
    ROUND_LOG_SD,
    STEP_LOG_SD,
    draw_steps,
    family_log_sd,
    speedup_log_sd,
    step_log_sd,
)

GRID = Grid.of(batch=[1, 64], k=[0, 3], context=[1024])


@pytest.fixture(scope="module")
def step():
    return step_time(resolve(Scenario(gpu="h100", draft="eagle3")).deployment, GRID)


def test_family_spread_by_hand():
    # shares 0.8 and 0.2: sqrt((0.8*0.1)^2 + (0.2*0.3)^2) = 0.1
    families = {"gemm": np.array(8.0), "attention": np.array(2.0)}
    assert family_log_sd(families, {"gemm": 0.1, "attention": 0.3}) == pytest.approx(0.1)


def test_draws_have_the_closed_spreads(step):
    draws = draw_steps(step, n_draws=4000, rng=np.random.default_rng(0))
    assert np.log(draws.step_s).std(axis=0) == pytest.approx(step_log_sd(step), rel=0.1)
    ratio = np.log(draws.off_step_s / draws.step_s).std(axis=0)
    assert ratio == pytest.approx(np.broadcast_to(speedup_log_sd(step), ratio.shape), rel=0.1)


def test_common_errors_cancel_and_the_rounds_own_does_not(step):
    assert (speedup_log_sd(step) < step_log_sd(step)).all()
    assert (speedup_log_sd(step) >= ROUND_LOG_SD).all()
    assert (step_log_sd(step) >= np.hypot(STEP_LOG_SD, ROUND_LOG_SD)).all()


def test_the_bare_roofline_is_certain():
    ideal = step_time(resolve(Scenario(gpu="h100", draft="eagle3", ideal=True)).deployment, GRID)
    assert step_log_sd(ideal).max() == 0.0
    draws = draw_steps(ideal, n_draws=3, rng=np.random.default_rng(0))
    assert np.ptp(draws.step_s, axis=0).max() == 0.0


def test_bands_hold_the_prediction_and_p_best_sums_to_one():
    result = evaluate(Scenario(gpu="h100", draft="eagle3", batch_sizes=(8, 128), k_max=4))
    assert (result.speedup_low < result.speedup).all() and (result.speedup < result.speedup_high).all()
    assert result.p_best.sum(axis=1).max() <= 1.0 + 1e-9
