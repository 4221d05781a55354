"""A configuration that remembers which of its keys were read, and names the field in every error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rooflinesim.errors import SpecError

#: where families nest the language model
_NESTED: Final = ("text_config", "llm_config", "language_config", "transformer_layer_config")
#: widths and counts above this are a mistake (or an attack), not a model
_LARGEST: Final = 1_000_000_000
MAX_LAYERS: Final = 2_000

#: Keys that say nothing about shape, cache or arithmetic: read by nobody, and not worth listing.
IGNORED: Final = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _from_model_config
    _name_or_path activation_function adapters_path add_bos_token add_cross_attention architectures
    attention_dropout attention_multiplier attention_value_scale attn_implementation
    attn_logit_softcapping attn_pdrop attn_type_list audio_config audio_token_id auto_map aux_loss_alpha
    bad_words_ids begin_suppress_tokens beta_fast beta_slow boa_token_id boi_token_id boi_token_index
    bos_token_id cache_implementation chunk_size chunk_size_feed_forward clip_qkv compression_config
    conv_bias cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dropout
    dtype e_score_correction_bias early_stopping embd_pdrop embed_requires_grad embedding_dropout
    embedding_multiplier encoder_no_repeat_ngram_size eoa_token_id eoa_token_index eoi_token_id
    eoi_token_index eos_token_id ep_size expand expand_ratio exponential_decay_length_penalty ffn_act_fn
    final_logit_softcapping finetuning_task forced_bos_token_id forced_eos_token_id fuse_attention_norm
    gradient_checkpointing head_dtype hidden_act hidden_activation hidden_dropout id2label ignore_index
    image_token_id image_token_index indexer_rope_interleave initial_context_length initializer_range
    initializer_std is_decoder label2id language_model_only layer_norm_eps layer_norm_epsilon
    layer_norm_rms_eps layerdrop layernorm_epsilon length_penalty license logit_scale logits_scaling
    mamba_hidden_act mamba_proj_bias mamba_ssm_cache_dtype mamba_ssm_dtype max_length max_window_layers
    media_placeholder_token_id min_length mlp_hidden_act mm_tokens_per_image model_type
    moe_aux_loss_coef moe_capacity moe_renormalize moe_router_activation_func moe_router_dtype
    moe_router_scaling_factor moe_shared_expert_overlap mrope_section mscale n_group name_or_path
    no_repeat_ngram_size norm_eps norm_epsilon norm_topk_prob norm_type num_attention_sink_tokens
    num_beam_groups num_beams num_expert_group num_logits_to_keep num_return_sequences
    order_of_interleaved_layers output_attentions output_gate_type output_hidden_states
    output_router_logits output_scores pad_token_id partial_rotary_factor position_embedding_type prefix
    pretraining_tp problem_type pruned_heads qk_head_dim query_pre_attn_scalar remove_invalid_values
    reorder_and_upcast_attn repetition_penalty rescale_prenorm_residual resid_pdrop residual_dropout
    residual_in_fp32 residual_multiplier return_dict return_dict_in_generate rms_norm_eps
    rope_freq_constant rope_interleave rope_local_base_freq rope_parameters rope_scaling rope_theta
    rope_type rotary rotary_dim rotary_emb_base rotary_pct routed_scaling_factor router_aux_loss_coef
    router_jitter_noise router_z_loss_coef sampler scale_attn_weights scale_embedding scoring_func
    scoring_function sep_token_id seq_aux skip_bias_add special_token_ids summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
    swa_rope_theta swiglu_alpha swiglu_limit task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder time_step_floor time_step_limit time_step_max time_step_min time_step_rank
    token_type_ids tokenizer_class tokenizer_mode top_k top_p topk_group topk_method torch_dtype
    torchscript transformers_js_config transformers_version typical_p unk_token_id use_bfloat16
    use_bidirectional_attention use_cache use_conv_bias use_embedding_sharing use_gated_activation
    use_gemma_norm use_grouped_topk use_mamba_kernels use_moe_router_bias use_mrope
    use_parallel_embedding use_router_bias use_routing_bias use_unified_vision_chunk video_placeholder
    video_token_id video_token_index vision_config vision_end_token_id vision_soft_tokens_per_image
    vision_start_token_id wandb
    """.split()  # noqa: SIM905 - one list in readable width
)


class Config:
    """Typed access to a configuration. A nested text model's keys win over the outer ones; null is absent."""

    def __init__(self, data: Mapping[str, Any], *, where: str) -> None:
        self.where = where
        self.outer = dict(data)
        self.nested = next((key for key in _NESTED if isinstance(data.get(key), Mapping)), None)
        inner = dict(data[self.nested]) if self.nested else {}
        self.keys: dict[str, Any] = {**{k: v for k, v in self.outer.items() if k != self.nested}, **inner}
        for key, value in self.outer.items():  # null inside, value outside: the value
            if key in inner and inner[key] is None and value is not None:
                self.keys[key] = value
        self.used: set[str] = set()
        self.defaulted: list[str] = []

    def fail(self, field: str, problem: str) -> SpecError:
        """The error to raise for ``field``."""
        return SpecError(f"{self.where}: {field}: {problem}")

    # -- what is it ---------------------------------------------------------------------------------------

    @property
    def model_type(self) -> str:
        """The text model's type when there is one, else the outer type, else by architecture."""
        value = self.keys.get("model_type") or ""
        return str(value).lower()

    @property
    def architecture(self) -> str:
        """The first architecture, of the outer file if it names one."""
        for holder in (self.outer, self.keys):
            names = holder.get("architectures")
            if isinstance(names, list) and names and isinstance(names[0], str):
                return names[0]
        return ""

    # -- values -------------------------------------------------------------------------------------------

    def raw(self, *names: str) -> tuple[str, Any] | None:
        """The first of ``names`` that is present and not null, with its value; all of them count as read."""
        self.used.update(names)
        for name in names:
            if self.keys.get(name) is not None:
                return name, self.keys[name]
        return None

    def has(self, *names: str) -> bool:
        """Whether one of the keys is present and not null; does not count as reading it."""
        return any(self.keys.get(name) is not None for name in names)

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number under the first name present; ``default`` (noted as defaulted) when none is."""
        found = self.raw(*names)
        if found is None:
            if default is not None:
                self.note(f"{names[0]}={default}")
            return default
        return self.whole(*found, least=least)

    def whole(self, name: str, value: Any, *, least: int = 1) -> int:
        """``value`` as a whole number of at least ``least``."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise self.fail(
                name, f"{_short(value)} was given, a whole number of at least {least} is expected"
            )
        return value

    def need(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """As :meth:`number`, but required."""
        value = self.number(*names, default=default, least=least)
        if value is None:
            others = f" (or {', '.join(names[1:4])})" if len(names) > 1 else ""
            raise self.fail(names[0], f"required, not given{others}")
        return value

    def quiet(self, *names: str, default: int = 0, least: int = 0) -> int:
        """A whole number with a default so ordinary that it is not noted."""
        found = self.raw(*names)
        return default if found is None else self.whole(*found, least=least)

    def flag(self, *names: str, default: bool, note: bool = False) -> bool:
        """A boolean; ``note`` records a default."""
        found = self.raw(*names)
        if found is None:
            if note:
                self.note(f"{names[0]}={str(default).lower()}")
            return default
        if not isinstance(found[1], bool | int):
            raise self.fail(found[0], f"{_short(found[1])} was given, true or false is expected")
        return bool(found[1])

    def listing(self, *names: str, least_length: int = 0) -> list[Any] | None:
        """A list of at least ``least_length`` entries."""
        found = self.raw(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, list):
            raise self.fail(name, f"{_short(value)} was given, a list is expected")
        if len(value) < least_length:
            raise self.fail(name, f"{len(value)} entries for {least_length} layers")
        return value

    def section(self, *names: str) -> dict[str, Any]:
        """A nested mapping, empty when absent."""
        found = self.raw(*names)
        if found is None:
            return {}
        if not isinstance(found[1], Mapping):
            raise self.fail(found[0], f"{_short(found[1])} was given, a mapping is expected")
        return dict(found[1])

    def lift(self, section: str) -> None:
        """Make the keys of a nested section readable as if they stood beside it (outer keys win)."""
        for key, value in self.section(section).items():
            if self.keys.get(key) is None:
                self.keys[key] = value

    def note(self, text: str) -> None:
        """Record something that was assumed."""
        if text not in self.defaulted:
            self.defaulted.append(text)

    @property
    def unrecognised(self) -> tuple[str, ...]:
        """Keys that nobody read and that are not known to be irrelevant. What is null, false or 0 is off."""
        present = {key for key, value in self.keys.items() if value}
        return tuple(sorted(present - self.used - IGNORED - set(_NESTED)))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
