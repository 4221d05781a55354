"""Collectives by number of ranks, in a captured graph and eager; small kernels; recurrent states."""

from __future__ import annotations

from typing import Final

import numpy as np

from rooflinesim.calibrate.fitting import FitResult, Param, log_spread, robust_fit, score
from rooflinesim.calibrate.tables import Table, halves, load
from rooflinesim.forms import collective_form, wire_shares
from rooflinesim.grid import FloatArray
from rooflinesim.specs.calibration import CollectiveFit, ElementwiseFit, RanksFit
from rooflinesim.specs.gpu import GpuSpec

#: message sizes beyond which a library may change its algorithm; inf: it never does
BIG: Final = (float("inf"), 6e5, 1.2e6, 2.3e6, 5e6, 9e6, 1.8e7)
MAX_BYTES: Final = 2.0**28  # a step's messages are far smaller
_PARAMS: Final = (
    Param("alpha_s", 5e-6, 5e-7, 5e-4),
    Param("one_shot_eff", 0.7, 0.02, 4.0),
    Param("two_shot_s", 5e-6, 0.0, 3e-4),
    Param("two_shot_eff", 0.6, 0.02, 2.0),
)
_BIG_PARAMS: Final = (Param("big_s", 1e-5, 0.0, 5e-4), Param("big_eff", 0.7, 0.02, 2.0))
_NO_BIG: Final = {"big_s": 0.0, "big_eff": 1.0}


def _fit_ranks(
    bytes_: FloatArray, measured_s: FloatArray, link: float, pattern: str, n_ranks: int
) -> tuple[FitResult, float]:
    one_shot, ring = wire_shares(pattern, n_ranks)

    def model(values: dict[str, float], big_bytes: float) -> FloatArray:
        return collective_form(
            message_bytes=bytes_,
            one_shot_share=one_shot,
            ring_share=ring,
            link_bytes_per_s=link,
            big_bytes=big_bytes,
            **{**_NO_BIG, **values},
        )

    def fitted(big_bytes: float) -> FitResult:
        use = _PARAMS if np.isinf(big_bytes) else (*_PARAMS, *_BIG_PARAMS)
        return robust_fit(
            model=lambda values: model(values, big_bytes), measured_s=measured_s, params=use, scale=0.05
        )

    results = {big: fitted(big) for big in BIG}
    # two more parameters must earn their keep
    best = min(results, key=lambda b: results[b].cost * (1.0 if np.isinf(b) else 1.2))
    return results[best], best


def _predict(fit: RanksFit, bytes_: FloatArray, link: float, pattern: str, n_ranks: int) -> FloatArray:
    one_shot, ring = wire_shares(pattern, n_ranks)
    return collective_form(
        message_bytes=bytes_,
        one_shot_share=one_shot,
        ring_share=ring,
        link_bytes_per_s=link,
        alpha_s=fit.alpha_s.value,
        one_shot_eff=fit.one_shot_eff.value,
        two_shot_s=fit.two_shot_s.value,
        two_shot_eff=fit.two_shot_eff.value,
        big_bytes=fit.big_bytes,
        big_s=fit.big_s.value,
        big_eff=fit.big_eff.value,
    )


def _fit_table(
    gpu: GpuSpec, pattern: str, graph: Table, eager: Table | None, source: str
) -> CollectiveFit | None:
    link = gpu.link_bytes_per_s
    if link is None:
        return None
    ranks: dict[int, RanksFit] = {}
    domains: dict[str, list[tuple[FloatArray, FloatArray]]] = {"in a graph": [], "eager": []}
    n = 0
    for count in sorted({int(v) for v in graph.number("num_gpus")}):
        rows = graph.where(graph.number("num_gpus") == count)
        bytes_, measured_s = 2.0 * rows.number("message_size"), rows.number("latency") * 1e-3
        if count < 2 or len(rows) < 12:
            continue
        side = np.argsort(np.argsort(bytes_)) % 2  # every other size, so both halves span the range
        result, big_bytes = _fit_ranks(bytes_[side == 0], measured_s[side == 0], link, pattern, count)
        fit = RanksFit(**result.estimates, big_bytes=big_bytes)
        n += int((side == 0).sum())
        held = side == 1
        domains["in a graph"].append((_predict(fit, bytes_[held], link, pattern, count), measured_s[held]))
        if eager is not None:
            slow = eager.where(eager.number("num_gpus") == count)
            if len(slow) >= 12:
                fit, pair = _with_eager(fit, slow, link, pattern, count)
                domains["eager"].append(pair)
        ranks[count] = fit
    if not ranks:
        return None
    merged = {
        name: (np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]))
        for name, pairs in domains.items()
        if pairs
    }
    model_s, measured = merged["in a graph"]
    return CollectiveFit(
        ranks=ranks,
        log_sd=log_spread(model_s=model_s, measured_s=measured),
        n=n,
        kernel="+".join(sorted(set(graph.text("kernel_source").tolist()))),
        source=source,
        score=tuple(score(domain=name, model_s=a, measured_s=b) for name, (a, b) in merged.items()),
    )


def _with_eager(
    fit: RanksFit, rows: Table, link: float, pattern: str, n_ranks: int
) -> tuple[RanksFit, tuple[FloatArray, FloatArray]]:
    bytes_, measured_s = 2.0 * rows.number("message_size"), rows.number("latency") * 1e-3
    inside = _predict(fit, bytes_, link, pattern, n_ranks)
    side = np.argsort(np.argsort(bytes_)) % 2
    result = robust_fit(
        model=lambda v: np.maximum(v["eager_alpha_s"], v["eager_factor"] * inside[side == 0]),
        measured_s=measured_s[side == 0],
        params=(Param("eager_alpha_s", 2.2e-5, 2e-6, 1e-3), Param("eager_factor", 1.2, 0.7, 3.0)),
        scale=0.05,
    )
    values = result.values
    held = side == 1
    predicted = np.maximum(values["eager_alpha_s"], values["eager_factor"] * inside[held])
    return fit.model_copy(update=result.estimates), (predicted, measured_s[held])


def fit_allreduce(gpu: GpuSpec, engine: str) -> CollectiveFit | None:
    """The engine's own all-reduce; NCCL's where it has none."""
    raw = load(gpu.id, engine, "comm", "custom_allreduce")
    if raw is None:
        return fit_nccl(gpu, "all_reduce")
    table = raw.median_by(("kernel_source", "num_gpus", "message_size"))
    table = table.where(2.0 * table.number("message_size") <= MAX_BYTES)
    names = table.text("kernel_source")
    eager = np.char.endswith(names, "_eager")
    return _fit_table(
        gpu,
        "allreduce",
        table.where(~eager),
        table.where(eager) if eager.any() else None,
        f"custom_allreduce {engine} {raw.version}, every other message size",
    )


def evaluate(gpu: GpuSpec, engine: str, fit: CollectiveFit) -> tuple[FloatArray, FloatArray] | None:
    """(model, measured) seconds of any fit on held-out all-reduce sizes in a graph; ``None`` without rows."""
    raw, link = load(gpu.id, engine, "comm", "custom_allreduce"), gpu.link_bytes_per_s
    if raw is None or link is None:
        return None
    table = raw.median_by(("kernel_source", "num_gpus", "message_size"))
    table = table.where(
        (2.0 * table.number("message_size") <= MAX_BYTES)
        & ~np.char.endswith(table.text("kernel_source"), "_eager")
    )
    model, measured = [], []
    for count, at in fit.ranks.items():
        rows = table.where(table.number("num_gpus") == count)
        if len(rows) < 12:
            continue
        bytes_ = 2.0 * rows.number("message_size")
        held = np.argsort(np.argsort(bytes_)) % 2 == 1
        model.append(_predict(at, bytes_[held], link, "allreduce", count))
        measured.append(rows.number("latency")[held] * 1e-3)
    return (np.concatenate(model), np.concatenate(measured)) if model else None


def fit_nccl(gpu: GpuSpec, op: str) -> CollectiveFit | None:
    """NCCL (oneCCL on Intel): ``all_reduce``, ``all_gather`` or ``alltoall``, 16-bit messages."""
    library = "nccl"
    raw = load(gpu.id, library, "comm", "nccl")
    if raw is None:
        library, raw = "oneccl", load(gpu.id, "oneccl", "comm", "oneccl")
    if raw is None:
        return None
    kind = next((c for c in ("nccl_dtype", "oneccl_dtype", "dtype") if c in raw), None)
    keep = raw.text("op_name") == op
    if kind is not None:
        keep &= np.isin(raw.text(kind), ["half", "float16", "bfloat16"])
    table = raw.where(keep)
    if len(table) < 12:
        return None
    table = table.median_by(("kernel_source", "num_gpus", "message_size"))
    table = table.where(2.0 * table.number("message_size") <= MAX_BYTES)
    pattern = {"all_reduce": "allreduce", "all_gather": "allgather", "alltoall": "alltoall"}[op]
    return _fit_table(gpu, pattern, table, None, f"{library} {raw.version} {op}, every other message size")


def fit_dispatch(gpu: GpuSpec, engine: str) -> CollectiveFit | None:
    """All-to-all of expert parallelism inside a node: the engine's low-latency kernels, else NCCL's.

    A message is tokens·hidden·min(top_k, ranks) elements: 1 byte each in dispatch, 2 in combine. Latency
    differs several times between engines: some time the kernel, some the call around it.
    """
    rows = _dispatch_rows(gpu, engine)
    link = gpu.link_bytes_per_s
    if rows is None or link is None:
        return fit_nccl(gpu, "alltoall")
    bytes_, measured_s, shape, ranks, source, kernel = rows
    side = halves(*shape)
    fitted, held = side == 0, side == 1
    result = robust_fit(
        model=lambda v: v["alpha_s"] + bytes_[fitted] * (ranks - 1) / ranks / (link * v["two_shot_eff"]),
        measured_s=measured_s[fitted],
        params=(Param("alpha_s", 3e-5, 1e-6, 1e-3), Param("two_shot_eff", 0.5, 0.02, 4.0)),
    )
    fit = RanksFit(**result.estimates, one_shot_eff=result.estimates["two_shot_eff"])
    model_s = _predict(fit, bytes_[held], link, "alltoall", ranks)
    return CollectiveFit(
        ranks={ranks: fit},
        log_sd=log_spread(model_s=model_s, measured_s=measured_s[held]),
        n=int(fitted.sum()),
        kernel=kernel,
        source=source,
        score=(score(domain="dispatch and combine", model_s=model_s, measured_s=measured_s[held]),),
    )


_DispatchRows = tuple[FloatArray, FloatArray, tuple[FloatArray, ...], int, str, str]


def _dispatch_rows(gpu: GpuSpec, engine: str) -> _DispatchRows | None:
    """(bytes, seconds, shape, ranks, source, kernel) of dispatch and combine calls."""
    raw = load(gpu.id, engine, "comm", "moe_a2a")
    if raw is not None:
        low_latency = np.char.endswith(raw.text("comm_backend"), "_ll")
        table = raw.where(low_latency & (raw.number("node_num") == 1))
        if len(table) < 60:
            return None
        ranks = int(table.number("ep_size")[0])
        width = np.where(table.text("phase") == "dispatch", 1.0, 2.0)
        names = ("hidden_size", "topk", "num_experts")
        copies = np.minimum(table.number("topk"), ranks)
        elems = table.number("num_tokens") * table.number("hidden_size") * copies
        return (
            elems * width,
            table.number("latency") * 1e-6,
            tuple(table.number(c) for c in names),
            ranks,
            f"moe_a2a {engine} {raw.version}, one node, half of the shapes",
            "+".join(sorted(set(table.text("comm_backend").tolist()))),
        )
    raw = load(gpu.id, engine, "comm", "wideep_deepep_ll")
    if raw is None:
        return None
    table = raw.where(raw.number("node_num") == 1)
    if len(table) < 30:
        return None
    names = ("hidden_size", "num_topk", "num_experts")
    ranks = 8
    copies = np.minimum(table.number("num_topk"), ranks)
    elems = table.number("num_token") * table.number("hidden_size") * copies
    seconds = np.r_[table.number("dispatch_avg_t_us"), table.number("combine_avg_t_us")] * 1e-6
    return (
        np.r_[elems, 2.0 * elems],
        seconds,
        tuple(np.r_[table.number(c), table.number(c)] for c in names),
        ranks,
        f"wideep_deepep_ll {engine} {raw.version}, one node, half of the shapes",
        "deepep_ll",
    )


def _streaming(
    gpu: GpuSpec,
    bytes_: FloatArray,
    measured_s: FloatArray,
    shape: tuple[FloatArray, ...],
    source: str,
    kernel: str,
) -> ElementwiseFit:
    """t = t_fixed + Q/(B·η) over calls larger than the last-level cache, or so small that t_fixed rules."""
    mem = gpu.mem_bytes_per_s
    cache_bytes = (gpu.l2_cache.value if gpu.l2_cache is not None else 0.0) * 1e6
    keep = (bytes_ > 1.3 * cache_bytes) | (bytes_ < 2e6)
    side = halves(*shape)
    fitted, held = keep & (side == 0), keep & (side == 1)
    result = robust_fit(
        model=lambda v: v["t_fixed_s"] + bytes_[fitted] / (mem * v["mem_eff"]),
        measured_s=measured_s[fitted],
        params=(Param("t_fixed_s", 2e-6, 1e-7, 1e-4), Param("mem_eff", 0.8, 0.02, 1.0)),
    )
    values = result.values
    model_s = values["t_fixed_s"] + bytes_[held] / (mem * values["mem_eff"])
    return ElementwiseFit(
        **result.estimates,
        log_sd=log_spread(model_s=model_s, measured_s=measured_s[held]),
        n=int(fitted.sum()),
        kernel=kernel,
        source=source,
        score=(score(domain="tiny, or larger than the cache", model_s=model_s, measured_s=measured_s[held]),),
    )


def fit_elementwise(gpu: GpuSpec, engine: str) -> ElementwiseFit | None:
    """Small kernels, from the 16-bit to fp8 cast: 3 bytes moved per element."""
    raw = load(gpu.id, engine, "quantize", "scale_matrix")
    if raw is None:
        return None
    table = raw.median_by(("m", "k", "kernel_source"))
    m, k = table.number("m"), table.number("k")
    return _streaming(
        gpu,
        3.0 * m * k,
        table.number("latency") * 1e-3,
        (m, k),
        f"scale_matrix {engine} {raw.version}, half of the sizes",
        str(table.text("kernel_source")[0]),
    )


def fit_linear_state(gpu: GpuSpec, engine: str) -> ElementwiseFit | None:
    """Recurrent step of gated-delta-rule layers: the state read and written once, fp32."""
    raw = load(gpu.id, engine, "linear_attention", "gdn")
    if raw is None:
        return None
    recurrent = np.char.endswith(raw.text("kernel_source"), "packed_decode") & (
        raw.text("phase") == "generation"
    )
    table = raw.where(recurrent)
    if len(table) < 60:
        return None
    table = table.median_by(("kernel_source", "batch_size", "num_v_heads", "head_k_dim", "head_v_dim"))
    batch, heads = table.number("batch_size"), table.number("num_v_heads")
    bytes_ = 2.0 * 4.0 * batch * heads * table.number("head_k_dim") * table.number("head_v_dim")
    return _streaming(
        gpu,
        bytes_,
        table.number("latency") * 1e-3,
        (batch, heads),
        f"gdn {engine} {raw.version}, recurrent decode step, half of the shapes",
        str(table.text("kernel_source")[0]),
    )
