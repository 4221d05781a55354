"""One pass over the layers. Decode is one query token, verify K+1, prefill the chunk; a draft is another
stack."""

from __future__ import annotations

from dataclasses import dataclass

from rooflinesim.layers import (
    Fusion,
    Shape,
    Walk,
    attention_ops,
    ffn_ops,
    linear_ops,
    moe_ops,
    norm_ops,
)
from rooflinesim.ops.base import Op
from rooflinesim.ops.collective import collective
from rooflinesim.ops.elementwise import elementwise
from rooflinesim.ops.linear import gemm
from rooflinesim.specs.model import DraftSpec, Layer, ModelSpec
from rooflinesim.specs.scenario import Formats, Parallel, Routing

__all__ = ["Fusion", "Shape", "Stack", "forward"]


@dataclass(frozen=True)
class Stack:
    """What a pass walks: layers between an input projection and a head."""

    layers: tuple[Layer, ...]
    hidden_size: int
    head_vocab: int
    head_in_features: int
    fc_in_features: int = 0
    n_heads_parallel: int = 0  # Medusa: residual blocks h→h, each with its own head
    quantized_scope: str = "none"

    @classmethod
    def of_model(cls, model: ModelSpec) -> Stack:
        """The target, or a whole model used as a draft."""
        return cls(
            layers=model.layers,
            hidden_size=model.hidden_size,
            head_vocab=model.vocab_size,
            head_in_features=model.hidden_size,
            quantized_scope=model.quantized_scope,
        )

    @classmethod
    def of_draft(cls, draft: DraftSpec, target: ModelSpec, *, first_pass: bool) -> Stack:
        """A draft model or head; an fc runs once per verified token (EAGLE-3) or at each step (EAGLE,
        MTP)."""
        with_fc = first_pass or draft.fc_per_step
        medusa = draft.method == "medusa"
        return cls(
            layers=draft.layers,
            hidden_size=draft.hidden_size,
            head_vocab=draft.vocab_size or target.vocab_size,
            head_in_features=draft.hidden_size if draft.owns_lm_head or medusa else target.hidden_size,
            fc_in_features=draft.fc_in_features if with_fc and not medusa else 0,
            n_heads_parallel=draft.n_modules if medusa else 0,
            quantized_scope=draft.quantized_scope,
        )


def forward(
    *,
    stack: Stack,
    shape: Shape,
    parallel: Parallel,
    formats: Formats,
    routing: Routing,
    fusion: Fusion,
    kv_budget_tokens: float | None = None,
) -> tuple[Op, ...]:
    """Every op of one pass on the slowest rank, in order.

    ``kv_budget_tokens`` caps the cache a self-speculating draft reads (MagicDec).
    """
    experts_only = stack.quantized_scope == "experts-only"
    dense_format = formats.activations if experts_only else formats.weights

    def walk(count: float, weight_format: str = dense_format) -> Walk:
        return Walk(
            shape=shape,
            parallel=parallel,
            formats=formats,
            routing=routing,
            fusion=fusion,
            hidden=stack.hidden_size,
            count=count,
            weight_format=weight_format,
            kv_budget_tokens=kv_budget_tokens,
        )

    whole = walk(1.0, formats.activations)
    ops = [whole.small("embed", 2.0 * stack.hidden_size), *whole.allreduce("embed_allreduce")]
    if stack.fc_in_features:
        ops.append(whole.product("fc", stack.fc_in_features, stack.hidden_size))
    for layer in stack.layers:
        ops.extend(_layer(layer, walk(float(layer.count))))
    ops.extend(_head(stack, whole))
    return tuple(ops)


def _layer(layer: Layer, walk: Walk) -> list[Op]:
    ops = norm_ops(walk, layer.norms)
    if layer.attention is not None:
        ops.extend(attention_ops(walk, layer.attention))
    if layer.linear is not None:
        ops.extend(linear_ops(walk, layer.linear))
    if layer.dense is not None:
        ops.extend(ffn_ops(walk, layer.dense))
    if layer.moe is not None:
        ops.extend(moe_ops(walk, layer.moe))
    return ops


def _head(stack: Stack, walk: Walk) -> list[Op]:
    """Final norm (or Medusa's residual blocks), the vocabulary product over the rows that need logits, and
    their gathering."""
    rows, hidden, tp = walk.shape.head_rows, stack.hidden_size, walk.parallel.tp
    heads = max(1, stack.n_heads_parallel)
    plain = walk.formats.activations
    ops: list[Op] = []
    if stack.n_heads_parallel:
        block = gemm(
            name="medusa_block",
            rows=rows,
            in_features=hidden,
            out_features=hidden,
            weight_format=plain,
            count=heads,
        )
        ops.append(block)
    else:
        ops.append(elementwise(name="final_norm", rows=walk.shape.rows, elems_per_row=4.0 * hidden))
    ops.append(
        gemm(
            name="lm_head",
            rows=rows,
            in_features=stack.head_in_features,
            out_features=stack.head_vocab / tp,
            weight_format=walk.formats.head or plain,
            count=heads,
        )
    )
    if tp > 1:
        ops.append(
            collective(
                name="logits_gather",
                pattern="allgather",
                message_bytes=2.0 * rows * stack.head_vocab,
                n_ranks=tp,
                count=heads,
            )
        )
    return ops
