"""Closed forms of kernel time: numbers in, seconds out; pure, vectorised, never falling as work grows.

Each form is a fixed time plus a rounded maximum of what the machine could be waiting for. The parameters are
fitted to measured kernels (``calibrate``); all of them 0 or 1 give the bare roofline.
"""

from __future__ import annotations

import math

import numpy as np

from rooflinesim.grid import FloatArray

#: A ridge exponent at or above this is a plain maximum.
SHARP_RIDGE_P = 40.0
#: The input width at which ``k_latency_s`` is quoted, and the head width at which attention constants are.
REFERENCE_K = 1024.0
REFERENCE_HEAD_DIM = 128.0


def p_norm(a: FloatArray, b: FloatArray, p: float) -> FloatArray:
    """(a^p + b^p)^(1/p), stable; a plain maximum from p = 40 on.

    >>> float(p_norm(np.array(3.0), np.array(4.0), 2.0))
    5.0
    """
    if p == 1.0:
        return np.asarray(a + b)
    high = np.maximum(a, b)
    if p >= SHARP_RIDGE_P:
        return np.asarray(high)
    ratio = np.minimum(a, b) / np.maximum(high, 1e-300)
    return np.asarray(high * np.power(1.0 + np.power(ratio, p), 1.0 / p))


def cheap_norm(parts: tuple[FloatArray, ...], p: float) -> FloatArray:
    """The p-norm for p in {1, 2, 4} by square roots, and the maximum otherwise: no power on a full grid.

    >>> round(float(cheap_norm((np.array(1.0), np.array(1.0)), 4)), 6)
    1.189207
    """
    if p == 1.0:
        return np.asarray(sum(parts[1:], start=parts[0]))
    if p in {2.0, 4.0}:
        squares = [part * part for part in parts]
        if p == 2.0:
            return np.asarray(np.sqrt(sum(squares[1:], start=squares[0])))
        fourth = [s * s for s in squares]
        return np.asarray(np.sqrt(np.sqrt(sum(fourth[1:], start=fourth[0]))))
    out = parts[0]
    for part in parts[1:]:
        out = np.maximum(out, part)
    return np.asarray(out)


def tile_rows(rows: FloatArray, tile_min: float, tile_max: float) -> FloatArray:
    """The tile height a library picks for ``rows`` rows: the next power of two, within [tile_min, tile_max].

    >>> tile_rows(np.array([1.0, 65.0, 129.0, 4096.0]), 64, 128)
    array([ 64., 128., 128., 128.])
    """
    return np.clip(np.exp2(np.ceil(np.log2(np.maximum(rows, 1.0)))), tile_min, tile_max)


def gemm_form(
    *,
    rows: FloatArray,
    out_features: FloatArray | float,
    in_features: FloatArray | float,
    weight_bytes: FloatArray | float,
    activation_bytes: FloatArray | float,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    sm_count: float,
    t_fixed_s: float,
    k_latency_s: float,
    mem_eff: float,
    compute_eff: float,
    ridge_p: float,
    pad_frac: float,
    wave_frac: float,
    occupancy_exp: float,
    tile_m_min: float,
    tile_m_max: float,
    tile_n: float,
    stream_tile_n: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(rl) One dense product of m rows, n outputs, k inputs, [s]: (total, compute part, memory part).

    t = t_fixed + t_k·√(k/1024) + ‖ T_c, T_m ‖_p

    T_c = 2·n·k/(P·η_c) · [(1 − s)·(m + φ·(m_pad − m)) + s·m_wave]. m_pad rounds m up to its tile; m_wave are
    the rows that whole waves of tiles over the SMs would hold, ⌈⌈m/t_m⌉·⌈n/t_n⌉/SMs⌉·SMs·t_m/⌈n/t_n⌉: s = 1
    is a library that cannot split the inner dimension, s = 0 one that balances perfectly.
    T_m = (Q_w/u^β + Q_a)/(B·η_m): streaming the weights slows when the ⌈n/t⌉ column tiles fill their last
    wave only to the share u. √k is what the best split of the inner dimension costs: the serial walk
    a·k/splits plus the reduction b·splits, at its minimum.

    Rows that no engine captures (odd m) take the tile of the next size and no further penalty.
    Valid for m 1..16384, n and k 256..65536. Never falls as m, n or k grows on the tiles' multiples.

    >>> t, c, q = gemm_form(rows=np.array(64.0), out_features=8192, in_features=8192,
    ...     weight_bytes=134217728.0, activation_bytes=0.0, peak_flops_per_s=1e15, mem_bytes_per_s=1e12,
    ...     sm_count=132, t_fixed_s=3e-6, k_latency_s=0.0, mem_eff=0.5, compute_eff=1.0, ridge_p=40.0,
    ...     pad_frac=0.0, wave_frac=0.0, occupancy_exp=0.0, tile_m_min=1, tile_m_max=1, tile_n=64,
    ...     stream_tile_n=64)
    >>> round(float(t) * 1e6, 3)
    271.435
    """
    n = np.asarray(out_features, dtype=np.float64)
    k = np.asarray(in_features, dtype=np.float64)
    work_rows = rows
    if pad_frac > 0.0 or wave_frac > 0.0:
        tile = tile_rows(rows, tile_m_min, tile_m_max)
        m_tiles = np.ceil(rows / tile)
        work_rows = rows + pad_frac * (m_tiles * tile - rows)
        if wave_frac > 0.0:
            n_tiles = np.ceil(n / tile_n)
            wave_rows = np.ceil(m_tiles * n_tiles / sm_count) * (sm_count * tile / n_tiles)
            work_rows = (1.0 - wave_frac) * work_rows + wave_frac * wave_rows
    compute_s = 2.0 * n * k * work_rows / (peak_flops_per_s * compute_eff)
    streamed = np.asarray(weight_bytes, dtype=np.float64)
    if occupancy_exp > 0.0:
        waves = np.ceil(n / stream_tile_n) / sm_count
        streamed = streamed * np.power(np.ceil(waves) / waves, occupancy_exp)
    memory_s = (streamed + activation_bytes) / (mem_bytes_per_s * mem_eff)
    fixed = t_fixed_s + k_latency_s * np.sqrt(k / REFERENCE_K)
    return fixed + p_norm(compute_s, memory_s, ridge_p), compute_s, memory_s


def attention_form(
    *,
    n_seqs: FloatArray,
    query_tokens: FloatArray,
    kv_tokens: FloatArray,
    n_heads: FloatArray | float,
    n_kv_heads: FloatArray | float,
    head_dim: FloatArray | float,
    flops: FloatArray,
    moved_bytes: FloatArray,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    t_fixed_s: float,
    mem_eff: float,
    compute_eff: float,
    ridge_p: float,
    per_seq_head_s: float,
    per_query_head_s: float,
    per_token_s: float,
    narrow_eff: float,
    wide_eff: float,
    ramp_s: float,
    ramp_bytes: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(att) One attention call, [s]: (total, compute part, memory part).

    t = t_fixed + c_S·S + c_q·N·q·H·d/128 + ‖ T_m, c_h·N·H_kv, F/(P·η_c) ‖_p, p in {1, 2, 4, ∞}
    T_m = Q/(B·η_m·η_d) + t_r·Q/(Q + Q_r)

    c_h is the cost of one sequence and KV head at short context (blocks of threads that start, read little
    and stop), c_S the serial walk along one sequence, c_q reading a query row and writing its output. η_d is
    the kernel's efficiency at head width d relative to 128 (``narrow_eff`` at 64 and below, ``wide_eff`` at
    256 and above, log-linear between); t_r is what filling and draining the memory pipes costs once the
    cache is larger than Q_r, so that the bandwidth reached rises with the size. The cache is read once for
    all q query tokens of a sequence; only F and the c_q term grow with q.

    >>> one = np.array(1.0)
    >>> t, c, q = attention_form(n_seqs=64 * one, query_tokens=one, kv_tokens=1024 * one, n_heads=32,
    ...     n_kv_heads=8, head_dim=128, flops=0 * one, moved_bytes=268435456.0 * one,
    ...     peak_flops_per_s=1e15, mem_bytes_per_s=1e12, t_fixed_s=1e-5, mem_eff=1.0, compute_eff=1.0,
    ...     ridge_p=1, per_seq_head_s=1e-8, per_query_head_s=0.0, per_token_s=0.0,
    ...     narrow_eff=1.0, wide_eff=1.0, ramp_s=0.0, ramp_bytes=1.0)
    >>> round(float(t) * 1e6, 3)
    283.555
    """
    width = np.interp(
        np.log2(np.asarray(head_dim, dtype=np.float64)), [6.0, 7.0, 8.0], [narrow_eff, 1.0, wide_eff]
    )
    memory_s = moved_bytes * (1.0 / (mem_bytes_per_s * mem_eff * width))
    if ramp_s > 0.0:
        memory_s = memory_s + ramp_s * (moved_bytes / (moved_bytes + ramp_bytes))
    compute_s = flops * (1.0 / (peak_flops_per_s * compute_eff))
    heads_s = n_seqs * n_kv_heads * per_seq_head_s
    fixed = t_fixed_s + per_query_head_s * n_seqs * query_tokens * n_heads * head_dim / REFERENCE_HEAD_DIM
    if per_token_s > 0.0:
        fixed = fixed + per_token_s * kv_tokens
    return fixed + cheap_norm((memory_s, compute_s, heads_s), ridge_p), compute_s, memory_s


def moe_form(
    *,
    rows: FloatArray,
    routed_rows: FloatArray,
    experts_read: FloatArray,
    flops_per_row: FloatArray | float,
    expert_bytes: FloatArray | float,
    activation_bytes: FloatArray,
    hidden_size: FloatArray | float,
    peak_flops_per_s: float,
    mem_bytes_per_s: float,
    t_fixed_s: float,
    mem_eff: float,
    compute_eff: float,
    ridge_p: float,
    per_expert_s: float,
    activation_passes: float,
    routing_passes: float,
    tile_rows: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(moe) The routed experts of one layer, from top-k to combine, [s]: (total, compute part, memory part).

    t = t_fixed + ‖ D·(W/(B·η_m) + c_e), rows_pad·f/(P·η_c) ‖_p + a·Q_a/B + r·2·R·h/B

    D distinct experts of W bytes each; c_e a fixed cost per expert; rows_pad = max(D·tile, rows + D·(tile −
    1)/2): every expert's rows fill whole tiles. Q_a are the activations of the rows computed here, passed
    over ``a`` times at the data sheet's bandwidth, R the rows of all tokens that routing and combining
    touch, ``r`` times.

    >>> one = np.array(1.0)
    >>> t, c, q = moe_form(rows=64 * one, routed_rows=64 * one, experts_read=64 * one, flops_per_row=0.0,
    ...     expert_bytes=1e7, activation_bytes=0 * one, hidden_size=4096, peak_flops_per_s=1e15,
    ...     mem_bytes_per_s=1e12,
    ...     t_fixed_s=2e-5, mem_eff=0.8, compute_eff=1.0, ridge_p=40, per_expert_s=0.0, activation_passes=0.0,
    ...     routing_passes=0.0, tile_rows=1)
    >>> round(float(t) * 1e6, 3)
    820.0
    """
    padded = np.maximum(experts_read * tile_rows, rows + experts_read * (tile_rows - 1.0) / 2.0)
    compute_s = padded * flops_per_row / (peak_flops_per_s * compute_eff)
    memory_s = experts_read * (expert_bytes / (mem_bytes_per_s * mem_eff) + per_expert_s)
    passes_s = (
        activation_passes * activation_bytes + routing_passes * 2.0 * routed_rows * hidden_size
    ) / mem_bytes_per_s
    return t_fixed_s + passes_s + p_norm(compute_s, memory_s, ridge_p), compute_s, memory_s + passes_s


def collective_form(
    *,
    message_bytes: FloatArray,
    one_shot_share: float,
    ring_share: float,
    link_bytes_per_s: float,
    alpha_s: float,
    one_shot_eff: float,
    two_shot_s: float,
    two_shot_eff: float,
    big_bytes: float,
    big_s: float,
    big_eff: float,
) -> FloatArray:
    """(col) One collective, [s].

    t = α + max( min(S·g_1/(L·η_1), t_2 + S·g/(L·η_2)), [S > S_big]·(t_3 + S·g/(L·η_3)) )

    One-shot (every rank reads every message, g_1·S over the link) while that is cheaper than two-shot
    (reduce-scatter and all-gather, g·S), and the library's large-message algorithm beyond S_big. Never
    falls as S grows.

    >>> s = np.array([0.0, 1e6])
    >>> t = collective_form(message_bytes=s, one_shot_share=7.0, ring_share=1.75, link_bytes_per_s=1e11,
    ...     alpha_s=5e-6, one_shot_eff=1.0, two_shot_s=4e-6, two_shot_eff=0.5, big_bytes=1e9, big_s=0.0,
    ...     big_eff=1.0)
    >>> (t * 1e6).round(3)
    array([ 5., 44.])
    """
    one = message_bytes * (one_shot_share / (link_bytes_per_s * one_shot_eff))
    ring = message_bytes * (ring_share / link_bytes_per_s)
    small = np.minimum(one, two_shot_s + ring / two_shot_eff)
    big = np.where(message_bytes > big_bytes, big_s + ring / big_eff, 0.0)
    return np.asarray(alpha_s + np.maximum(small, big))


def wire_shares(pattern: str, n_ranks: int) -> tuple[float, float]:
    """(one-shot, ring) bytes on a rank's link per byte of message.

    All-reduce: r − 1 and 2·(r − 1)/r; all-gather and all-to-all: (r − 1)/r both; point to point: 1.

    >>> wire_shares("allreduce", 8)
    (7.0, 1.75)
    """
    if pattern == "allreduce":
        return float(n_ranks - 1), 2.0 * (n_ranks - 1) / n_ranks
    if pattern == "p2p":
        return 1.0, 1.0
    share = (n_ranks - 1) / n_ranks
    return share, share


def network_form(
    *,
    message_bytes: FloatArray,
    pattern: str,
    n_nodes: int,
    ranks_per_node: int,
    bytes_per_s: float,
    latency_s: float,
) -> FloatArray:
    """(col) What a collective over several nodes adds to the one inside each node, [s].

    α_net·log2(nodes) + wire/B_net. Each rank has its own network card. Hierarchical all-reduce: a rank holds
    1/ranks_per_node of the message after the node's reduce-scatter and sends 2·(m − 1)/m of that; all-gather:
    (m − 1)/m of its share of the result; all-to-all: (m − 1)/m of its own message; point to point: all.

    >>> t = network_form(message_bytes=np.array(8e6), pattern="allreduce", n_nodes=2, ranks_per_node=8,
    ...     bytes_per_s=50e9, latency_s=30e-6)
    >>> round(float(t) * 1e6, 3)
    50.0
    """
    cross = (n_nodes - 1) / n_nodes
    share = {
        "allreduce": 2.0 * cross / ranks_per_node,
        "allgather": cross / ranks_per_node,
        "alltoall": cross,
    }
    wire = message_bytes * share.get(pattern, 1.0)
    return np.asarray(latency_s * math.log2(n_nodes) + wire / bytes_per_s)


def nearest_ranks(known: tuple[int, ...], n_ranks: int) -> tuple[int, float]:
    """The fitted rank count closest to ``n_ranks`` (log scale) and the factor on its latency.

    >>> nearest_ranks((2, 4, 8), 16)
    (8, 1.3333333333333333)
    """
    near = min(known, key=lambda r: abs(math.log(r / n_ranks)))
    return near, max(1.0, math.log2(n_ranks) / max(1.0, math.log2(near)))
