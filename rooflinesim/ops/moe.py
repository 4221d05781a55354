"""Routed experts: how many distinct ones a step reads, and what that moves."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import MoeOp
from rooflinesim.units import WEIGHT_BYTES


def popularity(*, n_experts: int, top_k: int, skew: float) -> FloatArray:
    """Probability q_e that one token picks expert e; q_e ∝ rank^−s, Σ q_e = top_k, q_e ≤ 1. Shape
    (n_experts,).

    >>> popularity(n_experts=4, top_k=2, skew=0.0)
    array([0.5, 0.5, 0.5, 0.5])
    """
    if not 0 < top_k <= n_experts:
        raise InputError(f"top_k: {top_k} must lie in 1..{n_experts} (n_experts)")
    weight = np.arange(1, n_experts + 1, dtype=np.float64) ** -skew
    capped = np.zeros(n_experts, dtype=bool)
    q = np.ones(n_experts)
    while True:  # water-filling: an expert cannot be picked more than once per token
        free = ~capped
        q[free] = (top_k - capped.sum()) * weight[free] / weight[free].sum()
        over = q > 1.0
        if not over.any():
            return q
        q[over] = 1.0
        capped |= over


def distinct_experts(
    *, n_tokens: FloatArray, n_experts: int, top_k: int, skew: float = 0.0, ep: int = 1
) -> FloatArray:
    """(moe) Expected distinct experts read per EP rank, D(T) = Σ_e 1 − (1 − q_e)^T, over ``ep`` ranks.

    q_e uses the *global* number of experts. ``n_tokens`` T may be fractional (an effective token count) and
    broadcasts. Dense is n_experts = top_k = 1. Published checks: Mixtral 8/2 at T = 3 reads 4.625.

    >>> float(distinct_experts(n_tokens=np.array(3.0), n_experts=8, top_k=2))
    4.625
    >>> t = np.array([1.0, 2, 4, 8, 16, 32])
    >>> distinct_experts(n_tokens=t, n_experts=128, top_k=8, ep=8).round(2)
    array([ 1.  ,  1.94,  3.64,  6.45, 10.3 , 13.97])
    """
    tokens = np.asarray(n_tokens, dtype=np.float64)
    if skew == 0.0:
        miss = 1.0 - top_k / n_experts
        total = n_experts * (1.0 - np.power(miss, tokens))
    else:
        q = popularity(n_experts=n_experts, top_k=top_k, skew=skew)
        total = (1.0 - np.power(1.0 - q, tokens[..., np.newaxis])).sum(axis=-1)
    return np.asarray(total / ep)


def overlap_discount(*, overlap: float | None, n_experts: int, top_k: int) -> float:
    """ρ such that two consecutive tokens share ``overlap`` of their experts: D(2 − ρ) = top_k·(2 − overlap).

    ``None`` or the chance value top_k/n_experts gives 0. For 64/4 an overlap of 0.257 gives D = 1.743·top_k.

    >>> rho = overlap_discount(overlap=0.257, n_experts=64, top_k=4)
    >>> round(float(distinct_experts(n_tokens=np.array(2 - rho), n_experts=64, top_k=4)) / 4, 3)
    1.743
    """
    if overlap is None or top_k >= n_experts:
        return 0.0
    if overlap < top_k / n_experts:
        return 0.0  # less than chance: routing that spreads; uniform is the bound used
    union = top_k * (2.0 - overlap)
    return float(2.0 - math.log1p(-union / n_experts) / math.log1p(-top_k / n_experts))


def effective_tokens(*, batch: FloatArray, query_tokens: FloatArray, rho: float) -> FloatArray:
    """Independent tokens for routing, T_eff = N·(1 + (q − 1)·(1 − ρ)): tokens of one sequence route alike."""
    return batch * (1.0 + (query_tokens - 1.0) * (1.0 - rho))


def slowest_rank(*, mean_experts: FloatArray, n_local: float, n_ranks: int) -> FloatArray:
    """Expected largest number of distinct experts over ``n_ranks`` ranks, given the mean per rank.

    Each rank's count is close to binomial(n_local, mean/n_local). The expected maximum of r normal draws is
    μ + σ·z, z = Φ⁻¹((r − 3/8)/(r + 1/4)) (Blom; 1.43 for r = 8, by simulation 1.42; the often quoted
    √(2 ln r), 2.04, is an upper bound). Bounded by n_local. The slowest rank sets the time; one rank has
    the mean.

    >>> float(slowest_rank(mean_experts=np.array(16.0), n_local=16, n_ranks=8))
    16.0
    >>> round(float(slowest_rank(mean_experts=np.array(8.0), n_local=32, n_ranks=8)), 2)
    11.51
    """
    if n_ranks <= 1:
        return mean_experts
    share = np.clip(mean_experts / n_local, 0.0, 1.0)
    sigma = np.sqrt(n_local * share * (1.0 - share))
    largest = NormalDist().inv_cdf((n_ranks - 0.375) / (n_ranks + 0.25))
    return np.minimum(mean_experts + sigma * largest, n_local)


def routed_experts(
    *,
    rows: FloatArray,
    experts_read: FloatArray,
    n_local_experts: float,
    hidden_size: float,
    intermediate_size: float,
    gated: bool,
    weight_format: str,
    count: float = 1.0,
) -> MoeOp:
    """Grouped products of the routed experts on one rank.

    F = 2·rows·(3 or 2)·h·I;  Q = D·(3 or 2)·h·I·w + activations. ``rows`` are expert-rows (tokens x top_k)
    here.
    """
    matrices = 3.0 if gated else 2.0
    params = matrices * hidden_size * intermediate_size
    expert_bytes = WEIGHT_BYTES[weight_format] * params
    return MoeOp(
        name="experts",
        count=count,
        launches=6.0,  # routing, sort, two grouped products, activation, combine
        flops=2.0 * rows * params,
        weight_bytes=experts_read * expert_bytes,
        activation_bytes=2.0 * rows * (2.0 * hidden_size + (matrices + 1.0) * intermediate_size),
        rows=rows,
        experts_read=experts_read,
        n_local_experts=n_local_experts,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        expert_bytes=expert_bytes,
        weight_format=weight_format,
    )
