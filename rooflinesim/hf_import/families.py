"""What a model's class implies and its file leaves out: biases, norms, defaults. One row per family.

Facts of the model classes (key defaults, layer structure). A value taken from ``defaults`` is reported.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from rooflinesim.hf_import.reader import Config
from rooflinesim.specs.base import Frozen


class Family(Frozen):
    """Structure that a model class implies."""

    norms: int = 2  # per layer
    norm_bias: bool = False
    head_bias: bool = False
    gated: bool = True
    mlp_bias: bool = False
    bias: Literal["none", "qkv", "qkvo"] = "none"  # always there
    bias_key: Literal["none", "qkv", "qkvo"] = "qkvo"  # there when attention_bias is true
    qk_norm: Literal["none", "head", "full"] = "none"
    qk_norm_when: bool = False  # only when use_qk_norm is true
    tie: bool = False  # class default of tie_word_embeddings
    width_is_expert: bool = False  # intermediate_size is the width of one expert
    shared_gate: bool = False
    dense_beside_experts: bool = False  # a dense block of intermediate_size runs in every MoE layer
    shared_implicit: int = 0  # shared experts that no key lists
    router_bias: bool = False
    expert_bias: bool = False
    sinks: bool = False
    output_gate: bool = False
    positions: int | None = None  # learned position table: entries beyond max_position_embeddings
    mtp_without_key: int = 0
    defaults: dict[str, Any] = Field(default_factory=dict)


_GEMMA2: Final = {
    "vocab_size": 256000, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 8192, "sliding_window": 4096,
}  # fmt: skip
_GEMMA3: Final = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072, "sliding_window": 4096, "sliding_window_pattern": 6,
}  # fmt: skip
_GEMMA4: Final = _GEMMA3 | {"vocab_size": 262144}
_COHERE2: Final = {"sliding_window": 4096, "sliding_window_pattern": 4}
_QWEN35: Final = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4, "head_dim": 256,
}  # fmt: skip
_HYBRID: Final = Family(qk_norm="head", output_gate=True, shared_gate=True, defaults=_QWEN35)

FAMILIES: Final[dict[str, Family]] = {
    "llama": Family(),
    "mistral": Family(defaults={"sliding_window": 4096}),
    "mistral3": Family(),
    "ministral": Family(),
    "mixtral": Family(width_is_expert=True),
    "qwen2": Family(bias="qkv"),
    "qwen2_moe": Family(bias="qkv", shared_gate=True),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "qwen3_vl": Family(qk_norm="head"),
    "qwen3_vl_moe": Family(qk_norm="head"),
    "qwen3_next": _HYBRID.model_copy(update={"mtp_without_key": 1}),
    "qwen3_5": _HYBRID,
    "qwen3_5_moe": _HYBRID,
    "gemma": Family(tie=True, defaults={"head_dim": 256}),
    "gemma2": Family(norms=4, tie=True, defaults=_GEMMA2),
    "gemma3": Family(norms=4, tie=True, qk_norm="head", defaults=_GEMMA3),
    "gemma4": Family(norms=4, tie=True, qk_norm="head", dense_beside_experts=True, defaults=_GEMMA4),
    "cohere": Family(norms=1, tie=True, qk_norm="full", qk_norm_when=True),
    "cohere2": Family(norms=1, tie=True, defaults=_COHERE2),
    "cohere2_moe": Family(
        norms=1, tie=True, width_is_expert=True, defaults=_COHERE2
    ),
    "phi3": Family(),
    "phimoe": Family(norm_bias=True, head_bias=True, width_is_expert=True),
    "phi": Family(norms=1, norm_bias=True, head_bias=True, gated=False, mlp_bias=True, bias="qkvo"),
    "opt": Family(norm_bias=True, gated=False, mlp_bias=True, bias="qkvo", tie=True, positions=2),
    "gpt2": Family(norm_bias=True, gated=False, mlp_bias=True, bias="qkvo", tie=True, positions=0),
    "gptj": Family(norms=1, norm_bias=True, head_bias=True, gated=False, mlp_bias=True),
    "gpt_neox": Family(norm_bias=True, gated=False, mlp_bias=True, bias="qkvo"),
    "starcoder2": Family(norm_bias=True, gated=False, mlp_bias=True, bias="qkvo", tie=True),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "deepseek_v32": Family(),
    "kimi_k2": Family(),
    "kimi_k25": Family(),
    "glm4": Family(norms=4, bias_key="qkv"),
    "glm4_moe": Family(bias_key="qkv", qk_norm="head", qk_norm_when=True),
    "glm_moe_dsa": Family(),
    "gpt_oss": Family(width_is_expert=True, router_bias=True, expert_bias=True, sinks=True),
    "llama4": Family(width_is_expert=True, shared_implicit=1, defaults={"attention_chunk_size": 8192}),
    "minimax_m2": Family(width_is_expert=True, qk_norm="full", qk_norm_when=True),
    "olmoe": Family(width_is_expert=True, qk_norm="full"),
    "olmo2": Family(qk_norm="full"),
    "dbrx": Family(),
    "ernie4_5": Family(tie=True),
    "ernie4_5_moe": Family(router_bias=True, tie=True),
    "openelm": Family(qk_norm="head", tie=True),
    "nemotron_nas": Family(),
    "nemotron_h": Family(norms=1, gated=False),
    "mimo_v2": Family(),
    "granite": Family(tie=True),
    "seed_oss": Family(bias="qkv"),
    "exaone4": Family(qk_norm="head"),
    "smollm3": Family(tie=True),
}  # fmt: skip

_SYNONYMS: Final = {
    "deci": "nemotron_nas", "ernie4_5_moe_vl": "ernie4_5_moe", "glm5": "glm_moe_dsa",
    "mimo_v2_flash": "mimo_v2", "minimax": "minimax_m2",
    "cohere2_vision": "cohere2_moe", "qwen2_5_vl": "qwen2", "qwen2_vl": "qwen2",
    "ministral3": "ministral", "gemma3n": "gemma3", "kimi": "kimi_k2", "deepseek": "deepseek_v2",
}  # fmt: skip

#: Architectures outside the model: how they are named in the refusal.
REFUSED: Final[dict[str, tuple[str, ...]]] = {
    "encoder-decoder": (
        "t5", "mt5", "umt5", "longt5", "switch_transformers", "bart", "mbart", "mbart50", "pegasus", "marian",
        "whisper", "m2m_100", "nllb_moe", "led", "blenderbot", "prophetnet", "encoder_decoder",
        "speech_to_text", "seamless_m4t", "t5gemma", "moonshine", "plbart", "bigbird_pegasus", "fsmt",
        "florence2", "vision_encoder_decoder",
    ),
    "encoder": (
        "bert", "roberta", "distilbert", "deberta", "deberta_v2", "albert", "electra", "xlm_roberta",
        "modernbert", "vit",         "clip", "siglip", "wav2vec2", "mpnet",
    ),
    "state-space model without attention": (
        "mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm",
    ),
}  # fmt: skip


def family_name(config: Config) -> str:
    """The row of :data:`FAMILIES` for a configuration, or ``""``."""
    for name in (config.model_type, str(config.outer.get("model_type") or "").lower()):
        base = name.replace("-", "_").removesuffix("_text")
        base = _SYNONYMS.get(base, base)
        if base in FAMILIES:
            return base
    # no type: the architecture's name without its ending
    arch = config.architecture.lower()
    for name in sorted(FAMILIES, key=len, reverse=True):
        if arch.startswith(name.replace("_", "")):
            return name
    return ""


def refuse(config: Config) -> None:
    """Raise for architectures that the cost model does not cover, naming them."""
    shown = config.architecture or config.model_type
    if config.keys.get("is_encoder_decoder") is True:
        raise config.fail(
            "is_encoder_decoder", f"{shown} is an encoder-decoder; only decoder-only models are priced"
        )
    for name in (config.model_type, str(config.outer.get("model_type") or "").lower()):
        for kind, types in REFUSED.items():
            if name.replace("-", "_") in types:
                article = "an" if kind[0] in "aeiou" else "a"
                raise config.fail(
                    "model_type",
                    f"{name!r} ({shown}) is {article} {kind}; only decoder-only models are priced",
                )
