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
    compress_ratio: int = 1  # tokens pooled into one cached row; the last ``window_tokens`` stay raw as well
    q_bias: bool = False
    kv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False  # one norm of head_dim for queries and one for keys
    qk_norm_full: bool = False  # those norms span all heads (OLMoE, MiniMax-M2, Command R+)
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
    router_fp32: bool = False  # the router's product runs in fp32 on an input cast for it (MiniMax-M2)
    router_bias: bool = False  # a bias, or a stored score correction, per expert
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


class LayerWeights(Frozen):
    """Parameters of one layer by kind (elements). ``expert`` is one routed expert; the layer holds
    ``n_experts``."""

    count: int  # layers like this
    attention: int = 0  # projections, biases, sinks, query/key norms, indexer
    linear: int = 0  # a linear mixer instead
    dense_ffn: int = 0
    router: int = 0
    expert: int = 0
    n_experts: int = 0
    top_k: int = 0
    shared: int = 0  # shared experts and their gate
    norms: int = 0

    @property
    def total(self) -> int:
        """All parameters of one such layer."""
        return self.always + self.n_experts * self.expert

    @property
    def always(self) -> int:
        """Parameters every token uses: all but the routed experts."""
        return self.attention + self.linear + self.dense_ffn + self.router + self.shared + self.norms

    @property
    def active(self) -> int:
        """Parameters one token uses: the routed experts cut to ``top_k``."""
        return self.always + self.top_k * self.expert


class ModelWeights(Frozen):
    """Parameters of a whole model by kind (elements)."""

    layers: tuple[LayerWeights, ...]
    embedding: int  # the input table (for tied tables the only one)
    head: int  # a separate output table and its bias; 0 when tied
    final_norm: int = 0
    positions: int = 0  # learned position table
    extra: int = 0  # stored and looked up, never multiplied
    projection: int = 0  # drafters: the input projection(s)

    def of_kind(self, kind: str) -> int:
        """Sum over all layers of one field of :class:`LayerWeights`, or ``routed`` for all routed experts."""
        if kind == "routed":
            return sum(layer.count * layer.n_experts * layer.expert for layer in self.layers)
        return sum(layer.count * int(getattr(layer, kind)) for layer in self.layers)


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
    norm_bias: bool = False  # LayerNorms with a bias (OPT, GPT-J, Phi-3.5-MoE)
    head_bias: bool = False  # bias of the output head (GPT-J, Phi-3.5-MoE)
    position_params: int = 0  # learned position table (OPT); the reference counts it as streamed
    extra_params: int = 0  # per-layer embeddings and the like: stored, looked up, not streamed
    native_weights: str = "bf16"  # weight format of the released checkpoint
    quantized_scope: Literal["none", "all-linear", "experts-only"] = "none"
    native_kv: str | None = None  # cache format the checkpoint asks for; None: the engine's default
    n_mtp_layers: int = 0
    roles: tuple[Literal["target", "draft_model"], ...] = ("target",)
    draft_for: tuple[str, ...] = ()  # targets this model usually drafts for
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
    "eagle",
    "eagle3",
    "mtp",
    "peagle",
    "dflash",
    "dspark",
    "medusa",
    "draft_model",
    "ngram",
    "suffix",
    "self_sparse",
]


class DraftSpec(Frozen):
    """A drafter: its own layers, and what it borrows from the target."""

    id: str
    aliases: tuple[str, ...] = ()
    method: DraftMethod
    target_id: str | None = None
    target_ids: tuple[str, ...] = ()  # further targets the same head was made for
    architecture: str = ""
    hidden_size: int = 0
    vocab_size: int = 0  # the draft's output vocabulary (reduced for EAGLE-3); 0: weight-free
    layers: tuple[Layer, ...] = ()
    fc_in_features: int = 0  # EAGLE: 2h; EAGLE-3: taps*h; 0: no projection
    fc_bias: bool = False
    n_aux_hidden_states: int = 0  # target layers that feed the projection (EAGLE-3, DFlash)
    aux_layer_ids: tuple[int, ...] = ()
    extra_norms: int = 0  # norms of hidden_size outside the layers (final norm, MTP input norms)
    norm_bias: bool = False
    head_bias: bool = False
    position_params: int = 0
    fc_per_step: bool = True  # EAGLE and MTP project at each draft step; EAGLE-3 once per verified token
    owns_lm_head: bool = False
    owns_embedding: bool = False
    embedding_copy: bool = (
        False  # the file holds a copy of the target's table, shared only if the engine does so
    )
    tie_embeddings: bool = False  # draft LMs
    block_size: int | None = None  # parallel drafters: positions drafted in one pass
    markov_rank: int = 0  # DSpark: after the block pass, each position is refined in turn through this rank
    n_modules: int = 1  # MTP modules or Medusa heads
    max_trained_k: int | None = None
    native_weights: str = "bf16"
    quantized_scope: Literal["none", "all-linear", "experts-only"] = "none"
    max_context_tokens: int | None = None
    published_total_b: float | None = None
    counted_total_b: float | None = None
    confidence: str = ""
    source: str = ""
    notes: str = ""
    defaulted: tuple[
        str, ...
    ] = ()  # what was assumed: keys a file omitted, or a whole head built from the target
    unrecognised: tuple[str, ...] = ()  # keys of the file that were not used

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes to experts."""
        return any(layer.moe is not None for layer in self.layers)
