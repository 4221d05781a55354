"""The seventeen parser traps of the models reference (section 6), one test each or more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflinesim.errors import SpecError
from rooflinesim.hf_import import import_config
from rooflinesim.specs.counting import count, count_draft
from rooflinesim.specs.model import DraftSpec, ModelSpec, MoeFfn

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


def model(keys: dict[str, Any], **changes: Any) -> ModelSpec:
    spec = import_config({**keys, **changes}, name="test")
    assert isinstance(spec, ModelSpec)
    return spec


def draft(keys: dict[str, Any], **changes: Any) -> DraftSpec:
    spec = import_config({**keys, **changes}, name="test")
    assert isinstance(spec, DraftSpec)
    return spec


def moe(spec: ModelSpec) -> MoeFfn:
    found = next(layer.moe for layer in spec.layers if layer.moe is not None)
    assert found is not None
    return found


def test_01_nested_text_model_and_keys_at_either_level() -> None:
    inner = {key: value for key, value in LLAMA.items() if key not in ("architectures", "torch_dtype")}
    outer = {
        "architectures": ["XForConditionalGeneration"], "model_type": "x", "text_config": inner,
        "vision_config": {"hidden_size": 1},
        "tie_word_embeddings": True, "dtype": "float16",
    }  # fmt: skip
    spec = model(outer)
    assert (spec.hidden_size, spec.tie_embeddings, spec.native_weights) == (4096, True, "fp16")
    inner["tie_word_embeddings"] = False  # the inner one wins
    assert model(outer).tie_embeddings is False


def test_02_class_defaults() -> None:
    vicuna = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    attention = model(vicuna).layers[0].attention
    assert attention is not None and attention.n_kv_heads == 32
    gemma2 = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 256}
    assert model(gemma2).tie_embeddings is True
    assert "tie_word_embeddings=true" in model(gemma2).defaulted
    cohere = LLAMA | {"model_type": "cohere", "architectures": ["CohereForCausalLM"]}
    assert model(cohere).tie_embeddings is True
    assert model(LLAMA).tie_embeddings is False and model(LLAMA).defaulted == ()


def test_03_head_dim_is_not_hidden_over_heads() -> None:
    qwen = LLAMA | {"model_type": "qwen3", "hidden_size": 5120, "num_attention_heads": 64, "head_dim": 128}
    attention = model(qwen).layers[0].attention
    assert attention is not None and attention.head_dim == 128
    glm5 = LLAMA | {
        "model_type": "glm_moe_dsa", "head_dim": 64, "q_lora_rank": 2048, "kv_lora_rank": 512,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64, "v_head_dim": 256, "num_key_value_heads": 32,
    }  # fmt: skip
    attention = model(glm5).layers[0].attention
    assert attention is not None and attention.head_dim == 256  # the key is the rope part


@pytest.mark.parametrize(
    ("experts", "top_k"),
    [
        ("num_experts", "num_experts_per_tok"),
        ("num_local_experts", "experts_per_token"),
        ("n_routed_experts", "num_experts_per_tok"),
        ("moe_num_experts", "moe_k"),
        ("moe_num_experts", "moe_top_k"),
    ],
)
def test_04_expert_keys(experts: str, top_k: str) -> None:
    spec = model(LLAMA, model_type="qwen3_moe", moe_intermediate_size=768, **{experts: 64, top_k: 6})
    assert (moe(spec).n_experts, moe(spec).top_k, moe(spec).intermediate_size) == (64, 6, 768)


def test_04_and_05_dbrx_nests_both() -> None:
    spec = model({
        "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 6144, "n_heads": 48,
        "n_layers": 40,
        "max_seq_len": 32768, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8,
        "rope_theta": 5e5},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    })  # fmt: skip
    assert f"{count(spec).total_params / 1e9:.6f}" == "131.596524"
    assert f"{count(spec).active_params / 1e9:.6f}" == "36.469709"


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss", "minimax_m2", "phimoe", "olmoe", "cohere2_moe"])
def test_05_plain_width_is_the_experts(kind: str) -> None:
    spec = model(LLAMA, model_type=kind, num_local_experts=8, num_experts_per_tok=2, intermediate_size=1536)
    assert moe(spec).intermediate_size == 1536
    assert not any("moe_intermediate_size" in note for note in spec.defaulted)


def test_05_llama4_has_a_second_width_for_dense_layers() -> None:
    spec = model(
        LLAMA, model_type="llama4_text", num_local_experts=16, num_experts_per_tok=1, intermediate_size=8192,
        intermediate_size_mlp=16384, interleave_moe_layer_step=2,
    )  # fmt: skip
    dense = next(layer.dense for layer in spec.layers if layer.dense is not None)
    assert dense is not None and (dense.intermediate_size, moe(spec).intermediate_size) == (16384, 8192)


def test_06_unused_dense_width() -> None:
    spec = model(
        LLAMA, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=768
    )
    assert all(layer.dense is None for layer in spec.layers)
    assert "intermediate_size" not in spec.unrecognised


@pytest.mark.parametrize(
    ("keys", "shared"),
    [
        ({"model_type": "deepseek_v3", "n_shared_experts": 2}, 2 * 1024),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}, 5632),
        ({"model_type": "qwen3_moe", "shared_expert_intermediate_size": 0}, 0),
        ({"model_type": "cohere2_moe", "num_shared_experts": 4, "intermediate_size": 1024}, 4 * 1024),
        ({"model_type": "llama4_text", "intermediate_size": 1024}, 1024),
        ({"model_type": "qwen3_moe"}, 0),
    ],
)
def test_07_shared_experts(keys: dict[str, Any], shared: int) -> None:
    width = {} if keys["model_type"] in ("cohere2_moe", "llama4_text") else {"moe_intermediate_size": 1024}
    spec = model(LLAMA, num_experts=16, num_experts_per_tok=2, **width, **keys)
    assert moe(spec).shared_intermediate_size == shared


@pytest.mark.parametrize(
    ("keys", "n_dense"),
    [
        ({"first_k_dense_replace": 3}, 3),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 31, "moe_layer_interval": 1}, 1),
        ({"interleave_moe_layer_step": 1}, 0),
        ({"interleave_moe_layer_step": 2}, 16),  # layers 1, 3, 5, ... are MoE
        ({"decoder_sparse_step": 2}, 16),
        ({"mlp_only_layers": [0, 1, 2, 3, 4]}, 5),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 29, "first_k_dense_replace": 7}, 3),
        ({"moe_layer_freq": 2}, 16),
        ({"moe_layer_freq": [0] + [1] * 31}, 1),
        ({"moe_layers": [1, 3]}, 30),
    ],
)
def test_08_dense_layers(keys: dict[str, Any], n_dense: int) -> None:
    spec = model(
        LLAMA, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, **keys
    )
    assert sum(layer.count for layer in spec.layers if layer.dense is not None) == n_dense
    assert sum(layer.count for layer in spec.layers if layer.moe is not None) == 32 - n_dense


@pytest.mark.parametrize(
    ("keys", "n_windowed"),
    [
        ({"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}, 16),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 6, "sliding_window": 1024}, 27),
        ({"model_type": "gemma3_text", "_sliding_window_pattern": 6, "sliding_window": 1024}, 27),
        ({"model_type": "gemma2", "sliding_window": 4096}, 16),  # alternates with no key at all
        (
            {
                "model_type": "qwen2",
                "use_sliding_window": False,
                "sliding_window": 4096,
                "max_window_layers": 28,
            },
            0,
        ),
        (
            {
                "model_type": "qwen2",
                "use_sliding_window": True,
                "sliding_window": 4096,
                "max_window_layers": 28,
            },
            4,
        ),
        ({"model_type": "mistral", "sliding_window": 4096}, 32),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "phi3", "sliding_window": 131072}, 0),  # equals the context: never bites
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, 24),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0] * 8}, 24),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG", "sliding_window": 4096}, 24),
        ({"model_type": "cohere2", "layer_switch": 4, "sliding_window": 4096}, 24),
    ],
)
def test_09_windows(keys: dict[str, Any], n_windowed: int) -> None:
    spec = model(LLAMA, **keys)
    windowed = [layer for layer in spec.layers if layer.attention and layer.attention.scope != "full"]
    assert sum(layer.count for layer in windowed) == n_windowed
    kinds = {"chunked" if "attention_chunk_size" in keys else "sliding"} if n_windowed else set()
    assert {layer.attention.scope for layer in windowed if layer.attention} == kinds


def test_09_gemma2_even_layers_slide() -> None:
    odd = LLAMA | {"model_type": "gemma2", "sliding_window": 4096, "num_hidden_layers": 3}
    assert {layer.attention.scope: layer.count for layer in model(odd).layers if layer.attention} == {
        "sliding": 2, "full": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [{"full_attention_interval": 4}, {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8}],
)
def test_10_hybrid(keys: dict[str, Any]) -> None:
    spec = model(
        LLAMA, model_type="qwen3_next", linear_conv_kernel_dim=4, linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=16, linear_num_value_heads=32, **keys,
    )  # fmt: skip
    assert sum(layer.count for layer in spec.layers if layer.linear) == 24
    assert sum(layer.count for layer in spec.layers if layer.attention) == 8


def test_11_older_names() -> None:
    gptj = model({
        "architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_layer": 28, "n_embd": 4096,
        "n_head": 16, "n_inner": None,
        "n_positions": 2048, "vocab_size": 50400, "tie_word_embeddings": False, "rotary_dim": 64,
    })  # fmt: skip
    assert f"{count(gptj).total_params / 1e9:.6f}" == "6.050883"
    opt = model({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "num_hidden_layers": 40,
        "hidden_size": 5120, "ffn_dim": 20480,
        "num_attention_heads": 40, "max_position_embeddings": 2048, "vocab_size": 50272,
        "torch_dtype": "float16",
        "word_embed_proj_dim": 5120,
    })  # fmt: skip
    assert f"{count(opt).total_params / 1e9:.6f}" == "12.853473"


def test_11_newer_names() -> None:
    newer = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    spec = model(newer, dtype="bfloat16", rope_parameters={"rope_type": "llama3"})
    assert (spec.native_weights, spec.unrecognised, spec.defaulted) == ("bf16", (), ())


def test_12_served_context() -> None:
    assert model(LLAMA, max_position_embeddings=8192, model_max_length=131072).max_context_tokens == 131072


def test_13_padded_vocabulary_is_kept() -> None:
    assert model(LLAMA, vocab_size=151936).vocab_size == 151936


def test_14_parallel_blocks_have_one_norm() -> None:
    spec = model(LLAMA, model_type="cohere", architectures=["CohereForCausalLM"])
    assert {layer.norms for layer in spec.layers} == {1}
    assert {layer.norms for layer in model(LLAMA, model_type="gemma2").layers} == {4}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8-block", "all-linear")),
        ({"quant_method": "fp8"}, ("fp8", "all-linear")),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, ("mxfp4",
        "experts-only")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("int4", "all-linear")),
        ({"quant_method": "gptq", "bits": 8}, ("int8", "all-linear")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, ("nvfp4",
        "all-linear")),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("int4", "all-linear")),
        (
            {"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"],
             "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
            ("int4", "experts-only"),
        ),
        (None, ("bf16", "none")),
    ],
)  # fmt: skip
def test_15_number_formats(quantization: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2, "model_type": "mixtral"}
    spec = model(LLAMA | experts, quantization_config=quantization)
    assert (spec.native_weights, spec.quantized_scope) == expected


def test_15_scope_speaks_of_attention_not_of_its_norms() -> None:
    experts = LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2, "model_type": "mixtral"}
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    norms = [
        f"model.layers.{i}.self_attn.{part}" for i in range(32) for part in ("q_a_layernorm", "indexers_proj")
    ]
    assert (
        model(experts, quantization_config=fp8 | {"modules_to_not_convert": norms}).quantized_scope
        == "all-linear"
    )
    whole = [f"model.layers.{i}.self_attn*" for i in range(32)]
    assert (
        model(experts, quantization_config=fp8 | {"modules_to_not_convert": whole}).quantized_scope
        == "experts-only"
    )
    dense = model(LLAMA, quantization_config=fp8 | {"modules_to_not_convert": whole})
    assert dense.quantized_scope == "all-linear" and "attention in 16 bit" in dense.defaulted[0]


def test_15_mixed_groups_are_said() -> None:
    groups = {
        "a": {"targets": ["x"], "weights": {"num_bits": 8, "type": "float"}},
        "b": {"targets": ["y", "z"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }
    spec = model(
        LLAMA,
        quantization_config={"quant_method": "modelopt", "quant_algo": "MIXED", "config_groups": groups},
    )
    assert spec.native_weights == "nvfp4"
    assert spec.defaulted == ("weights=nvfp4 everywhere: the file mixes fp8, nvfp4",)


def test_15_format_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    beside = {"producer": {}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    spec = import_config(tmp_path)
    assert isinstance(spec, ModelSpec)
    assert (spec.native_weights, spec.native_kv) == ("nvfp4", "fp8")


def test_15_unknown_format_is_said() -> None:
    spec = model(LLAMA, quantization_config={"quant_method": "wonder"})
    assert spec.native_weights == "bf16"
    assert spec.defaulted == ("weights=bf16: quantization_config.quant_method 'wonder' is not known",)


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_16_mtp_keys(key: str) -> None:
    spec = model(LLAMA, **{key: 3})
    assert spec.n_mtp_layers == 3
    assert count(spec) == count(model(LLAMA))  # never part of the total


HEAD = LLAMA | {"num_hidden_layers": 1}


def test_17_draft_vocabulary_defaults_to_the_full_one() -> None:
    head = draft(HEAD, architectures=["LlamaForCausalLMEagle3"])
    assert (head.method, head.vocab_size, head.owns_lm_head) == ("eagle3", 128256, True)
    assert "draft_vocab_size=128256" in head.defaulted


def test_17_narrower_than_its_target() -> None:
    head = draft(
        HEAD, draft_vocab_size=32000, hidden_size=6144, target_hidden_size=8192, num_attention_heads=48
    )
    assert (head.method, head.fc_in_features) == ("eagle3", 3 * 8192)


def test_17_plain_architecture_is_an_eagle_head() -> None:
    head = draft(HEAD)
    assert (head.method, head.fc_in_features, head.fc_bias) == ("eagle", 8192, True)
    assert f"{count_draft(head).total_params / 1e9:.6f}" == "0.251666"  # EAGLE-LLaMA3.1-Instruct-8B


def test_17_known_wrong_keys() -> None:
    medusa = {
        "medusa_num_heads": 2, "medusa_num_layers": 1, "hidden_size": 4096, "vocab_size": 32000,
        "base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "torch_dtype": "float16",
    }  # fmt: skip
    head = draft(medusa)
    assert (head.method, head.n_modules) == ("medusa", 5)
    assert f"{count_draft(head).total_params / 1e9:.6f}" == "0.739267"
    assert any(note.startswith("medusa_num_heads=5") for note in head.defaulted)
    vicuna = draft(
        LLAMA, draft_vocab_size=32000, num_hidden_layers=40, hidden_size=5120, intermediate_size=13824,
        num_attention_heads=40,
        num_key_value_heads=40, vocab_size=32000,
    )  # fmt: skip
    assert f"{count_draft(vicuna).total_params / 1e9:.6f}" == "0.638341"
    assert any(note.startswith("num_hidden_layers=1") for note in vicuna.defaulted)
    wide = draft(
        HEAD,
        hidden_size=6656,
        intermediate_size=17920,
        num_attention_heads=52,
        num_key_value_heads=13,
        vocab_size=32000,
    )
    assert f"{count_draft(wide).total_params / 1e9:.6f}" == "0.557200"  # 13 KV heads, as its file says


@pytest.mark.parametrize(
    "key", ["moe_latent_size", "routed_expert_hidden_size", "linear_attn_config", "compress_ratios"]
)
def test_structure_without_a_cost_term_is_refused(key: str) -> None:
    with pytest.raises(SpecError, match=f"test: {key}: .* not covered when reading a configuration"):
        model(LLAMA, **{key: {"a": 1} if key.endswith("config") else 2048})
    assert model(LLAMA, **{key: None}).n_layers == 32


def test_layer_count_from_the_list_alone() -> None:
    keys = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    assert model(keys, layer_types=["full_attention"] * 7).n_layers == 7
    with pytest.raises(SpecError, match="num_hidden_layers: required, not given"):
        model(keys)


def test_unrecognised_keys_are_listed() -> None:
    spec = model(LLAMA, mixture_of_depths=2, rope_theta=1e6)
    assert spec.unrecognised == ("mixture_of_depths",)
    assert model(LLAMA, mixture_of_depths=None, other=False).unrecognised == ()  # off


def test_unknown_type_is_read_as_llama_and_said() -> None:
    spec = model(LLAMA, model_type="brandnew", architectures=["BrandNewForCausalLM"])
    assert spec.n_layers == 32 and spec.defaulted[0].startswith("architecture: 'brandnew' is not known")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size: required, not given"),
        ({"num_hidden_layers": None}, "num_hidden_layers: required, not given"),
        ({"vocab_size": None}, "vocab_size: required, not given"),
        ({"intermediate_size": None}, "intermediate_size: required, not given"),
        ({"max_position_embeddings": None}, "max_position_embeddings: required, not given"),
        ({"num_attention_heads": None}, "num_attention_heads: required, not given"),
        ({"num_experts": 8}, "num_experts_per_tok: absent with num_experts 8"),
        (
            {"num_experts": 8, "num_experts_per_tok": 0},
            "num_experts_per_tok: 0 with num_experts 8; 1 to 8 is allowed",
        ),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok: 9 with num_experts 8"),
        (
            {"num_attention_heads": 33, "num_key_value_heads": 33},
            "head_dim: absent, and hidden_size 4096 is not a multiple",
        ),
        ({"num_key_value_heads": 5}, "num_key_value_heads: 5 does not divide num_attention_heads 32"),
        ({"hidden_size": "big"}, "hidden_size: 'big' was given, a whole number of at least 1 is expected"),
        ({"hidden_size": -1}, "hidden_size: -1 was given"),
        ({"hidden_size": True}, "hidden_size: True was given"),
        ({"hidden_size": 10**12}, "hidden_size: 1000000000000 was given"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers: 100000 was given, at most 2000 are read"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types: 31 entries for 32 layers"),
        ({"layer_types": ["odd"] * 32}, "layer_types: 'odd' is not a known kind of layer"),
        ({"layer_types": "full"}, "layer_types: 'full' was given, a list is expected"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' was given, true or false is expected"),
        ({"quantization_config": "fp8"}, "quantization_config: 'fp8' was given, a mapping is expected"),
    ],
)
def test_errors_name_the_field_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        model(LLAMA, **changes)
    assert (
        message in str(caught.value)
        and str(caught.value).startswith("test: ")
        and "\n" not in str(caught.value)
    )


def test_empty_configuration() -> None:
    with pytest.raises(SpecError, match="empty configuration"):
        import_config({}, name="x")
