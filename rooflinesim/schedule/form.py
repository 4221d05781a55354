"""``Schedule``: K by batch size as contiguous ranges, the one form that every engine's text maps to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rooflinesim.errors import InputError

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Ranges (lo, hi, k), both ends included, without gaps, from batch 1 on; above the last, its K is
    carried on.

    >>> schedule = Schedule(((1, 48, 3), (49, 128, 2), (129, 192, 0)))
    >>> [int(schedule.lookup(n)) for n in (1, 48, 49, 500)]
    [3, 3, 2, 0]
    """

    ranges: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        if not self.ranges:
            raise InputError("schedule: no range given; give at least one (lo, hi, k)")
        expected = 1
        for lo, hi, k in self.ranges:
            if lo != expected:
                what = f"must start at {expected}" + ("" if expected == 1 else ", after the one before")
                raise InputError(f"schedule: range {lo}-{hi} {what}")
            if hi < lo:
                raise InputError(f"schedule: range {lo}-{hi} ends before it starts")
            if k < 0:
                raise InputError(f"schedule: range {lo}-{hi} has K = {k}; K must not be negative")
            expected = hi + 1

    @classmethod
    def from_k_by_batch(cls, k: Sequence[int] | ArrayLike) -> Schedule:
        """From K of batch 1, 2, 3, ...: equal neighbours merged.

        >>> Schedule.from_k_by_batch([3, 3, 1, 1, 1]).ranges
        ((1, 2, 3), (3, 5, 1))
        """
        values = np.asarray(k, dtype=np.int64)
        return cls.from_grid(batch_size=np.arange(1, values.size + 1), k=values)

    @classmethod
    def from_grid(cls, *, batch_size: ArrayLike, k: ArrayLike) -> Schedule:
        """From K at rising batch sizes: each K holds from its batch up to the next one (the first from 1 on).

        >>> Schedule.from_grid(batch_size=[1, 8, 64], k=[3, 3, 2]).ranges
        ((1, 63, 3), (64, 64, 2))
        """
        n, values = np.asarray(batch_size, dtype=np.int64), np.asarray(k, dtype=np.int64)
        if n.ndim != 1 or n.size == 0 or n.shape != values.shape or n[0] < 1 or np.any(np.diff(n) <= 0):
            raise InputError("schedule: batch sizes must rise from at least 1, with one K for each")
        starts = np.flatnonzero(np.concatenate([[True], np.diff(values) != 0]))
        lows = n[starts].tolist()
        lows[0] = 1
        highs = [low - 1 for low in lows[1:]] + [int(n[-1])]
        return cls(tuple(zip(lows, highs, values[starts].tolist(), strict=True)))

    def lookup(self, batch_size: ArrayLike) -> IntArray:
        """K at batch sizes (any shape, at least 1)."""
        n = np.asarray(batch_size, dtype=np.int64)
        if np.any(n < 1):
            raise InputError("schedule: the batch size must be at least 1")
        starts = np.array([lo for lo, _, _ in self.ranges])
        values = np.array([k for _, _, k in self.ranges], dtype=np.int64)
        out: IntArray = values[np.searchsorted(starts, n, side="right") - 1]
        return out

    def expand(self, max_batch: int) -> IntArray:
        """K at batch 1..max_batch, shape (max_batch,).

        >>> Schedule(((1, 2, 3), (3, 4, 1))).expand(6).tolist()
        [3, 3, 1, 1, 1, 1]
        """
        return self.lookup(np.arange(1, max_batch + 1))

    def clamped(self, k_max: int) -> Schedule:
        """Every K above ``k_max`` lowered to it, equal neighbours merged: what an engine with that maximum
        runs.

        >>> Schedule(((1, 8, 5), (9, 16, 4))).clamped(3).ranges
        ((1, 16, 3),)
        """
        return _merged((lo, hi, min(k, k_max)) for lo, hi, k in self.ranges)

    def merged(self) -> Schedule:
        """Equal neighbours merged."""
        return _merged(self.ranges)

    def cut(self, max_batch: int) -> Schedule:
        """The part up to ``max_batch`` (extended by its last K where it ends earlier)."""
        return Schedule.from_k_by_batch(self.expand(max_batch))

    @property
    def max_batch(self) -> int:
        """Upper end of the last range."""
        return self.ranges[-1][1]

    @property
    def k_max(self) -> int:
        """Largest K."""
        return max(k for _, _, k in self.ranges)

    @property
    def distinct_k(self) -> tuple[int, ...]:
        """The distinct K, rising."""
        return tuple(sorted({k for _, _, k in self.ranges}))

    @property
    def is_constant(self) -> bool:
        """Whether every batch gets the same K, so that nothing is dynamic."""
        return len(self.distinct_k) == 1


def _merged(ranges: Iterable[tuple[int, int, int]]) -> Schedule:
    out: list[tuple[int, int, int]] = []
    for lo, hi, k in ranges:
        if out and out[-1][2] == k:
            out[-1] = (out[-1][0], hi, k)
        else:
            out.append((lo, hi, k))
    return Schedule(tuple(out))


@dataclass(frozen=True)
class CaptureCost:
    """CUDA graphs that a schedule needs: how many, seconds of capture at start-up, bytes of device memory."""

    n_graphs: int
    capture_s: float
    graph_bytes: float
    graphs_by_k: Mapping[int, int]


def capture_cost(
    *,
    ks: Iterable[int],
    sizes: int | Mapping[int, int] | Callable[[int], int],
    capture_s: float,
    graph_bytes: float,
) -> CaptureCost:
    """(graph) one graph per captured size and distinct K: n = Σ_K sizes(K); time and memory in proportion.

    ks: the K captured (duplicates count once). sizes: captured sizes per K - one number, a mapping or a
    function of K. capture_s, graph_bytes: seconds and bytes of one graph.

    >>> cost = capture_cost(ks=[3, 1, 0, 3], sizes=lambda k: 35 if k else 51, capture_s=0.25, graph_bytes=2e7)
    >>> cost.n_graphs, cost.capture_s, cost.graph_bytes
    (121, 30.25, 2420000000.0)
    """
    counts: dict[int, int] = {}
    for k in sorted(set(ks)):
        if isinstance(sizes, int):
            counts[k] = sizes
        elif isinstance(sizes, Mapping):
            if k not in sizes:
                raise InputError(f"captured sizes: none given for K = {k}")
            counts[k] = int(sizes[k])
        else:
            counts[k] = int(sizes(k))
    n = sum(counts.values())
    return CaptureCost(n, n * capture_s, n * graph_bytes, counts)
