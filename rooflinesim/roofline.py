"""Counts × ceilings → seconds, with the bound named.

(rl) t = t_fixed + ‖ F/(P·η_c), Q/(B·η_m) ‖_p. Every function is pure, keyword-only and vectorised, and never falls as
work grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rooflinesim.efficiency import SHARP_RIDGE_P, Ceilings
from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import AttentionOp, CollectiveOp, GemmOp, MoeOp, Op
from rooflinesim.specs.calibration import AttentionFit, CollectiveFit, ElementwiseFit, GemmFit, MoeFit


def p_norm(a: FloatArray, b: FloatArray, p: float) -> FloatArray:
    """(a^p + b^p)^(1/p), stable; a plain maximum from p = 40 on.

    >>> float(p_norm(np.array(3.0), np.array(4.0), 2.0))
    5.0
    """
    high, low = np.maximum(a, b), np.minimum(a, b)
    if p >= SHARP_RIDGE_P:
        return np.asarray(high)
    if p == 1.0:
        return np.asarray(high + low)
    ratio = np.divide(low, high, out=np.zeros(np.broadcast(low, high).shape), where=high > 0)
    return np.asarray(high * np.power(1.0 + np.power(ratio, p), 1.0 / p))


def padded(rows: FloatArray, tile: float) -> FloatArray:
    """Rows rounded up to a multiple of ``tile``."""
    return np.ceil(rows / tile) * tile if tile > 1 else rows


def gemm_s(
    *,
    rows: FloatArray,
    out_features: float,
    in_features: float,
    weight_bytes: FloatArray,
    activation_bytes: FloatArray,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    sm_count: int,
    fit: GemmFit,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds of one dense product: (total, compute part, memory part)."""
    flops = 2.0 * padded(rows, fit.tile_m) * out_features * in_features
    compute_s = flops / (peak_flops_per_s * fit.compute_eff.value)
    memory_s = (weight_bytes + activation_bytes + fit.half_bytes.value) / (
        mem_bytes_per_s * fit.mem_eff.value
    )
    total = fit.t_fixed_s.value + p_norm(compute_s, memory_s, fit.ridge_p.value)
    return total, compute_s, memory_s


def attention_s(
    *,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    kv_tokens: FloatArray,
    n_heads: float,
    n_kv_heads: float,
    head_dim: float,
    flops: FloatArray,
    kv_bytes: FloatArray,
    activation_bytes: FloatArray,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    sm_count: int,
    fit: AttentionFit,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds of one attention call: (total, compute part, memory part)."""
    compute_s = flops / (peak_flops_per_s * fit.compute_eff.value)
    memory_s = (kv_bytes + activation_bytes) / (mem_bytes_per_s * fit.mem_eff.value)
    fixed = fit.t_fixed_s.value + fit.per_seq_head_s.value * n_seqs * n_kv_heads
    return fixed + p_norm(compute_s, memory_s, fit.ridge_p.value), compute_s, memory_s


def moe_s(
    *,
    rows: FloatArray,
    experts_read: FloatArray,
    flops: FloatArray,
    weight_bytes: FloatArray,
    activation_bytes: FloatArray,
    hidden_size: float,
    intermediate_size: float,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    fit: MoeFit,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds of the routed experts of one layer: (total, compute part, memory part).

    Each expert's rows are padded to a tile: on average half a tile of waste per expert read.
    """
    waste = np.where(
        rows > 0, (rows + experts_read * (fit.tile_rows - 1) / 2.0) / np.maximum(rows, 1e-9), 1.0
    )
    compute_s = flops * waste / (peak_flops_per_s * fit.compute_eff.value)
    memory_s = (weight_bytes + activation_bytes) / (mem_bytes_per_s * fit.mem_eff.value)
    return fit.t_fixed_s.value + p_norm(compute_s, memory_s, fit.ridge_p.value), compute_s, memory_s


def elementwise_s(
    *, moved_bytes: FloatArray, launches: float, mem_bytes_per_s: float, fit: ElementwiseFit
) -> FloatArray:
    """launches·t_fixed + Q/(B·η)."""
    return np.asarray(launches * fit.t_fixed_s.value + moved_bytes / (mem_bytes_per_s * fit.mem_eff.value))


def collective_s(
    *,
    message_bytes: FloatArray,
    n_ranks: int,
    pattern: str,
    link_bytes_per_s: float,
    fit: CollectiveFit,
    graph: bool,
) -> FloatArray:
    """α(ranks) + wire bytes / (link·η).

    Wire bytes per rank and direction: all-reduce 2·(r−1)/r, all-gather and all-to-all (r−1)/r, p2p 1.
    """
    share = (n_ranks - 1) / n_ranks
    wire = {"allreduce": 2.0 * share, "allgather": share, "alltoall": share, "p2p": 1.0}[
        pattern
    ] * message_bytes
    table = fit.alpha_s if graph or not fit.alpha_eager_s else fit.alpha_eager_s
    alpha = 0.0
    if table:
        known = sorted(table)
        near = min(known, key=lambda r: abs(math.log(r / n_ranks)))
        alpha = table[near].value * max(1.0, math.log2(n_ranks) / max(1.0, math.log2(near)))
    return np.asarray(alpha + wire / (link_bytes_per_s * fit.link_eff.value))


@dataclass(frozen=True)
class TimedOp:
    """One op with its seconds (all occurrences together), its parts, its bound's inputs and its relative spread."""

    op: Op
    total_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    link_s: FloatArray
    fixed_s: FloatArray
    log_sd: float

    def bound(self, index: tuple[int, ...]) -> str:
        """Which of compute, memory, link or launch is the largest part at one grid point."""
        parts = {
            "compute": self.compute_s,
            "memory": self.memory_s,
            "link": self.link_s,
            "launch": self.fixed_s,
        }
        at = {name: float(np.broadcast_to(v, self.total_shape)[index]) for name, v in parts.items()}
        return max(at, key=lambda name: at[name])

    @property
    def total_shape(self) -> tuple[int, ...]:
        """Broadcast shape of the total, three axes."""
        return np.broadcast_shapes(self.total_s.shape, (1, 1, 1))


_ZERO = np.zeros(())


def time_op(op: Op, ceilings: Ceilings, *, graph: bool = True) -> TimedOp:
    """Seconds of one op on one rank; ``graph`` says whether collectives run inside a captured graph."""
    cal, n = ceilings.calibration, op.count
    mem, sms = ceilings.mem_bytes_per_s, ceilings.gpu.sm_count or 100
    if isinstance(op, GemmOp):
        fit = ceilings.gemm_fit(op.weight_format)
        total, compute_s, memory_s = gemm_s(
            rows=op.rows,
            out_features=op.out_features,
            in_features=op.in_features,
            weight_bytes=op.weight_bytes,
            activation_bytes=op.activation_bytes,
            peak_flops_per_s=ceilings.peak_flops_per_s(op.weight_format),
            mem_bytes_per_s=mem,
            sm_count=sms,
            fit=fit,
        )
        fixed = np.asarray(fit.t_fixed_s.value)
        return TimedOp(op, n * total, n * compute_s, n * memory_s, _ZERO, n * fixed, fit.log_sd)
    if isinstance(op, AttentionOp):
        afit = ceilings.attention_fit("mla" if op.mla else op.kv_format)
        total, compute_s, memory_s = attention_s(
            n_seqs=op.n_seqs,
            query_tokens=op.query_tokens,
            kv_tokens=op.kv_tokens,
            n_heads=op.n_heads,
            n_kv_heads=op.n_kv_heads,
            head_dim=op.head_dim,
            flops=op.flops,
            kv_bytes=op.kv_bytes,
            activation_bytes=op.activation_bytes,
            peak_flops_per_s=ceilings.peak_flops_per_s("bf16"),
            mem_bytes_per_s=mem,
            sm_count=sms,
            fit=afit,
        )
        fixed = np.asarray(afit.t_fixed_s.value)
        return TimedOp(op, n * total, n * compute_s, n * memory_s, _ZERO, n * fixed, afit.log_sd)
    if isinstance(op, MoeOp):
        mfit = ceilings.moe_fit(op.weight_format)
        total, compute_s, memory_s = moe_s(
            rows=op.rows,
            experts_read=op.experts_read,
            flops=op.flops,
            weight_bytes=op.weight_bytes,
            activation_bytes=op.activation_bytes,
            hidden_size=op.hidden_size,
            intermediate_size=op.intermediate_size,
            peak_flops_per_s=ceilings.peak_flops_per_s(op.weight_format),
            mem_bytes_per_s=mem,
            fit=mfit,
        )
        fixed = np.asarray(mfit.t_fixed_s.value)
        return TimedOp(op, n * total, n * compute_s, n * memory_s, _ZERO, n * fixed, mfit.log_sd)
    if isinstance(op, CollectiveOp):
        cfit = {
            "allreduce": cal.allreduce,
            "allgather": cal.allgather or cal.allreduce,
            "alltoall": cal.alltoall or cal.allreduce,
            "p2p": cal.allgather or cal.allreduce,
        }[op.pattern]
        total = collective_s(
            message_bytes=op.comm_bytes,
            n_ranks=op.n_ranks,
            pattern=op.pattern,
            link_bytes_per_s=ceilings.link_bytes_per_s,
            fit=cfit,
            graph=graph,
        )
        zero_message = collective_s(
            message_bytes=_ZERO,
            n_ranks=op.n_ranks,
            pattern=op.pattern,
            link_bytes_per_s=ceilings.link_bytes_per_s,
            fit=cfit,
            graph=graph,
        )
        return TimedOp(op, n * total, _ZERO, _ZERO, n * (total - zero_message), n * zero_message, cfit.log_sd)
    efit = cal.elementwise
    total = elementwise_s(moved_bytes=op.moved_bytes, launches=op.launches, mem_bytes_per_s=mem, fit=efit)
    compute_s = op.flops / ceilings.peak_flops_per_s("bf16")
    fixed = np.asarray(op.launches * efit.t_fixed_s.value)
    total = np.maximum(total, fixed + compute_s)
    return TimedOp(op, n * total, n * compute_s, n * (total - fixed), _ZERO, n * fixed, efit.log_sd)
