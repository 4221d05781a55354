"""The expected busiest expert rank, against a simulation of what it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.ops.moe import slowest_rank


@pytest.mark.parametrize(("n_ranks", "share"), [(2, 0.5), (4, 0.3), (8, 0.12), (8, 0.6), (16, 0.4)])
def test_against_simulation(n_ranks: int, share: float) -> None:
    """32 local experts, each hit with probability ``share``: the mean of the largest count over ranks."""
    rng = np.random.default_rng(1)
    counts = rng.binomial(32, share, size=(40_000, n_ranks)).max(axis=1)
    got = slowest_rank(mean_experts=np.array(32 * share), n_local=32, n_ranks=n_ranks)
    assert float(got) == pytest.approx(counts.mean(), rel=0.03)
