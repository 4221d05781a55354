"""One pass over the layers. Decode is one query token, verify K+1, prefill the chunk; a draft is another
stack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflinesim.grid import FloatArray
from rooflinesim.ops.attention import effective_context, gqa, indexer, linear_state, mla
from rooflinesim.ops.base import Op
from rooflinesim.ops.collective import collective
from rooflinesim.ops.elementwise import elementwise
from rooflinesim.ops.linear import gemm
from rooflinesim.ops.moe import (
    distinct_experts,
    effective_tokens,
    overlap_discount,
    routed_experts,
    slowest_rank,
)
from rooflinesim.specs.model import Attention, DenseFfn, DraftSpec, Layer, LinearMixer, ModelSpec, MoeFfn
from rooflinesim.specs.scenario import Formats, Parallel, Routing


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


@dataclass(frozen=True)
class Fusion:
    """Which small kernels an engine merges."""

    norm_quant: bool = False  # norms and activations write the quantised input of the next product
    allreduce_norm: bool = False
    rope_in_attention: bool = False  # the attention kernel rotates queries and keys and appends them


@dataclass(frozen=True)
class Shape:
    """The batch of one pass on one replica. Arrays broadcast on (batch, k, context).

    n_seqs: sequences per replica; rows: tokens incl. padding; query_tokens per sequence; context_tokens
    already cached;
    head_rows: rows that need logits; prefill: queries attend to each other and latent attention is not
    absorbed.
    """

    n_seqs: FloatArray
    rows: FloatArray
    query_tokens: FloatArray
    context_tokens: FloatArray
    head_rows: FloatArray
    prefill: bool = False


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
    ops: list[Op] = []
    hidden = stack.hidden_size
    ops.append(elementwise(name="embed", rows=shape.rows, elems_per_row=2.0 * hidden))
    if parallel.tp > 1:
        ops.append(_allreduce("embed_allreduce", shape.rows, hidden, parallel.tp, 1.0))
    if stack.fc_in_features:
        ops.append(
            gemm(
                name="fc",
                rows=shape.rows,
                in_features=stack.fc_in_features,
                out_features=hidden,
                weight_format=formats.activations,
            )
        )
    for layer in stack.layers:
        ops.extend(_layer(layer, stack, shape, parallel, formats, routing, fusion, kv_budget_tokens))
    ops.extend(_head(stack, shape, parallel, formats))
    return tuple(ops)


def _layer(
    layer: Layer,
    stack: Stack,
    shape: Shape,
    parallel: Parallel,
    formats: Formats,
    routing: Routing,
    fusion: Fusion,
    kv_budget_tokens: float | None,
) -> list[Op]:
    hidden, count = stack.hidden_size, float(layer.count)
    dense_format = formats.activations if stack.quantized_scope == "experts-only" else formats.weights
    ops: list[Op] = []
    quant = dense_format in {"fp8", "fp8-block", "nvfp4"} and fusion.norm_quant
    fused = quant or (fusion.allreduce_norm and parallel.tp > 1)
    norm = elementwise(
        name="norm",
        rows=shape.rows,
        elems_per_row=4.0 * hidden,
        count=count * layer.norms,
        launches=0.0 if fused else 1.0,
    )
    if layer.norms:
        ops.append(norm)
    if layer.attention is not None:
        ops.extend(
            _attention(
                layer.attention,
                hidden,
                count,
                shape,
                parallel,
                formats,
                dense_format,
                fusion,
                kv_budget_tokens,
            )
        )
    if layer.linear is not None:
        ops.extend(_linear_mixer(layer.linear, hidden, count, shape, parallel, dense_format))
    if parallel.tp > 1 and (layer.attention is not None or layer.linear is not None):
        ops.append(_allreduce("attn_allreduce", shape.rows, hidden, parallel.tp, count))
    if layer.dense is not None:
        ops.extend(_ffn(layer.dense, hidden, count, shape.rows, parallel.tp, dense_format, quant, "ffn"))
        if parallel.tp > 1:
            ops.append(_allreduce("ffn_allreduce", shape.rows, hidden, parallel.tp, count))
    if layer.moe is not None:
        ops.extend(_moe(layer.moe, hidden, count, shape, parallel, formats, dense_format, routing, quant))
    return ops


def _attention(
    spec: Attention,
    hidden: int,
    count: float,
    shape: Shape,
    parallel: Parallel,
    formats: Formats,
    weight_format: str,
    fusion: Fusion,
    kv_budget_tokens: float | None,
) -> list[Op]:
    tp, rows = parallel.tp, shape.rows
    d_in = spec.in_features or hidden
    heads = spec.n_heads / tp
    kv_tokens = effective_context(
        context_tokens=shape.context_tokens,
        query_tokens=shape.query_tokens,
        scope=spec.scope,
        window_tokens=spec.window_tokens,
    )
    if shape.prefill and spec.scope != "full" and spec.window_tokens is not None:
        # a prompt's query sees at most the window: cached + q/2, the mean span, is capped at it
        kv_tokens = np.minimum(shape.context_tokens, spec.window_tokens - 0.5 * shape.query_tokens)
    if spec.compress_ratio > 1:
        kv_tokens = kv_tokens / spec.compress_ratio
    if kv_budget_tokens is not None:
        kv_tokens = np.minimum(kv_tokens, kv_budget_tokens)
    if spec.mla is not None:
        return _mla(spec, hidden, count, shape, parallel, formats, weight_format, kv_tokens)
    kv_heads = max(spec.n_kv_heads / tp, 1.0)
    v_dim = spec.v_head_dim or spec.head_dim
    q_width = heads * spec.head_dim * (2.0 if spec.output_gate else 1.0)
    qkv_out = q_width + kv_heads * (spec.head_dim + v_dim)
    # one kernel rotates; norms of queries and keys take one more (on TensorRT-LLM one kernel does both)
    rope_launches = (0.0 if fusion.rope_in_attention else 1.0) + (1.0 if spec.qk_norm else 0.0)
    return [
        gemm(
            name="qkv",
            rows=rows,
            in_features=d_in,
            out_features=qkv_out,
            weight_format=weight_format,
            count=count,
        ),
        elementwise(
            name="rope",
            rows=rows,
            elems_per_row=2.0 * (heads + kv_heads) * spec.head_dim,
            count=count,
            launches=rope_launches,
        ),
        gqa(
            name=f"attention_{spec.scope}",
            n_seqs=shape.n_seqs,
            query_tokens=shape.query_tokens,
            kv_tokens=kv_tokens,
            n_heads=heads,
            n_kv_heads=kv_heads,
            head_dim=spec.head_dim,
            v_head_dim=v_dim,
            kv_format=formats.kv,
            causal_self=shape.prefill,
            count=count,
        ),
        gemm(
            name="o",
            rows=rows,
            in_features=heads * v_dim,
            out_features=hidden,
            weight_format=weight_format,
            count=count,
        ),
    ]


def _mla(
    spec: Attention,
    hidden: int,
    count: float,
    shape: Shape,
    parallel: Parallel,
    formats: Formats,
    weight_format: str,
    kv_tokens: FloatArray,
) -> list[Op]:
    dims = spec.mla
    assert dims is not None
    rows, heads = shape.rows, spec.n_heads / parallel.tp
    latent = dims.kv_lora_rank + dims.qk_rope_head_dim
    qk_dim = dims.qk_nope_head_dim + dims.qk_rope_head_dim
    ops: list[Op] = []

    def product(name: str, d_in: float, d_out: float, weights: str = weight_format) -> None:
        ops.append(
            gemm(
                name=name,
                rows=rows,
                in_features=d_in,
                out_features=d_out,
                weight_format=weights,
                count=count,
            )
        )

    if dims.q_lora_rank:
        product("qkv_a", hidden, dims.q_lora_rank + latent)
        product("q_b", dims.q_lora_rank, heads * qk_dim)
    else:
        product("q_kv_a", hidden, heads * qk_dim + latent)
    ops.append(
        elementwise(
            name="rope", rows=rows, elems_per_row=2.0 * (heads * qk_dim + latent), count=count, launches=2.0
        )
    )
    if spec.indexer is not None:
        idx = spec.indexer
        ops.append(
            gemm(
                name="indexer_proj",
                rows=rows,
                in_features=dims.q_lora_rank or hidden,
                out_features=idx.n_heads * idx.head_dim + idx.head_dim + idx.n_heads,
                weight_format=weight_format,
                count=count,
            )
        )
        ops.append(
            indexer(
                n_seqs=shape.n_seqs,
                query_tokens=shape.query_tokens,
                context_tokens=kv_tokens,
                n_heads=idx.n_heads,
                head_dim=idx.head_dim,
                count=count,
            )
        )
        kv_tokens = np.minimum(kv_tokens, float(idx.top_k))
    if spec.compress_ratio > 1 and spec.window_tokens is not None:
        kv_tokens = kv_tokens + np.minimum(shape.context_tokens, float(spec.window_tokens))
    if shape.prefill:  # keys and values are expanded from the latent; ordinary attention over them
        product("kv_b", dims.kv_lora_rank, heads * (dims.qk_nope_head_dim + dims.v_head_dim))
        ops.append(
            gqa(
                name="attention_mla_prefill",
                n_seqs=shape.n_seqs,
                query_tokens=shape.query_tokens,
                kv_tokens=kv_tokens,
                n_heads=heads,
                n_kv_heads=heads,
                head_dim=qk_dim,
                v_head_dim=dims.v_head_dim,
                kv_format=formats.kv,
                causal_self=True,
                count=count,
            )
        )
    else:  # absorbed: queries move into the latent space, the output back out, one head at a time, in 16 bit
        product("k_absorb", dims.qk_nope_head_dim, heads * dims.kv_lora_rank, formats.activations)
        ops.append(
            mla(
                name="attention_mla",
                n_seqs=shape.n_seqs,
                query_tokens=shape.query_tokens,
                kv_tokens=kv_tokens,
                n_heads=heads,
                kv_lora_rank=dims.kv_lora_rank,
                rope_dim=dims.qk_rope_head_dim,
                kv_format=formats.kv,
                count=count,
            )
        )
        product("v_absorb", dims.kv_lora_rank, heads * dims.v_head_dim, formats.activations)
    product("o", heads * dims.v_head_dim, hidden)
    return ops


def _linear_mixer(
    spec: LinearMixer, hidden: int, count: float, shape: Shape, parallel: Parallel, weight_format: str
) -> list[Op]:
    tp, rows = parallel.tp, shape.rows
    key_width = spec.n_key_heads * spec.key_head_dim / tp
    value_width = spec.n_value_heads * spec.value_head_dim / tp
    value_heads = spec.n_value_heads / tp
    conv_width = 2.0 * key_width + value_width
    return [
        gemm(
            name="linear_in",
            rows=rows,
            in_features=hidden,
            out_features=2.0 * key_width + 2.0 * value_width + 2.0 * value_heads,
            weight_format=weight_format,
            count=count,
        ),
        elementwise(name="conv", rows=rows, elems_per_row=2.0 * conv_width, count=count, launches=2.0),
        linear_state(
            n_seqs=shape.n_seqs,
            query_tokens=shape.query_tokens if not shape.prefill else np.asarray(1.0),
            n_value_heads=value_heads,
            key_head_dim=spec.key_head_dim,
            value_head_dim=spec.value_head_dim,
            conv_elems=conv_width * (spec.conv_kernel - 1),
            count=count,
        ),
        gemm(
            name="linear_out",
            rows=rows,
            in_features=value_width,
            out_features=hidden,
            weight_format=weight_format,
            count=count,
        ),
    ]


def _ffn(
    spec: DenseFfn,
    hidden: int,
    count: float,
    rows: FloatArray,
    shards: int,
    weight_format: str,
    quant: bool,
    name: str,
) -> list[Op]:
    width = spec.intermediate_size / shards
    up = 2.0 * width if spec.gated else width
    return [
        gemm(
            name=f"{name}_up",
            rows=rows,
            in_features=hidden,
            out_features=up,
            weight_format=weight_format,
            count=count,
        ),
        elementwise(
            name=f"{name}_act",
            rows=rows,
            elems_per_row=up + width,
            count=count,
            launches=0.0 if quant else 1.0,
        ),
        gemm(
            name=f"{name}_down",
            rows=rows,
            in_features=width,
            out_features=hidden,
            weight_format=weight_format,
            count=count,
        ),
    ]


def _moe(
    spec: MoeFfn,
    hidden: int,
    count: float,
    shape: Shape,
    parallel: Parallel,
    formats: Formats,
    dense_format: str,
    routing: Routing,
    quant: bool,
) -> list[Op]:
    ops: list[Op] = []
    expert_format = formats.experts or formats.weights
    rows = shape.rows
    ops.append(
        gemm(
            name="router",
            rows=rows,
            in_features=hidden,
            out_features=spec.n_experts,
            weight_format=formats.activations,
            count=count,
        )
    )
    rho = overlap_discount(overlap=routing.overlap, n_experts=spec.n_experts, top_k=spec.top_k)
    tokens = effective_tokens(batch=shape.n_seqs * parallel.dp, query_tokens=shape.query_tokens, rho=rho)
    mean = distinct_experts(
        n_tokens=tokens, n_experts=spec.n_experts, top_k=spec.top_k, skew=routing.skew, ep=parallel.ep
    )
    n_local = spec.n_experts / parallel.ep
    experts = slowest_rank(mean_experts=mean, n_local=n_local, n_ranks=parallel.ep)
    if parallel.dp > 1:
        wire = (
            rows * hidden * min(spec.top_k, parallel.ep) if parallel.ep > 1 else rows * hidden * parallel.dp
        )
        ranks = parallel.tp * parallel.dp
        for name, width in (("dispatch", 1.0 if expert_format.startswith("fp8") else 2.0), ("combine", 2.0)):
            ops.append(
                collective(
                    name=name, pattern="alltoall", message_bytes=wire * width, n_ranks=ranks, count=count
                )
            )
    ops.append(
        routed_experts(
            rows=rows * parallel.dp * spec.top_k / parallel.ep,
            experts_read=experts,
            n_local_experts=n_local,
            hidden_size=hidden,
            intermediate_size=spec.intermediate_size / parallel.moe_tp,
            gated=spec.gated,
            weight_format=expert_format,
            count=count,
        )
    )
    if spec.shared_intermediate_size:
        shared = DenseFfn(intermediate_size=spec.shared_intermediate_size, gated=spec.gated)
        ops.extend(_ffn(shared, hidden, count, rows, parallel.tp, dense_format, quant, "shared"))
    if parallel.tp > 1:
        ops.append(_allreduce("moe_allreduce", rows, hidden, parallel.tp, count))
    return ops


def _head(stack: Stack, shape: Shape, parallel: Parallel, formats: Formats) -> list[Op]:
    head_format = formats.head or formats.activations
    vocab = stack.head_vocab / parallel.tp
    ops: list[Op] = []
    heads = max(1, stack.n_heads_parallel)
    if stack.n_heads_parallel:
        ops.append(
            gemm(
                name="medusa_block",
                rows=shape.head_rows,
                in_features=stack.hidden_size,
                out_features=stack.hidden_size,
                weight_format=formats.activations,
                count=heads,
            )
        )
    else:
        ops.append(elementwise(name="final_norm", rows=shape.rows, elems_per_row=4.0 * stack.hidden_size))
    ops.append(
        gemm(
            name="lm_head",
            rows=shape.head_rows,
            in_features=stack.head_in_features,
            out_features=vocab,
            weight_format=head_format,
            count=heads,
        )
    )
    if parallel.tp > 1:
        ops.append(
            collective(
                name="logits_gather",
                pattern="allgather",
                message_bytes=2.0 * shape.head_rows * stack.head_vocab,
                n_ranks=parallel.tp,
                count=heads,
            )
        )
    return ops


def _allreduce(name: str, rows: FloatArray, hidden: int, tp: int, count: float) -> Op:
    return collective(
        name=name, pattern="allreduce", message_bytes=2.0 * rows * hidden, n_ranks=tp, count=count
    )
