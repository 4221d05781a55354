"""Counts against the reference (to the last printed digit) and against published totals."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rooflinesim import registry
from rooflinesim.specs.checks import check_model
from rooflinesim.specs.counting import count, count_draft, kv_elems_at, weight_params_by_kind
from rooflinesim.specs.model import Counted

ROWS = list(csv.DictReader((Path(__file__).parents[2] / "fixtures" / "models.csv").open(encoding="utf-8")))
COUNTED = [row for row in ROWS if row["kind"] != "none"]
#: rows whose published figure is a name, a truncation or a rounding (models reference, section 2)
EXCEPTIONS = {
    ("lmsys/vicuna-7b-v1.3", "published_total_b"),
    ("baidu/ERNIE-4.5-21B-A3B-PT", "published_total_b"),
    ("JackFram/llama-160m", "published_total_b"),
    ("Qwen/Qwen3-30B-A3B", "published_active_b"),
    ("Qwen/Qwen2-57B-A14B", "published_active_b"),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "published_active_b"),
    ("Qwen/Qwen3.5-35B-A3B", "published_active_b"),
    ("Qwen/Qwen3.5-122B-A10B", "published_active_b"),
    ("Qwen/Qwen3.5-397B-A17B", "published_active_b"),
    ("deepseek-ai/DeepSeek-V2-Lite", "published_active_b"),
    ("zai-org/GLM-4.5-Air", "published_active_b"),
    ("MiniMaxAI/MiniMax-M2", "published_active_b"),
    ("baidu/ERNIE-4.5-21B-A3B-PT", "published_active_b"),
}


def counted(row: dict[str, str]) -> Counted:
    if set(row["role"].split(";")) & {"target", "draft_lm"}:
        return count(registry.model(row["model_id"]))
    return count_draft(registry.draft(row["model_id"]))


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["model_id"])
def test_counts_equal_the_reference(row: dict[str, str]) -> None:
    result = counted(row)
    for column, value in (
        ("computed_total_b", result.total_params),
        ("computed_active_b", result.active_params),
        ("computed_streamed_b", result.streamed_params),
    ):
        assert f"{value / 1e9:.6f}" == row[column], column
    assert str(result.kv_elems_per_token_full) == row["kv_elems_per_token_full"]
    assert str(result.kv_elems_per_token_windowed) == row["kv_elems_per_token_windowed"]
    assert str(result.linear_state_elems_per_seq) == row["linear_state_elems_per_seq"]


def test_published_figures_within_1_5_percent_or_named() -> None:
    found = {(name, one.field) for name in registry.models() for one in check_model(registry.model(name))}
    assert found == EXCEPTIONS


HEADS = [row for row in COUNTED if row["published_scope"] == "head" and row["published_total_b"]]


@pytest.mark.parametrize("row", HEADS, ids=lambda row: row["model_id"])
def test_published_heads(row: dict[str, str]) -> None:
    # 0.2359 B is printed as 0.24 (two rows)
    tolerance = 0.018 if row["published_total_b"] == "0.24" else 0.015
    assert counted(row).total_params / 1e9 == pytest.approx(float(row["published_total_b"]), rel=tolerance)


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["model_id"])
def test_stored_shape_fields(row: dict[str, str]) -> None:
    if set(row["role"].split(";")) & {"target", "draft_lm"}:
        model = registry.model(row["model_id"])
        assert (model.hidden_size, model.vocab_size, model.n_layers) == tuple(
            int(row[key]) for key in ("hidden_size", "vocab_size", "num_hidden_layers")
        )
        formats = {
            "none": row["native_dtype"],
            "fp8_e4m3_block128x128": "fp8-block",
            "mxfp4_experts_only": "mxfp4",
        }
        assert model.native_weights == formats[row["quantization"]]
        assert model.n_mtp_layers == int(row["num_mtp_layers"] or 0)
        assert model.confidence == row["confidence"]
    else:
        draft = registry.draft(row["model_id"])
        assert [draft.target_id, *draft.target_ids] == row["target_model"].split(";")
        assert draft.block_size == (int(row["block_size"]) if row["block_size"] else None)
        assert draft.vocab_size == int(row["draft_vocab_size"])


def test_kinds_add_up_to_the_total() -> None:
    for name in registry.models():
        model = registry.model(name)
        parts = weight_params_by_kind(model)
        total = sum(
            parts.of_kind(kind)
            for kind in ("attention", "linear", "dense_ffn", "router", "routed", "shared", "norms")
        )
        total += parts.embedding + parts.head + parts.final_norm + parts.positions + parts.extra
        assert total == count(model).total_params, name


def test_kinds_of_a_known_model() -> None:
    """Mixtral-8x7B by hand: 8 experts x 3 x 4096 x 14336 in 32 layers, q, k, v and o."""
    parts = weight_params_by_kind(registry.model("mixtral-8x7b"))
    assert parts.of_kind("routed") == 32 * 8 * 3 * 4096 * 14336
    assert parts.of_kind("attention") == 32 * 4096 * (4096 + 2 * 1024 + 4096)
    assert parts.of_kind("router") == 32 * 4096 * 8
    assert parts.layers[0].expert == 3 * 4096 * 14336
    assert (parts.embedding, parts.head, parts.final_norm) == (32000 * 4096, 32000 * 4096, 4096)


def test_eagle3_head_by_hand() -> None:
    """fc 3h->h, q/k/v on 2h, o, gated FFN, head over 32,000, four norms (models reference, section 5)."""
    h, kv, ffn = 4096, 1024, 14336
    by_hand = 3 * h * h + 2 * h * (h + 2 * kv) + h * h + 3 * h * ffn + 32000 * h + 4 * h
    assert count_draft(registry.draft("eagle3", target="llama-3.1-8b")).total_params == by_hand


def test_mtp_module_of_deepseek() -> None:
    """Published 11.5 leaves out the projection: 11.610 - 0.103 = 11.507 (models reference, section 2)."""
    head = registry.draft("mtp", target="deepseek-v3")
    total = count_draft(head).total_params
    assert head.fc_in_features * head.hidden_size == pytest.approx(0.103e9, rel=0.01)
    assert (total - head.fc_in_features * head.hidden_size) / 1e9 == pytest.approx(11.507, abs=5e-4)


def test_windowed_layers_stop_growing() -> None:
    """Gemma-3-27B grows by 40,960 elements per token, plus 212,992 only up to 1024 tokens."""
    layers = registry.model("gemma-3-27b").layers
    at = [kv_elems_at(layers, context_tokens=tokens) for tokens in (1024, 1025, 5000)]
    assert at[0] == 1024 * (40_960 + 212_992)
    assert at[1] - at[0] == 40_960
    assert at[2] == 5000 * 40_960 + 1024 * 212_992
