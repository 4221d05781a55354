"""Batch-to-K tables as all three engines understand them: contiguous inclusive ranges ``(lo, hi, k)`` from
1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rooflinesim.engines.records import Finding
from rooflinesim.errors import InputError

Ranges = tuple[tuple[int, int, int], ...]

#: No engine schedules more sequences in one step; a table is never expanded further.
MAX_BATCH: Final = 1_000_000


def check_ranges(ranges: Iterable[Sequence[int]], *, field: str = "ranges") -> Ranges:
    """``ranges`` if they are (lo, hi, k) without gap or overlap from batch 1, with k >= 0.

    >>> check_ranges([(1, 8, 3), (9, 16, 1)])
    ((1, 8, 3), (9, 16, 1))
    """
    result: list[tuple[int, int, int]] = []
    expected = 1
    for row in ranges:
        if len(row) != 3:
            raise InputError(f"{field}: (lo, hi, k) is expected, got {len(row)} numbers")
        lo, hi, k = (int(value) for value in row)
        if lo != expected:
            raise InputError(
                f"{field}: a range starts at {lo}, {expected} is expected (no gap, no overlap, from 1)"
            )
        if hi < lo or k < 0:
            raise InputError(f"{field}: ({lo}, {hi}, {k}) needs lo <= hi and k >= 0")
        result.append((lo, hi, k))
        expected = hi + 1
    if not result:
        raise InputError(f"{field}: empty; give at least one (lo, hi, k)")
    return tuple(result)


def merge(ranges: Ranges) -> Ranges:
    """Neighbours of equal K joined.

    >>> merge(((1, 8, 3), (9, 16, 3), (17, 20, 0)))
    ((1, 16, 3), (17, 20, 0))
    """
    result: list[tuple[int, int, int]] = []
    for lo, hi, k in ranges:
        if result and result[-1][2] == k:
            result[-1] = (result[-1][0], hi, k)
        else:
            result.append((lo, hi, k))
    return tuple(result)


def cut(ranges: Ranges, max_batch: int) -> Ranges:
    """``ranges`` ending exactly at ``max_batch``: cut there, or the last K carried up to it.

    >>> cut(((1, 8, 3), (9, 16, 1)), 12)
    ((1, 8, 3), (9, 12, 1))
    >>> cut(((1, 8, 3),), 12)
    ((1, 12, 3),)
    """
    kept = [(lo, min(hi, max_batch), k) for lo, hi, k in ranges if lo <= max_batch]
    lo, _, k = kept[-1]
    kept[-1] = (lo, max_batch, k)
    return tuple(kept)


def starts_to_ranges(starts: Sequence[tuple[int, int]], max_batch: int) -> Ranges:
    """(first batch, k) points, each holding up to the next, as ranges up to ``max_batch``."""
    kept = [point for point in starts if point[0] <= max_batch]
    ends = [lo - 1 for lo, _ in kept[1:]] + [max_batch]
    return merge(tuple((lo, hi, k) for (lo, k), hi in zip(kept, ends, strict=True)))


@dataclass(frozen=True, kw_only=True)
class ReadSchedule:
    """A schedule as its engine runs it.

    ranges
        the effective table: clamped, gaps filled, merged, up to ``max_batch``. Empty when the engine chooses
        K at run time (``candidates``).
    max_k
        the K the engine is configured (and captured) for.
    candidates
        (lo, hi, possible K) of an adaptive table.
    """

    engine: str
    ranges: Ranges
    max_batch: int
    max_k: int
    method: str | None = None
    candidates: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether one K runs at every batch size."""
        return len({k for _, _, k in self.ranges}) == 1

    def lookup(self, batch_size: int) -> int:
        """K at one batch size; above the table the engine's own rule is already in the last range."""
        if not self.ranges:
            raise InputError("the schedule is adaptive: K is chosen at run time among its candidates")
        if batch_size < 1:
            raise InputError(f"batch_size: {batch_size} is below 1")
        for lo, hi, k in self.ranges:
            if lo <= batch_size <= hi:
                return k
        return self.ranges[-1][2]

    def expand(self, max_batch: int) -> tuple[int, ...]:
        """K at batch 1..max_batch.

        >>> read = ReadSchedule(engine="vllm", ranges=((1, 2, 3), (3, 9, 1)), max_batch=9, max_k=3)
        >>> read.expand(4)
        (3, 3, 1, 1)
        """
        if not 1 <= max_batch <= MAX_BATCH:
            raise InputError(f"max_batch: {max_batch} is not in 1..{MAX_BATCH}")
        if not self.ranges:
            self.lookup(1)
        table: list[int] = []
        for lo, hi, k in cut(self.ranges, max_batch):
            table.extend([k] * (hi - lo + 1))
        return tuple(table)


def constant_finding(ranges: Ranges, wanted: Iterable[int], *, where: str) -> list[Finding]:
    """A finding when a table of several K runs as one K."""
    distinct = {k for _, _, k in ranges}
    if len(distinct) != 1 or len(set(wanted)) < 2:
        return []
    (k,) = distinct
    return [
        Finding("constant", f"{where}: collapses to constant K={k} at every batch size the engine can run")
    ]


def highest_k(ranges: Ranges, *, engine: str) -> int:
    """The largest K of a table; refuses a table that never speculates."""
    top = max(k for _, _, k in ranges)
    if top == 0:
        raise InputError(
            f"{engine} schedule: K is 0 at every batch size; leave speculation "
            "off (SD on with K=0 still costs)"
        )
    return top
