"""Attention: decode over a cache (one query token), latent attention, and the arithmetic rate from prefill.

The decode rows re-read one cache at each replay, so a cache smaller than the last-level cache is warm there.
A model's layers evict each other's, so the fit has a warm share for such rows (``warm_frac``,
``warm_speedup``) which predictions never use: every cache is read from memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rooflinesim.calibrate.fitting import FitResult, Param, log_spread, robust_fit, score
from rooflinesim.calibrate.tables import Table, halves, load
from rooflinesim.efficiency import Ceilings, ideal_calibration
from rooflinesim.forms import attention_form
from rooflinesim.grid import FloatArray
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import AttentionFit
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.units import KV_BYTES

FORMATS: Final = {"bf16": "bfloat16", "fp8": "fp8"}
HEAD_DIMS: Final = (64, 128, 256)
MAX_GROUP: Final = 16  # query heads per KV head: no shipped GQA model has more
RIDGES: Final = (1.0, 2.0, 4.0)
#: sharpness of the warm-to-cold change with cache size: least-recently-used caches lose everything at once
_WARM_STEEP: Final = 12.0
_DECODE: Final = (
    Param("t_fixed_s", 1e-5, 1e-6, 2e-4),
    Param("mem_eff", 0.9, 0.1, 1.0),
    Param("per_seq_head_s", 2e-8, 0.0, 5e-7),
    Param("per_query_head_s", 1e-9, 0.0, 2e-7),
    Param("per_token_s", 1e-10, 0.0, 1e-7),
    Param("narrow_eff", 0.95, 0.2, 1.3),
    Param("wide_eff", 0.95, 0.2, 1.3),
    Param("ramp_s", 3e-6, 0.0, 1e-4),
    Param("ramp_bytes", 3e7, 1e6, 3e8),
    Param("warm_speedup", 2.0, 1.0, 20.0),
    Param("warm_frac", 0.9, 0.3, 2.0),
)
_MLA: Final = (
    Param("t_fixed_s", 1e-5, 1e-6, 2e-4),
    Param("mem_eff", 0.8, 0.05, 1.0),
    Param("compute_eff", 0.5, 0.02, 1.0),
    Param("per_seq_head_s", 5e-8, 0.0, 2e-6),
    Param("per_query_head_s", 1e-10, 0.0, 2e-7),
    Param("per_token_s", 1e-10, 0.0, 1e-7),
    Param("ramp_s", 3e-6, 0.0, 1e-4),
    Param("ramp_bytes", 3e7, 1e6, 3e8),
    Param("warm_speedup", 2.0, 1.0, 20.0),
    Param("warm_frac", 0.9, 0.3, 2.0),
)
_LORA, _ROPE = 512.0, 64.0  # the latent and rotary widths of every generation_mla row


def warm_factor(
    *, kv_bytes: FloatArray, cache_bytes: float, warm_frac: float, warm_speedup: float
) -> FloatArray:
    """Time to read a cache again over the time from memory: 1/speedup below the cache's size, then 1.

    >>> warm_factor(kv_bytes=np.array([1e6, 1e9]), cache_bytes=5e7, warm_frac=1.0, warm_speedup=2.0).round(3)
    array([0.5, 1. ])
    """
    ratio = np.power(np.maximum(kv_bytes, 1.0) / (warm_frac * cache_bytes), _WARM_STEEP)
    cold = ratio / (1.0 + ratio)
    return np.asarray(cold + (1.0 - cold) / warm_speedup)


def _decode_rows(gpu: GpuSpec, engine: str, kv: str) -> Table | None:
    raw = load(gpu.id, engine, "attention", "generation_attention")
    if raw is None:
        return None
    columns = dict(raw.columns)
    columns.setdefault("window_size", np.zeros(len(raw)))
    if "isl" not in columns:
        columns["isl"] = np.ones(len(raw))
    heads, given = raw.number("num_heads"), raw.number("num_key_value_heads")
    kv_heads = np.where(given > 0, given, heads)
    columns["kv_heads"] = kv_heads
    table = Table(columns, raw.version)
    table = table.where(
        (table.text("kv_cache_dtype") == FORMATS[kv])
        & (table.number("isl") == 1)
        & (heads <= MAX_GROUP * kv_heads)
        & np.isin(table.number("head_dim"), HEAD_DIMS)
    )
    if len(table) < 300:
        return None
    names, counts = np.unique(table.text("kernel_source"), return_counts=True)
    table = table.where(table.text("kernel_source") == names[counts.argmax()])
    return table.median_by(
        ("kernel_source", "batch_size", "num_heads", "kv_heads", "head_dim", "step", "window_size")
    )


def _decode_inputs(gpu: GpuSpec, kv: str, table: Table) -> dict[str, Any]:
    batch, heads, kv_heads = (table.number(c) for c in ("batch_size", "num_heads", "kv_heads"))
    width, window, span = table.number("head_dim"), table.number("window_size"), table.number("step") + 1.0
    span = np.where(window > 0, np.minimum(span, window), span)
    return {
        "n_seqs": batch,
        "query_tokens": np.ones(len(table)),
        "kv_tokens": span,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "head_dim": width,
        "flops": 4.0 * batch * span * heads * width,
        "kv_bytes": 2.0 * KV_BYTES[kv] * batch * span * kv_heads * width,
        "activation_bytes": 4.0 * batch * heads * width,
    }


def _mla_rows(gpu: GpuSpec, engine: str, kv: str) -> Table | None:
    raw = load(gpu.id, engine, "mla", "generation_mla")
    if raw is None:
        return None
    table = raw.where((raw.text("kv_cache_dtype") == FORMATS[kv]) & (raw.number("isl") == 1))
    if len(table) < 300:
        return None
    return table.median_by(("kernel_source", "batch_size", "num_heads", "step"))


def _mla_inputs(kv: str, table: Table) -> dict[str, Any]:
    batch, heads, span = (table.number(c) for c in ("batch_size", "num_heads", "step"))
    span = span + 1.0
    return {
        "n_seqs": batch,
        "query_tokens": np.ones(len(table)),
        "kv_tokens": span,
        "n_heads": heads,
        "n_kv_heads": np.ones(len(table)),
        "head_dim": np.full(len(table), _LORA + _ROPE),
        "flops": 2.0 * batch * span * heads * (2.0 * _LORA + _ROPE),
        "kv_bytes": KV_BYTES[kv] * batch * span * (_LORA + _ROPE),
        "activation_bytes": 2.0 * batch * heads * (2.0 * _LORA + _ROPE),
    }


def _model(
    gpu: GpuSpec, inputs: dict[str, Any], ridge_p: float, values: dict[str, float], extra: dict[str, float]
) -> FloatArray:
    use: dict[str, Any] = {**extra, **values}
    speedup, frac = use.pop("warm_speedup", 1.0), use.pop("warm_frac", 1.0)
    args = dict(inputs)
    kv_bytes, activations = args.pop("kv_bytes"), args.pop("activation_bytes")
    cache_bytes = (gpu.l2_cache.value if gpu.l2_cache is not None else 1.0) * 1e6
    factor = warm_factor(kv_bytes=kv_bytes, cache_bytes=cache_bytes, warm_frac=frac, warm_speedup=speedup)
    ceilings = Ceilings(gpu=gpu, calibration=ideal_calibration(gpu.id))
    return attention_form(
        **args,
        moved_bytes=kv_bytes * factor + activations,
        peak_flops_per_s=ceilings.peak_flops_per_s("bf16"),
        mem_bytes_per_s=gpu.mem_bytes_per_s,
        ridge_p=ridge_p,
        **use,
    )[0]


def prefill_compute_eff(gpu: GpuSpec, engine: str) -> tuple[Estimate, int] | None:
    """η_c of attention arithmetic, from causal prefill of 2048 tokens and more: F = 2·N·S²·H·d.

    The same rate serves verification, whose rows no table holds.
    """
    raw = load(gpu.id, engine, "attention", "context_attention")
    if raw is None:
        return None
    windows = raw.number("window_size") if "window_size" in raw else np.zeros(len(raw))
    table = raw.where(
        (raw.text("kv_cache_dtype") == "bfloat16")
        & (raw.number("isl") >= 2048)
        & (windows == 0)
        & (raw.number("head_dim") == 128)
    )
    if len(table) < 50:
        return None
    batch, span, heads = (table.number(c) for c in ("batch_size", "isl", "num_heads"))
    flops = 2.0 * batch * span * span * heads * table.number("head_dim")
    ceilings = Ceilings(gpu=gpu, calibration=ideal_calibration(gpu.id))
    ideal_s = flops / ceilings.peak_flops_per_s("bf16")
    result = robust_fit(
        model=lambda v: v["t_fixed_s"] + ideal_s / v["compute_eff"],
        measured_s=table.number("latency") * 1e-3,
        params=(Param("t_fixed_s", 1e-5, 0.0, 1e-3), Param("compute_eff", 0.5, 0.02, 1.0)),
        clusters=np.asarray(heads * 100 + np.log2(batch), dtype=np.int64),
    )
    return result.estimates["compute_eff"], len(table)


def fit_attention(gpu: GpuSpec, engine: str, key: str) -> AttentionFit | None:
    """The fit for one KV format, or ``mla-`` and a KV format; ``None`` where no rows exist."""
    mla, kv = key.startswith("mla-"), key.removeprefix("mla-")
    table = _mla_rows(gpu, engine, kv) if mla else _decode_rows(gpu, engine, kv)
    if table is None:
        return None
    inputs = _mla_inputs(kv, table) if mla else _decode_inputs(gpu, kv, table)
    rate = None if mla else prefill_compute_eff(gpu, engine)
    compute = rate[0] if rate else Estimate(value=0.5)
    extra = {} if mla else {"compute_eff": compute.value}
    for name, width in (("narrow_eff", 64), ("wide_eff", 256)):
        if mla or not (table.number("head_dim") == width).any():
            extra[name] = 1.0
    params = [p for p in (_MLA if mla else _DECODE) if p.name not in extra]
    shape = _shape(table, mla)
    side = halves(*shape)
    train, long = side == 0, table.number("step") + 1 >= 512
    measured_s = table.number("latency") * 1e-3
    weights = np.where(long, 1.0, 0.3)[train]
    clusters = np.unique(np.stack(shape), axis=1, return_inverse=True)[1].ravel()[train]
    part = _rows(inputs, train)

    def fitted(ridge_p: float) -> FitResult:
        return robust_fit(
            model=lambda values: _model(gpu, part, ridge_p, values, extra),
            measured_s=measured_s[train],
            params=params,
            clusters=clusters,
            weights=weights,
        )

    results = {p: fitted(p) for p in RIDGES}
    ridge_p = min(results, key=lambda p: results[p].cost)
    result = results[ridge_p]
    held = side == 1
    model_s = _model(gpu, _rows(inputs, held), ridge_p, result.values, extra)
    held_s, held_long = measured_s[held], long[held]
    cache_bytes = (gpu.l2_cache.value if gpu.l2_cache is not None else 1.0) * 1e6
    cold = _rows(inputs, held)["kv_bytes"] > 1.3 * cache_bytes
    masks = {
        "context >= 512": held_long,
        "context >= 512, cache larger than the last-level cache": held_long & cold,
        "context < 512": ~held_long,
    }
    sure = held_long & cold if (held_long & cold).sum() >= 30 else held_long
    found = dict(result.estimates)
    warm = {name: found.pop(name).value for name in ("warm_speedup", "warm_frac")}
    if not mla:
        found["compute_eff"] = compute
    found |= {name: Estimate(value=value) for name, value in extra.items() if name not in found}
    return AttentionFit(
        **found,
        ridge_p=ridge_p,
        log_sd=log_spread(model_s=model_s[sure], measured_s=held_s[sure]),
        n=int(train.sum()),
        kernel=str(table.text("kernel_source")[0]),
        source=(
            f"{'generation_mla' if mla else 'generation_attention'} {engine} {table.version}, one query "
            f"token, half of the shapes; rows within {warm['warm_frac']:.2f} of the last-level cache are "
            f"{warm['warm_speedup']:.2f} times faster there, but not in predictions"
            + (f"; compute_eff from {rate[1]} causal prefill rows" if rate else "")
        ),
        score=tuple(
            score(domain=name, model_s=model_s[mask], measured_s=held_s[mask])
            for name, mask in masks.items()
            if mask.any()
        ),
    )


def evaluate(gpu: GpuSpec, engine: str, key: str, fit: AttentionFit) -> tuple[FloatArray, FloatArray] | None:
    """(model, measured) seconds of any fit on held-out rows: context >= 512, cache too large to be warm."""
    mla, kv = key.startswith("mla-"), key.removeprefix("mla-")
    table = _mla_rows(gpu, engine, kv) if mla else _decode_rows(gpu, engine, kv)
    if table is None:
        return None
    inputs = _mla_inputs(kv, table) if mla else _decode_inputs(gpu, kv, table)
    cache_bytes = (gpu.l2_cache.value if gpu.l2_cache is not None else 1.0) * 1e6
    use = (
        (halves(*_shape(table, mla)) == 1)
        & (table.number("step") + 1 >= 512)
        & (inputs["kv_bytes"] > 1.3 * cache_bytes)
    )
    return _model(gpu, _rows(inputs, use), fit.ridge_p, _estimates(fit), {}), table.number("latency")[
        use
    ] * 1e-3


def _estimates(fit: AttentionFit) -> dict[str, float]:
    return {name: value for name, value in fit.params.items() if name != "ridge_p"}


def _shape(table: Table, mla: bool) -> tuple[FloatArray, ...]:
    names = ("num_heads", "batch_size") if mla else ("num_heads", "kv_heads", "head_dim", "window_size")
    return tuple(table.number(name) for name in names)


def _rows(inputs: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    return {name: value[mask] if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
