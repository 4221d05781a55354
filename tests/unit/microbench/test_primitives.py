"""Primitives carry the cost model's counts; fits recover known parameters with honest standard errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rooflinesim.errors import InputError  # noqa: E402
from rooflinesim.microbench import device as dev  # noqa: E402
from rooflinesim.microbench import fitting, primitives, timing  # noqa: E402
from rooflinesim.microbench.env import Machine  # noqa: E402
from rooflinesim.microbench.host import engine_host  # noqa: E402
from rooflinesim.specs.base import Quantity  # noqa: E402
from rooflinesim.specs.calibration import Calibration  # noqa: E402
from rooflinesim.specs.engine import EngineProfile  # noqa: E402
from rooflinesim.specs.gpu import GpuSpec  # noqa: E402

MACHINE = Machine(
    name="Test(R) CPU @ 2.0GHz",
    device="cpu",
    n_cores=2,
    n_threads=1,
    n_devices=1,
    last_level_cache_bytes=1e6,
    free_memory_bytes=2e9,
    features=("avx2",),
    torch_version="x",
    system="x",
)


@pytest.fixture
def bench():
    pool = timing.Pool(n_bytes=24e6, llc_bytes=1e6, dtype=torch.float32, device="cpu")
    return primitives.Bench("cpu", "fp32", "wall", pool, 0.002)


@pytest.fixture
def gpu():
    def q(value, unit):
        return Quantity(value=value, unit=unit, kind="measured", source="test")

    return GpuSpec(
        id="t",
        vendor="t",
        architecture="cpu",
        memory=q(1, "GB"),
        memory_bandwidth=q(20.0, "GB/s"),
        peaks={"fp32": q(0.2, "TFLOP/s"), "bf16": q(0.2, "TFLOP/s")},
    )


def test_gemm_counts_are_hand_arithmetic(bench):
    (row,) = primitives.gemms(bench, shapes=[(256, 512)], rows=[8])
    assert float(row.op.flops) == 2 * 8 * 256 * 512
    assert float(row.op.weight_bytes) == 4 * 256 * 512
    assert row.timing.median_s > 0.0
    assert row.cold


def test_attention_counts_read_the_cache_once_for_all_query_tokens(bench):
    one, four = primitives.attentions(bench, heads=[(4, 2, 16)], batches=[3], queries=[1, 4], contexts=[32])
    # keys and values: 3 sequences x (32 cached + q own) x 2 heads x 16 wide x 2 x 4 bytes
    assert float(one.op.kv_bytes) == 3 * 33 * 2 * 32 * 4
    assert float(four.op.kv_bytes) == 3 * 36 * 2 * 32 * 4
    assert float(four.op.flops) == 4 * float(one.op.flops)


def test_moe_rows_count_the_experts_really_read(bench):
    rows = list(primitives.moes(bench, shapes=[(64, 32, 8, 2)], tokens=[1, 64]))
    assert rows[0].dims["distinct"] == 2
    assert rows[1].dims["distinct"] == 8
    assert float(rows[0].op.weight_bytes) == 2 * 3 * 64 * 32 * 4


def test_shapes_that_do_not_fit_are_left_out(bench):
    assert list(primitives.moes(bench, shapes=[(4096, 4096, 64, 2)], tokens=[1])) == []
    assert list(primitives.bandwidth(bench, sizes_bytes=[1e9])) == []


def test_bookkeeping_of_the_engine_is_measured(bench):
    rows = list(engine_host(bench, batches=[1, 8]))
    assert [(r.label, r.dims["batch"]) for r in rows] == [("off", 1), ("sd", 1), ("off", 8), ("sd", 8)]
    assert all(0.0 < r.timing.median_s < 0.5 for r in rows)


def synthetic(bench, *, t_fixed, mem, compute, noise, seed=0):
    """GEMM rows whose times follow t = t_fixed + F/C + Q/M exactly, times lognormal noise."""
    rng = np.random.default_rng(seed)
    out = []
    for row in primitives.gemms(
        bench, shapes=[(256, 256), (512, 1024), (1024, 1024)], rows=[1, 8, 64, 256, 1024]
    ):
        flops, moved = float(row.op.flops), float(row.op.moved_bytes)
        seconds = (t_fixed + flops / compute + moved / mem) * np.exp(rng.normal(0.0, noise))
        out.append(dataclasses.replace(row, timing=timing.Timing(seconds, 0.0, 5)))
    return out


def test_gemm_fit_recovers_what_made_the_rows(bench, gpu):
    """t_fixed 20 us, 10 GB/s of 20 (0.5), 0.12 TFLOP/s of 0.2 (0.6), p = 1, 3 % noise: within three standard
    errors."""
    rows = synthetic(bench, t_fixed=20e-6, mem=10e9, compute=0.12e12, noise=0.03)
    fit = fitting.fit_family("gemm", rows, gpu, fmt="fp32", source="test", kernel="test")
    for name, truth in (("t_fixed_s", 20e-6), ("mem_eff", 0.5), ("compute_eff", 0.6)):
        estimate = getattr(fit, name)
        assert estimate.stderr is not None
        assert estimate.value == pytest.approx(truth, abs=max(3.0 * estimate.stderr, 0.05 * truth)), name
    assert fit.ridge_p.value == pytest.approx(1.0, abs=0.15)
    assert 0.01 < fit.log_sd < 0.06
    assert fit.n == 15


def test_more_noise_gives_larger_standard_errors(bench, gpu):
    fits = [
        fitting.fit_family(
            "gemm",
            synthetic(bench, t_fixed=20e-6, mem=10e9, compute=0.12e12, noise=noise),
            gpu,
            fmt="fp32",
            source="test",
            kernel="test",
        )
        for noise in (0.01, 0.2)
    ]
    assert fits[1].mem_eff.stderr > 3.0 * fits[0].mem_eff.stderr


def test_too_few_rows_are_refused(bench, gpu):
    rows = synthetic(bench, t_fixed=20e-6, mem=10e9, compute=0.12e12, noise=0.0)[:3]
    with pytest.raises(InputError, match="3 measured rows cannot fit 4 parameters"):
        fitting.fit_family("gemm", rows, gpu, fmt="fp32", source="test", kernel="test")


def test_machine_id_names_processor_and_threads():
    assert dev.machine_id(MACHINE) == "cpu-test-1t"
    assert dev.default_format(MACHINE) == "fp32"
    assert dev.default_format(dataclasses.replace(MACHINE, features=("amx_bf16",))) == "bf16"


def test_pool_leaves_a_small_machine_alive(monkeypatch):
    monkeypatch.setattr(dev, "free_memory_bytes", lambda: 1.0e9)
    small = dataclasses.replace(MACHINE, last_level_cache_bytes=300e6, free_memory_bytes=1.0e9)
    assert dev.pool_bytes(small) == 0.25e9
    # a GPU's pool holds the largest experts of its plan, a few times over
    gpu = dataclasses.replace(MACHINE, device="cuda", free_memory_bytes=80e9, last_level_cache_bytes=50e6)
    largest = max(3 * h * i * e * 2.0 for h, i, e, _ in dev.CUDA_FULL.moe_shapes)
    assert dev.pool_bytes(gpu) > 2.0 * largest


TINY = dev.Plan(
    cell_s=0.004,
    sizes_bytes=[2.0**18, 2.0**21],
    gemm_shapes=[(256, 256), (512, 1024)],
    gemm_rows=[1, 16, 128],
    heads=[(4, 2, 16)],
    batches=[1, 8],
    queries=[1, 4],
    contexts=[32, 256],
    moe_shapes=[(64, 64, 4, 2), (128, 64, 8, 2)],
    moe_tokens=[1, 8, 64, 256],
    widths=[128],
    rows=[1, 64, 256],
)


def test_a_device_is_measured_fitted_and_written(tmp_path, monkeypatch):
    """End to end on real times: only what noise cannot break is asserted."""
    from rooflinesim.microbench.store import read_machine, write_machine

    monkeypatch.setattr(dev, "pool_bytes", lambda machine: 32e6)
    canary = timing.Canary(clock="wall", prime_s=0.05, cold_bytes=2**22)
    told = []
    result = dev.bench_device(
        device="cpu", n_threads=1, fmt="fp32", plan=TINY, canary=canary, progress=lambda s, t: told.append(s)
    )
    assert max(told) <= 1.0
    assert isinstance(result.calibration, Calibration)
    assert isinstance(result.profile, EngineProfile)
    assert result.calibration.kind == "machine"
    assert "rooflinesim bench" in result.calibration.source
    for fit in (*result.calibration.gemm.values(), *result.calibration.moe.values()):
        assert np.isfinite(fit.log_sd)
        assert fit.t_fixed_s.stderr is not None
    median = {(r.dims["m"], r.dims["n"]): r.timing.median_s for r in result.primitives if r.family == "gemm"}
    assert median[(128, 1024)] > median[(1, 256)]  # 1024 times the work
    files = write_machine(tmp_path / "m", result)
    assert [f.name for f in files] == ["gpu.yaml", "calibration.yaml", "engine.yaml", "primitives.csv"]
    back = read_machine(tmp_path / "m")
    assert back.gpu.id == result.gpu.id
    assert back.calibration.gemm["*"].mem_eff.value == pytest.approx(
        result.calibration.gemm["*"].mem_eff.value, rel=1e-4
    )
    with pytest.raises(InputError, match=r"no gpu.yaml, calibration.yaml, engine.yaml there"):
        read_machine(tmp_path)
