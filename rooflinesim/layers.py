"""The ops of one kind of layer: mixers and feed-forward blocks, sharded. ``forward`` walks them."""

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
from rooflinesim.specs.model import Attention, DenseFfn, LinearMixer, Mla, MoeFfn
from rooflinesim.specs.scenario import Formats, Parallel, Routing

#: Weight formats whose products quantise their input: the norm or activation before them can write it
#: quantised.
QUANTISED_INPUTS = frozenset({"fp8", "fp8-block", "nvfp4"})


@dataclass(frozen=True)
class Fusion:
    """Which small kernels an engine merges."""

    norm_quant: bool = False  # norms and activations write the quantised input of the next product
    allreduce_norm: bool = False
    rope_in_attention: bool = False  # the attention kernel rotates queries and keys and appends them
    casts: bool = False  # casts of product inputs are kernels of their own (formats with static scales)
    qk_norm_launches: float = 4.0  # norms of queries and keys, copies that make heads contiguous, rotation
    gather_tokens: bool = False  # attention replicas meet at the experts by all-gather and reduce-scatter


@dataclass(frozen=True)
class Shape:
    """The batch of one pass on one replica. Arrays broadcast on (batch, k, context).

    n_seqs: sequences per replica; rows: tokens incl. padding; query_tokens per sequence; context_tokens
    already cached; head_rows: rows that need logits; prefill: queries attend to each other and latent
    attention is not absorbed.
    """

    n_seqs: FloatArray
    rows: FloatArray
    query_tokens: FloatArray
    context_tokens: FloatArray
    head_rows: FloatArray
    prefill: bool = False


@dataclass(frozen=True)
class Walk:
    """What every op of one group of equal layers shares."""

    shape: Shape
    parallel: Parallel
    formats: Formats
    routing: Routing
    fusion: Fusion
    hidden: int
    count: float  # equal layers
    weight_format: str  # of dense products
    kv_budget_tokens: float | None = None

    @property
    def fuses_quant(self) -> bool:
        """Whether the kernel before a product writes its quantised input, at no launch of its own."""
        return self.fusion.norm_quant and self.weight_format in QUANTISED_INPUTS

    def product(self, name: str, d_in: float, d_out: float, weight_format: str | None = None) -> Op:
        """A dense product of all rows of the pass."""
        return gemm(
            name=name,
            rows=self.shape.rows,
            in_features=d_in,
            out_features=d_out,
            weight_format=weight_format or self.weight_format,
            count=self.count,
        )

    def small(self, name: str, elems_per_row: float, *, launches: float = 1.0, times: float = 1.0) -> Op:
        """An element-wise kernel over all rows, ``times`` per layer."""
        return elementwise(
            name=name,
            rows=self.shape.rows,
            elems_per_row=elems_per_row,
            count=self.count * times,
            launches=launches,
        )

    def allreduce(self, name: str) -> list[Op]:
        """The sum over tensor-parallel ranks; nothing on one rank."""
        if self.parallel.tp == 1:
            return []
        message = 2.0 * self.shape.rows * self.hidden
        return [
            collective(
                name=name,
                pattern="allreduce",
                message_bytes=message,
                n_ranks=self.parallel.tp,
                count=self.count,
            )
        ]


def norm_ops(walk: Walk, norms: int) -> list[Op]:
    """RMS norms with the residual added: read and write both; free launches where they are merged."""
    if not norms:
        return []
    fused = walk.fuses_quant or (walk.fusion.allreduce_norm and walk.parallel.tp > 1)
    ops = [walk.small("norm", 4.0 * walk.hidden, launches=0.0 if fused else 1.0, times=norms)]
    if (
        walk.fusion.casts and walk.weight_format == "fp8"
    ):  # before and after attention, before and inside the ffn
        ops.append(walk.small("cast", 1.5 * walk.hidden, times=4.0))
    return ops


def cached_tokens(walk: Walk, spec: Attention) -> FloatArray:
    """Cached tokens one sequence's queries read, after windows, compression and a draft's cache budget."""
    shape = walk.shape
    tokens = effective_context(
        context_tokens=shape.context_tokens,
        query_tokens=shape.query_tokens,
        scope=spec.scope,
        window_tokens=spec.window_tokens,
    )
    if shape.prefill and spec.scope != "full" and spec.window_tokens is not None:
        # a prompt's query sees at most the window: cached + q/2, the mean span, is capped at it
        tokens = np.minimum(shape.context_tokens, spec.window_tokens - 0.5 * shape.query_tokens)
    if spec.compress_ratio > 1:
        tokens = tokens / spec.compress_ratio
    if walk.kv_budget_tokens is not None:
        tokens = np.minimum(tokens, walk.kv_budget_tokens)
    return tokens


def attention_ops(walk: Walk, spec: Attention) -> list[Op]:
    """Query/key/value product, rotary, attention, output product, sum over ranks."""
    if spec.mla is not None:
        return [*_latent_ops(walk, spec, spec.mla), *walk.allreduce("attn_allreduce")]
    tp = walk.parallel.tp
    heads, kv_heads = spec.n_heads / tp, max(spec.n_kv_heads / tp, 1.0)
    v_dim = spec.v_head_dim or spec.head_dim
    q_width = heads * spec.head_dim * (2.0 if spec.output_gate else 1.0)
    # one kernel rotates; norms of queries and keys come before it and keep it out of the attention kernel
    plain = 0.0 if walk.fusion.rope_in_attention else 1.0
    launches = walk.fusion.qk_norm_launches if spec.qk_norm else plain
    core = gqa(
        name=f"attention_{spec.scope}",
        n_seqs=walk.shape.n_seqs,
        query_tokens=walk.shape.query_tokens,
        kv_tokens=cached_tokens(walk, spec),
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=spec.head_dim,
        v_head_dim=v_dim,
        kv_format=walk.formats.kv,
        causal_self=walk.shape.prefill,
        count=walk.count,
    )
    # norms over all heads need the sum of squares of every rank, two floats per token: squares of queries
    # and of keys, joined, summed over ranks, and both scaled
    spread = spec.qk_norm_full and tp > 1
    norm = collective(
        name="qk_norm_allreduce",
        pattern="allreduce",
        message_bytes=8.0 * walk.shape.rows,
        n_ranks=tp,
        count=walk.count,
    )
    return [
        walk.product("qkv", spec.in_features or walk.hidden, q_width + kv_heads * (spec.head_dim + v_dim)),
        *([norm, walk.small("qk_norm", 0.0, launches=4.0)] if spread else []),
        walk.small("rope", 2.0 * (heads + kv_heads) * spec.head_dim, launches=launches),
        core,
        walk.product("o", heads * v_dim, walk.hidden),
        *walk.allreduce("attn_allreduce"),
    ]


def _latent_ops(walk: Walk, spec: Attention, dims: Mla) -> list[Op]:
    shape, heads = walk.shape, spec.n_heads / walk.parallel.tp
    latent = dims.kv_lora_rank + dims.qk_rope_head_dim
    qk_dim = dims.qk_nope_head_dim + dims.qk_rope_head_dim
    ops: list[Op] = []
    if dims.q_lora_rank:
        ops.append(walk.product("qkv_a", walk.hidden, dims.q_lora_rank + latent))
        ops.append(walk.product("q_b", dims.q_lora_rank, heads * qk_dim))
    else:
        ops.append(walk.product("q_kv_a", walk.hidden, heads * qk_dim + latent))
    # norms of both latents, rotary with the append, and the joined query (TensorRT-LLM: one kernel less)
    launches = 2.0 if walk.fusion.rope_in_attention else 3.0
    ops.append(walk.small("rope", 2.0 * (heads * qk_dim + latent), launches=launches))
    kv_tokens = cached_tokens(walk, spec)
    if spec.indexer is not None:
        idx = spec.indexer
        ops.append(
            walk.product("indexer_q", dims.q_lora_rank or walk.hidden, float(idx.n_heads * idx.head_dim))
        )
        ops.append(walk.product("indexer_k", walk.hidden, float(idx.head_dim)))
        ops.append(walk.product("indexer_w", walk.hidden, float(idx.n_heads), walk.formats.activations))
        ops.append(
            indexer(
                n_seqs=shape.n_seqs,
                query_tokens=shape.query_tokens,
                context_tokens=kv_tokens,
                n_heads=idx.n_heads,
                head_dim=idx.head_dim,
                count=walk.count,
            )
        )
        kv_tokens = np.minimum(kv_tokens, float(idx.top_k))
    if spec.compress_ratio > 1 and spec.window_tokens is not None:
        kv_tokens = kv_tokens + np.minimum(shape.context_tokens, float(spec.window_tokens))
    if shape.prefill:  # keys and values are expanded from the latent; ordinary attention over them
        width = heads * (dims.qk_nope_head_dim + dims.v_head_dim)
        ops.append(walk.product("kv_b", dims.kv_lora_rank, width))
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
                kv_format=walk.formats.kv,
                causal_self=True,
                count=walk.count,
            )
        )
    else:  # absorbed: queries move into the latent space, the output back out, head by head, in 16 bit
        plain = walk.formats.activations
        ops.append(walk.product("k_absorb", dims.qk_nope_head_dim, heads * dims.kv_lora_rank, plain))
        ops.append(
            mla(
                name="attention_mla",
                n_seqs=shape.n_seqs,
                query_tokens=shape.query_tokens,
                kv_tokens=kv_tokens,
                n_heads=heads,
                kv_lora_rank=dims.kv_lora_rank,
                rope_dim=dims.qk_rope_head_dim,
                kv_format=walk.formats.kv,
                count=walk.count,
            )
        )
        ops.append(walk.product("v_absorb", dims.kv_lora_rank, heads * dims.v_head_dim, plain))
    ops.append(walk.product("o", heads * dims.v_head_dim, walk.hidden))
    return ops


def linear_ops(walk: Walk, spec: LinearMixer) -> list[Op]:
    """A linear mixer: input product, convolution, state update, output product, sum over ranks."""
    tp = walk.parallel.tp
    key_width = spec.n_key_heads * spec.key_head_dim / tp
    value_width = spec.n_value_heads * spec.value_head_dim / tp
    value_heads = spec.n_value_heads / tp
    conv_width = 2.0 * key_width + value_width
    scans = walk.shape.prefill
    state = linear_state(
        n_seqs=walk.shape.n_seqs,
        query_tokens=walk.shape.query_tokens if not scans else np.asarray(1.0),
        n_value_heads=value_heads,
        key_head_dim=spec.key_head_dim,
        value_head_dim=spec.value_head_dim,
        conv_elems=conv_width * (spec.conv_kernel - 1),
        count=walk.count,
    )
    return [
        walk.product("linear_in", walk.hidden, 2.0 * key_width + 2.0 * value_width + 2.0 * value_heads),
        walk.small("conv", 2.0 * conv_width, launches=2.0),
        state,
        # a prompt goes through in chunks: measured chunked-scan kernels take 2.7 ns (H100) and 1.7 ns
        # (B200) per token and 128 x 128 state, 35 us at least
        *([walk.small("chunk_scan", 0.25 * spec.key_head_dim * value_width, launches=15.0)] if scans else []),
        walk.product("linear_out", value_width, walk.hidden),
        *walk.allreduce("attn_allreduce"),
    ]


def _gated_block(walk: Walk, spec: DenseFfn, name: str) -> list[Op]:
    width = spec.intermediate_size / walk.parallel.tp
    up = 2.0 * width if spec.gated else width
    return [
        walk.product(f"{name}_up", walk.hidden, up),
        walk.small(f"{name}_act", up + width, launches=0.0 if walk.fuses_quant else 1.0),
        walk.product(f"{name}_down", width, walk.hidden),
    ]


def ffn_ops(walk: Walk, spec: DenseFfn) -> list[Op]:
    """A dense feed-forward block and the sum over ranks."""
    return [*_gated_block(walk, spec, "ffn"), *walk.allreduce("ffn_allreduce")]


def moe_ops(walk: Walk, spec: MoeFfn) -> list[Op]:
    """Router, messages between attention replicas, routed experts, shared experts, sum over ranks."""
    shape, parallel = walk.shape, walk.parallel
    rows = shape.rows
    expert_format = walk.formats.experts or walk.formats.weights
    router = "fp32" if spec.router_fp32 else walk.formats.activations
    ops = [walk.product("router", walk.hidden, spec.n_experts, router)]
    if spec.router_fp32:
        ops.append(walk.small("router_cast", 3.0 * walk.hidden))
    rho = overlap_discount(overlap=walk.routing.overlap, n_experts=spec.n_experts, top_k=spec.top_k)
    tokens = effective_tokens(batch=shape.n_seqs * parallel.dp, query_tokens=shape.query_tokens, rho=rho)
    mean = distinct_experts(
        n_tokens=tokens,
        n_experts=spec.n_experts,
        top_k=spec.top_k,
        skew=walk.routing.skew,
        ep=parallel.ep,
    )
    n_local = spec.n_experts / parallel.ep
    if parallel.dp > 1 and walk.fusion.gather_tokens:  # every rank sees every token, then the sums go back
        for name in ("gather", "scatter"):
            ops.append(
                collective(
                    name=name,
                    pattern="allgather",
                    message_bytes=2.0 * rows * walk.hidden * parallel.dp,
                    n_ranks=parallel.tp * parallel.dp,
                    count=walk.count,
                )
            )
    elif parallel.dp > 1:
        copies = min(spec.top_k, parallel.ep) if parallel.ep > 1 else parallel.dp
        wire = rows * walk.hidden * copies
        for name, width in (("dispatch", 1.0 if expert_format.startswith("fp8") else 2.0), ("combine", 2.0)):
            ops.append(
                collective(
                    name=name,
                    pattern="alltoall",
                    message_bytes=wire * width,
                    n_ranks=parallel.tp * parallel.dp,
                    count=walk.count,
                )
            )
    ops.append(
        routed_experts(
            rows=rows * parallel.dp * spec.top_k / parallel.ep,
            experts_read=slowest_rank(mean_experts=mean, n_local=n_local, n_ranks=parallel.ep),
            n_local_experts=n_local,
            hidden_size=walk.hidden,
            intermediate_size=spec.intermediate_size / parallel.moe_tp,
            gated=spec.gated,
            weight_format=expert_format,
            count=walk.count,
        )
    )
    if spec.shared_intermediate_size:
        shared = DenseFfn(intermediate_size=spec.shared_intermediate_size, gated=spec.gated)
        ops.extend(_gated_block(walk, shared, "shared"))
    return [*ops, *walk.allreduce("moe_allreduce")]
