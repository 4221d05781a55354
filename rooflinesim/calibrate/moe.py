"""Routed experts: rows turned into distinct experts through the routing they were measured with."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rooflinesim.calibrate.fitting import FitResult, Param, log_spread, robust_fit, score
from rooflinesim.calibrate.routing import with_active_experts
from rooflinesim.calibrate.tables import Table, halves, load
from rooflinesim.efficiency import Ceilings, ideal_calibration
from rooflinesim.forms import moe_form
from rooflinesim.grid import FloatArray
from rooflinesim.specs.calibration import MoeFit
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.units import WEIGHT_BYTES

FORMATS: Final[dict[str, tuple[str, ...]]] = {
    "bf16": ("bfloat16",),
    "fp8": ("fp8",),
    "fp8-block": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "int4": ("int4_wo",),
    "mxfp4": ("w4a16_mxfp4", "w4a8_mxfp4_mxfp8"),
}
#: Which rows a server runs when an engine has several kernels for one format, by architecture prefix: public
#: launch scripts (SemiAnalysisAI/InferenceX benchmarks/) set these back ends.
SERVED_TYPES: Final[dict[tuple[str, str], tuple[str, ...]]] = {("sm_10", "mxfp4"): ("w4a8_mxfp4_mxfp8",)}
SERVED_KERNELS: Final[dict[tuple[str, str, str], str]] = {
    ("sm_10", "trtllm", "nvfp4"): "moe_torch_flow_min_latency",  # MOE_BACKEND=TRTLLM
    ("sm_10", "trtllm", "fp8_block"): "trtllm_gen",  # MOE_BACKEND=TRTLLM; the table holds deepgemm only
}
#: (hidden, intermediate) of experts with two matrices instead of three (no gate)
NOT_GATED: Final = {(2688, 1856), (1024, 2688), (2048, 5120), (8192, 5120), (4096, 2688)}
#: kernels that were timed with a gate for every shape
ALWAYS_GATED: Final = ("sglang_fused_moe_triton", "vllm_fused_moe")
#: (hidden, experts) routed within groups: ``balanced`` rows leave half of the experts cold
GROUPED: Final = {(7168, 256)}
TILES: Final = (1, 8, 32, 128)
MAX_TOKENS: Final = 1024
PARAMS: Final = (
    Param("t_fixed_s", 2e-5, 0.0, 3e-4),
    Param("mem_eff", 0.85, 0.05, 0.97),
    Param("compute_eff", 0.7, 0.02, 1.0),
    Param("ridge_p", 2.0, 1.0, 8.0),
    Param("per_expert_s", 2e-7, 0.0, 2e-5),
    Param("activation_passes", 1.0, 0.0, 20.0),
    Param("routing_passes", 1.0, 0.0, 20.0),
)
_KEYS: Final = (
    "kernel_source",
    "moe_dtype",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "distribution",
)


def rows_of(gpu: GpuSpec, engine: str, dtype: str) -> Table | None:
    """Rows of one data type up to 1024 tokens, EP to 16 and TP to 8, of the kernel with the most rows.

    Left out: shapes routed within groups, and calls whose weights all fit in the last-level cache (one module
    instance is replayed, so they are warm there and would not be in a model).
    """
    raw = load(gpu.id, engine, "moe", "moe")
    if raw is None:
        return None
    family = raw.number("hidden_size") * 1e4 + raw.number("num_experts")
    grouped = np.isin(family, [h * 1e4 + e for h, e in GROUPED])
    keep = (
        (raw.text("moe_dtype") == dtype)
        & (raw.number("num_tokens") <= MAX_TOKENS)
        & (raw.number("moe_ep_size") <= 16)
        & (raw.number("moe_tp_size") <= 8)
        & ~grouped
    )
    table = raw.where(keep)
    if len(table) < 300:
        return None
    whole = table.where(table.number("moe_ep_size") == 1)
    names, counts = np.unique((whole if len(whole) else table).text("kernel_source"), return_counts=True)
    served = _served(SERVED_KERNELS, gpu, engine, dtype)
    table = table.where(table.text("kernel_source") == (served or names[counts.argmax()]))
    if not len(table):
        return None
    table = with_active_experts(table.median_by(_KEYS))
    fmt = next(name for name, types in FORMATS.items() if dtype in types)
    weights = table.number("experts_read") * _expert_bytes(table, fmt)
    cache_bytes = (gpu.l2_cache.value if gpu.l2_cache is not None else 0.0) * 1e6
    return table.where(weights > cache_bytes)


def _served(table: dict[tuple[str, str, str], str], gpu: GpuSpec, engine: str, dtype: str) -> str:
    hits = [
        v
        for (arch, e, d), v in table.items()
        if gpu.arch_target.startswith(arch) and (e, d) == (engine, dtype)
    ]
    return hits[0] if hits else ""


def data_types(gpu: GpuSpec, fmt: str) -> tuple[str, ...]:
    """The tables' data types of one weight format on this architecture, the first with rows is used."""
    hits = [v for (arch, f), v in SERVED_TYPES.items() if gpu.arch_target.startswith(arch) and f == fmt]
    return hits[0] if hits else FORMATS[fmt]


def _matrices(table: Table) -> FloatArray:
    key = table.number("hidden_size") * 1e6 + table.number("inter_size")
    plain = np.isin(key, [h * 1e6 + i for h, i in NOT_GATED])
    return np.where(plain & ~np.isin(table.text("kernel_source"), ALWAYS_GATED), 2.0, 3.0)


def _expert_params(table: Table) -> FloatArray:
    width = table.number("inter_size") / table.number("moe_tp_size")
    return _matrices(table) * table.number("hidden_size") * width


def _expert_bytes(table: Table, fmt: str) -> FloatArray:
    return WEIGHT_BYTES[fmt] * _expert_params(table)


def _inputs(gpu: GpuSpec, fmt: str, table: Table) -> dict[str, Any]:
    rows, hidden = table.number("rows"), table.number("hidden_size")
    width = table.number("inter_size") / table.number("moe_tp_size")
    ceilings = Ceilings(gpu=gpu, calibration=ideal_calibration(gpu.id))
    return {
        "rows": rows,
        "routed_rows": table.number("num_tokens") * table.number("topk"),
        "experts_read": table.number("experts_read"),
        "flops_per_row": 2.0 * _expert_params(table),
        "expert_bytes": _expert_bytes(table, fmt),
        "activation_bytes": 2.0 * rows * (2.0 * hidden + (_matrices(table) + 1.0) * width),
        "hidden_size": hidden,
        "peak_flops_per_s": ceilings.peak_flops_per_s(fmt),
        "mem_bytes_per_s": gpu.mem_bytes_per_s,
    }


def _model(inputs: dict[str, Any], tile: int, values: dict[str, Any]) -> FloatArray:
    return moe_form(**inputs, tile_rows=float(tile), **values)[0]


_SHAPE: Final = ("hidden_size", "inter_size", "num_experts", "topk")
#: with fewer expert shapes than this their shards (TP, EP) are split: one shape cannot be both halves
_FEW_SHAPES: Final = 5


def _few(table: Table) -> bool:
    return len(np.unique(np.stack([table.number(c) for c in _SHAPE]), axis=1)[0]) < _FEW_SHAPES


def _shape_halves(table: Table) -> NDArray[np.int64]:
    names = (*_SHAPE, "moe_tp_size", "moe_ep_size") if _few(table) else _SHAPE
    return halves(*(table.number(c) for c in names))


def fit_moe(gpu: GpuSpec, engine: str, fmt: str) -> MoeFit | None:
    """The fit of one expert format (of its most used kernel), or ``None`` where no rows exist.

    Scored on the other half of the expert shapes, or of the shards where there are fewer than five shapes.
    """
    found = (rows_of(gpu, engine, dtype) for dtype in data_types(gpu, fmt))
    table = next((t for t in found if t is not None and len(t) >= 200), None)
    if table is None:
        return None
    side = _shape_halves(table)
    train = side == 0
    part = table.where(train)
    inputs, measured_s = _inputs(gpu, fmt, part), part.number("latency") * 1e-3
    clusters = np.unique(
        np.stack(
            [
                part.number(c)
                for c in ("hidden_size", "inter_size", "num_experts", "moe_tp_size", "moe_ep_size")
            ]
        ),
        axis=1,
        return_inverse=True,
    )[1].ravel()

    def fitted(tile: int) -> FitResult:
        return robust_fit(
            model=lambda values: _model(inputs, tile, values),
            measured_s=measured_s,
            params=PARAMS,
            clusters=clusters,
            scale=0.04,
        )

    results = {tile: fitted(tile) for tile in TILES}
    tile = min(results, key=lambda t: results[t].cost)
    result = results[tile]
    held = table.where(side == 1)
    model_s = _model(_inputs(gpu, fmt, held), tile, result.values)
    held_s = held.number("latency") * 1e-3
    ep = held.number("moe_ep_size")
    masks = {"T <= 1024": ep > 0, "T <= 1024, no expert parallelism": ep == 1}
    split = "half of the shards of few expert shapes" if _few(table) else "half of the expert shapes"
    return MoeFit(
        **result.estimates,
        tile_rows=tile,
        log_sd=log_spread(model_s=model_s, measured_s=held_s),
        n=int(train.sum()),
        kernel=str(table.text("kernel_source")[0]),
        source=f"moe {engine} {table.version}, {split}",
        score=tuple(
            score(domain=name, model_s=model_s[mask], measured_s=held_s[mask])
            for name, mask in masks.items()
            if mask.any()
        ),
    )


def evaluate(gpu: GpuSpec, engine: str, fmt: str, fit: MoeFit) -> tuple[FloatArray, FloatArray] | None:
    """(model, measured) seconds of any fit on the held-out rows of one accelerator; ``None`` without rows."""
    found = (rows_of(gpu, engine, dtype) for dtype in data_types(gpu, fmt))
    table = next((t for t in found if t is not None and len(t) >= 200), None)
    if table is None:
        return None
    side = _shape_halves(table)
    held = table.where(side == 1)
    params: dict[str, Any] = dict(fit.params)
    return moe_form(**_inputs(gpu, fmt, held), **params)[0], held.number("latency") * 1e-3
