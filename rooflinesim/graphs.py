"""Captured CUDA-graph sizes: what a batch is padded to, and where the graphs end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinesim.grid import FloatArray
from rooflinesim.specs.engine import EngineProfile, GraphRule
from rooflinesim.specs.gpu import GpuSpec


def ceiling(rule: GraphRule, arch_target: str) -> int:
    """Largest captured size for this architecture (tokens or requests, as the rule counts)."""
    hits = [
        size
        for prefix, size in rule.ceiling.items()
        if prefix != "default" and arch_target.startswith(prefix)
    ]
    return hits[0] if hits else rule.ceiling["default"]


def grid_values(grid: tuple[tuple[int, int, int], ...], limit: int) -> list[int]:
    """The sizes of (start, stop, step) runs, both ends inclusive, up to ``limit``.

    >>> grid_values(((1, 1, 1), (2, 2, 1), (4, 4, 1), (8, 24, 8)), 16)
    [1, 2, 4, 8, 16]
    """
    values = {v for start, stop, step in grid for v in range(start, min(stop, limit) + 1, step)}
    return sorted(values)


def captured_requests(
    *,
    profile: EngineProfile,
    arch_target: str,
    query_tokens: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> NDArray[np.int64]:
    """Request counts of the full decode graphs for batches of exactly ``query_tokens`` per request,
    ascending.

    vLLM: each captured size s holds round_up(s, q) tokens, kept when that is at most the largest size
    min(2·q·max_num_seqs, ceiling, max_num_batched_tokens) and its requests at most ``max_num_seqs``; n·q
    for each grid value n is captured as well. Engines that capture by request count use the grid as it is.
    """
    rule = profile.graph
    top = ceiling(rule, arch_target)
    grid = rule.grid_with_sd if rule.grid_with_sd and query_tokens > 1 else rule.grid
    if rule.unit == "requests":
        sizes = [n for n in grid_values(grid, top) if n <= max_num_seqs]
        return np.asarray(sizes, dtype=np.int64)
    q = query_tokens
    max_size = min(max_num_seqs * q * 2, top, max_num_batched_tokens)
    tokens = set(grid_values(grid, max_size))
    if rule.tiers:
        if q > 1:
            tokens |= {n * q for n in [*grid_values(grid, max_size), max_num_seqs] if n * q <= max_size}
        elif max_num_seqs <= max_size:
            tokens.add(max_num_seqs)
        rounded = {-(-size // q) * q for size in tokens}
        requests = sorted({size // q for size in rounded if size <= max_size and size // q <= max_num_seqs})
    else:
        requests = sorted({size // q for size in tokens if size >= q})
    return np.asarray(requests, dtype=np.int64)


@dataclass(frozen=True)
class Padding:
    """Requests after padding, and whether the step replays a captured graph. Shapes broadcast on (batch,
    k)."""

    requests: FloatArray
    in_graph: NDArray[np.bool_]


def pad(
    *,
    profile: EngineProfile,
    gpu: GpuSpec,
    batch: FloatArray,
    k: FloatArray,
    max_num_seqs: int,
    enabled: bool = True,
) -> Padding:
    """Pad each (batch, k) to the smallest captured graph of its own query length q = k + 1.

    Past the largest captured size the batch runs eagerly at its own size: the graph cliff.
    """
    shape = np.broadcast_shapes(batch.shape, k.shape)
    requests = np.array(np.broadcast_to(batch, shape), dtype=np.float64)
    in_graph = np.zeros(shape, dtype=bool)
    if not enabled:
        return Padding(requests=requests, in_graph=in_graph)
    k_full = np.broadcast_to(k, shape)
    for value in np.unique(k):  # one captured list per query length: a handful, never a loop over the grid
        sizes = captured_requests(
            profile=profile,
            arch_target=gpu.arch_target,
            query_tokens=int(value) + 1,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=profile.max_num_batched_tokens,
        )
        if sizes.size == 0:
            continue
        here = k_full == value
        position = np.searchsorted(sizes, requests[here])
        fits = position < sizes.size
        padded = requests[here]
        padded[fits] = sizes[position[fits]]
        requests[here] = padded
        in_graph[here] = fits
    return Padding(requests=requests, in_graph=in_graph)


def max_graph_batch(*, profile: EngineProfile, gpu: GpuSpec, k: int, max_num_seqs: int) -> int:
    """Largest batch that still replays a full decode graph at this K (0 when none does)."""
    sizes = captured_requests(
        profile=profile,
        arch_target=gpu.arch_target,
        query_tokens=k + 1,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=profile.max_num_batched_tokens,
    )
    return int(sizes[-1]) if sizes.size else 0
