"""Timers, cold pools, gating by the canary, clocks."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from rooflinesim.errors import InputError  # noqa: E402
from rooflinesim.microbench import timing  # noqa: E402


class FakeCanary:
    """Quiet or not as told."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def quiet(self):
        return next(self.answers)


def test_a_known_sleep_is_measured():
    found = timing.measure(lambda: time.sleep(0.004), budget_s=0.03)
    assert 0.004 <= found.median_s < 0.012
    assert found.n >= 3


def test_fast_calls_are_repeated_inside_one_sample():
    """A call far below the timer's resolution still gets a positive time of the right order."""
    found = timing.measure(lambda: None, budget_s=0.02)
    assert 0.0 <= found.median_s < 5e-6


def test_cpu_clock_does_not_count_waiting():
    found = timing.measure(lambda: time.sleep(0.003), clock="cpu", budget_s=0.03)
    assert found.median_s < 0.001


def test_cpu_clock_needs_one_thread():
    assert timing.choose_clock(device="cpu", n_threads=1, wanted="cpu") == "cpu"
    assert timing.choose_clock(device="cpu", n_threads=2, wanted="auto") == "wall"
    assert timing.choose_clock(device="cuda", n_threads=2, wanted="cpu") == "cuda"
    with pytest.raises(InputError, match="one thread only, got 2 threads"):
        timing.choose_clock(device="cpu", n_threads=2, wanted="cpu")
    with pytest.raises(InputError, match="'sundial' is not one of"):
        timing.choose_clock(device="cpu", n_threads=1, wanted="sundial")


def test_samples_beside_a_slow_canary_are_set_aside_whatever_their_value():
    values = iter([1.0, 50.0, 2.0, 3.0, 60.0, 4.0])
    # quiet before the first; then after each sample. Samples 2 and 4 end disturbed, so 3 and 5 began
    # disturbed
    canary = FakeCanary([True, True, False, True, False, True, True])
    found = timing.gather(lambda: next(values), canary=canary, n=2, budget_s=0.0, limit_s=60.0)
    assert found.good == (1.0, 4.0)
    assert found.every == (1.0, 50.0, 2.0, 3.0, 60.0, 4.0)[: len(found.every)]
    assert not found.gated  # two are not enough: all are used, and called noisy
    assert found.chosen == found.every
    both = found + found
    assert both.gated
    assert both.chosen == (1.0, 4.0, 1.0, 4.0)


def test_a_machine_that_is_never_quiet_is_reported_and_not_hidden():
    canary = FakeCanary([False] * 100)
    found = timing.gather(lambda: 1.0, canary=canary, n=3, budget_s=0.0, limit_s=0.0)
    assert found.chosen == (1.0, 1.0, 1.0)
    assert found.aside_frac == 1.0
    assert not found.gated
    assert timing.Timing(1.0, 0.0, 3, found.aside_frac, found.gated).noisy


def test_spread_makes_noise():
    assert timing.Timing(1.0, 0.11, 9).noisy
    assert not timing.Timing(1.0, 0.05, 9).noisy
    loud = timing.Noise(spread_frac=0.6, slow_frac=0.5, load=8.0)
    assert loud.noisy
    assert loud.line.startswith("noisy machine")
    assert "50 % of the time" in loud.line
    assert timing.Noise(0.02, 0.01, 0.1).line.startswith("quiet machine")


def test_pool_hands_out_every_part_before_it_repeats_one():
    pool = timing.Pool(n_bytes=4 * 64 * 1024, llc_bytes=1e9, dtype=torch.float32, device="cpu")
    n = pool.flat.numel() // 4
    starts = [pool.next(n).data_ptr() for _ in range(8)]
    assert len(set(starts[:4])) == 4
    assert starts[4:] == starts[:4]
    assert not pool.cold
    assert timing.Pool(n_bytes=2e6, llc_bytes=1e6, dtype=torch.float32, device="cpu").cold
    with pytest.raises(InputError, match="does not fit the pool"):
        pool.next(5 * n)


def test_pool_values_are_random():
    pool = timing.Pool(n_bytes=1e6, llc_bytes=1e6, dtype=torch.bfloat16, device="cpu")
    assert float(pool.next(4096).float().std()) == pytest.approx(0.05, rel=0.1)


def test_canary_compares_with_its_own_fast_times():
    canary = timing.Canary(clock="wall", prime_s=0.05, cold_bytes=2**23)
    canary.history["product"] = [1.0] * 100
    assert canary.limit_s("product") == pytest.approx(1.3)
    canary.history["product"] = [1e-9] * 1000  # no real product is that fast: always slow from now on
    assert not canary.quiet()
    assert canary.slow_frac > 0.0


def test_threads_are_restored():
    before = torch.get_num_threads()
    with timing.threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
