"""Timing that can be trusted: warm-up, cold rotating buffers, medians with spread, noise reported.

A sample is the time of ``inner`` calls divided by ``inner``, less the timer's own cost. Samples are kept, not
averaged: the result is their median with the inter-quartile range beside it, and says whether it is noisy.
On CUDA the clock is a pair of events. On a CPU it is the wall clock; with one thread the thread's own CPU time can
be used instead (``clock="cpu"``), which does not count the time other processes held the core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from rooflinesim.errors import InputError

Clock = Literal["wall", "cpu", "cuda"]

#: A cell whose inter-quartile range exceeds this share of its median is called noisy.
NOISY_SPREAD_FRAC = 0.10
#: One sample lasts at least this long, so that the timer's resolution is far below it.
MIN_SAMPLE_S = 100e-6


@dataclass(frozen=True)
class Timing:
    """Median of one operation's time, its spread, and whether the machine disturbed it."""

    median_s: float
    spread_frac: float  # inter-quartile range / median
    n: int  # samples
    busy_frac: float  # CPU time / wall time of the samples (1 = undisturbed, single thread); 1 on CUDA

    @property
    def noisy(self) -> bool:
        """Whether the spread is too wide for the median to be trusted."""
        return self.spread_frac > NOISY_SPREAD_FRAC


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Run with exactly ``n`` intra-op threads, then restore the setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_clock(*, device: str, n_threads: int, wanted: str = "auto") -> Clock:
    """``cuda`` events on a GPU; on a CPU ``wall``, unless one thread's own time was asked for."""
    if device == "cuda":
        return "cuda"
    if wanted in ("auto", "wall"):
        return "wall"
    if wanted != "cpu":
        raise InputError(f"--clock: {wanted!r} is not one of auto, wall, cpu")
    if n_threads != 1:
        raise InputError(
            f"--clock cpu: CPU time means something for one thread only, got {n_threads} threads"
        )
    return "cpu"


def read_clock(clock: Clock) -> float:
    """Seconds of the host clock: the thread's CPU time or the wall; on CUDA the work is waited for first."""
    if clock == "cpu":
        return time.thread_time()
    if clock == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timer_overhead_s(clock: Clock, *, n: int = 200) -> float:
    """Median cost of reading the clock twice, s. Events measure on the device and cost nothing there."""
    if clock == "cuda":
        return 0.0
    return statistics.median(-read_clock(clock) + read_clock(clock) for _ in range(n))


def quartiles(samples: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; one sample stands for all three.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, mid, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, mid, high


def spread_of(samples: list[float]) -> tuple[float, float]:
    """Median, and inter-quartile range as a share of it.

    >>> spread_of([2.0, 2.0, 2.0, 4.0, 4.0])
    (2.0, 1.0)
    """
    low, mid, high = quartiles(samples)
    return mid, (high - low) / mid if mid > 0.0 else 0.0


def _event_sample(fn: Callable[[], object], inner: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(inner):
        fn()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3


def measure(
    fn: Callable[[], object],
    *,
    clock: Clock = "wall",
    budget_s: float = 0.2,
    min_samples: int = 5,
    max_samples: int = 60,
    warm_up: int = 2,
    overhead_s: float | None = None,
) -> Timing:
    """Time ``fn``: warm up, choose how many calls make one sample, sample until the budget, take the median.

    ``budget_s`` bounds the wall time spent sampling except that ``min_samples`` are always taken (never fewer than
    3, even when one call alone exceeds the budget many times over).
    """
    for _ in range(warm_up):
        fn()
    over = timer_overhead_s(clock) if overhead_s is None else overhead_s
    t0 = read_clock("cuda" if clock == "cuda" else "wall")
    fn()
    once = read_clock("cuda" if clock == "cuda" else "wall") - t0
    inner = max(1, round(MIN_SAMPLE_S / max(once, 1e-9)))
    if once * min_samples > 4.0 * budget_s:
        min_samples = max(3, int(4.0 * budget_s / once))
    samples: list[float] = []
    wall = busy = 0.0
    begin = time.perf_counter()
    while len(samples) < max_samples and (
        len(samples) < min_samples or time.perf_counter() - begin < budget_s
    ):
        if clock == "cuda":
            samples.append(_event_sample(fn, inner) / inner)
            continue
        cpu0, wall0 = time.process_time(), time.perf_counter()
        start = read_clock(clock)
        for _ in range(inner):
            fn()
        stop = read_clock(clock)
        wall += time.perf_counter() - wall0
        busy += time.process_time() - cpu0
        samples.append(max(stop - start - over, 0.0) / inner)
    median_s, spread = spread_of(samples)
    return Timing(median_s, spread, len(samples), busy / wall if wall > 0.0 else 1.0)


class Rotation:
    """Equal buffers used in turn, together larger than the last-level cache, so that every use is a cold read.

    ``make(i)`` builds buffer i with fresh random data. The number of buffers is what fills ``total_bytes``.
    """

    def __init__(
        self, make: Callable[[int], torch.Tensor], *, total_bytes: float, max_buffers: int = 4096
    ) -> None:
        first = make(0)
        n = int(total_bytes // max(first.numel() * first.element_size(), 1)) + 1
        self.buffers = [first] + [make(i) for i in range(1, min(max(n, 2), max_buffers))]
        self.at = 0

    def next(self) -> torch.Tensor:
        """The buffer that was used longest ago."""
        self.at = (self.at + 1) % len(self.buffers)
        return self.buffers[self.at]

    @property
    def total_bytes(self) -> int:
        """Bytes of all buffers together."""
        return sum(b.numel() * b.element_size() for b in self.buffers)


@dataclass(frozen=True)
class Noise:
    """How quiet the machine is: spread of a fixed piece of arithmetic, and the share of a core we really got."""

    spread_frac: float
    busy_frac: float
    worst_over_median: float

    @property
    def noisy(self) -> bool:
        """Whether measurements taken now need the word *noisy* beside them."""
        return self.spread_frac > NOISY_SPREAD_FRAC or self.busy_frac < 0.9

    @property
    def line(self) -> str:
        """What a person should know about it, in one line."""
        state = "noisy machine: other work runs here" if self.noisy else "quiet machine"
        return (
            f"{state} (a fixed loop varies by {100 * self.spread_frac:.1f} % between quartiles, worst "
            f"{self.worst_over_median:.2f}x the median; we got {100 * min(self.busy_frac, 1.0):.0f} % of a core)"
        )


def probe_noise(*, n: int = 25, inner: int = 40_000) -> Noise:
    """Time a fixed pure-Python loop ``n`` times: its spread is the machine's, not the operation's."""

    def loop() -> int:
        total = 0
        for i in range(inner):
            total += i & 7
        return total

    loop()
    samples = []
    cpu0, wall0 = time.process_time(), time.perf_counter()
    for _ in range(n):
        start = time.perf_counter()
        loop()
        samples.append(time.perf_counter() - start)
    busy = (time.process_time() - cpu0) / (time.perf_counter() - wall0)
    median_s, spread = spread_of(samples)
    return Noise(spread, busy, max(samples) / median_s)
