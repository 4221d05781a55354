"""The three facts the product exists for, as physics: dense, long context, mixture of experts; and dynamic
never loses."""

import numpy as np
import pytest

from rooflinesim.api import Scenario, evaluate

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def best(**kw):
    options = {"gpu": "h100", "batch_sizes": BATCHES, "accept": "0.74,0.98", "max_num_seqs": 4096} | kw
    return evaluate(Scenario(**options), n_draws=0)


@pytest.mark.parametrize("context", [256, 512, 1024])
@pytest.mark.parametrize(
    "kw", [{"model": "llama-3.1-8b"}, {"model": "llama-3.1-70b", "tp": 4}, {"model": "command-a", "tp": 8}]
)
@pytest.mark.parametrize("ideal", [True, False])
def test_dense_at_short_context_best_k_never_rises_with_the_batch(kw, context, ideal):
    result = best(context_tokens=(context,), ideal=ideal, **kw)
    k = result.best.k[:, 0]
    assert np.all(np.diff(k) <= 0)
    assert k[0] >= k[-1] + 3


def test_dense_a_fixed_k_becomes_slower_than_no_speculation():
    result = best(model="llama-3.1-70b", tp=4, context_tokens=(512,))
    fixed = result.speedup[:, 3, 0]
    assert fixed[0] > 1.5
    assert fixed[-1] < 1.0


@pytest.mark.parametrize("context", [32_768, 65_536, 131_072])
def test_dense_at_long_context_best_k_does_not_fall_with_the_batch(context):
    """Cache reads rule: with drafting whose own cost does not grow with the context, K stays or rises
    (MagicDec)."""
    result = best(
        gpu="a100",
        tp=8,
        model="llama-3.1-8b",
        draft="self",
        draft_kv_budget_tokens=512,
        accept="0.8",
        context_tokens=(context,),
        batch_sizes=(8, 16, 32, 64, 128, 256),
        max_num_seqs=1024,
        ideal=True,
    )
    assert np.all(np.diff(result.best.argmax_k[:, 0]) >= 0)


@pytest.mark.parametrize("model", ["qwen3-235b-a22b", "qwen3-30b-a3b", "command-a-plus"])
def test_moe_valley_under_the_bare_roofline(model):
    result = best(model=model, ideal=True)
    k = dict(zip(BATCHES, result.best.k[:, 0].tolist(), strict=True))
    assert max(k[1], k[2], k[4]) < min(k[16], k[32], k[64])  # low while each token drags in more experts
    assert k[1024] < min(k[16], k[32], k[64])  # low again when compute-bound
    step, off = result.step.step_s[:, :, 0], result.step.off_step_s[:, 0, 0]
    cost = np.diff(
        np.concatenate([off[:, None], step[:, 1:]], axis=1), axis=1
    )  # of the first, second, ... token
    small = [BATCHES.index(n) for n in (1, 2, 4, 8)]
    assert np.all(cost[small, 0] > cost[small, 1:].max(axis=1))  # the first drafted token is the dearest


@pytest.mark.parametrize(
    "kw",
    [
        {"model": "llama-3.1-8b"},
        {"model": "qwen3-30b-a3b"},
        {"model": "llama-3.1-70b", "tp": 8, "gpu": "h200"},
    ],
)
def test_dynamic_k_never_loses(kw):
    result = best(**kw)
    chosen = result.best.choice_goodput[:, 0]
    fixed = result.goodput[:, :, 0]
    assert np.all(chosen >= 0.99 * fixed.max(axis=1) - 1e-9)
    assert np.all(chosen >= 0.99 * result.off_goodput[:, 0])
