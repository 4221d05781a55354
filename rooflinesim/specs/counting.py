"""Parameters and cache sizes counted from the shape alone.

Formulas per layer (models reference, section 3), with h hidden, H query heads, G KV heads, d head width:

* softmax attention: q h*H*d (doubled with an output gate), k h*G*d, v h*G*d_v, o H*d_v*h
* MLA: h*r_q + r_q*H*(n+r) (or h*H*(n+r)), h*(r_kv+r), r_kv*H*(n+v), H*v*h, and two norms of r_q and r_kv
* sparse indexer: r_q*n_i*d_i + h*d_i + h*n_i, and a LayerNorm of d_i
* gated delta net: h*(2K+2W) + 2*h*heads_v + (2K+W)*conv + W*h, with A and dt per value head and a norm
* gated feed-forward 3*h*I, plain 2*h*I; router h*E; shared experts always
"""

from __future__ import annotations

from rooflinesim.specs.model import (
    Attention,
    Counted,
    DraftSpec,
    Layer,
    LayerWeights,
    LinearMixer,
    ModelSpec,
    ModelWeights,
)


def attention_params(attention: Attention, hidden: int) -> int:
    """Parameters of one softmax-attention mixer, biases, norms, sinks and indexer included.

    >>> attention_params(Attention(n_heads=32, n_kv_heads=8, head_dim=128), 4096)
    41943040
    """
    h_in = attention.in_features or hidden
    heads, kv_heads, width = attention.n_heads, attention.n_kv_heads, attention.head_dim
    v_width = attention.v_head_dim or width
    if attention.mla is not None:
        mla = attention.mla
        qk = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        rank = mla.q_lora_rank
        query = h_in * heads * qk if rank is None else h_in * rank + rank + rank * heads * qk
        latent = h_in * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
        expand = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        params = query + latent + expand + heads * mla.v_head_dim * hidden
    else:
        q_out = heads * width * (2 if attention.output_gate else 1)
        kv_out = kv_heads * (width + v_width)
        params = h_in * (q_out + kv_out) + heads * v_width * hidden
        params += (q_out if attention.q_bias else 0) + (kv_out if attention.kv_bias else 0)
        params += hidden if attention.o_bias else 0
        if attention.qk_norm_full:
            params += (heads + kv_heads) * width
        elif attention.qk_norm:
            params += 2 * width
    if attention.indexer is not None:
        index = attention.indexer
        source = attention.mla.q_lora_rank if attention.mla and attention.mla.q_lora_rank else h_in
        params += source * index.n_heads * index.head_dim + h_in * (index.head_dim + index.n_heads)
        params += 2 * index.head_dim
    return params + (heads if attention.sinks else 0)


def linear_params(mixer: LinearMixer, hidden: int) -> int:
    """Parameters of one linear mixer (gated delta net, or Mamba-2 with key heads as groups).

    >>> gdn = LinearMixer(
    ...     n_key_heads=16, n_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4
    ... )
    >>> linear_params(gdn, 2048)
    33718464
    """
    keys = mixer.n_key_heads * mixer.key_head_dim
    values = mixer.n_value_heads * mixer.value_head_dim
    conv = (2 * keys + values) * mixer.conv_kernel
    if mixer.kind == "mamba2":
        # in: gate, values, B, C, dt; conv with bias; A, D and dt bias per head; gated norm over all values
        inputs = hidden * (2 * values + 2 * keys + mixer.n_value_heads)
        return inputs + conv + 2 * keys + values + 3 * mixer.n_value_heads + values + values * hidden
    inputs = hidden * (2 * keys + 2 * values) + 2 * hidden * mixer.n_value_heads
    return inputs + conv + 2 * mixer.n_value_heads + mixer.value_head_dim + values * hidden


def layer_weights(layer: Layer, hidden: int, *, norm_bias: bool = False) -> LayerWeights:
    """Parameters of one layer by kind."""
    dense = 0
    if layer.dense is not None:
        width = layer.dense.intermediate_size
        dense = (3 if layer.dense.gated else 2) * hidden * width
        if layer.dense.bias:
            dense += (2 if layer.dense.gated else 1) * width + hidden
    router = expert = shared = n_experts = top_k = 0
    if layer.moe is not None:
        moe = layer.moe
        matrices = 3 if moe.gated else 2
        n_experts, top_k = moe.n_experts, moe.top_k
        router = hidden * n_experts + (n_experts if moe.router_bias else 0)
        expert = matrices * hidden * moe.intermediate_size
        if moe.expert_bias:
            expert += (matrices - 1) * moe.intermediate_size + hidden
        shared = matrices * hidden * moe.shared_intermediate_size + (hidden if moe.shared_gate else 0)
    return LayerWeights(
        count=layer.count,
        attention=0 if layer.attention is None else attention_params(layer.attention, hidden),
        linear=0 if layer.linear is None else linear_params(layer.linear, hidden),
        dense_ffn=dense,
        router=router,
        expert=expert,
        n_experts=n_experts,
        top_k=top_k,
        shared=shared,
        norms=layer.norms * hidden * (2 if norm_bias else 1),
    )


def weight_params_by_kind(model: ModelSpec) -> ModelWeights:
    """Parameters of a model by kind: what memory and the forward pass split and price differently."""
    hidden, norm = model.hidden_size, 2 if model.norm_bias else 1
    table = model.vocab_size * hidden
    return ModelWeights(
        layers=tuple(layer_weights(layer, hidden, norm_bias=model.norm_bias) for layer in model.layers),
        embedding=table,
        head=(0 if model.tie_embeddings else table) + (model.vocab_size if model.head_bias else 0),
        final_norm=norm * hidden if model.final_norm else 0,
        positions=model.position_params,
        extra=model.extra_params,
    )


def draft_weights_by_kind(draft: DraftSpec) -> ModelWeights:
    """Parameters a drafter adds, by kind. Tables borrowed from the target (or copied from it) count nothing.

    Several MTP modules or Medusa heads repeat everything ``n_modules`` times.
    """
    hidden, modules = draft.hidden_size, draft.n_modules
    norm = 2 if draft.norm_bias else 1
    table = draft.vocab_size * hidden
    shares_tables = draft.tie_embeddings and draft.owns_embedding
    head = table if draft.owns_lm_head and not shares_tables else 0
    head += draft.vocab_size if draft.head_bias else 0
    projection = draft.fc_in_features * hidden + (hidden if draft.fc_bias else 0)
    layers = [layer_weights(layer, hidden, norm_bias=draft.norm_bias) for layer in draft.layers]
    return ModelWeights(
        layers=tuple(one.model_copy(update={"count": one.count * modules}) for one in layers),
        embedding=table if draft.owns_embedding else 0,
        head=head * modules,
        final_norm=draft.extra_norms * hidden * norm * modules,
        positions=draft.position_params,
        projection=projection * modules,
    )


def kv_elems_per_token(layers: tuple[Layer, ...]) -> tuple[int, int]:
    """Cached elements per token: in layers that see the whole context, and in those that see a window.

    Softmax attention keeps G*(d + d_v) per layer; MLA one latent of r_kv + r, whatever the heads; a sparse
    indexer its key as well.

    >>> kv_elems_per_token((Layer(count=32, attention=Attention(n_heads=32, n_kv_heads=8, head_dim=128)),))
    (65536, 0)
    """
    full = windowed = 0
    for layer in layers:
        if layer.attention is None:
            continue
        attention = layer.attention
        elements = layer.count * kv_elems_of(attention)
        if attention.scope != "full":
            windowed += elements
        else:
            full += elements // attention.compress_ratio
            windowed += elements if attention.compress_ratio > 1 else 0  # the raw rows it keeps as well
    return full, windowed


def kv_elems_of(attention: Attention) -> int:
    """Cached elements per token of one attention layer."""
    if attention.mla is not None:
        elements = attention.mla.kv_lora_rank + attention.mla.qk_rope_head_dim
    else:
        elements = attention.n_kv_heads * (attention.head_dim + (attention.v_head_dim or attention.head_dim))
    return elements + (attention.indexer.head_dim if attention.indexer is not None else 0)


def state_elems_per_seq(layers: tuple[Layer, ...]) -> int:
    """Fixed state per sequence of the linear layers: heads_v*d_k*d_v and (conv-1) inputs of the convolution.

    >>> gdn = LinearMixer(
    ...     n_key_heads=16, n_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4
    ... )
    >>> state_elems_per_seq((Layer(count=36, linear=gdn),))
    19759104
    """
    total = 0
    for layer in layers:
        if layer.linear is None:
            continue
        mixer = layer.linear
        keys = mixer.n_key_heads * mixer.key_head_dim
        values = mixer.n_value_heads * mixer.value_head_dim
        state = mixer.n_value_heads * mixer.key_head_dim * mixer.value_head_dim
        total += layer.count * (state + (2 * keys + values) * (mixer.conv_kernel - 1))
    return total


def kv_elems_at(layers: tuple[Layer, ...], *, context_tokens: int) -> int:
    """Cached elements of one sequence of ``context_tokens``: windowed layers hold at most their window."""
    total = 0.0
    for layer in layers:
        if layer.attention is None:
            continue
        held = held_tokens(layer.attention, context_tokens=context_tokens)
        total += layer.count * kv_elems_of(layer.attention) * held
    return round(total)


def held_tokens(attention: Attention, *, context_tokens: float) -> float:
    """Cached rows of one attention layer: all, the window at most, or one per group of rows and the window.

    >>> held_tokens(Attention(n_heads=1, n_kv_heads=1, head_dim=8, compress_ratio=4, window_tokens=128),
    ...     context_tokens=1000)
    378.0
    """
    window = attention.window_tokens
    if attention.compress_ratio > 1:
        return context_tokens / attention.compress_ratio + min(context_tokens, window or 0)
    if attention.scope == "full" or window is None:
        return context_tokens
    return min(context_tokens, window)


def _counted(weights: ModelWeights, layers: tuple[Layer, ...], *, separate_input_table: bool) -> Counted:
    tables = weights.embedding + weights.head + weights.final_norm + weights.positions + weights.projection
    total = sum(layer.count * layer.total for layer in weights.layers) + tables + weights.extra
    active = sum(layer.count * layer.active for layer in weights.layers) + tables + weights.extra
    full, windowed = kv_elems_per_token(layers)
    return Counted(
        total_params=total,
        active_params=active,
        streamed_params=active - weights.extra - (weights.embedding if separate_input_table else 0),
        kv_elems_per_token_full=full,
        kv_elems_per_token_windowed=windowed,
        linear_state_elems_per_seq=state_elems_per_seq(layers),
    )


def count(model: ModelSpec) -> Counted:
    """Total, active and streamed parameters, cache and state elements of a model.

    Active: routed experts cut to ``top_k``, both vocabulary tables. Streamed: active without a separate input
    table, of which a step reads only one row per token.
    """
    return _counted(weight_params_by_kind(model), model.layers, separate_input_table=not model.tie_embeddings)


def count_draft(draft: DraftSpec) -> Counted:
    """The same for a drafter: only what it adds to the target."""
    separate = draft.owns_embedding and not draft.tie_embeddings
    return _counted(draft_weights_by_kind(draft), _repeat(draft), separate_input_table=separate)


def _repeat(draft: DraftSpec) -> tuple[Layer, ...]:
    if draft.n_modules == 1:
        return draft.layers
    return tuple(layer.model_copy(update={"count": layer.count * draft.n_modules}) for layer in draft.layers)
