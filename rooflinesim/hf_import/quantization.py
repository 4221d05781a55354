"""The number format of the stored weights, from ``quantization_config`` and ``dtype``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from rooflinesim.hf_import.reader import Config

#: this many modules named one by one are a rule too
_MANY: Final = 8
_ATTENTION: Final = re.compile(r"(?:self_attn|attention|attn)(?![a-z])")
#: a pattern without a layer number speaks of all layers
_ALL_LAYERS: Final = re.compile(r"^\D*[*^\\]\D*$")
Scope = Literal["none", "all-linear", "experts-only"]
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_MODELOPT: Final = {
    "fp8": "fp8",
    "fp8_pb_wo": "fp8-block",
    "nvfp4": "nvfp4",
    "nvfp4_awq": "nvfp4",
    "w4a16_awq": "int4",
    "w4a8_awq": "int4",
    "int8_sq": "int8",
    "w8a8": "int8",
    "mxfp4": "mxfp4",
}


def native_dtype(config: Config) -> str:
    """``bf16``, ``fp16`` or ``fp32`` of the unquantised parts; a name that is no dtype counts as absent."""
    for key in ("dtype", "torch_dtype"):
        value = config.keys.get(key) or config.outer.get(key)
        if isinstance(value, str) and value.removeprefix("torch.") in _DTYPES:
            return _DTYPES[value.removeprefix("torch.")]
    config.note("dtype=bfloat16")
    return "bf16"


def native_weights(config: Config) -> tuple[str, Scope]:
    """Format of the stored weights and which matrices have it."""
    dtype = native_dtype(config)
    quantization = config.section("quantization_config") or config.section("compression_config")
    if not quantization:
        return dtype, "none"
    fmt = _format(config, quantization)
    if fmt is None:
        method = str(quantization.get("quant_method", "?"))[:40]
        config.note(f"weights={dtype}: quantization_config.quant_method {method!r} is not known")
        return dtype, "none"
    return fmt, _scope(quantization, fmt)


def native_kv(config: Config) -> str | None:
    """Cache format that the checkpoint brings scales for; ``None`` leaves it to the engine.

    It is independent of the weights' format.
    """
    quantization = config.section("quantization_config", "compression_config")
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, str):
        return {"fp8": "fp8", "int8": "int8"}.get(scheme.lower())
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type", "float") == "float" else "int8"
    named = str(quantization.get("kv_cache_quant_algo") or "").lower()
    return {"fp8": "fp8", "int8": "int8"}.get(named)


def _format(config: Config, quantization: Mapping[str, Any]) -> str | None:
    method = str(quantization.get("quant_method", "")).lower().replace("_", "-")
    bits = _bits(config, quantization)
    if method in ("fp8", "fbgemm-fp8", "finegrained-fp8"):
        return "fp8-block" if quantization.get("weight_block_size") else "fp8"
    if method == "mxfp4":
        return "mxfp4"
    if method in ("awq", "gptq", "gptq-marlin", "auto-round", "autoround", "awq-marlin"):
        return {4: "int4", 8: "int8"}.get(bits or 4)
    if method in ("bitsandbytes", "bnb"):
        return "int4" if quantization.get("load_in_4bit") else "int8"
    if method.startswith("modelopt") or (not method and "quant_algo" in quantization):
        algorithm = str(quantization.get("quant_algo", "")).lower().replace("-", "_")
        return _MODELOPT.get(algorithm) or _compressed(config, quantization)
    if method in ("compressed-tensors", "sparseml"):
        return _compressed(config, quantization)
    return None


def _bits(config: Config, quantization: Mapping[str, Any]) -> int | None:
    for key in ("bits", "w_bit", "num_bits", "wbits"):
        if quantization.get(key) is not None:
            return config.whole(f"quantization_config.{key}", quantization[key])
    return None


def _compressed(config: Config, quantization: Mapping[str, Any]) -> str | None:
    """compressed-tensors: the weights of the config group with most targets; a mixture is noted."""
    groups = quantization.get("config_groups")
    entries = (
        [one for one in groups.values() if isinstance(one, Mapping)] if isinstance(groups, Mapping) else []
    )
    entries = [one for one in entries if isinstance(one.get("weights"), Mapping)]
    if not entries:
        return None
    entries.sort(key=_n_targets, reverse=True)
    formats = [_entry_format(config, one["weights"]) for one in entries]
    if len(set(formats)) > 1:
        mixed = ", ".join(sorted(str(fmt) for fmt in set(formats)))
        config.note(f"weights={formats[0]} everywhere: the file mixes {mixed}")
    return formats[0]


def _n_targets(entry: Mapping[str, Any]) -> int:
    targets = entry.get("targets")
    return len(targets) if isinstance(targets, list) else 0


def _entry_format(config: Config, weights: Mapping[str, Any]) -> str | None:
    bits = config.whole("quantization_config.config_groups.weights.num_bits", weights.get("num_bits"))
    kind = str(weights.get("type", "int"))
    if bits == 8:
        blocked = weights.get("strategy") == "block" or weights.get("block_structure")
        return ("fp8-block" if blocked else "fp8") if kind == "float" else "int8"
    if bits == 4 and kind == "float":
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    return {4: "int4"}.get(bits)


def _scope(quantization: Mapping[str, Any], fmt: str) -> Scope:
    """Experts only when attention is named among the modules left alone."""
    left: list[Any] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        value = quantization.get(key)
        left += value if isinstance(value, list) else []
    attention = [item for item in left if isinstance(item, str) and _is_attention(item)]
    # one excluded layer is not a rule: a pattern over all layers or a long list is
    ruled = len(attention) >= _MANY or any(_ALL_LAYERS.search(item) for item in attention)
    return "experts-only" if attention and (ruled or fmt == "mxfp4") else "all-linear"


def _is_attention(item: str) -> bool:
    """Whether an excluded module is softmax attention or a projection of it (no norm, no indexer)."""
    found = _ATTENTION.search(item)
    return found is not None and not any(word in item for word in ("linear_attn", "norm", "index"))
