"""Which feed-forward block each layer has: dense or experts, and how wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rooflinesim.hf_import.families import Family
from rooflinesim.hf_import.reader import Config
from rooflinesim.specs.model import DenseFfn, MoeFfn

_EXPERTS: Final = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_routed_experts",
)
_TOP_K: Final = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_k",
    "moe_top_k",
    "moe_topk",
    "top_k_experts",
)
_DENSE: Final = (
    "dense_intermediate_size",
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "inner_dim",
    "ffn_hidden_size",
)
_PLAIN_ACTIVATIONS: Final = ("relu2",)


class FfnBuilder:
    """Builds the feed-forward block of one layer."""

    def __init__(self, config: Config, family: Family, *, hidden: int, n_layers: int) -> None:
        self.config, self.family, self.hidden, self.n_layers = config, family, hidden, n_layers
        self.moe = self._moe()
        self.moe_layers = self._moe_layers() if self.moe is not None else frozenset()
        act = str((config.raw("mlp_hidden_act", "hidden_act") or ("", ""))[1])
        self.gated = config.flag("ffn_with_glu", default=family.gated and act not in _PLAIN_ACTIVATIONS)

    # -- experts --------------------------------------------------------------------------------------------

    def _moe(self) -> MoeFfn | None:
        config, family = self.config, self.family
        found = config.raw(*_EXPERTS)
        if found is None:
            return None
        count = found[1]
        if isinstance(count, list) and count:  # one entry per modality: the text experts come first
            count = count[0]
        n_experts = config.whole(found[0], count, least=0)
        if n_experts <= 1:
            config.raw(*_TOP_K)
            return None
        top = config.raw(*_TOP_K)
        top_k = 0 if top is None else config.whole(top[0], top[1], least=0)
        if not 1 <= top_k <= n_experts:
            given = "absent" if top is None else str(top_k)
            field = top[0] if top else _TOP_K[0]
            raise config.fail(field, f"{given} with {found[0]} {n_experts}; 1 to {n_experts} is allowed")
        width = self._expert_width()
        return MoeFfn(
            n_experts=n_experts,
            top_k=top_k,
            intermediate_size=width,
            shared_intermediate_size=self._shared(width),
            gated=family.gated,
            router_bias=family.router_bias,
            expert_bias=family.expert_bias,
            shared_gate=family.shared_gate,
        )

    def _expert_width(self) -> int:
        config = self.config
        found = config.raw("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size")
        if found is not None:
            value = found[1][0] if isinstance(found[1], list) and found[1] else found[1]
            return config.whole(found[0], value)
        if not self.family.width_is_expert and not config.has("ffn_hidden_size"):
            config.note("moe_intermediate_size=intermediate_size")
        return config.need("ffn_hidden_size", "intermediate_size")

    def _shared(self, width: int) -> int:
        """Total width of the shared experts: given (Qwen), a count (DeepSeek, Command), implied (Llama 4)."""
        config = self.config
        if self.family.dense_beside_experts:
            config.raw("enable_moe_block")
            return config.need(*_DENSE)
        total = config.raw(
            "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
            "shared_intermediate_size", "share_expert_dim",
        )  # fmt: skip
        count = config.quiet(
            "n_shared_experts",
            "num_shared_experts",
            "moe_num_shared_experts",
            default=self.family.shared_implicit,
        )
        if total is not None:
            each = config.whole(total[0], total[1], least=0)
            return each * max(1, count) if total[0].startswith("moe_") else each
        return count * width

    def _moe_layers(self) -> frozenset[int]:
        config, n_layers = self.config, self.n_layers
        layers = set(range(n_layers))
        kinds = config.listing("mlp_layer_types")
        if kinds is not None:
            config.raw("first_k_dense_replace", "moe_layer_freq")
            return frozenset(i for i, kind in enumerate(kinds) if kind != "dense")
        listed = config.listing("moe_layers")
        if listed:
            return frozenset(config.whole("moe_layers", one, least=0) for one in listed)
        mask = config.raw("moe_layer_freq")
        if mask is not None and isinstance(mask[1], list):
            flags = config.listing("moe_layer_freq", least_length=n_layers) or []
            config.raw("first_k_dense_replace")
            return frozenset(i for i in range(n_layers) if flags[i])
        first = config.quiet("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
        last = config.quiet("moe_layer_end_index", default=n_layers - 1, least=-1)
        layers = {i for i in layers if first <= i and (last < 0 or i <= last)}
        if mask is not None:
            every = config.whole(*mask)
            layers = {i for i in layers if i % every == 0}
        step = config.quiet(
            "moe_layer_interval", "interleave_moe_layer_step", "decoder_sparse_step", default=1, least=0
        )
        if step == 0:
            return frozenset()
        layers = {i for i in layers if (i + 1) % step == 0}
        return frozenset(
            layers - {one for one in config.listing("mlp_only_layers") or [] if isinstance(one, int)}
        )

    # -- dense ----------------------------------------------------------------------------------------------

    def _dense_width(self, index: int) -> int:
        config = self.config
        multipliers = config.listing("ffn_multipliers")
        if multipliers is not None:
            if index >= len(multipliers):
                raise config.fail("ffn_multipliers", f"{len(multipliers)} entries, layer {index} needs one")
            divisor = config.quiet("ffn_dim_divisor", default=1, least=1)
            return make_divisible(_real(config, "ffn_multipliers", multipliers[index]) * self.hidden, divisor)
        if config.has("intermediate_size_mlp"):
            config.raw("intermediate_size")
            return config.need("intermediate_size_mlp")
        found = config.raw(*_DENSE)
        if found is not None and isinstance(found[1], list):
            if index >= len(found[1]):
                raise config.fail(found[0], f"{len(found[1])} entries, layer {index} needs one")
            return config.whole(found[0], found[1][index])
        if found is None and any(name in config.keys for name in ("n_inner", "n_embd")):
            return 4 * self.hidden  # GPT-J and GPT-2: null means four times
        return config.need(*_DENSE)

    def dense(self, index: int) -> DenseFfn:
        """The dense block of layer ``index``."""
        bias = self.family.mlp_bias or self.config.flag("mlp_bias", default=False)
        return DenseFfn(intermediate_size=self._dense_width(index), gated=self.gated, bias=bias)

    def block(self, index: int) -> dict[str, Any]:
        """``{"moe": ...}`` or ``{"dense": ...}`` for layer ``index``."""
        if self.moe is not None and index in self.moe_layers:
            return {"moe": self.moe}
        return {"dense": self.dense(index)}

    def unused_width(self) -> None:
        """A dense width beside experts everywhere is present and unused (Qwen3 MoE): read, so not listed."""
        if self.moe is not None:
            self.config.raw(*_DENSE)
            self.config.raw("intermediate_size_mlp")


def make_divisible(value: float, divisor: int) -> int:
    """``value`` rounded to the nearest multiple of ``divisor``, never more than a tenth below it (OpenELM).

    >>> make_divisible(0.63 * 2048, 256), make_divisible(0.5 * 2048, 256)
    (1280, 1024)
    """
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def block_width(config: Config, block: Mapping[str, Any], *, hidden: int) -> int | None:
    """Feed-forward width of a Nemotron block: given, or 2/3 of a multiple of hidden rounded up to 256."""
    if block.get("no_op"):
        return None
    if block.get("replace_with_linear"):
        raise config.fail("block_configs", "a feed-forward block replaced by one linear layer is not priced")
    if block.get("intermediate_size") is not None:
        return config.whole("block_configs.ffn.intermediate_size", block["intermediate_size"])
    width = int(2 * _real(config, "block_configs.ffn.ffn_mult", block.get("ffn_mult")) * hidden / 3)
    return -(-width // 256) * 256


def _real(config: Config, field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e4:
        raise config.fail(field, f"{str(value)[:40]!r} was given, a positive number is expected")
    return float(value)
