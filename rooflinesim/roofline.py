"""Counts × ceilings → seconds, with the bound named.

(rl) t = t_fixed + ‖ F/(P·η_c), Q/(B·η_m) ‖_p. Every function is pure, keyword-only and vectorised, and
never falls as work grows. The equations are in ``forms``; here they meet a fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflinesim.efficiency import Ceilings
from rooflinesim.forms import (
    attention_form,
    collective_form,
    gemm_form,
    moe_form,
    nearest_ranks,
    network_form,
    p_norm,
    wire_shares,
)
from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import AttentionOp, CollectiveOp, GemmOp, MoeOp, Op
from rooflinesim.specs.calibration import AttentionFit, CollectiveFit, ElementwiseFit, GemmFit, MoeFit

__all__ = [
    "TimedOp",
    "attention_s",
    "collective_s",
    "elementwise_s",
    "gemm_s",
    "moe_s",
    "p_norm",
    "time_op",
]


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
    """Seconds of one dense product (``forms.gemm_form``): (total, compute part, memory part)."""
    return gemm_form(
        rows=rows,
        out_features=out_features,
        in_features=in_features,
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        peak_flops_per_s=peak_flops_per_s,
        mem_bytes_per_s=mem_bytes_per_s,
        sm_count=sm_count,
        **fit.params,
    )


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
    """Seconds of one attention call (``forms.attention_form``): (total, compute part, memory part)."""
    return attention_form(
        n_seqs=n_seqs,
        query_tokens=query_tokens,
        kv_tokens=kv_tokens,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        flops=flops,
        moved_bytes=kv_bytes + activation_bytes,
        peak_flops_per_s=peak_flops_per_s,
        mem_bytes_per_s=mem_bytes_per_s,
        **fit.params,
    )


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
    """Seconds of the routed experts of one layer (``forms.moe_form``): (total, compute part, memory part)."""
    some = np.maximum(rows, 1e-9)
    return moe_form(
        rows=rows,
        routed_rows=rows,
        experts_read=experts_read,
        flops_per_row=flops / some,
        expert_bytes=weight_bytes / np.maximum(experts_read, 1e-9),
        activation_bytes=activation_bytes,
        hidden_size=hidden_size,
        peak_flops_per_s=peak_flops_per_s,
        mem_bytes_per_s=mem_bytes_per_s,
        **fit.params,
    )


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
    """Seconds of one collective (``forms.collective_form``) inside a captured graph, or launched eagerly.

    A number of ranks that was not fitted takes the nearest that was, its latency growing with log2 of the
    ranks.
    Eager: max(α_eager, factor·t).
    """
    near, more = nearest_ranks(tuple(fit.ranks), n_ranks)
    at = fit.ranks[near]
    one_shot, ring = wire_shares(pattern, n_ranks)
    total = collective_form(
        message_bytes=message_bytes,
        one_shot_share=one_shot,
        ring_share=ring,
        link_bytes_per_s=link_bytes_per_s,
        alpha_s=at.alpha_s.value * more,
        one_shot_eff=at.one_shot_eff.value,
        two_shot_s=at.two_shot_s.value * more,
        two_shot_eff=at.two_shot_eff.value,
        big_bytes=at.big_bytes,
        big_s=at.big_s.value * more,
        big_eff=at.big_eff.value,
    )
    if graph or at.eager_alpha_s is None:
        return total
    return np.maximum(at.eager_alpha_s.value * more, at.eager_factor.value * total)


@dataclass(frozen=True)
class TimedOp:
    """One op with its seconds (all occurrences together), its parts, its bound's inputs and its relative
    spread."""

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


def _collective(
    op: CollectiveOp, message_bytes: FloatArray, ceilings: Ceilings, fit: CollectiveFit, *, graph: bool
) -> FloatArray:
    """The collective inside a node, and between the nodes when the ranks span several."""
    n_nodes, network = ceilings.nodes_of(op.n_ranks), ceilings.network
    ranks = op.n_ranks if network is None or n_nodes == 1 else network.ranks_per_node
    inside = collective_s(
        message_bytes=message_bytes,
        n_ranks=ranks,
        pattern=op.pattern,
        link_bytes_per_s=ceilings.link_bytes_per_s(ranks),
        fit=fit,
        graph=graph,
    )
    if network is None or n_nodes == 1:
        return inside
    return inside + network_form(
        message_bytes=message_bytes,
        pattern=op.pattern,
        n_nodes=n_nodes,
        ranks_per_node=ranks,
        bytes_per_s=network.bytes_per_s,
        latency_s=network.latency_s,
    )


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
        fixed = np.asarray(total - p_norm(compute_s, memory_s, fit.ridge_p.value))
        return TimedOp(op, n * total, n * compute_s, n * memory_s, _ZERO, n * fixed, fit.log_sd)
    if isinstance(op, AttentionOp):
        afit = ceilings.attention_fit(f"mla-{op.kv_format}" if op.mla else op.kv_format)
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
        total = _collective(op, op.comm_bytes, ceilings, cfit, graph=graph)
        zero_message = _collective(op, _ZERO, ceilings, cfit, graph=graph)
        return TimedOp(op, n * total, _ZERO, _ZERO, n * (total - zero_message), n * zero_message, cfit.log_sd)
    efit = cal.linear_state if op.family == "linear_state" and cal.linear_state else cal.elementwise
    total = elementwise_s(moved_bytes=op.moved_bytes, launches=op.launches, mem_bytes_per_s=mem, fit=efit)
    compute_s = op.flops / ceilings.peak_flops_per_s("bf16")
    fixed = np.asarray(op.launches * efit.t_fixed_s.value)
    total = np.maximum(total, fixed + compute_s)
    return TimedOp(op, n * total, n * compute_s, n * (total - fixed), _ZERO, n * fixed, efit.log_sd)
