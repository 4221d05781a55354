"""Softmax attention over a cache, latent attention, and linear mixers with a fixed state."""

from __future__ import annotations

import numpy as np

from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import AttentionOp, Op
from rooflinesim.units import KV_BYTES


def effective_context(
    *, context_tokens: FloatArray, query_tokens: FloatArray, scope: str, window_tokens: float | None
) -> FloatArray:
    """Cached tokens that one sequence's queries read, S_eff [tokens].

    full: S. sliding: min(S, W + q − 1). chunked: S while S ≤ C, else C/2 on average (a query sees the part
    of its own chunk that lies before it).

    >>> s = np.array([512.0, 8192.0])
    >>> effective_context(context_tokens=s, query_tokens=np.array(1.0), scope="sliding", window_tokens=1024)
    array([ 512., 1024.])
    """
    if scope == "full" or window_tokens is None:
        return context_tokens
    if scope == "sliding":
        return np.minimum(context_tokens, window_tokens + query_tokens - 1.0)
    return np.where(context_tokens <= window_tokens, context_tokens, window_tokens / 2.0)


def gqa(
    *,
    name: str,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    kv_tokens: FloatArray,
    n_heads: float,
    n_kv_heads: float,
    head_dim: float,
    v_head_dim: float,
    kv_format: str,
    causal_self: bool = False,
    count: float = 1.0,
) -> AttentionOp:
    """(att) Q = N·S_eff·kv_bytes, read once per sequence, not per query token;  F = 2·N·q·S_eff·H·(d_qk +
    d_v).

    ``n_seqs`` N, ``query_tokens`` q, ``kv_tokens`` S_eff, ``n_heads`` H and ``n_kv_heads`` on this rank.
    The queries' own keys and values are appended (written once, N·q·kv_bytes). ``causal_self`` halves the
    FLOPs of the square part when the queries attend to each other (prefill).

    >>> one = np.array(1.0)
    >>> op = gqa(name="a", n_seqs=one, query_tokens=one, kv_tokens=1024 * one, n_heads=32, n_kv_heads=8,
    ...          head_dim=128, v_head_dim=128, kv_format="bf16")
    >>> float(op.kv_bytes), float(op.flops)
    (4198400.0, 16777216.0)
    """
    bytes_per_token = KV_BYTES[kv_format] * n_kv_heads * (head_dim + v_head_dim)
    span = kv_tokens + (0.5 * query_tokens if causal_self else 0.0)
    return AttentionOp(
        name=name,
        count=count,
        flops=2.0 * n_seqs * query_tokens * span * n_heads * (head_dim + v_head_dim),
        kv_bytes=n_seqs * (kv_tokens + query_tokens) * bytes_per_token,
        activation_bytes=2.0 * n_seqs * query_tokens * n_heads * (head_dim + v_head_dim),
        n_seqs=n_seqs,
        query_tokens=query_tokens,
        kv_tokens=kv_tokens,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        kv_format=kv_format,
    )


def mla(
    *,
    name: str,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    kv_tokens: FloatArray,
    n_heads: float,
    kv_lora_rank: float,
    rope_dim: float,
    kv_format: str,
    count: float = 1.0,
) -> AttentionOp:
    """Absorbed latent attention: (kv_lora + rope) elements per token and layer, shared by all heads and not
    sharded.

    Q = N·S·(c + r)·b;  F = 2·N·q·S·H·((c + r) + c).

    >>> one = np.array(1.0)
    >>> op = mla(name="a", n_seqs=one, query_tokens=one, kv_tokens=65536 * one, n_heads=128, kv_lora_rank=512,
    ...          rope_dim=64, kv_format="int4")
    >>> round(float(op.kv_bytes) * 61 / 2**20)
    1098
    """
    width = kv_lora_rank + rope_dim
    return AttentionOp(
        name=name,
        count=count,
        flops=2.0 * n_seqs * query_tokens * kv_tokens * n_heads * (width + kv_lora_rank),
        kv_bytes=n_seqs * (kv_tokens + query_tokens) * width * KV_BYTES[kv_format],
        activation_bytes=2.0 * n_seqs * query_tokens * n_heads * (width + kv_lora_rank),
        n_seqs=n_seqs,
        query_tokens=query_tokens,
        kv_tokens=kv_tokens,
        n_heads=n_heads,
        n_kv_heads=1.0,
        head_dim=width,
        kv_format=kv_format,
        mla=True,
    )


def indexer(
    *,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    context_tokens: FloatArray,
    n_heads: float,
    head_dim: float,
    count: float = 1.0,
) -> Op:
    """Sparse-attention indexer: every cached index key (fp8, one per token) is read to score all tokens.

    Q = N·S·d (1 byte);  F = 2·N·q·S·n_idx·d.
    """
    return Op(
        name="indexer",
        count=count,
        launches=11.0,  # norm, rotary, 2 rotations, 2 casts, append, weighting, scores, selection, addresses
        flops=2.0 * n_seqs * query_tokens * context_tokens * n_heads * head_dim,
        kv_bytes=n_seqs * context_tokens * head_dim,
        activation_bytes=4.0 * n_seqs * query_tokens * context_tokens,
        family="indexer",
    )


def linear_state(
    *,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    n_value_heads: float,
    key_head_dim: float,
    value_head_dim: float,
    conv_elems: float,
    state_bytes: float = 4.0,
    count: float = 1.0,
) -> Op:
    """A linear mixer: the state is read once and one state per query position is written.

    Verification must be able to roll back to any drafted position, so a step with q tokens writes q states.
    Q = N·(1 + q)·(heads·d_k·d_v)·b + conv;  F = 6·N·q·heads·d_k·d_v (decay, rank-one update, read-out).
    """
    elems = n_value_heads * key_head_dim * value_head_dim
    return Op(
        name="linear_state",
        count=count,
        launches=2.0,
        flops=6.0 * n_seqs * query_tokens * elems,
        kv_bytes=n_seqs * ((1.0 + query_tokens) * elems * state_bytes + 2.0 * 2.0 * conv_elems),
        family="linear_state",
    )
