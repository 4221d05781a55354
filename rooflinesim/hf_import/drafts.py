"""A draft head from its configuration: EAGLE, EAGLE-3, P-EAGLE, DFlash, DSpark, Medusa."""

from __future__ import annotations

from typing import Any, Final

from rooflinesim.hf_import.attention import context_tokens
from rooflinesim.hf_import.models import build_layers, family_of, hidden_size, layer_count
from rooflinesim.hf_import.quantization import native_weights
from rooflinesim.hf_import.reader import Config
from rooflinesim.specs.model import DraftMethod, DraftSpec, Layer

#: target layers whose hidden states feed the head, under the names in use
_TAPS: Final = (
    "eagle_aux_hidden_state_layer_ids",
    "aux_hidden_state_layer_ids",
    "target_layer_ids",
    "eagle_aux_layer_ids",
    "aux_layer_ids",
)
_SIGNS: Final = (
    "draft_vocab_size", "eagle_config", "speculators_config", "speculators_model_type",
    "transformer_layer_config", "medusa_num_heads", "target_hidden_size", "dflash_config",
    "dspark_config", "num_target_layers", *_TAPS,
)  # fmt: skip
_NAMES: Final[tuple[tuple[str, DraftMethod], ...]] = (
    ("peagle", "peagle"), ("dspark", "dspark"), ("dflash", "dflash"), ("medusa", "medusa"),
    ("eagle3", "eagle3"), ("eagle-3", "eagle3"), ("eagle", "eagle"),
)  # fmt: skip
#: keys that change no width the cost model sees
_NO_COST: Final = (
    "speculators_model_type", "speculators_version", "num_target_layers", "mask_token_id", "norm_output",
    "norm_before_residual", "norm_before_fc", "fc_norm", "tie_weights", "parallel_drafting", "eagle_config",
    "bias", "use_aux_hidden_state", "use_last_layernorm", "use_mtp_layernorm",
    "use_input_layernorm_in_first_layer",
)  # fmt: skip
_DEFAULT_TAPS: Final = 3
#: an EAGLE-3 head has one layer; a file that says as many as its target is wrong (models reference, trap 17)
_MOST_EAGLE_LAYERS: Final = 8


def is_draft(config: Config) -> bool:
    """Whether the keys are those of a draft head.

    A one-layer Llama is an EAGLE head: released heads give no other sign.
    """
    if config.has(*_SIGNS) or _named(config) is not None:
        return True
    return config.architecture == "LlamaForCausalLM" and config.keys.get("num_hidden_layers") == 1


def _named(config: Config) -> DraftMethod | None:
    """The method that type, algorithm or architecture name."""
    speculators = config.keys.get("speculators_config")
    algorithm = speculators.get("algorithm") if isinstance(speculators, dict) else None
    texts = [
        config.keys.get("speculators_model_type"),
        algorithm,
        config.outer.get("model_type"),
        config.architecture,
    ]
    for text in texts:
        lowered = str(text or "").lower().replace("_", "")
        for sign, method in _NAMES:
            if sign in lowered:
                return method
    return None


def _method(config: Config) -> DraftMethod:
    named = _named(config)
    if config.has("medusa_num_heads"):
        return "medusa"
    if named in ("dflash", "dspark", "peagle", "eagle3", "medusa"):
        return named
    if config.has("dflash_config"):
        return "dflash"
    # the reduced vocabulary, taps or a narrower width came with EAGLE-3
    if config.has("draft_vocab_size", "target_hidden_size", "eagle_config", *_TAPS):
        return "eagle3"
    if named is None:
        config.note("method=eagle: a one-layer Llama gives no other sign")
    return "eagle"


def _taps(config: Config) -> tuple[int, ...]:
    for section in ("eagle_config", "dflash_config", "dspark_config"):
        if config.has(section):
            config.lift(section)
    listed = config.listing(*_TAPS)
    return tuple(config.whole("aux layer ids", one, least=0) for one in listed or [])


def _target(config: Config) -> str | None:
    """The target's id, where the file names it."""
    speculators = config.section("speculators_config")
    verifier = speculators.get("verifier")
    if isinstance(verifier, dict) and isinstance(verifier.get("name_or_path"), str):
        return str(verifier["name_or_path"])
    found = config.raw("base_model_name_or_path", "target_model_name_or_path", "target_model_type")
    return str(found[1]) if found is not None and "/" in str(found[1]) else None


def build_draft(config: Config, *, spec_id: str) -> DraftSpec:
    """A :class:`DraftSpec`; raises a one-line error for anything missing or inconsistent."""
    taps = _taps(config)
    method = _method(config)
    config.raw(*_NO_COST)
    hidden = hidden_size(config)
    vocab = config.need("vocab_size")
    weights, scope = native_weights(config)
    common: dict[str, Any] = {
        "id": spec_id,
        "method": method,
        "target_id": _target(config),
        "architecture": config.architecture,
        "hidden_size": hidden,
        "native_weights": weights,
        "quantized_scope": scope,
        "aux_layer_ids": taps,
        "source": config.where,
    }
    if method == "medusa":
        parts = _medusa(config, hidden, vocab)
    else:
        parts = _layered(config, method, hidden, vocab, taps)
    return DraftSpec(**common, **parts, defaulted=tuple(config.defaulted), unrecognised=config.unrecognised)


def _medusa(config: Config, hidden: int, vocab: int) -> dict[str, Any]:
    heads = config.need("medusa_num_heads")
    config.raw("medusa_num_layers")
    base = str((config.raw("base_model_name_or_path") or ("", ""))[1]).lower()
    if heads == 2 and "vicuna" in base and "v1.3" in base:
        config.note("medusa_num_heads=5: the file says 2, the released weights hold 5")
        heads = 5
    return {
        "vocab_size": vocab,
        "fc_in_features": hidden,
        "fc_bias": True,
        "n_modules": heads,
        "owns_lm_head": True,
    }


def _layered(
    config: Config, method: DraftMethod, hidden: int, vocab: int, taps: tuple[int, ...]
) -> dict[str, Any]:
    name, family = family_of(config)
    n_layers = layer_count(config)
    if method in ("eagle", "eagle3") and n_layers > _MOST_EAGLE_LAYERS:
        config.note(f"num_hidden_layers=1: the file says {n_layers}, an {method} head has one layer")
        n_layers = 1
    layers = build_layers(config, family, name, hidden=hidden, n_layers=n_layers)
    target_hidden = config.number("target_hidden_size") or hidden
    parts: dict[str, Any] = {"max_context_tokens": context_tokens(config, family, note=False)}
    config.flag("tie_word_embeddings", default=False)
    if method == "eagle":
        config.raw("draft_vocab_size")
        layers = tuple(layer.model_copy(update={"norms": 1}) for layer in layers)
        return parts | {
            "layers": layers, "vocab_size": vocab, "fc_in_features": hidden + target_hidden, "fc_bias": True,
            "n_aux_hidden_states": 1, "embedding_copy": True,
        }  # fmt: skip
    if method in ("eagle3", "peagle"):
        reduced = config.number("draft_vocab_size")
        if reduced is None:
            config.note(f"draft_vocab_size={vocab}")
        count = len(taps) or _DEFAULT_TAPS
        return parts | {
            "layers": _first_layer_reads_two(layers, hidden), "vocab_size": reduced or vocab,
            "fc_in_features": count * target_hidden, "fc_per_step": False, "n_aux_hidden_states": count,
            "extra_norms": 1, "owns_lm_head": True, "embedding_copy": True,
        }  # fmt: skip
    count = len(taps) or n_layers
    if not taps:
        config.note(f"target_layer_ids: absent, {count} taps are assumed (one per layer)")
    block = config.number("block_size", default=16 if method == "dflash" else 7)
    config.raw("draft_vocab_size")
    return parts | {
        "layers": layers, "vocab_size": vocab, "fc_in_features": count * target_hidden, "fc_per_step": False,
        "n_aux_hidden_states": count, "extra_norms": 2, "block_size": block,
    }  # fmt: skip


def _first_layer_reads_two(layers: tuple[Layer, ...], hidden: int) -> tuple[Layer, ...]:
    """EAGLE-3: the first layer's q, k and v read [embedding ; projection], with one more norm."""
    first = layers[0]
    assert first.attention is not None
    wide = first.attention.model_copy(update={"in_features": 2 * hidden})
    head = first.model_copy(update={"count": 1, "norms": first.norms + 1, "attention": wide})
    rest = first.model_copy(update={"count": first.count - 1})
    return (head, *((rest,) if rest.count else ()), *layers[1:])
