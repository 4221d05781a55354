"""Forward pass and parameter count are written apart: at one token they must name the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim import registry
from rooflinesim.forward import Fusion, Shape, Stack, forward
from rooflinesim.ops.base import GemmOp, MoeOp
from rooflinesim.specs.counting import count, count_draft
from rooflinesim.specs.scenario import Formats, Parallel, Routing

ONE = np.array(1.0)


def params_read(stack: Stack) -> float:
    """Weights of all products of one pass over one token, routed experts as many as it reads."""
    ops = forward(
        stack=stack,
        shape=Shape(n_seqs=ONE, rows=ONE, query_tokens=ONE, context_tokens=np.array(1024.0), head_rows=ONE),
        parallel=Parallel(),
        formats=Formats(),
        routing=Routing(),
        fusion=Fusion(),
    )
    total = 0.0
    for op in ops:
        if isinstance(op, GemmOp):
            total += op.in_features * op.out_features * op.count
        elif isinstance(op, MoeOp):
            total += float(op.experts_read.max()) * op.expert_bytes / 2.0 * op.count  # bf16
    return total


@pytest.mark.parametrize("name", registry.models())
def test_model(name: str) -> None:
    model = registry.model(name)
    # what no product reads: norms, biases, sinks, convolutions, and OPT's position table
    streamed = count(model).streamed_params - model.position_params
    assert params_read(Stack.of_model(model)) == pytest.approx(streamed, rel=3e-3)


@pytest.mark.parametrize("name", [one for one in registry.drafts() if registry.draft(one).hidden_size])
def test_draft_head(name: str) -> None:
    draft = registry.draft(name)
    assert draft.target_id is not None
    target = registry.model(draft.target_id)
    lent = 0 if draft.owns_lm_head else target.vocab_size * target.hidden_size
    expected = count_draft(draft).streamed_params + lent
    assert params_read(Stack.of_draft(draft, target, first_pass=True)) == pytest.approx(expected, rel=3e-3)
