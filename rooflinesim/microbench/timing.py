"""Timing that can be trusted: warm-up, a pool of cold buffers, medians with spread, noise detected and
reported.

A sample is the time of ``inner`` calls divided by ``inner``, less the timer's own cost. Samples are kept, not
averaged: the result is their median with the inter-quartile range beside it, and says whether it is noisy.
On CUDA the clock is a pair of events. On a CPU it is the wall clock; with one thread the thread's own CPU
time can be used instead (``clock="cpu"``), which does not count the time other processes held the core.

A neighbour on the same physical core halves the arithmetic rate for seconds at a time and shows in neither
clock. A
*canary* - a fixed product that lives in the cache - is timed before and after every sample; samples during
which it was slow are set aside, counted, and the share of them is part of the result. The choice never
looks at the sample.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rooflinesim.errors import InputError

Clock = Literal["wall", "cpu", "cuda"]
T = TypeVar("T")

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
    disturbed_frac: float = 0.0  # share of samples set aside because the canary was slow
    gated: bool = True  # False: too few undisturbed samples, so all of them were used

    @property
    def noisy(self) -> bool:
        """Whether the spread is too wide, or too little was undisturbed, for the median to be trusted."""
        return self.spread_frac > NOISY_SPREAD_FRAC or not self.gated


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


class Canary:
    """Two fixed pieces of work whose times say how fast the machine is right now: a product on cached
    data, a cold read.

    ``quiet()`` compares each with the fast end of its own history; above ``LIMIT`` times that, something
    shares the core or the memory bus. One canary serves a whole run, so that primitives and models are
    measured at the same speed of the machine. On CUDA nothing is checked.
    """

    LIMIT = 1.3
    READ_BYTES = 4 * 2**20

    def __init__(
        self,
        *,
        clock: Clock,
        dtype: torch.dtype = torch.float32,
        prime_s: float = 2.0,
        cold_bytes: float = 2.0**28,
    ) -> None:
        self.clock = clock
        self.history: dict[str, list[float]] = {"product": [], "read": []}
        if clock == "cuda":
            return
        self.x = torch.randn(128, 512).to(dtype)
        self.w = torch.randn(512, 512).to(dtype)
        self.cold = torch.ones(
            max(2, int(cold_bytes // self.READ_BYTES)), self.READ_BYTES // 4, dtype=torch.int32
        )
        self.at = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < prime_s or len(self.history["read"]) < 20:
            self._time("product")
            self._time("read")
            time.sleep(0.002)

    def _time(self, name: str) -> float:
        start = read_clock(self.clock)
        if name == "product":
            torch.nn.functional.linear(self.x, self.w)
        else:
            self.at = (self.at + 1) % len(self.cold)
            self.cold[self.at].sum()
        took = read_clock(self.clock) - start
        self.history[name].append(took)
        return took

    def limit_s(self, name: str) -> float:
        """Slowest time that still counts as undisturbed: LIMIT x the fastest twentieth of all times."""
        ordered = sorted(self.history[name])
        return self.LIMIT * ordered[len(ordered) // 20]

    def quiet(self) -> bool:
        """Whether core and memory are undisturbed now; one slow try may be chance, two in a row are not."""
        if self.clock == "cuda":
            return True
        for name in self.history:
            limit = self.limit_s(name)
            if self._time(name) > limit and self._time(name) > limit:
                return False
        return True

    @property
    def slow_frac(self) -> float:
        """Share of its times above the limit, of the worse of the two."""
        shares = [0.0]
        for name, times in self.history.items():
            if times:
                limit = self.limit_s(name)
                shares.append(sum(1 for t in times if t > limit) / len(times))
        return max(shares)

    @property
    def spread_frac(self) -> float:
        """Inter-quartile range over median, of the worse of the two."""
        return max((spread_of(times)[1] for times in self.history.values() if times), default=0.0)


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """Samples, and which of them were taken while the canary was quiet before and after."""

    every: tuple[T, ...]
    good: tuple[T, ...]

    #: With fewer undisturbed samples than this, all are used and the result is called noisy.
    ENOUGH: ClassVar[int] = 3

    @property
    def gated(self) -> bool:
        """Whether enough samples were undisturbed."""
        return len(self.good) >= self.ENOUGH

    @property
    def chosen(self) -> tuple[T, ...]:
        """The undisturbed samples, or all when too few were."""
        return self.good if self.gated else self.every

    @property
    def aside_frac(self) -> float:
        """Share of samples that were disturbed."""
        return 1.0 - len(self.good) / len(self.every)

    def __add__(self, other: Gathered[T]) -> Gathered[T]:
        """Both runs together."""
        return Gathered(self.every + other.every, self.good + other.good)


def gather(
    sample: Callable[[], T], *, canary: Canary | None, n: int, budget_s: float, limit_s: float
) -> Gathered[T]:
    """Sample until ``n`` are undisturbed and ``budget_s`` has passed; after ``limit_s`` stop with whatever
    there is."""
    good: list[T] = []
    every: list[T] = []
    begin = time.perf_counter()
    before = canary.quiet() if canary is not None else True
    while True:
        spent = time.perf_counter() - begin
        if (
            (len(good) >= n and spent >= budget_s)
            or (spent >= limit_s and len(every) >= n)
            or len(good) >= 60
        ):
            return Gathered(tuple(every), tuple(good))
        item = sample()
        after = canary.quiet() if canary is not None else True
        every.append(item)
        if before and after:
            good.append(item)
        before = after


def _sample_of(fn: Callable[[], object], clock: Clock, inner: int, over: float) -> Callable[[], float]:
    def on_device() -> float:
        event: Any = torch.cuda.Event  # untyped in torch
        start, stop = event(enable_timing=True), event(enable_timing=True)
        start.record()
        for _ in range(inner):
            fn()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3 / inner

    def on_host() -> float:
        start = read_clock(clock)
        for _ in range(inner):
            fn()
        return max(read_clock(clock) - start - over, 0.0) / inner

    return on_device if clock == "cuda" else on_host


def measure(
    fn: Callable[[], object],
    *,
    clock: Clock = "wall",
    budget_s: float = 0.2,
    min_samples: int = 7,
    warm_up: int = 2,
    overhead_s: float | None = None,
    canary: Canary | None = None,
) -> Timing:
    """Time ``fn``: warm up, choose how many calls make one sample, gather undisturbed samples, take the
    median.

    Sampling lasts ``budget_s``; up to 3 times that while the machine is disturbed. A call that alone
    exceeds the budget is sampled 3 times.
    """
    for _ in range(warm_up):
        fn()
    over = timer_overhead_s(clock) if overhead_s is None else overhead_s
    start = read_clock("cuda" if clock == "cuda" else "wall")
    fn()
    once = read_clock("cuda" if clock == "cuda" else "wall") - start
    inner = max(1, round(MIN_SAMPLE_S / max(once, 1e-9)))
    n = min_samples if once * min_samples <= 4.0 * budget_s else 3
    found = gather(
        _sample_of(fn, clock, inner, over), canary=canary, n=n, budget_s=budget_s, limit_s=3.0 * budget_s
    )
    median_s, spread = spread_of(list(found.chosen))
    return Timing(median_s, spread, len(found.chosen), found.aside_frac, found.gated)


class Pool:
    """One large buffer of random numbers, handed out in turn as views: every use is a cold read.

    The buffer is larger than the last-level cache where memory allows; ``cold`` says whether it is.
    """

    def __init__(
        self, *, n_bytes: float, llc_bytes: float, dtype: torch.dtype, device: str, seed: int = 0
    ) -> None:
        size = torch.empty((), dtype=dtype).element_size()
        self.cold = n_bytes > 1.2 * llc_bytes
        n = max(int(n_bytes / size), 1 << 16)
        block = torch.empty(min(n, 1 << 22), dtype=torch.float32)
        block.normal_(0.0, 0.05, generator=torch.Generator().manual_seed(seed))
        self.flat = block.to(dtype).to(device).repeat(-(-n // block.numel()))[:n]
        self.at = 0

    def next(self, *shape: int) -> Tensor:
        """A contiguous view of this shape that was not used for a whole round; larger shapes are refused."""
        n = math.prod(shape)
        if n > self.flat.numel():
            raise InputError(f"memory: a buffer of {n} elements does not fit the pool of {self.flat.numel()}")
        if self.at + n > self.flat.numel():
            self.at = 0
        view = self.flat[self.at : self.at + n].view(*shape)
        self.at += -(-n // 64) * 64
        return view


@dataclass(frozen=True)
class Noise:
    """How quiet the machine was: spread of the canary over a run, and how often it was slow."""

    spread_frac: float  # inter-quartile range / median of the canary
    slow_frac: float  # share of its times above 1.3 x its fastest twentieth
    load: float  # running processes, one-minute average; 0 where the system does not say

    @property
    def noisy(self) -> bool:
        """Whether measurements taken then need the word *noisy* beside them."""
        return self.spread_frac > NOISY_SPREAD_FRAC or self.slow_frac > 0.1

    @property
    def line(self) -> str:
        """What a person should know about it, in one line."""
        state = "noisy machine: something else uses this core" if self.noisy else "quiet machine"
        return (
            f"{state} (fixed work varied by {100 * self.spread_frac:.0f} % between quartiles and was slow "
            f"{100 * self.slow_frac:.0f} % of the time; load {self.load:.1f}); disturbed samples set aside"
        )


def noise_of(canary: Canary) -> Noise:
    """The machine's noise as the canary saw it."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return Noise(canary.spread_frac, canary.slow_frac, load)
