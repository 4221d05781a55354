"""Configurations that broke other parsers (user cases J7-01 to J7-17), and calculators' mistakes (C6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflinesim import registry
from rooflinesim.errors import SpecError
from rooflinesim.hf_import import import_config
from rooflinesim.specs.counting import count, count_draft, kv_elems_at
from rooflinesim.specs.model import DraftSpec, ModelSpec

GIB = 1024.0**3
FIXTURES = Path(__file__).parents[2] / "fixtures" / "hf_configs"


def model(**keys: Any) -> ModelSpec:
    spec = import_config({"torch_dtype": "bfloat16", **keys}, name="test")
    assert isinstance(spec, ModelSpec)
    return spec


def draft(**keys: Any) -> DraftSpec:
    spec = import_config(keys, name="test")
    assert isinstance(spec, DraftSpec)
    return spec


def kv_bytes(spec: ModelSpec, context_tokens: int) -> float:
    return 2.0 * kv_elems_at(spec.layers, context_tokens=context_tokens)


def test_j7_01_null_head_dim_is_absent() -> None:
    spec = model(
        architectures=["MixtralForCausalLM"], model_type="mixtral", head_dim=None, hidden_size=6144,
        intermediate_size=16384,
        num_hidden_layers=56, num_attention_heads=48, num_key_value_heads=8, num_local_experts=8,
        num_experts_per_tok=2,
        vocab_size=32000, max_position_embeddings=65536, tie_word_embeddings=False,
    )  # fmt: skip
    assert spec.layers[0].attention is not None and spec.layers[0].attention.head_dim == 128
    assert f"{count(spec).total_params / 1e9:.6f}" == "140.620634"


def test_j7_03_sparse_nested_gemma() -> None:
    spec = model(
        architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3",
        text_config={"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34,
                     "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        vision_config={"hidden_size": 1152},
    )  # fmt: skip
    attention = spec.layers[0].attention
    assert attention is not None
    assert (attention.n_heads, attention.n_kv_heads, attention.head_dim) == (8, 4, 256)
    assert {"num_attention_heads=8", "num_key_value_heads=4", "head_dim=256"} <= set(spec.defaulted)
    # Gemma-3-4B: 4.3 B published with a 0.42 B vision part
    assert count(spec).total_params / 1e9 + 0.42 == pytest.approx(4.3, rel=0.015)


def test_j7_05_openelm_lists_per_layer() -> None:
    heads = [16] * 3 + [20] * 7 + [24] * 8 + [28] * 6 + [32] * 4
    multipliers = [0.5, 0.63, 0.76, 0.89, 1.02, 1.15, 1.28, 1.41, 1.54, 1.67, 1.8, 1.93, 2.06, 2.19, 2.31,
    2.44, 2.57, 2.7,
                   2.83, 2.96, 3.09, 3.22, 3.35, 3.48, 3.61, 3.74, 3.87, 4.0]  # fmt: skip
    spec = model(
        architectures=["OpenELMForCausalLM"], model_type="openelm", model_dim=2048,
        num_transformer_layers=28, head_dim=64,
        num_query_heads=heads, num_kv_heads=[n // 4 for n in heads], ffn_multipliers=multipliers,
        ffn_dim_divisor=256,
        ffn_with_glu=True, share_input_output_layers=True, normalize_qk_projections=True, vocab_size=32000,
        max_context_length=2048, num_gqa_groups=4, qkv_multipliers=[0.5, 1.0],
    )  # fmt: skip
    assert spec.n_layers == 28
    # per-layer sums, not layer 0 everywhere: sum of kv heads x 2 x 64
    assert count(spec).kv_elems_per_token_full == sum(n // 4 for n in heads) * 2 * 64
    widths = [layer.dense.intermediate_size for layer in spec.layers if layer.dense]
    assert (widths[0], widths[1], widths[-1]) == (1024, 1280, 8192)  # 0.63 x 2048 = 1290 to a multiple of 256
    assert count(spec).total_params / 1e9 == pytest.approx(1.08, rel=0.015)  # OpenELM-1.1B as published


def test_j7_07_hybrid_charges_attention_layers_only() -> None:
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 8
    spec = model(
        architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5_text", layer_types=kinds,
        num_hidden_layers=32,
        hidden_size=4096, intermediate_size=12288, num_attention_heads=16, num_key_value_heads=4,
        head_dim=256,
        linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4, vocab_size=248320, max_position_embeddings=262144,
    )  # fmt: skip
    assert 2 * count(spec).kv_elems_per_token_full == 32_768  # 8 x 2 x 4 x 256 x 2 B
    # 24 layers of 32 x 128 x 128 state and 3 x (2 x 2048 + 4096) convolution inputs
    assert count(spec).linear_state_elems_per_seq == 24 * (32 * 128 * 128 + 3 * (2 * 2048 + 4096))


LAYER = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip


def test_j7_09_backbone_under_transformer_layer_config() -> None:
    head = draft(
        architectures=["Eagle3Speculator"], speculators_model_type="eagle3", transformer_layer_config=LAYER,
        draft_vocab_size=32000,
        target_hidden_size=None, norm_before_residual=True, dtype="bfloat16",
        speculators_config={"algorithm": "eagle3",
        "verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct"}},
    )  # fmt: skip
    assert (head.method, head.hidden_size, head.vocab_size, head.fc_in_features) == (
        "eagle3",
        4096,
        32000,
        3 * 4096,
    )
    assert head.target_id == "meta-llama/Llama-3.1-8B-Instruct"
    assert head.unrecognised == ()


@pytest.mark.parametrize("holder", ["eagle_config", "top"])
@pytest.mark.parametrize(
    "key", ["eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids"]
)
def test_j7_09_four_taps_under_any_name(key: str, holder: str) -> None:
    taps = {key: [2, 10, 18, 29]}
    extra = {"eagle_config": taps} if holder == "eagle_config" else taps
    head = draft(**LAYER, architectures=["LlamaForCausalLMEagle3"], target_hidden_size=5120, **extra)
    assert (head.n_aux_hidden_states, head.fc_in_features) == (4, 4 * 5120)
    assert head.aux_layer_ids == (2, 10, 18, 29)
    assert head.vocab_size == 128256  # the target's when no draft_vocab_size is given, never 0
    assert count_draft(head).total_params > 128256 * 4096


def test_j7_09_block_drafters() -> None:
    head = draft(
        **(LAYER | {"model_type": "qwen3", "intermediate_size": 12288, "num_hidden_layers": 5,
        "vocab_size": 151936, "head_dim": 128}),
        architectures=["DFlashDraftModel"], block_size=16, num_target_layers=36,
        dflash_config={"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}, dtype="bfloat16",
    )  # fmt: skip
    assert (head.method, head.block_size, head.owns_lm_head) == ("dflash", 16, False)
    assert f"{count_draft(head).total_params / 1e9:.6f}" == "1.048626"
    assert head.unrecognised == ()


def test_j7_11_nemotron_h_one_block_per_layer() -> None:
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    keys: dict[str, Any] = {
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 2688,
        "num_hidden_layers": 52,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "n_routed_experts": 128,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1,
        "intermediate_size": 1856,
        "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
        "vocab_size": 131072,
        "tie_word_embeddings": False, "max_position_embeddings": 262144, "mlp_hidden_act": "relu2",
    }  # fmt: skip
    spec = model(**keys, hybrid_override_pattern=pattern)
    by_kind = [
        sum(layer.count for layer in spec.layers if getattr(layer, kind))
        for kind in ("attention", "linear", "moe")
    ]
    assert by_kind == [6, 23, 23]
    assert sum(by_kind) == spec.n_layers == 52
    assert count(spec).kv_elems_per_token_full == 6 * 2 * 2 * 128
    assert count(spec).total_params / 1e9 == pytest.approx(31.6, rel=0.015)  # Nemotron 3 Nano as published
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    listed = model(**keys, layers_block_type=[words[letter] for letter in pattern])
    assert listed.layers == spec.layers


def test_j7_11_nemotron_nas_blocks() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25, "no_op": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 1.3125, "no_op": False}},
        {"attention": {"n_heads_in_group": 16, "no_op": False}, "ffn": {"ffn_mult": None, "no_op": True}},
    ]
    spec = model(
        architectures=["DeciLMForCausalLM"], model_type="nemotron-nas", hidden_size=8192,
        num_hidden_layers=3, num_attention_heads=64,
        num_key_value_heads=None, intermediate_size=None, block_configs=blocks, vocab_size=128256,
        max_position_embeddings=131072,
    )  # fmt: skip
    assert [layer.attention.n_kv_heads if layer.attention else 0 for layer in spec.layers] == [8, 0, 4]
    # 2/3 x 5.25 x 8192 = 28672, the width of Llama-3.1-70B; 1.3125 gives 7168
    assert [layer.dense.intermediate_size if layer.dense else 0 for layer in spec.layers] == [28672, 7168, 0]
    assert count(spec).kv_elems_per_token_full == (8 + 4) * 2 * 128


def test_j7_13_compressed_tensors() -> None:
    keys: dict[str, Any] = dict(LAYER, num_hidden_layers=32, architectures=["LlamaForCausalLM"])
    quantization = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float",
        "strategy": "channel"}}},
    }  # fmt: skip
    spec = import_config(
        {**keys, "torch_dtype": "compressed-tensors", "quantization_config": quantization}, name="t"
    )
    assert isinstance(spec, ModelSpec)
    assert (spec.native_weights, spec.quantized_scope) == ("fp8", "all-linear")
    assert spec.native_kv is None  # the engine's default, whatever the weights are
    scaled = quantization | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    with_scales = import_config({**keys, "quantization_config": scaled}, name="t")
    assert isinstance(with_scales, ModelSpec) and with_scales.native_kv == "fp8"


def test_j7_15_keys_and_values_differ() -> None:
    """MiMo-V2: 192-wide keys, 128-wide values, separate heads in sliding layers; 309 B published."""
    pattern = [0, *([1] * 4), 0, *([1] * 5 + [0]) * 7]
    spec = model(
        architectures=["MiMoV2FlashForCausalLM"], model_type="mimo_v2_flash", hidden_size=4096,
        num_hidden_layers=48,
        num_attention_heads=64, num_key_value_heads=4, head_dim=192, v_head_dim=128,
        swa_num_attention_heads=64,
        swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, hybrid_layer_pattern=pattern,
        sliding_window=128,
        n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, intermediate_size=16384,
        moe_layer_freq=[0] + [1] * 47, vocab_size=152576, max_position_embeddings=262144,
        tie_word_embeddings=False,
    )  # fmt: skip
    full, sliding = pattern.count(0), pattern.count(1)
    assert count(spec).kv_elems_per_token_full == full * 4 * (192 + 128)
    assert count(spec).kv_elems_per_token_windowed == sliding * 8 * (192 + 128)
    assert count(spec).total_params / 1e9 == pytest.approx(309, rel=0.015)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True,
        "d_model": 512},
         "is_encoder_decoder: T5ForConditionalGeneration is an encoder-decoder"),
        ({"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"},
         r"'whisper' (WhisperForConditionalGeneration) is an encoder-decoder"),
        ({"architectures": ["BertModel"], "model_type": "bert"}, "'bert' (BertModel) is an encoder"),
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 768},
         "'mamba' (MambaForCausalLM) is a state-space model without attention"),
        ({"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 2,
          "hybrid_override_pattern": "MM", "num_attention_heads": 4, "mamba_num_heads": 2,
          "mamba_head_dim": 64,
          "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4, "vocab_size": 10,
          "max_position_embeddings": 10},
         "NemotronHForCausalLM has no softmax-attention layer"),
    ],
)  # fmt: skip
def test_j7_17_refused_by_name(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        import_config(keys, name="test")
    assert message in str(caught.value) and "\n" not in str(caught.value)


# -- calculators' mistakes -----------------------------------------------------------------------------------


def gemma4(**extra: Any) -> ModelSpec:
    return model(
        architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4",
        text_config={
            "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504,
            "num_hidden_layers": 60,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
            "num_global_key_value_heads": 4, "sliding_window": 1024, "vocab_size": 262144,
            "max_position_embeddings": 262144,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        }, **extra,
    )  # fmt: skip


def test_c6_01_global_layers_have_their_own_heads() -> None:
    """80 KiB per token: 10 global layers x 4 x 512 x 2 x 2 B; 880 KiB adds 50 sliding layers x 16 x 256."""
    counted = count(gemma4())
    assert 2 * counted.kv_elems_per_token_full == 80 * 1024
    assert 2 * (counted.kv_elems_per_token_full + counted.kv_elems_per_token_windowed) == 880 * 1024


def test_c6_01_weight_format_does_not_change_the_cache() -> None:
    quantized = gemma4(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"})
    assert quantized.native_weights == "nvfp4"
    assert quantized.layers == gemma4().layers
    assert count(quantized) == count(gemma4())


def test_gemma4_runs_a_dense_block_beside_its_experts() -> None:
    """Gemma-4-26B-A4B: 25.2 B in all and 3.8 B active, as its card says."""
    spec = model(
        architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4",
        text_config={
            "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112,
            "num_hidden_layers": 30,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
            "num_global_key_value_heads": 2, "sliding_window": 1024, "vocab_size": 262144,
            "enable_moe_block": True,
            "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
            "max_position_embeddings": 262144,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        },
    )  # fmt: skip
    assert count(spec).total_params / 1e9 == pytest.approx(25.2, rel=0.01)
    assert count(spec).active_params / 1e9 == pytest.approx(3.8, rel=0.015)


@pytest.mark.parametrize(
    ("name", "context_tokens", "expected_gib"),
    [
        ("gemma-3-27b", 131_072, 10.406),
        ("qwen3.5-27b", 262_144, 16.000),
        ("deepseek-v3", 163_840, 10.723),
        ("kimi-k2.5", 262_144, 17.156),
        ("qwen3-0.6b", 40_960, 4.375),
    ],
)
def test_c6_02_cache_at_full_context(name: str, context_tokens: int, expected_gib: float) -> None:
    assert kv_bytes(registry.model(name), context_tokens) / GIB == pytest.approx(expected_gib, abs=5e-4)


def test_c6_02_glm5_counts_its_mtp_layer() -> None:
    """79 x 576 x 2 B x 202,752 = 17.185 GiB: 78 layers and the MTP module, latents without the index keys."""
    target, head = registry.model("glm-5"), registry.draft("mtp", target="glm-5")
    index_keys = 79 * 128 * 202_752
    elements = sum(kv_elems_at(spec.layers, context_tokens=202_752) for spec in (target, head)) - index_keys
    assert 2 * elements / GIB == pytest.approx(17.185, abs=5e-4)


def test_c6_03_step_one_makes_every_layer_moe() -> None:
    spec = import_config(FIXTURES / "meta-llama--Llama-4-Scout-17B-16E-Instruct.json")
    assert isinstance(spec, ModelSpec)
    assert sum(layer.count for layer in spec.layers if layer.moe) == 48
    assert count(spec).total_params / 1e9 == pytest.approx(107.8, abs=0.05)


def test_c6_07_capacity_uses_the_total() -> None:
    spec = import_config(FIXTURES / "mistralai--Mixtral-8x7B-v0.1.json")
    assert isinstance(spec, ModelSpec)
    assert count(spec).total_params / 1e9 == pytest.approx(46.7, abs=0.05)
    # Qwen3.5-122B-A10B at 4.5 bit with its two tables in 16 bit needs 70-75 GB, not 33
    large = registry.model("qwen3.5-122b-a10b")
    tables = 2 * large.vocab_size * large.hidden_size
    assert 70e9 < (count(large).total_params - tables) * 4.5 / 8 + 2 * tables < 75e9


def test_c6_09_looked_up_tables_are_not_streamed() -> None:
    path = FIXTURES / "google--gemma-3-27b-it.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    tables = {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144}
    with_tables = import_config(plain | {"text_config": plain["text_config"] | tables})
    base = import_config(plain)
    assert isinstance(base, ModelSpec) and isinstance(with_tables, ModelSpec)
    assert count(with_tables).total_params - count(base).total_params == 256 * 262144 * 62
    assert count(with_tables).streamed_params == count(base).streamed_params


def test_c6_13_hybrid_and_its_state() -> None:
    spec = registry.model("qwen3.5-27b")
    assert kv_bytes(spec, 262_144) / GIB == 16.0  # 16 x 2 x 4 x 256 x 2 x 262,144
    assert kv_bytes(spec, 64) / 1024**2 == 4.0  # per 64-token block, not 16
    assert count(spec).linear_state_elems_per_seq > 0


def test_c6_15_mla_latent() -> None:
    """576 x 65,536 x 61 x 0.5 B = 1,098 MiB."""
    spec = registry.model("deepseek-v3")
    assert kv_elems_at(spec.layers, context_tokens=65_536) * 0.5 / 1024**2 == 1098.0


def test_p5_01_kv_bytes_per_token() -> None:
    """62 layers x 2 x 8 x 128 x 2 B = 253,952 B per token; 262,144 tokens need 62.00 GiB."""
    spec = registry.model("qwen3-coder-480b-a35b-instruct")
    assert 2 * count(spec).kv_elems_per_token_full == 253_952
    assert kv_bytes(spec, 262_144) / GIB == 62.0


def test_v4_02_mtp_head_is_a_kv_bearing_layer() -> None:
    target, head = registry.model("qwen3.5-27b"), registry.draft("mtp", target="qwen3.5-27b")
    both = count(target).kv_elems_per_token_full + count_draft(head).kv_elems_per_token_full
    assert both * 16 == count(target).kv_elems_per_token_full * 17
