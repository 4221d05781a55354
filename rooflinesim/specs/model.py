"""The shape of a language model: layers, widths, vocabulary. Counting lives here because it is pure shape."""

from __future__ import annotations

from typing import Literal

from rooflinesim.specs.base import Frozen


class Mla(Frozen):
    """Multi-head latent attention widths (DeepSeek, Kimi, GLM-5)."""

    q_lora_rank: int | None = None  # None: a plain q projection
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class Indexer(Frozen):
    """Sparse-attention indexer (DeepSeek-V3.2, GLM-5): at most ``top_k`` cached tokens are attended."""

    n_heads: int
    head_dim: int
    top_k: int


class Attention(Frozen):
    """One softmax-attention mixer. ``scope`` says how much of the context a query sees."""

    kind: Literal["gqa", "mla"] = "gqa"
    scope: Literal["full", "sliding", "chunked"] = "full"
    window_tokens: int | None = None  # sliding window or chunk length
    n_heads: int
    n_kv_heads: int  # MLA: 1 latent, this field is ignored
    head_dim: int  # query/key width
    v_head_dim: int | None = None  # None: same as head_dim
    in_features: int | None = None  # input width when it is not hidden_size (EAGLE-3 first layer reads 2h)
    mla: Mla | None = None
    indexer: Indexer | None = None
    q_bias: bool = False
    kv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False  # q projection doubled (Qwen3-Next)
    sinks: bool = False  # one learned sink logit per head (gpt-oss)


class LinearMixer(Frozen):
    """A linear-attention mixer with a fixed state per sequence (gated delta net, Mamba-2)."""

    kind: Literal["gdn", "mamba2"] = "gdn"
    n_key_heads: int
    n_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int


class DenseFfn(Frozen):
    """A dense feed-forward block: 3 matrices when gated, 2 when plain."""

    intermediate_size: int
    gated: bool = True
    bias: bool = False


class MoeFfn(Frozen):
    """A mixture-of-experts block: ``top_k`` of ``n_experts`` routed experts, plus shared experts always."""

    n_experts: int
    top_k: int
    intermediate_size: int  # one routed expert
    shared_intermediate_size: int = 0  # all shared experts together
    gated: bool = True
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False  # Qwen: a sigmoid gate h->1 on the shared expert


class Layer(Frozen):
    """``count`` equal layers: one mixer (or none) and one feed-forward block (or none)."""

    count: int
    attention: Attention | None = None
    linear: LinearMixer | None = None
    dense: DenseFfn | None = None
    moe: MoeFfn | None = None
    norms: int = 2  # RMS norms per layer (parallel blocks have 1, Gemma-3 has 4)


class Counted(Frozen):
    """Parameters counted from the shape alone (elements, not billions), and cache sizes in elements."""

    total_params: int
    active_params: int  # routed experts cut to top_k, both vocabulary tables
    streamed_params: int  # active without a separate input table: what one decode step reads
    kv_elems_per_token_full: int
    kv_elems_per_token_windowed: int
    linear_state_elems_per_seq: int


class ModelSpec(Frozen):
    """A decoder-only language model."""

    id: str
    aliases: tuple[str, ...] = ()
    family: str = ""
    architecture: str = ""
    hidden_size: int
    vocab_size: int
    tie_embeddings: bool = False
    max_context_tokens: int
    layers: tuple[Layer, ...]
    final_norm: bool = True
    extra_params: int = 0  # positional tables, per-layer embeddings: stored, looked up, not streamed
    native_weights: str = "bf16"  # weight format of the released checkpoint
    quantized_scope: Literal["none", "all-linear", "experts-only"] = "none"
    n_mtp_layers: int = 0
    published_total_b: float | None = None
    published_active_b: float | None = None
    non_lm_params_b: float = 0.0
    confidence: str = ""
    source: str = ""
    notes: str = ""
    defaulted: tuple[str, ...] = ()  # keys that the file omitted and a family default filled
    unrecognised: tuple[str, ...] = ()  # keys of the file that were not used

    @property
    def n_layers(self) -> int:
        """Number of decoder layers."""
        return sum(layer.count for layer in self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes to experts."""
        return any(layer.moe is not None for layer in self.layers)


#: autoregressive heads, independent LM, block-parallel drafters, host-side look-up
DraftMethod = Literal[
    "eagle", "eagle3", "mtp", "peagle", "dflash", "dspark", "medusa", "draft_model", "ngram", "suffix", "self_sparse"
]


class DraftSpec(Frozen):
    """A drafter: its own layers, and what it borrows from the target."""

    id: str
    aliases: tuple[str, ...] = ()
    method: DraftMethod
    target_id: str | None = None
    hidden_size: int = 0
    vocab_size: int = 0  # the draft's output vocabulary (reduced for EAGLE-3); 0: weight-free
    layers: tuple[Layer, ...] = ()
    fc_in_features: int = 0  # EAGLE: 2h; EAGLE-3: taps*h; 0: no projection
    fc_bias: bool = False
    fc_per_step: bool = True  # EAGLE and MTP project at each draft step; EAGLE-3 once per verified token
    owns_lm_head: bool = False
    owns_embedding: bool = False
    tie_embeddings: bool = False  # draft LMs
    block_size: int | None = None  # parallel drafters: positions drafted in one pass
    n_modules: int = 1  # MTP modules or Medusa heads
    max_trained_k: int | None = None
    native_weights: str = "bf16"
    published_total_b: float | None = None
    counted_total_b: float | None = None
    confidence: str = ""
    source: str = ""
    notes: str = ""
