"""Stored calibrations obey physics: time never falls as work grows on captured sizes, and ceilings scale."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim import registry
from rooflinesim.efficiency import Ceilings
from rooflinesim.forms import attention_form, collective_form, gemm_form, moe_form, wire_shares
from rooflinesim.roofline import gemm_s
from rooflinesim.specs.calibration import Calibration
from rooflinesim.specs.files import load_yaml_spec, spec_root

CAPTURED = np.array([1.0, 2, 4, *range(8, 256, 8), *range(256, 513, 16), 768, 1024, 2048, 4096, 8192])
FITS = [
    load_yaml_spec(path, Calibration)
    for path in sorted((spec_root("hw_specs") / "calibrations").glob("*.yaml"))
]
IDS = [fits.id for fits in FITS]
SHAPES = [
    (4096, 4096),
    (1024, 2048),
    (28672, 4096),
    (4096, 14336),
    (128256, 4096),
    (640, 5120),
    (151936, 2048),
]
HARD = {"peak_flops_per_s": 989e12, "mem_bytes_per_s": 3.35e12}


def _rises(seconds: np.ndarray, axis: int = -1) -> bool:
    return bool((np.diff(seconds, axis=axis) >= -1e-12).all())


@pytest.mark.parametrize("fits", FITS, ids=IDS)
def test_products_never_get_faster_with_rows(fits: Calibration) -> None:
    for key, fit in fits.gemm.items():
        for n, k in SHAPES:
            seconds = gemm_form(
                rows=CAPTURED,
                out_features=n,
                in_features=k,
                weight_bytes=2.0 * n * k,
                activation_bytes=2.0 * CAPTURED * (n + k),
                sm_count=132,
                **HARD,
                **fit.params,
            )[0]
            assert _rises(seconds), (fits.id, key, n, k)


@pytest.mark.parametrize("fits", FITS, ids=IDS)
def test_attention_never_gets_faster_with_batch_queries_or_context(fits: Calibration) -> None:
    batch = np.array([1.0, 2, 4, 8, 16, 32, 64, 128, 256]).reshape(-1, 1, 1)
    queries = np.array([1.0, 2, 3, 5, 8, 16]).reshape(1, -1, 1)
    context = np.array([1.0, 128, 512, 2048, 8192, 32768, 131072]).reshape(1, 1, -1)
    for key, fit in fits.attention.items():
        seconds = attention_form(
            n_seqs=batch,
            query_tokens=queries,
            kv_tokens=context,
            n_heads=32.0,
            n_kv_heads=8.0,
            head_dim=128.0,
            flops=4.0 * batch * queries * context * 32 * 128,
            moved_bytes=4.0 * batch * (context + queries) * 8 * 128,
            **HARD,
            **fit.params,
        )[0]
        for axis in range(3):
            assert _rises(seconds, axis), (fits.id, key, axis)


@pytest.mark.parametrize("fits", FITS, ids=IDS)
def test_experts_never_get_faster_with_experts_or_rows(fits: Calibration) -> None:
    experts = np.array([1.0, 2, 8, 31, 64, 128]).reshape(-1, 1)
    rows = np.array([128.0, 256, 512, 4096, 32768]).reshape(1, -1)
    for key, fit in fits.moe.items():
        seconds = moe_form(
            rows=rows,
            routed_rows=rows,
            experts_read=experts,
            flops_per_row=6.0 * 4096 * 1536,
            expert_bytes=6.0 * 4096 * 1536,
            activation_bytes=2.0 * rows * (2 * 4096 + 4 * 1536),
            hidden_size=4096.0,
            **HARD,
            **fit.params,
        )[0]
        assert _rises(seconds, 0) and _rises(seconds, 1), (fits.id, key)


@pytest.mark.parametrize("fits", FITS, ids=IDS)
def test_collectives_never_get_faster_with_bytes(fits: Calibration) -> None:
    size = np.r_[0.0, 2.0 ** np.arange(8, 31)]
    for pattern, fit in (
        ("allreduce", fits.allreduce),
        ("allgather", fits.allgather),
        ("alltoall", fits.alltoall),
    ):
        for ranks, at in (fit.ranks if fit is not None else {}).items():
            one_shot, ring = wire_shares(pattern, ranks)
            seconds = collective_form(
                message_bytes=size,
                one_shot_share=one_shot,
                ring_share=ring,
                link_bytes_per_s=450e9,
                alpha_s=at.alpha_s.value,
                one_shot_eff=at.one_shot_eff.value,
                two_shot_s=at.two_shot_s.value,
                two_shot_eff=at.two_shot_eff.value,
                big_bytes=at.big_bytes,
                big_s=at.big_s.value,
                big_eff=at.big_eff.value,
            )
            assert _rises(seconds), (fits.id, pattern, ranks)


def test_twice_the_machine_takes_half_the_time_above_the_fixed_part() -> None:
    fits = registry.calibration("h100-sxm", engine="vllm")
    assert fits is not None
    fit = fits.gemm["bf16"]
    args = {
        "rows": np.array([1.0, 64.0, 2048.0]),
        "out_features": 8192.0,
        "in_features": 8192.0,
        "weight_bytes": np.array(134217728.0),
        "activation_bytes": np.array(0.0),
        "sm_count": 132,
        "fit": fit,
    }
    fixed = fit.params["t_fixed_s"] + fit.params["k_latency_s"] * np.sqrt(8.0)
    one = gemm_s(peak_flops_per_s=1e15, mem_bytes_per_s=3e12, **args)[0] - fixed
    two = gemm_s(peak_flops_per_s=2e15, mem_bytes_per_s=6e12, **args)[0] - fixed
    assert one == pytest.approx(2.0 * two, rel=1e-12)


def test_the_price_of_verification_rows_is_the_measured_one() -> None:
    """Latency of m rows over one row, medians over n, k 4096-16384 on vLLM: H100 bf16 64 → 1.03, 512 → 1.75;
    fp8 512 → 2.10 (reference tables, section 4.1b)."""
    gpu = registry.gpu("h100-sxm")
    fits = registry.calibration("h100-sxm", engine="vllm")
    assert fits is not None
    ceilings = Ceilings(gpu=gpu, calibration=fits)
    widths = (4096.0, 5120.0, 6144.0, 7168.0, 8192.0, 10240.0, 12288.0, 16384.0)

    def ratio(fmt: str, size: float, rows: float) -> float:
        out = []
        for n in widths:
            for k in widths:
                seconds = gemm_s(
                    rows=np.array([1.0, rows]),
                    out_features=n,
                    in_features=k,
                    weight_bytes=np.array(size * n * k),
                    activation_bytes=np.array([1.0, rows]) * 2.0 * (n + k),
                    peak_flops_per_s=ceilings.peak_flops_per_s(fmt),
                    mem_bytes_per_s=gpu.mem_bytes_per_s,
                    sm_count=132,
                    fit=ceilings.gemm_fit(fmt),
                )[0]
                out.append(seconds[1] / seconds[0])
        return float(np.median(out))

    assert ratio("bf16", 2.0, 64.0) == pytest.approx(1.03, abs=0.04)
    assert ratio("bf16", 2.0, 512.0) == pytest.approx(1.75, rel=0.08)
    assert ratio("fp8", 1.0, 512.0) == pytest.approx(2.10, rel=0.08)
