"""A whole model from its configuration: layers, tables, context, number format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rooflinesim.hf_import.attention import MixerBuilder, context_tokens, layer_letters
from rooflinesim.hf_import.families import FAMILIES, Family, family_name, refuse
from rooflinesim.hf_import.ffn import FfnBuilder, block_width
from rooflinesim.hf_import.quantization import native_kv, native_weights
from rooflinesim.hf_import.reader import MAX_LAYERS, Config
from rooflinesim.specs.model import DenseFfn, Layer, ModelSpec

_SECTIONS = ("attn_config", "ffn_config")  # DBRX
_MTP = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
    "mtp_num_layers",
)


def family_of(config: Config) -> tuple[str, Family]:
    """The family's name and row; an unknown one is read as a Llama-like block, and noted."""
    name = family_name(config)
    if name:
        return name, FAMILIES[name]
    shown = config.model_type or config.architecture or "no model_type"
    config.note(f"architecture: {shown[:60]!r} is not known, a Llama-like block is assumed")
    return "", Family()


def hidden_size(config: Config) -> int:
    """Width of the residual stream."""
    return config.need("hidden_size", "n_embd", "d_model", "model_dim")


#: Structure that the cost model has no term for: refused by name, never left out of the count.
_NOT_PRICED: Final = {
    "moe_latent_size": "experts in a narrower latent width",
    "routed_expert_hidden_size": "experts in a narrower latent width",
    "linear_attn_config": "Kimi delta attention",
    "compress_ratios": "compressed attention",
    "sparse_attention_config": "block-sparse attention",
}


def _refuse_unpriced(config: Config) -> None:
    for key, what in _NOT_PRICED.items():
        if config.keys.get(key):
            raise config.fail(key, f"{what}: not covered when reading a configuration")


def layer_count(config: Config) -> int:
    """Number of layers, bounded: every layer is built."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
    count = config.number(*names)
    if count is None:  # newer hybrids give the list of blocks alone
        found = config.raw("layers_block_type", "layer_types", "hybrid_override_pattern")
        count = len(found[1]) if found is not None and isinstance(found[1], list | str) else None
    if not count:
        raise config.fail("num_hidden_layers", "required, not given (or n_layer, n_layers, num_layers)")
    if count > MAX_LAYERS:
        raise config.fail("num_hidden_layers", f"{count} was given, at most {MAX_LAYERS} are read")
    return count


def merge(layers: list[Layer]) -> tuple[Layer, ...]:
    """Equal layers counted together, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(layer.model_copy(update={"count": count}) for layer, count in counts.items())


def build_layers(
    config: Config, family: Family, name: str, *, hidden: int, n_layers: int
) -> tuple[Layer, ...]:
    """Every layer of the model, merged."""
    blocks = config.listing("block_configs")
    if blocks is not None:
        return merge(_nas_layers(config, family, blocks, hidden=hidden, n_layers=n_layers))
    letters = layer_letters(config, family, name, n_layers)
    mixers = MixerBuilder(config, family, hidden=hidden)
    ffns = FfnBuilder(config, family, hidden=hidden, n_layers=n_layers)
    single = name == "nemotron_h"  # one block per layer: a mixer or a feed-forward, not both
    config.raw("use_parallel_block", "use_parallel_residual", "parallel_attn")  # told by the family
    layers = []
    for index, letter in enumerate(letters):
        parts: dict[str, Any] = {}
        if letter in "FSC":
            parts["attention"] = mixers.attention(index, letter)
        elif letter in "LM":
            parts["linear"] = mixers.linear(letter)
        if letter == "E":
            if ffns.moe is None:
                raise config.fail("num_experts", "required: a layer of experts is listed")
            parts["moe"] = ffns.moe
        elif letter == "D":
            parts["dense"] = ffns.dense(index)
        elif not single:
            parts |= ffns.block(index)
        layers.append(Layer(count=1, norms=family.norms, **parts))
    ffns.unused_width()
    if not any(letter in "FSC" for letter in letters):
        shown = config.architecture or config.model_type
        raise config.fail(
            "layer_types", f"{shown} has no softmax-attention layer; pure state-space models are not priced"
        )
    return merge(layers)


def _nas_layers(
    config: Config, family: Family, blocks: list[Any], *, hidden: int, n_layers: int
) -> list[Layer]:
    """Nemotron NAS: one entry per layer, each with its own heads per group and width, or left out."""
    mixers = MixerBuilder(config, family, hidden=hidden)
    heads = mixers.heads(0, "F")[0]
    if len(blocks) < n_layers:
        raise config.fail("block_configs", f"{len(blocks)} entries for {n_layers} layers")
    config.raw("intermediate_size")
    layers = []
    for index, block in enumerate(blocks[:n_layers]):
        if not isinstance(block, Mapping):
            raise config.fail(f"block_configs[{index}]", "a mapping is expected")
        attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
        parts: dict[str, Any] = {}
        if not attention.get("no_op"):
            if attention.get("replace_with_linear"):
                raise config.fail(
                    f"block_configs[{index}].attention",
                    "attention replaced by one linear layer is not priced",
                )
            group = config.whole(
                f"block_configs[{index}].attention.n_heads_in_group", attention.get("n_heads_in_group")
            )
            if heads % group:
                raise config.fail(
                    f"block_configs[{index}].attention.n_heads_in_group", f"{group} does not divide {heads}"
                )
            parts["attention"] = mixers.attention(index, "F", kv_heads=heads // group)
        width = block_width(config, ffn, hidden=hidden)
        if width is not None:
            parts["dense"] = DenseFfn(intermediate_size=width)
        layers.append(Layer(count=1, norms=len(parts), **parts))
    return layers


def mtp_layers(config: Config, family: Family) -> int:
    """MTP modules (times layers per module) in the checkpoint."""
    found = config.raw(*_MTP)
    config.raw("mtp_transformer_layers", "use_mtp", "mtp_use_dedicated_embeddings")
    if found is not None:
        return config.whole(found[0], found[1], least=0)
    if family.mtp_without_key:
        config.note(f"n_mtp_layers={family.mtp_without_key}")
    return family.mtp_without_key


def build_model(config: Config, *, spec_id: str) -> ModelSpec:
    """A :class:`ModelSpec`; raises a one-line error for anything missing, inconsistent or not covered."""
    refuse(config)
    _refuse_unpriced(config)
    for section in _SECTIONS:
        if config.has(section):
            config.lift(section)
    name, family = family_of(config)
    hidden, n_layers = hidden_size(config), layer_count(config)
    layers = build_layers(config, family, name, hidden=hidden, n_layers=n_layers)
    vocab = config.need("vocab_size", default=family.defaults.get("vocab_size"))
    context = context_tokens(config, family)
    if context is None:
        raise config.fail("max_position_embeddings", "required, not given")
    table_keys = (
        "tie_word_embeddings",
        "share_input_output_layers",
        "tie_embeddings",
        "use_embedding_sharing",
    )
    tied = config.flag(*table_keys, default=family.tie, note=family.tie)
    weights, scope = native_weights(config)
    if scope == "experts-only" and not any(layer.moe is not None for layer in layers):
        config.note(f"weights={weights} in every layer's products: the file leaves attention in 16 bit")
        scope = "all-linear"
    return ModelSpec(
        id=spec_id,
        family=name or config.model_type,
        architecture=config.architecture,
        hidden_size=hidden,
        vocab_size=vocab,
        tie_embeddings=tied,
        max_context_tokens=context,
        layers=layers,
        norm_bias=family.norm_bias,
        head_bias=config.flag("lm_head_bias", default=family.head_bias) and family.head_bias,
        position_params=0 if family.positions is None else (context + family.positions) * hidden,
        extra_params=_lookup_params(config, n_layers),
        native_weights=weights,
        quantized_scope=scope,
        native_kv=native_kv(config),
        n_mtp_layers=mtp_layers(config, family),
        source=config.where,
        defaulted=tuple(config.defaulted),
        unrecognised=config.unrecognised,
    )


def _lookup_params(config: Config, n_layers: int) -> int:
    """Per-layer embeddings (Gemma 3n and 4): one table row per token and layer, looked up, not multiplied."""
    width = config.quiet("hidden_size_per_layer_input")
    vocab = config.quiet("vocab_size_per_layer_input")
    return width * vocab * n_layers
