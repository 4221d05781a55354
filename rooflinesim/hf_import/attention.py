"""Which mixer each layer has, and how wide it is."""

from __future__ import annotations

from typing import Any, Final

from rooflinesim.hf_import.families import Family
from rooflinesim.hf_import.reader import Config
from rooflinesim.specs.model import Attention, Indexer, LinearMixer, Mla

#: Names in ``layer_types`` / ``layers_block_type`` to one letter: F full, S sliding, C chunked, L linear,
#: M Mamba-2, and for one-block-per-layer models E (experts) and D (dense feed-forward) without a mixer.
_LETTERS: Final = {
    "full_attention": "F", "attention": "F", "full": "F", "global": "F", "hybrid": "F",
    "global_attention": "F", "deepseek_sparse_attention": "F",
    "sliding_attention": "S", "sliding": "S", "local": "S", "local_attention": "S", "sliding_window": "S",
    "chunked_attention": "C", "linear_attention": "L", "mamba": "M", "mamba2": "M", "moe": "E", "mlp": "D",
}  # fmt: skip
_CONTEXT: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "max_context_length",
    "seq_length",
)
_HYBRID_LETTERS: Final = {"M": "M", "*": "F", "-": "D", "E": "E"}


def layer_letters(config: Config, family: Family, name: str, n_layers: int) -> str:
    """One letter per layer: which mixer it has."""
    window = _window(config, family)
    letters = _listed(config, n_layers)
    if letters is None:
        letters = _patterned(config, family, name, n_layers, windowed=window is not None)
    if window is None and "S" in letters:
        config.note("sliding layers read as full: no sliding_window is given")
        letters = letters.replace("S", "F")
    return letters


def _listed(config: Config, n_layers: int) -> str | None:
    """The layers as the file lists them, whatever the key is called."""
    names = config.listing("layer_types", "layers_block_type", least_length=n_layers)
    if names is not None:
        config.raw("full_attention_interval")  # says the same
        unknown = [one for one in names if str(one) not in _LETTERS]
        if unknown:
            raise config.fail("layer_types", f"{str(unknown[0])[:40]!r} is not a known kind of layer")
        if len(names) > n_layers:
            config.note(f"layer_types: {len(names) - n_layers} entries beyond num_hidden_layers left out")
        return "".join(_LETTERS[str(one)] for one in names[:n_layers])
    found = config.raw("hybrid_override_pattern")
    if found is not None:
        text = str(found[1])
        if len(text) != n_layers or set(text) - set(_HYBRID_LETTERS):
            raise config.fail(
                found[0], f"{text[:40]!r} needs {n_layers} letters of {' '.join(_HYBRID_LETTERS)}"
            )
        return "".join(_HYBRID_LETTERS[one] for one in text)
    mask = config.listing("hybrid_layer_pattern", least_length=n_layers)
    if mask is not None:
        config.raw("attention_chunk_size")
        return "".join("S" if one else "F" for one in mask[:n_layers])
    return None


def _patterned(config: Config, family: Family, name: str, n_layers: int, *, windowed: bool) -> str:
    """The layers as a rule: every n-th full, alternation, or the same kind throughout."""
    defaults = family.defaults
    if config.has("linear_num_value_heads") or "linear_num_value_heads" in defaults:
        every = config.need("full_attention_interval", default=defaults.get("full_attention_interval"))
        return "".join("F" if (i + 1) % every == 0 else "L" for i in range(n_layers))
    if config.has("attention_chunk_size") or "attention_chunk_size" in defaults:
        rope = config.listing("no_rope_layers")
        if rope is not None and len(rope) >= n_layers:
            return "".join("C" if one else "F" for one in rope[:n_layers])
        every = config.quiet(
            "no_rope_layer_interval", default=int(defaults.get("no_rope_layer_interval", 4)), least=1
        )
        return "".join("F" if (i + 1) % every == 0 else "C" for i in range(n_layers))
    if not windowed:
        config.raw("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
        return "F" * n_layers
    if name == "gemma2":  # alternates without saying so; even layers slide
        return ("SF" * n_layers)[:n_layers]
    found = config.raw("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
    if found is None and "sliding_window_pattern" in defaults:
        config.note(f"sliding_window_pattern={defaults['sliding_window_pattern']}")
        found = ("sliding_window_pattern", defaults["sliding_window_pattern"])
    if found is not None and isinstance(found[1], str):  # such as LLLG
        local = found[1].upper().replace("L", "S").replace("G", "F")
        if not local or set(local) - set("SF"):
            raise config.fail(found[0], f"{found[1][:40]!r} needs letters L (local) and G (global)")
        return (local * n_layers)[:n_layers]
    if found is not None:
        every = config.whole(*found)
        return "".join("F" if (i + 1) % every == 0 else "S" for i in range(n_layers))
    if name.startswith("qwen"):  # only layers from max_window_layers on slide
        first = config.quiet("max_window_layers", default=n_layers)
        return "F" * min(first, n_layers) + "S" * max(0, n_layers - first)
    return "S" * n_layers


def _window(config: Config, family: Family) -> int | None:
    """The sliding window in tokens, ``None`` when there is none or it can never bite."""
    used = config.raw("use_sliding_window")
    if used is not None and used[1] is False:
        config.raw("sliding_window", "sliding_window_size")
        return None
    present = "sliding_window" in config.keys or "sliding_window_size" in config.keys
    value = config.number("sliding_window", "sliding_window_size")
    if value is None and not present and "sliding_window" in family.defaults:
        value = int(family.defaults["sliding_window"])
        config.note(f"sliding_window={value}")
    longest = context_tokens(config, family, note=False)
    return None if value is None or (longest is not None and value >= longest) else value


def context_tokens(config: Config, family: Family, *, note: bool = True) -> int | None:
    """Longest context: the larger of the position limit and ``model_max_length`` (Command R+ gives both)."""
    limits = [config.number(*_CONTEXT), config.number("model_max_length")]
    known = [limit for limit in limits if limit is not None]
    if not known and "max_position_embeddings" in family.defaults:
        known = [int(family.defaults["max_position_embeddings"])]
        if note:
            config.note(f"max_position_embeddings={known[0]}")
    return max(known, default=None)


class MixerBuilder:
    """Builds the attention or linear mixer of one layer; per-layer lists are read by index."""

    def __init__(self, config: Config, family: Family, *, hidden: int) -> None:
        self.config, self.family, self.hidden = config, family, hidden
        self.window = _window(config, family)
        self.mla = self._mla()

    def _value(self, names: tuple[str, ...], index: int, default: int | None = None) -> int | None:
        found = self.config.raw(*names)
        if found is not None and isinstance(found[1], list):
            if index >= len(found[1]):
                raise self.config.fail(found[0], f"{len(found[1])} entries, layer {index} needs one")
            return self.config.whole(found[0], found[1][index])
        return self.config.number(*names, default=default)

    def _mla(self) -> Mla | None:
        config = self.config
        if not config.has("kv_lora_rank"):
            return None
        return Mla(
            q_lora_rank=config.number("q_lora_rank"),
            kv_lora_rank=config.need("kv_lora_rank"),
            qk_nope_head_dim=config.need("qk_nope_head_dim"),
            qk_rope_head_dim=config.need("qk_rope_head_dim"),
            v_head_dim=config.need("v_head_dim"),
        )

    def heads(self, index: int, letter: str) -> tuple[int, int, int, int | None]:
        """Query heads, KV heads, query/key width and value width of one layer."""
        config, defaults = self.config, self.family.defaults
        swa = letter == "S"
        names = ("num_attention_heads", "n_heads", "n_head", "num_query_heads")
        heads = self._value(("swa_num_attention_heads",), index) if swa else None
        heads = heads or self._value(names, index, defaults.get("num_attention_heads"))
        if heads is None:
            raise config.fail("num_attention_heads", "required, not given")
        kv = self._value(("swa_num_key_value_heads",), index) if swa else None
        if letter == "F" and config.has("num_global_key_value_heads"):
            kv = config.number("num_global_key_value_heads")
        kv_names = ("num_key_value_heads", "num_kv_heads", "kv_n_heads", "n_kv_heads", "num_key_value_groups")
        if kv is None and config.flag("multi_query", default=False):
            kv = 1
        kv = kv or self._value(kv_names, index, defaults.get("num_key_value_heads"))
        if kv is None:  # multi-head attention
            kv = heads
        if self.mla is None and heads % kv:
            raise config.fail("num_key_value_heads", f"{kv} does not divide num_attention_heads {heads}")
        width = config.number("swa_head_dim") if swa else None
        if letter == "F" and config.has("global_head_dim"):
            width = config.number("global_head_dim")
        if width is None:
            width = config.number("head_dim", "attention_head_dim", "kv_channels")
        if width is None and "head_dim" in defaults:
            width = config.need("head_dim", default=defaults["head_dim"])
        if width is None:
            if self.hidden % heads:
                raise config.fail(
                    "head_dim", f"absent, and hidden_size {self.hidden} is not a multiple of {heads} heads"
                )
            width = self.hidden // heads
        v_width = config.number("swa_v_head_dim") if swa else None
        if v_width is None and self.mla is None:
            v_width = config.number("v_head_dim")
        return heads, kv, width, None if v_width == width else v_width

    def attention(self, index: int, letter: str, *, kv_heads: int | None = None) -> Attention:
        """The softmax attention of layer ``index``; ``kv_heads`` overrides the file's (per-block lists)."""
        config, family = self.config, self.family
        heads, kv, width, v_width = self.heads(index, letter)
        kv = kv_heads or kv
        bias = family.bias_key if config.flag("attention_bias", "qkv_bias", default=False) else family.bias
        norm = family.qk_norm
        wanted = config.flag("use_qk_norm", default=not family.qk_norm_when)
        if family.qk_norm_when and not wanted:
            norm = "none"  # without a family's norm the key speaks of one without weights (Llama 4)
        if config.flag("normalize_qk_projections", default=False):
            norm = "head"
        if family.qk_norm == "full" and str((config.raw("qk_norm_type") or ("", ""))[1]) == "per_head":
            norm = "head"
        common: dict[str, Any] = {
            "scope": {"F": "full", "S": "sliding", "C": "chunked"}[letter],
            "window_tokens": self._scope_window(letter),
            "n_heads": heads,
            "q_bias": bias != "none",
            "kv_bias": bias != "none",
            "o_bias": bias == "qkvo",
            "sinks": family.sinks or config.flag(_sink_key(letter), default=False),
            "output_gate": family.output_gate,
        }
        config.flag(
            "attn_output_gate", "add_full_attention_sink_bias", "add_swa_attention_sink_bias", default=False
        )
        if self.mla is not None:
            width = self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim
            return Attention(
                kind="mla", n_kv_heads=1, head_dim=width, mla=self.mla, indexer=self._indexer(), **common
            )  # the head_dim key may be the rope part alone
        return Attention(
            n_kv_heads=kv,
            head_dim=width,
            v_head_dim=v_width,
            qk_norm=norm != "none",
            qk_norm_full=norm == "full",
            **common,
        )

    def _scope_window(self, letter: str) -> int | None:
        if letter == "C":
            default = self.family.defaults.get("attention_chunk_size")
            return self.config.need("attention_chunk_size", default=default)
        return self.window if letter == "S" else None

    def _indexer(self) -> Indexer | None:
        config = self.config
        if not config.has("index_n_heads"):
            return None
        return Indexer(
            n_heads=config.need("index_n_heads"),
            head_dim=config.need("index_head_dim"),
            top_k=config.need("index_topk"),
        )

    def linear(self, letter: str) -> LinearMixer:
        """The linear mixer: gated delta net (L) or Mamba-2 (M)."""
        config, defaults = self.config, self.family.defaults
        if letter == "L":

            def need(key: str) -> int:
                return config.need(key, default=defaults.get(key))

            return LinearMixer(
                n_key_heads=need("linear_num_key_heads"),
                n_value_heads=need("linear_num_value_heads"),
                key_head_dim=need("linear_key_head_dim"),
                value_head_dim=need("linear_value_head_dim"),
                conv_kernel=need("linear_conv_kernel_dim"),
            )
        return LinearMixer(
            kind="mamba2",
            n_key_heads=config.need("n_groups", "mamba_n_groups", "mamba_num_groups"),
            n_value_heads=config.need("mamba_num_heads", "mamba_n_heads"),
            key_head_dim=config.need("ssm_state_size", "mamba_d_state", "state_size"),
            value_head_dim=config.need("mamba_head_dim", "mamba_d_head"),
            conv_kernel=config.need("conv_kernel", "mamba_d_conv"),
        )


def _sink_key(letter: str) -> str:
    return "add_swa_attention_sink_bias" if letter == "S" else "add_full_attention_sink_bias"
