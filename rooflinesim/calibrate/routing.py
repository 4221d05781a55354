"""How the MoE rows were routed: the loads of the measuring collector, re-made from their description.

``balanced`` deals the T·k expert choices round robin, so min(E, T·k) experts are active. ``power_law_a``
draws one load per expert from a truncated power law of exponent a, scales the loads to T·k choices, caps
each at T, repairs the rounding rank by rank, and measures the rank with the largest load (aiconfigurator
collector, commit 006afd78).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from rooflinesim.calibrate.tables import Table

N_DRAWS = 12  # the collector used 5 draws per row; more only sharpen the expectation


def _draw(
    rng: np.random.Generator, n_tokens: int, n_experts: int, top_k: int, ep: int, alpha: float
) -> NDArray[np.int64]:
    """Rows of each expert on the most loaded rank, for one draw."""
    low, high = (1.0, 0.8 * n_tokens) if n_tokens * top_k > n_experts else (0.01, 2.0)
    power = 1.0 - alpha
    weight = ((high**power - low**power) * rng.random(n_experts) + low**power) ** (1.0 / power)
    wanted = np.rint(weight / weight.sum() * n_tokens * top_k).astype(np.int64)
    load = np.minimum(wanted, n_tokens).reshape(ep, -1)
    missing = n_tokens * top_k - int(load.sum())
    step = 1 if missing > 0 else -1
    while missing != 0:
        before = missing
        for rank in load:
            spot = int(rank.argmin() if step > 0 else rank.argmax())
            if (step > 0 and rank[spot] >= n_tokens) or (step < 0 and rank[spot] <= 0):
                continue
            rank[spot] += step
            missing -= step
            if missing == 0:
                break
        if missing == before:
            break
    return np.asarray(load[load.sum(axis=1).argmax()])


@cache
def active_experts(
    *, n_tokens: int, n_experts: int, top_k: int, ep: int, distribution: str
) -> tuple[float, float]:
    """Expected (distinct experts, expert rows) on the measured rank.

    >>> active_experts(n_tokens=8, n_experts=128, top_k=8, ep=1, distribution="balanced")
    (64.0, 64.0)
    """
    if distribution == "balanced":
        rows = n_tokens * top_k / ep
        return min(n_experts / ep, max(1.0, rows)), rows
    alpha = float(distribution.rsplit("_", 1)[-1])
    rng = np.random.default_rng([n_tokens, n_experts, top_k, ep, round(alpha * 1000)])
    draws = [_draw(rng, n_tokens, n_experts, top_k, ep, alpha) for _ in range(N_DRAWS)]
    return float(np.mean([(d > 0).sum() for d in draws])), float(np.mean([d.sum() for d in draws]))


def with_active_experts(table: Table) -> Table:
    """The table with columns ``experts_read`` and ``rows``."""
    keys = zip(
        table.number("num_tokens").astype(int).tolist(),
        table.number("num_experts").astype(int).tolist(),
        table.number("topk").astype(int).tolist(),
        table.number("moe_ep_size").astype(int).tolist(),
        table.text("distribution").tolist(),
        strict=True,
    )
    pairs = np.array(
        [active_experts(n_tokens=t, n_experts=e, top_k=k, ep=ep, distribution=d) for t, e, k, ep, d in keys]
    )
    columns = {**table.columns, "experts_read": pairs[:, 0], "rows": pairs[:, 1]}
    return Table(columns, table.version)
