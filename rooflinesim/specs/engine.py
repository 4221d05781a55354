"""What the cost model needs to know of a serving engine's version: data, not code."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rooflinesim.specs.base import Frozen


class GraphRule(Frozen):
    """Which batch shapes run inside a captured CUDA graph.

    ``unit`` says what the captured sizes count. ``grid`` is a list of (start, stop, step), both ends
    inclusive; above the last captured size the step runs eagerly. With ``tiers`` a uniform batch of q
    tokens per request uses graphs rounded up to multiples of q (vLLM's full-decode graphs), plus n*q for
    each n in ``grid``.
    """

    unit: Literal["tokens", "requests"]
    grid: tuple[tuple[int, int, int], ...]
    grid_with_sd: tuple[tuple[int, int, int], ...] | None = None
    ceiling: dict[str, int]  # "default", or an arch_target prefix such as "sm_10"
    tiers: bool = False


class DraftLaw(Frozen):
    """How one drafting method spends its time in this engine.

    first_pass_tokens
        tokens per request in the drafter's first pass: ``verify`` (K+1), ``verify_plus_one`` (K+2), ``none``.
    later_passes
        autoregressive passes of one token per request that follow: ``k_minus_1``, ``k``, ``none``.
    block_tokens
        tokens per request of the one parallel pass: ``none``, ``k``, ``k_plus_1``.
    follows_k
        whether the passes shrink with the scheduled K, or always run the configured maximum.
    at_k0
        what still runs when K = 0: ``first_pass`` (keeps the draft cache in step), ``full``, ``none``.
    host_s
        host work per step that the accelerator waits for (look-up drafters).
    """

    first_pass_tokens: Literal["verify", "verify_plus_one", "none"]
    later_passes: Literal["k_minus_1", "k", "none"]
    block_tokens: Literal["none", "k", "k_plus_1"] = "none"
    follows_k: bool = True
    at_k0: Literal["first_pass", "full", "none"] = "first_pass"
    host_s: float = 0.0


class HostCost(Frozen):
    """What the accelerator waits for. Seconds.

    Each value has a source in ``EngineProfile.sources``.
    """

    off_step_s: float  # plain decode step: scheduling and sampling not hidden
    sd_round_s: float  # one speculative round instead
    sd_per_request_s: float | None = (
        None  # of a speculative round (rejection, page tables); None: per_request_s
    )
    per_request_s: float = 0.0  # grows with the batch (detokenise, stop checks) as far as it is not hidden
    request_s: float = 0.0  # of a request outside the steps (HTTP, tokens, hand-over): adds to TTFT alone
    draft_pass_s: float = 0.0  # least host time of one draft pass that is not in a full graph
    draft_pass_per_request_s: float = (
        0.0  # what a draft pass adds per request (cache shifting, sampling one by one)
    )
    eager_launch_s: float = 10e-6  # host time per kernel outside a captured graph, compiled code
    uncompiled_launch_s: float | None = None  # the same with graphs and compilation off; None: eager_launch_s
    rel_sd: float = 0.3  # spread over versions, machines and settings


class Sampler(Frozen):
    """Passes over rows * vocabulary * 4 bytes and kernel launches, of sampling and of accept/reject."""

    passes_off: float = 2.0
    launches_off: float = 6.0
    passes_sd: float = 4.0
    launches_sd: float = 14.0


class EngineProfile(Frozen):
    """One version of one serving engine."""

    id: str
    engine: Literal["vllm", "sglang", "trtllm", "research"]
    version: str
    aliases: tuple[str, ...] = ()
    graph: GraphRule
    draft_laws: dict[str, DraftLaw]
    host: HostCost
    sampler: Sampler = Field(default_factory=Sampler)
    max_num_seqs: dict[str, int]  # "default" (no SD), "sd"; and "small" below 70 GiB
    max_num_batched_tokens: int = 8192
    prefill_policy: Literal["mixed", "first"] = "mixed"  # prompts join the running batch, or go before it
    kv_admission: Literal["reserved", "optimistic"] = (
        "optimistic"  # cache of the whole answer set aside, or of the prompt
    )
    piecewise_graph_tokens: int = 0  # passes with prompts replay partial graphs up to this many tokens
    memory_utilization: float = 0.9
    memory_share_of: Literal["total", "free"] = "total"  # of all memory, or of what weights and buffers leave
    workspace_bytes: float = 2.0 * 1024**3  # activations, graphs' private pools at default sizes
    graph_bytes: float = 10e6  # private memory per captured graph
    lookahead_slots: dict[str, str] = {}  # method -> "k" | "k_plus_1" | "0"
    fused_norm_quant: bool = True  # norm and activation kernels write the quantised input of the next product
    fused_allreduce_norm: bool = False
    unfused_models: tuple[str, ...] = ()  # architectures whose norms, sums and casts stay apart here
    qk_norm_launches: float = 4.0  # kernels of query/key norms with the rotation that follows
    dp_exchange: Literal["allgather", "alltoall"] = "allgather"  # attention replicas to experts and back
    allreduce_like: dict[str, str] = {}  # arch_target prefix → engine whose all-reduce kernels run there
    fused_rope: bool = False  # the attention kernel rotates queries and keys
    kv_default: str = "auto"  # auto: the activation dtype
    quantized_head: bool = False  # the output head takes the weight format too (GGUF files)
    kernels: str = ""  # calibration, or engine, whose kernels these are; empty: this engine's own
    sources: tuple[str, ...] = ()
    notes: str = ""

    def law(self, method: str) -> DraftLaw | None:
        """The draft law of ``method``, or ``None`` when this engine version does not support it."""
        return self.draft_laws.get(method)
