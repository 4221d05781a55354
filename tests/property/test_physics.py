"""What must hold for every model, batch, K and context."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflinesim import registry
from rooflinesim.api import Scenario, evaluate
from rooflinesim.efficiency import Ceilings
from rooflinesim.forward import Fusion, Shape, Stack, forward
from rooflinesim.ops.moe import distinct_experts, popularity
from rooflinesim.passtime import time_pass
from rooflinesim.specs.scenario import Formats, Parallel, Routing

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-27b-it", "qwen3-next-80b-a3b-instruct")


def ops_of(name, *, batch, query, context, parallel=None):
    one = np.ones((1, 1, 1))
    shape = Shape(
        n_seqs=batch * one,
        rows=batch * query * one,
        query_tokens=query * one,
        context_tokens=context * one,
        head_rows=batch * query * one,
    )
    return forward(
        stack=Stack.of_model(registry.model(name)),
        shape=shape,
        parallel=parallel or Parallel(),
        formats=Formats(),
        routing=Routing(),
        fusion=Fusion(),
    )


def pass_s(name, ceilings, **shape):
    return float(time_pass(ops_of(name, **shape), ceilings).total_s.item())


def ceilings_of(gpu="h100-sxm", engine="vllm"):
    spec = registry.gpu(gpu)
    calibration = registry.calibration(spec.id, engine=engine) or registry.calibration("rule")
    return Ceilings(gpu=spec, calibration=calibration)


CEILINGS = ceilings_of()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    batch=st.sampled_from([1, 2, 4, 8, 16, 24, 32, 64, 128, 256]),
    query=st.integers(1, 9),
    context=st.integers(1, 100_000),
    more=st.sampled_from(["batch", "query", "context"]),
)
def test_time_never_falls_as_work_grows(name, batch, query, context, more):
    base = pass_s(name, CEILINGS, batch=batch, query=query, context=context)
    shape = {"batch": batch, "query": query, "context": context}
    shape[more] = shape[more] * 2
    assert pass_s(name, CEILINGS, **shape) >= base * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    batch=st.integers(1, 512),
    query=st.integers(1, 9),
    context=st.integers(1, 50_000),
)
def test_doubling_every_ceiling_halves_every_roofline_term(name, batch, query, context):
    gpu = CEILINGS.gpu
    twice = gpu.model_copy(
        update={
            "memory_bandwidth": gpu.memory_bandwidth.model_copy(
                update={"value": 2 * gpu.memory_bandwidth.value}
            ),
            "peaks": {f: q.model_copy(update={"value": 2 * q.value}) for f, q in gpu.peaks.items()},
            "scaleup_unidir": gpu.scaleup_unidir.model_copy(update={"value": 2 * gpu.scaleup_unidir.value}),
        }
    )
    from rooflinesim.efficiency import ideal_calibration

    ops = ops_of(name, batch=batch, query=query, context=context, parallel=Parallel(tp=1))
    one = time_pass(ops, Ceilings(gpu=gpu, calibration=ideal_calibration("x")))
    two = time_pass(ops, Ceilings(gpu=twice, calibration=ideal_calibration("x")))
    for a, b in zip(one.timed, two.timed, strict=True):
        assert float(a.total_s.item()) == pytest.approx(2 * float(b.total_s.item()), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(MODELS), batch=st.integers(1, 256), context=st.integers(1, 50_000))
def test_no_kernel_is_faster_than_the_ideal_roofline(name, batch, context):
    from rooflinesim.efficiency import ideal_calibration

    ops = ops_of(name, batch=batch, query=1, context=context)
    real = time_pass(ops, CEILINGS)
    ideal = time_pass(ops, Ceilings(gpu=CEILINGS.gpu, calibration=ideal_calibration("x")))
    assert float(real.total_s.item()) > float(ideal.total_s.item())


@given(
    experts=st.integers(2, 512),
    k_share=st.floats(0.001, 1.0),
    tokens=st.integers(1, 4096),
    skew=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
)
@settings(max_examples=100, deadline=None)
def test_distinct_experts_lie_between_top_k_and_all(experts, k_share, tokens, skew):
    top_k = max(1, int(experts * k_share))
    d = float(distinct_experts(n_tokens=np.array(float(tokens)), n_experts=experts, top_k=top_k, skew=skew))
    assert top_k - 1e-6 <= d <= min(experts, tokens * top_k) + 1e-6
    more = float(distinct_experts(n_tokens=np.array(tokens + 1.0), n_experts=experts, top_k=top_k, skew=skew))
    assert more >= d - 1e-9


@given(experts=st.integers(1, 256), k_share=st.floats(0.001, 1.0), skew=st.floats(0, 3))
@settings(max_examples=100, deadline=None)
def test_popularities_sum_to_top_k_and_never_pass_one(experts, k_share, skew):
    top_k = max(1, int(experts * k_share))
    q = popularity(n_experts=experts, top_k=top_k, skew=skew)
    assert q.sum() == pytest.approx(top_k)
    assert q.max() <= 1.0 + 1e-9


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(("llama-3.1-8b", "qwen3-30b-a3b")),
    gpu=st.sampled_from(("h100", "b200", "a100", "mi300x", "l40s", "rtx-4090")),
    c1=st.floats(0.05, 0.99),
    decay=st.floats(0.7, 1.05),
    batch=st.integers(1, 512),
    context=st.integers(16, 32_768),
)
def test_choice_never_loses_to_off_and_lengths_stay_in_range(name, gpu, c1, decay, batch, context):
    result = evaluate(
        Scenario(
            gpu=gpu,
            model=name,
            accept=f"{c1:.4f},{decay:.4f}",
            batch_sizes=(batch,),
            context_tokens=(context,),
        ),
        n_draws=0,
    )
    k = result.grid.k.ravel()
    al = result.acceptance_length[:, 0]
    assert np.all(al >= 1.0) and np.all(al <= k + 1.0 + 1e-12)
    assert result.best.choice_goodput[0, 0] >= 0.99 * result.off_goodput[0, 0] - 1e-9
    assert (
        result.best.choice_goodput[0, 0] >= result.off_goodput[0, 0] * (1 - 1e-12)
        or result.best.off_is_best[0, 0]
    )
