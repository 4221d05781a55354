"""Counts of a pass against hand arithmetic on published shapes."""

import numpy as np
import pytest

from rooflinesim import registry
from rooflinesim.forward import Fusion, Shape, Stack, forward
from rooflinesim.specs.counting import count
from rooflinesim.specs.scenario import Formats, Parallel, Routing


def run(name, *, parallel=None, batch=1.0, query=1.0, context=1024.0, formats=None, routing=None):
    model = registry.model(name)
    one = np.ones((1, 1, 1))
    shape = Shape(
        n_seqs=batch * one,
        rows=batch * query * one,
        query_tokens=query * one,
        context_tokens=context * one,
        head_rows=batch * query * one,
    )
    return forward(
        stack=Stack.of_model(model),
        shape=shape,
        parallel=parallel or Parallel(),
        formats=formats or Formats(),
        routing=routing or Routing(),
        fusion=Fusion(),
    )


def total(ops, field):
    return float(sum(np.asarray(getattr(op, field)).sum() * op.count for op in ops))


def test_llama_8b_reads_its_streamed_weights_once():
    """7.5049 B streamed parameters (published shape) less norms, two bytes each."""
    ops = run("llama-3.1-8b")
    norms = 65 * 4096
    assert total(ops, "weight_bytes") == 2 * (count(registry.model("llama-3.1-8b")).streamed_params - norms)


def test_llama_8b_kv_cache_is_131072_bytes_per_token():
    assert total(run("llama-3.1-8b", context=999.0), "kv_bytes") == 131_072 * 1000


def test_kv_is_read_once_per_sequence_not_per_query_token():
    one = total(run("llama-3.1-8b", context=4096.0, query=1.0), "kv_bytes")
    eight = total(run("llama-3.1-8b", context=4096.0, query=8.0), "kv_bytes")
    assert eight - one == 131_072 * 7  # only the seven more tokens written


def test_flops_are_two_per_weight_and_token():
    ops = run("llama-3.1-8b", batch=4.0, query=2.0, context=1.0)
    gemm = sum(float(op.flops.sum()) * op.count for op in ops if op.family == "gemm")
    assert gemm == 2 * 8 * (7_504_924_672 - 65 * 4096)


def test_one_rank_has_no_collectives_and_eight_have_two_per_layer():
    assert not [op for op in run("llama-3.1-70b") if op.family == "collective"]
    ops = run("llama-3.1-70b", parallel=Parallel(tp=8))
    reduces = sum(op.count for op in ops if getattr(op, "pattern", "") == "allreduce")
    assert reduces == 2 * 80 + 1  # two per layer and one after the embedding


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_divides_weights_exactly(tp):
    alone = total(run("llama-3.1-70b"), "weight_bytes")
    shared = total(run("llama-3.1-70b", parallel=Parallel(tp=tp)), "weight_bytes")
    assert shared == pytest.approx(alone / tp, rel=1e-12)


def test_kv_heads_replicate_below_one_per_rank():
    """8 KV heads over 16 ranks: each rank keeps one head, twice the even share."""
    eight = total(run("llama-3.1-70b", parallel=Parallel(tp=8)), "kv_bytes")
    sixteen = total(run("llama-3.1-70b", parallel=Parallel(tp=16)), "kv_bytes")
    assert sixteen == eight


def test_mla_cache_is_576_elements_per_layer_whatever_the_ranks():
    for tp in (1, 8):
        ops = run("deepseek-v3", parallel=Parallel(tp=tp), context=999.0)
        assert total(ops, "kv_bytes") == 576 * 61 * 2 * 1000


def test_sliding_layers_read_at_most_their_window():
    """Gemma-3-27B: 10 full layers and 52 of 1024 tokens, 16 KV heads of 128."""
    ops = run("gemma-3-27b-it", context=32_768.0)
    per_layer_token = 2 * 16 * 128 * 2
    expected = (10 * (32_768 + 1) + 52 * (1024 + 1)) * per_layer_token
    assert total(ops, "kv_bytes") == expected


def test_mixtral_reads_4_625_experts_for_three_tokens():
    ops = run("mixtral-8x7b", batch=3.0)
    (experts,) = [op for op in ops if op.family == "moe"]
    assert experts.experts_read.item() == pytest.approx(4.625)
    assert experts.weight_bytes.item() == pytest.approx(4.625 * 3 * 4096 * 14336 * 2)


def test_expert_parallel_uses_the_global_expert_count():
    """128/8 over 8 ranks, one token: one expert per rank on average (not 8 of 16)."""
    ops = run("qwen3-30b-a3b", parallel=Parallel(tp=8, ep=8), batch=4.0)
    (experts,) = [op for op in ops if op.family == "moe"]
    assert 3.64 <= experts.experts_read.item() <= 8.0  # mean 3.64; the slowest rank reads a little more


def test_verify_needs_logits_for_every_row():
    ops = run("llama-3.1-8b", batch=16.0, query=4.0)
    (head,) = [op for op in ops if op.name == "lm_head"]
    assert head.rows.item() == 64


def test_gpt_oss_keeps_attention_and_head_in_sixteen_bit():
    model = registry.model("gpt-oss-120b")
    ops = run("gpt-oss-120b", formats=Formats(weights=model.native_weights, experts=model.native_weights))
    formats = {op.weight_format for op in ops if op.family == "gemm"}
    assert formats == {"bf16"}
    (experts,) = {op.weight_format for op in ops if op.family == "moe"}
    assert experts == "mxfp4"
