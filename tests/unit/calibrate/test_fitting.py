"""Fits on synthetic rows with known truth: values recovered, standard errors honest, outliers survived."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.calibrate.fitting import Param, log_spread, robust_fit, score
from rooflinesim.calibrate.gemm import search
from rooflinesim.forms import collective_form, gemm_form, moe_form

PEAK, MEM, SMS = 1e15, 3.35e12, 132.0
TILES = (64, 128, 128, 64)
TRUTH = {
    "t_fixed_s": 3e-6,
    "k_latency_s": 8e-7,
    "mem_eff": 0.87,
    "compute_eff": 0.75,
    "ridge_p": 3.5,
    "pad_frac": 0.6,
    "wave_frac": 0.12,
    "occupancy_exp": 0.1,
}


def _gemm_rows() -> dict[str, object]:
    sizes = [1024.0, 2048, 4096, 5120, 7168, 8192, 12288, 16384]
    m, n, k = np.meshgrid([1.0, 8, 32, 64, 96, 128, 192, 256, 384, 512, 2048], sizes, sizes, indexing="ij")
    m, n, k = m.ravel(), n.ravel(), k.ravel()
    return {
        "rows": m,
        "out_features": n,
        "in_features": k,
        "weight_bytes": 2.0 * n * k,
        "activation_bytes": 2.0 * m * (n + k),
        "peak_flops_per_s": PEAK,
        "mem_bytes_per_s": MEM,
        "sm_count": SMS,
    }


def _gemm_truth(inputs: dict[str, object]) -> np.ndarray:
    low, high, tile_n, stream = TILES
    return gemm_form(**inputs, tile_m_min=low, tile_m_max=high, tile_n=tile_n, stream_tile_n=stream, **TRUTH)[
        0
    ]


def test_gemm_parameters_come_back_within_their_standard_errors() -> None:
    inputs = _gemm_rows()
    exact = _gemm_truth(inputs)
    clusters = np.unique(
        np.stack([inputs["out_features"], inputs["in_features"]]), axis=1, return_inverse=True
    )[1].ravel()
    inside = total = 0
    for seed in range(8):
        noisy = exact * np.exp(np.random.default_rng(seed).normal(0.0, 0.03, exact.size))
        result, tiles = search(inputs, noisy, np.ones(exact.size), clusters, tiles=(TILES,))
        assert tiles == TILES
        for name, truth in TRUTH.items():
            estimate = result.estimates[name]
            assert estimate.stderr is not None, name
            assert estimate.value == pytest.approx(truth, abs=6 * estimate.stderr + 1e-9), name
            inside += abs(estimate.value - truth) <= 2.0 * estimate.stderr
            total += 1
        assert result.values["mem_eff"] == pytest.approx(0.87, rel=0.02)
        assert result.values["compute_eff"] == pytest.approx(0.75, rel=0.02)
    assert 0.82 <= inside / total <= 1.0  # two standard errors: 95 % expected of honest ones
    assert inside < total or total < 20  # and not so wide that nothing ever falls outside


def test_standard_errors_shrink_with_the_root_of_the_rows() -> None:
    rng = np.random.default_rng(3)
    x = np.linspace(1.0, 10.0, 400)

    def stderr(copies: int) -> float:
        grid = np.tile(x, copies)
        measured = (2e-6 + grid * 1e-6) * np.exp(rng.normal(0, 0.05, grid.size))
        fit = robust_fit(
            model=lambda v: v["a"] + grid * v["b"],
            measured_s=measured,
            params=(Param("a", 1e-6, 0.0, 1e-5), Param("b", 2e-6, 1e-8, 1e-5)),
        )
        assert fit.estimates["b"].stderr is not None
        return fit.estimates["b"].stderr

    assert stderr(1) / stderr(9) == pytest.approx(3.0, rel=0.2)


def test_rows_that_repeat_each_other_do_not_count_as_evidence() -> None:
    rng = np.random.default_rng(4)
    shape = np.repeat(np.arange(40), 25)
    x = np.linspace(1.0, 10.0, 40)[shape]
    measured = x * 1e-6 * np.exp(rng.normal(0, 0.05, 40))[shape]  # one error per shape, 25 rows each
    params = (Param("b", 2e-6, 1e-8, 1e-5),)
    alone = robust_fit(model=lambda v: x * v["b"], measured_s=measured, params=params)
    grouped = robust_fit(model=lambda v: x * v["b"], measured_s=measured, params=params, clusters=shape)
    a, g = alone.estimates["b"].stderr, grouped.estimates["b"].stderr
    assert a is not None and g is not None
    assert g / a == pytest.approx(5.0, rel=0.25)  # √25
    assert g == pytest.approx(1e-6 * 0.05 / np.sqrt(40), rel=0.4)


def test_one_row_in_ten_measured_at_double_does_not_move_the_fit() -> None:
    inputs = _gemm_rows()
    exact = _gemm_truth(inputs)
    rng = np.random.default_rng(5)
    noisy = exact * np.exp(rng.normal(0.0, 0.02, exact.size))
    noisy[rng.random(exact.size) < 0.1] *= 2.0
    result, _ = search(inputs, noisy, np.ones(exact.size), np.arange(exact.size), tiles=(TILES,))
    assert result.values["mem_eff"] == pytest.approx(0.87, rel=0.03)


def test_a_parameter_on_its_bound_has_no_standard_error() -> None:
    x = np.linspace(1.0, 5.0, 50)
    fit = robust_fit(
        model=lambda v: v["a"] + x * v["b"],
        measured_s=x * 1e-6,
        params=(Param("a", 1e-6, 0.0, 1e-5), Param("b", 2e-6, 1e-8, 1e-5)),
    )
    assert fit.estimates["a"].stderr is None
    assert fit.values["b"] == pytest.approx(1e-6, rel=1e-3)


def test_expert_parameters_come_back() -> None:
    rng = np.random.default_rng(6)
    experts, tokens = np.meshgrid([8.0, 16, 32, 64, 128], [8.0, 64, 256, 1024], indexing="ij")
    experts, tokens = experts.ravel(), tokens.ravel()
    hidden, width = 4096.0, np.tile([768.0, 1536.0], experts.size)
    experts, tokens = np.repeat(experts, 2), np.repeat(tokens, 2)
    truth = {"t_fixed_s": 2.5e-5, "mem_eff": 0.88, "compute_eff": 0.5, "ridge_p": 2.0, "per_expert_s": 2e-7}

    def model(values: dict[str, float]) -> np.ndarray:
        return moe_form(
            rows=8 * tokens,
            routed_rows=8 * tokens,
            experts_read=experts,
            flops_per_row=6 * hidden * width,
            expert_bytes=6 * hidden * width,
            activation_bytes=0 * tokens,
            hidden_size=hidden,
            peak_flops_per_s=PEAK,
            mem_bytes_per_s=MEM,
            activation_passes=0.0,
            routing_passes=0.0,
            tile_rows=8.0,
            **values,
        )[0]

    measured = model(truth) * np.exp(rng.normal(0, 0.01, experts.size))
    params = tuple(Param(n, v * 1.4, v / 10, 1.0 if "eff" in n else v * 10) for n, v in truth.items())
    fit = robust_fit(model=model, measured_s=measured, params=params)
    assert fit.values["t_fixed_s"] == pytest.approx(2.5e-5, rel=0.1)
    assert fit.values["mem_eff"] == pytest.approx(0.88, rel=0.05)


def test_the_crossover_of_a_collective_comes_back() -> None:
    size = 2.0 ** np.arange(9, 27)
    truth = {"alpha_s": 5e-6, "one_shot_eff": 0.6, "two_shot_s": 4e-6, "two_shot_eff": 0.8}

    def model(values: dict[str, float]) -> np.ndarray:
        return collective_form(
            message_bytes=size,
            one_shot_share=7.0,
            ring_share=1.75,
            link_bytes_per_s=450e9,
            big_bytes=np.inf,
            big_s=0.0,
            big_eff=1.0,
            **values,
        )

    params = tuple(Param(n, v * 1.5, v / 10, v * 10) for n, v in truth.items())
    fit = robust_fit(model=model, measured_s=model(truth), params=params)
    for name, value in truth.items():
        assert fit.values[name] == pytest.approx(value, rel=0.02), name


def test_score_and_spread_by_hand() -> None:
    measured = np.array([1.0, 1.0, 2.0, 4.0])
    model = np.array([1.1, 0.8, 2.0, 4.4])
    got = score(domain="d", model_s=model, measured_s=measured)
    assert (got.n, got.mape, got.bias) == (4, 0.1, 0.05)  # errors .1 .2 0 .1; ratios .1 -.2 0 .1
    draws = np.exp(np.random.default_rng(0).normal(0.0, 0.1, 40_000))
    assert log_spread(model_s=np.ones(40_000), measured_s=draws) == pytest.approx(0.1, rel=0.03)
