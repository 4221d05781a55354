"""``bench device``: measure this machine's primitives, fit the cost model's families, describe the
machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import torch

from rooflinesim.efficiency import Ceilings
from rooflinesim.errors import InputError
from rooflinesim.microbench import BENCHMARK_VERSION, cuda
from rooflinesim.microbench import primitives as prim
from rooflinesim.microbench.env import Machine, free_memory_bytes, probe
from rooflinesim.microbench.fitting import fit_family, relative_errors
from rooflinesim.microbench.host import engine_host
from rooflinesim.microbench.nn import torch_dtype
from rooflinesim.microbench.primitives import Bench, Primitive
from rooflinesim.microbench.timing import Canary, Noise, Pool, choose_clock, noise_of, threads
from rooflinesim.specs.base import Estimate, Quantity
from rooflinesim.specs.calibration import Calibration, CollectiveFit, RanksFit
from rooflinesim.specs.engine import DraftLaw, EngineProfile, GraphRule, HostCost, Sampler
from rooflinesim.specs.gpu import GpuSpec

#: Called with the share of the work done and what is measured now.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Plan:
    """Which cells are measured, and for how long each at least."""

    cell_s: float
    sizes_bytes: list[float]
    gemm_shapes: list[tuple[int, int]]
    gemm_rows: list[int]
    heads: list[tuple[int, int, int]]
    batches: list[int]
    queries: list[int]
    contexts: list[int]
    moe_shapes: list[tuple[int, int, int, int]]
    moe_tokens: list[int]
    widths: list[int]
    rows: list[int]

    @property
    def n_cells(self) -> int:
        """Roughly how many cells the plan has: for the progress bar."""
        return (
            2 * len(self.sizes_bytes)
            + len(self.gemm_shapes) * len(self.gemm_rows)
            + len(self.heads) * len(self.batches) * len(self.queries) * len(self.contexts)
            + len(self.moe_shapes) * len(self.moe_tokens)
            + 3 * len(self.widths) * len(self.rows)
            + 20
        )


QUICK = Plan(
    cell_s=0.05,
    sizes_bytes=[2.0**20, 2.0**24, 2.0**27],
    gemm_shapes=[(1024, 1024), (1024, 4096), (2048, 1024)],
    gemm_rows=[1, 4, 16, 64, 128, 256, 512],
    heads=[(16, 4, 64)],
    batches=[1, 8, 32],
    queries=[1, 4, 8],
    contexts=[128, 1024],
    moe_shapes=[(512, 256, 16, 2), (1024, 512, 8, 2)],
    moe_tokens=[1, 2, 4, 16, 64, 256, 512],
    widths=[1024],
    rows=[1, 16, 128, 512],
)
FULL = Plan(
    cell_s=0.12,
    sizes_bytes=[2.0**18, 2.0**20, 2.0**22, 2.0**24, 2.0**26, 2.0**27, 2.0**28],
    gemm_shapes=[
        (512, 2048),
        (1024, 1024),
        (1024, 2048),
        (1024, 4096),
        (2048, 1024),
        (2048, 2048),
        (4096, 1024),
    ],
    gemm_rows=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    heads=[(16, 4, 64), (8, 2, 64)],
    batches=[1, 4, 16, 64],
    queries=[1, 2, 4, 8],
    contexts=[64, 256, 1024],
    moe_shapes=[(512, 256, 16, 2), (1024, 512, 32, 2), (1024, 512, 16, 4)],
    moe_tokens=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    widths=[512, 1024, 2048],
    rows=[1, 4, 16, 64, 256, 512, 1024, 2048],
)
#: Shapes of real models, for a GPU: Llama-3.1-8B products; Qwen3-30B-A3B and gpt-oss-20b experts (hidden,
#: inner, E, k).
CUDA_FULL = Plan(
    cell_s=0.1,
    sizes_bytes=[2.0**20, 2.0**24, 2.0**27, 2.0**29],
    gemm_shapes=[(4096, 4096), (4096, 6144), (4096, 28672), (14336, 4096), (2048, 4096), (8192, 8192)],
    gemm_rows=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    heads=[(32, 8, 128), (32, 4, 128), (64, 8, 64)],
    batches=[1, 4, 16, 64, 256],
    queries=[1, 2, 4, 8],
    contexts=[512, 2048, 8192],
    moe_shapes=[(2048, 768, 128, 8), (2880, 2880, 32, 4)],
    moe_tokens=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    widths=[2048, 4096],
    rows=[1, 16, 64, 256, 1024, 2048],
)


@dataclass(frozen=True)
class DeviceResult:
    """Everything ``bench device`` found out."""

    machine: Machine
    gpu: GpuSpec
    calibration: Calibration
    profile: EngineProfile
    primitives: tuple[Primitive, ...]
    fmt: str
    clock: str
    noise: Noise
    seconds: float

    @property
    def warnings(self) -> list[str]:
        """What a person should know before trusting the numbers."""
        out = []
        if self.noise.noisy:
            out.append(self.noise.line)
        noisy = [row for row in self.primitives if row.timing.noisy]
        if noisy:
            out.append(
                f"{len(noisy)} of {len(self.primitives)} cells are noisy (more than 10 % between quartiles); "
                f"the worst is {max(noisy, key=lambda r: r.timing.spread_frac).family}"
            )
        if any(not row.cold for row in self.primitives):
            out.append(
                "too little memory for buffers larger than the last-level cache: bandwidth may be the cache's"
            )
        if self.machine.device == "cpu" and self.fmt == "bf16" and "avx512_bf16" not in self.machine.features:
            out.append("this CPU has no bf16 arithmetic: bf16 products are emulated; try --dtype fp32")
        return out


def machine_id(machine: Machine) -> str:
    """A file-name-safe id: ``cpu-intel-xeon-processor-1t``.

    The number of threads is part of it: another thread count is another machine to the cost model.
    """
    text = re.sub(r"\((r|tm)\)|@.*|\bcpu\b", "", machine.name.lower())
    stem = re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "unknown"
    return f"cpu-{stem}-{machine.n_threads}t" if machine.device == "cpu" else stem


def default_format(machine: Machine) -> str:
    """bf16 where the hardware multiplies it, else fp32."""
    has = machine.device == "cuda" or {"avx512_bf16", "amx_bf16", "bf16"} & set(machine.features)
    return "bf16" if has else "fp32"


def pool_bytes(machine: Machine) -> float:
    """Twice the last-level cache and room for the plan's largest experts, within a quarter of free memory."""
    on_gpu = machine.device == "cuda"
    wanted = max(2.0 * machine.last_level_cache_bytes, (4096.0 if on_gpu else 256.0) * 2**20)
    free = machine.free_memory_bytes if on_gpu else free_memory_bytes()
    return min(wanted, 0.25 * free)


def _cells(bench: Bench, plan: Plan, machine: Machine) -> Iterator[Primitive]:
    yield from prim.launches(bench)
    yield from prim.bandwidth(bench, sizes_bytes=plan.sizes_bytes)
    yield from prim.gemms(bench, shapes=plan.gemm_shapes, rows=plan.gemm_rows)
    yield from prim.attentions(
        bench, heads=plan.heads, batches=plan.batches, queries=plan.queries, contexts=plan.contexts
    )
    yield from prim.moes(bench, shapes=plan.moe_shapes, tokens=plan.moe_tokens)
    yield from prim.elementwise_groups(bench, widths=plan.widths, rows=plan.rows)
    yield from prim.samplers(bench, vocab=128, rows=[1, 8, 64], k=3)
    yield from engine_host(bench, batches=[1, 16, 64])
    if machine.device == "cuda":
        yield from cuda.graph_replay(bench)
        yield from cuda.fp8_gemms(bench, shapes=plan.gemm_shapes, rows=plan.gemm_rows)
        yield from cuda.all_reduces(bench, sizes_bytes=[2**12, 2**16, 2**20, 2**24, 2**27])


@torch.no_grad()
def bench_device(
    *,
    device: str = "auto",
    n_threads: int | None = None,
    fmt: str | None = None,
    clock: str = "auto",
    quick: bool = False,
    plan: Plan | None = None,
    canary: Canary | None = None,
    progress: Progress | None = None,
) -> DeviceResult:
    """Measure, fit and describe this machine. ``quick`` takes up to a minute, full up to ten, on two
    cores."""
    started = time.perf_counter()
    machine = probe(device=device, n_threads=n_threads)
    number = fmt or default_format(machine)
    dtype = torch_dtype(number)
    if plan is None:
        plan = CUDA_FULL if machine.device == "cuda" and not quick else QUICK if quick else FULL
    with threads(machine.n_threads):
        pool = Pool(
            n_bytes=pool_bytes(machine),
            llc_bytes=machine.last_level_cache_bytes,
            dtype=dtype,
            device=machine.device,
        )
        done = [0]

        def tell(text: str) -> None:
            done[0] += 1
            if progress is not None:
                progress(min(done[0] / plan.n_cells, 1.0), text)

        chosen = choose_clock(device=machine.device, n_threads=machine.n_threads, wanted=clock)
        if canary is None:
            canary = Canary(clock=chosen, dtype=dtype, cold_bytes=min(2.0**28, 0.05 * free_memory_bytes()))
        bench = Bench(machine.device, number, chosen, pool, plan.cell_s, tell, canary)
        rows = tuple(_cells(bench, plan, machine))
    gpu = describe_gpu(machine, rows, number)
    calibration = calibrate(machine, gpu, rows, number, chosen)
    return DeviceResult(
        machine=machine,
        gpu=gpu,
        calibration=calibration,
        profile=engine_profile(machine, rows, calibration),
        primitives=rows,
        fmt=number,
        clock=chosen,
        noise=noise_of(canary),
        seconds=time.perf_counter() - started,
    )


def provenance(machine: Machine, clock: str) -> str:
    """Who measured what, when, how: the source of every number ``bench`` writes."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    how = {"cpu": "thread CPU time", "wall": "wall clock", "cuda": "CUDA events"}[clock]
    return f"rooflinesim bench {BENCHMARK_VERSION}, {when}, {how}, {machine.describe}"


def describe_gpu(machine: Machine, rows: tuple[Primitive, ...], fmt: str) -> GpuSpec:
    """A hw_spec whose ceilings are the best rates measured here: the largest cold read or copy, the
    fastest product."""
    source = provenance(machine, "cuda" if machine.device == "cuda" else "wall")
    streams = [r for r in rows if r.family in ("copy", "read")]
    largest = max((r.moved_bytes for r in streams), default=0.0)
    big = [r.moved_bytes / r.timing.median_s for r in streams if r.moved_bytes >= 0.4 * largest]
    products = [float(r.op.flops) / r.timing.median_s for r in rows if r.label == "gemm" and r.op is not None]
    if not big or not products:
        raise InputError("bench device: no bandwidth or product was measured; free some memory and try again")

    def measured(value: float, unit: str) -> Quantity:
        return Quantity(value=float(f"{value:.4g}"), unit=unit, kind="measured", source=source)

    compute = {"fp64": "fp32"}.get(fmt, fmt)
    peaks = {compute: measured(max(products) / 1e12, "TFLOP/s")}
    fp8 = [float(r.op.flops) / r.timing.median_s for r in rows if r.label == "fp8" and r.op is not None]
    if fp8:
        peaks["fp8"] = measured(max(fp8) / 1e12, "TFLOP/s")
    return GpuSpec(
        id=machine_id(machine),
        vendor="this machine",
        architecture=machine.device,
        arch_target=machine.features[0] if machine.device == "cuda" else "",
        memory=measured(machine.free_memory_bytes / 2**30, "GB"),
        memory_bandwidth=measured(max(big) / 1e9, "GB/s"),
        last_level_cache=measured(machine.last_level_cache_bytes / 1e6, "MB"),
        peaks=peaks,
        confidence="measured",
        notes=f"ceilings are the best rates measured, not a data sheet's; {machine.describe}",
    )


def calibrate(
    machine: Machine, gpu: GpuSpec, rows: tuple[Primitive, ...], fmt: str, clock: str
) -> Calibration:
    """Fits of every family to the primitives. Nothing of a whole model's time enters here."""
    source = provenance(machine, clock)

    def family(name: str, label: str | None = None, number: str = fmt) -> object:
        chosen = [r for r in rows if r.family == name and (label is None or r.label == label)]
        kernel = f"torch {torch.__version__}"
        return fit_family(name, chosen, gpu, fmt=number, source=source, kernel=kernel)

    gemm = {fmt: family("gemm", "gemm"), "*": family("gemm", "gemm")}
    if any(r.label == "fp8" for r in rows):
        gemm["fp8"] = family("gemm", "fp8", "fp8")
    attention, experts = family("attention"), family("moe")
    link = _allreduce_fit(rows, source)
    return Calibration.model_validate(
        {
            "id": f"{gpu.id}--research",
            "gpu": gpu.id,
            "engine": "research",
            "engine_version": BENCHMARK_VERSION,
            "kind": "machine",
            "gemm": gemm,
            "attention": {"*": attention},
            "moe": {"*": experts},
            "elementwise": family("elementwise"),
            "allreduce": link,
            "source": source,
            "notes": f"primitives only, {fmt}; one device" if machine.n_devices == 1 else "primitives only",
        }
    )


def _allreduce_fit(rows: tuple[Primitive, ...], source: str) -> CollectiveFit:
    """Latency of the smallest message and the rate of the largest; without a second device a placeholder
    of zeros."""
    found = [r for r in rows if r.family == "allreduce"]
    zero, one = Estimate(value=0.0), Estimate(value=1.0)
    if not found:
        return CollectiveFit(
            log_sd=0.0,
            n=0,
            source="not measured: one device",
            ranks={2: RanksFit(alpha_s=zero, two_shot_eff=one)},
        )
    ranks = int(found[0].dims["ranks"])
    small = min(found, key=lambda r: r.dims["bytes"])
    spread = float(np.mean([r.timing.spread_frac for r in found]))
    return CollectiveFit(
        log_sd=max(spread, 0.05),
        n=len(found),
        source=source,
        ranks={ranks: RanksFit(alpha_s=Estimate(value=small.timing.median_s), two_shot_eff=one)},
    )


def engine_profile(machine: Machine, rows: tuple[Primitive, ...], calibration: Calibration) -> EngineProfile:
    """The torch engine of ``microbench.engine`` as the cost model sees it: its draft laws, and its
    measured host cost.

    The bookkeeping primitive contains the sampling it does, so the sampler itself counts as free; the part
    that grows with the batch is ``per_request_s``.
    """
    off = sorted((r for r in rows if r.family == "host" and r.label == "off"), key=lambda r: r.dims["batch"])
    sd = sorted((r for r in rows if r.family == "host" and r.label == "sd"), key=lambda r: r.dims["batch"])
    span = off[-1].dims["batch"] - off[0].dims["batch"]
    slopes = [(r[-1].timing.median_s - r[0].timing.median_s) / span for r in (off, sd)]
    per_request = max(0.0, float(np.mean(slopes)))
    at = off[0].dims["batch"]
    return EngineProfile(
        id=f"torch-bench-{machine_id(machine)}",
        engine="research",
        version=BENCHMARK_VERSION,
        graph=GraphRule(unit="requests", grid=(), ceiling={"default": 0}),
        draft_laws={
            "eagle": DraftLaw(first_pass_tokens="verify", later_passes="k_minus_1"),
            "draft_model": DraftLaw(first_pass_tokens="verify", later_passes="k_minus_1"),
            "ngram": DraftLaw(first_pass_tokens="none", later_passes="none", at_k0="none"),
        },
        host=HostCost(
            off_step_s=max(off[0].timing.median_s - at * per_request, 0.0),
            sd_round_s=max(sd[0].timing.median_s - at * per_request, 0.0),
            per_request_s=per_request,
            eager_launch_s=0.0,  # the fits time eager calls: the launch is inside t_fixed
            rel_sd=0.2,
        ),
        sampler=Sampler(passes_off=0.0, launches_off=0.0, passes_sd=0.0, launches_sd=0.0),
        max_num_seqs={"default": 4096, "sd": 4096, "small": 4096},
        workspace_bytes=0.0,
        fused_norm_quant=False,
        sources=(calibration.source,),
        notes="draft laws of rooflinesim.microbench.engine; host costs measured with a model of no weight",
    )


def errors_by_family(result: DeviceResult) -> dict[str, tuple[int, float, float]]:
    """Family → (rows, median |error|, largest |error|) of the fit on its own primitives."""
    ceilings = Ceilings(gpu=result.gpu, calibration=result.calibration)
    out = {}
    for family in ("gemm", "attention", "moe", "elementwise"):
        rows = [r for r in result.primitives if r.family == family and r.label != "fp8"]
        errors = np.abs(relative_errors(rows, ceilings))
        if errors.size:
            out[family] = (len(errors), float(np.median(errors)), float(errors.max()))
    return out
