"""Steady state of a continuously batched engine, against hand arithmetic and against limits that need
none.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rooflinesim.api import Scenario, resolve
from rooflinesim.serving import busiest_replica, kv_limit, serve
from rooflinesim.step import Deployment

ENGINES = ("vllm", "sglang", "trtllm")


def deployment(engine: str = "vllm", **given: object) -> Deployment:
    base = {"gpu": "h100-sxm", "model": "llama-3.1-8b", "draft": "none", "weights": "bf16", "k_max": 0}
    return resolve(Scenario(**{**base, "engine": engine, **given})).deployment


def load(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_prompts_tpot_is_the_decode_step(engine: str) -> None:
    """S_in/S_out → 0: nothing but decode steps."""
    got = serve(deployment(engine), concurrency=load(16), isl_tokens=load(1), osl_tokens=load(1e6))
    assert got.tpot_s[0] == pytest.approx(got.decode_step_s[0], rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_request_never_waits_for_another_ones_prompt(engine: str) -> None:
    got = serve(deployment(engine), concurrency=load(1), isl_tokens=load(4096), osl_tokens=load(128))
    assert got.prefill_share_frac[0] == pytest.approx(0.0, abs=1e-12)


def test_prompt_tokens_are_conserved() -> None:
    """Every answer of S_out tokens brings S_in prompt tokens: N·S_in/S_out per step, over the sequences
    that decode.
    """
    n, isl, osl = load(8, 64, 200), load(1000, 2000, 500), load(250, 1000, 100)
    got = serve(deployment(), concurrency=n, isl_tokens=isl, osl_tokens=osl)
    np.testing.assert_allclose(got.prefill_tokens_per_step, got.running * isl / osl, rtol=0.02)


def test_prompts_first_cost_their_whole_pass() -> None:
    """SGLang, 10 requests of 500 in and 1000 out: TPOT = decode + 9/10 · prompts per step · one prompt
    pass.
    """
    got = serve(deployment("sglang"), concurrency=load(10), isl_tokens=load(500), osl_tokens=load(1000))
    rate = got.running[0] / 1000.0
    expected = got.decode_step_s[0] + (1.0 - 1.0 / got.running[0]) * rate * got.prefill_pass_s[0]
    assert got.tpot_s[0] == pytest.approx(expected, rel=0.01)


def test_mixing_shares_the_weights_with_the_running_batch() -> None:
    """The same kernels: a prompt that joins the batch costs less than one that goes before it."""
    mixed = deployment()
    first = replace(mixed, profile=mixed.profile.model_copy(update={"prefill_policy": "first"}))
    at = {"concurrency": load(32), "isl_tokens": load(256), "osl_tokens": load(256)}
    assert serve(mixed, **at).tpot_s[0] < serve(first, **at).tpot_s[0]


def test_share_grows_with_the_prompt_and_falls_with_the_answer() -> None:
    got = serve(
        deployment(),
        concurrency=load(32, 32, 32),
        isl_tokens=load(512, 2048, 512),
        osl_tokens=load(512, 512, 4096),
    )
    short, long_prompt, long_answer = got.prefill_share_frac
    assert long_answer < short < long_prompt


def test_rows_do_not_touch_each_other() -> None:
    """Vectorised over loads: each one alone gives the same."""
    n, isl, osl = load(4, 64), load(1024, 8192), load(8192, 1024)
    both = serve(deployment(), concurrency=n, isl_tokens=isl, osl_tokens=osl)
    for i in range(2):
        one = serve(
            deployment(), concurrency=n[i : i + 1], isl_tokens=isl[i : i + 1], osl_tokens=osl[i : i + 1]
        )
        assert one.tpot_s[0] == pytest.approx(both.tpot_s[i], rel=1e-12)
        assert one.ttft_s[0] == pytest.approx(both.ttft_s[i], rel=1e-12)


def test_families_add_up() -> None:
    got = serve(deployment(), concurrency=load(32), isl_tokens=load(1024), osl_tokens=load(1024))
    assert sum(v[0] for v in got.families.values()) == pytest.approx(got.tpot_s[0], rel=1e-9)


def test_busiest_of_two_replicas_by_enumeration() -> None:
    """E[max] of two Poisson(0.5), summed by hand over the joint counts 0..11."""
    p = [math.exp(-0.5) * 0.5**k / math.factorial(k) for k in range(12)]
    expected = sum(max(i, j) * p[i] * p[j] for i in range(12) for j in range(12))
    assert busiest_replica(rate=load(1.0), n_replicas=2)[0] == pytest.approx(expected, rel=1e-6)


def test_a_full_cache_makes_requests_wait() -> None:
    """Llama-3.1-70B FP8 on two H100 with a 16-bit cache.

    2 · 80 layers · 8 heads · 128 · 2 bytes/2 ranks = 163,840 bytes per token and rank; 85.9 GB · 0.92 −
    35.3 GB of weights − 2.6 GB leave 41 GB: about 33 sequences of 7,834 tokens. TTFT was measured to jump
    between 16 and
    64.
    """
    d = deployment(model="llama-3.1-70b", weights="fp8", tp=2, kv="bf16")
    limit, grows = kv_limit(d, isl_tokens=load(7373), osl_tokens=load(922))
    assert 28 < limit[0] < 36
    assert grows[0] == pytest.approx(461 / 7834, rel=1e-3)
    got = serve(d, concurrency=load(16, 64), isl_tokens=load(7373, 7373), osl_tokens=load(922, 922))
    assert got.ttft_s[0] < 3.0
    assert got.ttft_s[1] > 20.0  # measured: 1.3 s and 59 s


def test_reserving_the_answer_admits_fewer() -> None:
    d = deployment()
    reserved = replace(d, profile=d.profile.model_copy(update={"kv_admission": "reserved"}))
    at = {"isl_tokens": load(1024), "osl_tokens": load(8192)}
    (open_limit, _), (strict, grows) = kv_limit(d, **at), kv_limit(reserved, **at)
    assert strict[0] < open_limit[0]
    assert grows[0] == 0.0


def test_a_burst_waits_longer_than_the_steady_state() -> None:
    at = {"concurrency": load(64), "isl_tokens": load(1024), "osl_tokens": load(1024)}
    assert serve(deployment(), waves=10.0, **at).ttft_s[0] > serve(deployment(), **at).ttft_s[0]


def test_ideal_is_a_floor() -> None:
    at = {
        "concurrency": load(1, 32, 256),
        "isl_tokens": load(1, 1, 1) * 1024,
        "osl_tokens": load(1, 1, 1) * 1024,
    }
    floor = serve(deployment(ideal=True), **at)
    assert (floor.tpot_s <= serve(deployment(), **at).tpot_s).all()
