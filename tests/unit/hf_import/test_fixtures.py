"""The 13 configurations of the reference against the reference's counts and the stored specs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rooflinesim import registry
from rooflinesim.hf_import import import_config
from rooflinesim.specs.counting import count, count_draft
from rooflinesim.specs.model import DraftSpec, ModelSpec

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted((FIXTURES / "hf_configs").glob("*.json"))
ROWS = {row["model_id"]: row for row in csv.DictReader((FIXTURES / "models.csv").open(encoding="utf-8"))}


def test_thirteen() -> None:
    assert len(FILES) == 13


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_counts_equal_the_reference(path: Path) -> None:
    spec = import_config(path)
    row = ROWS[spec.id]
    counted = count(spec) if isinstance(spec, ModelSpec) else count_draft(spec)
    assert f"{counted.total_params / 1e9:.6f}" == row["computed_total_b"]
    assert f"{counted.active_params / 1e9:.6f}" == row["computed_active_b"]
    assert f"{counted.streamed_params / 1e9:.6f}" == row["computed_streamed_b"]
    assert counted.kv_elems_per_token_full == int(row["kv_elems_per_token_full"])
    assert counted.kv_elems_per_token_windowed == int(row["kv_elems_per_token_windowed"])
    assert counted.linear_state_elems_per_seq == int(row["linear_state_elems_per_seq"])
    assert spec.unrecognised == ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_same_layers_as_the_stored_spec(path: Path) -> None:
    spec = import_config(path)
    stored = registry.model(spec.id) if isinstance(spec, ModelSpec) else registry.draft(spec.id)
    assert set(spec.layers) == set(stored.layers)
    assert spec.native_weights == stored.native_weights
    assert spec.quantized_scope == stored.quantized_scope
    if isinstance(spec, ModelSpec) and isinstance(stored, ModelSpec):
        assert (spec.n_mtp_layers, spec.max_context_tokens, spec.tie_embeddings) == (
            stored.n_mtp_layers, stored.max_context_tokens, stored.tie_embeddings,
        )  # fmt: skip


def test_defaults_are_reported() -> None:
    gemma = import_config(FIXTURES / "hf_configs" / "google--gemma-3-27b-it.json")
    assert set(gemma.defaulted) == {
        "vocab_size=262208", "sliding_window_pattern=6", "max_position_embeddings=131072",
        "tie_word_embeddings=true",
    }  # fmt: skip
    nxt = import_config(FIXTURES / "hf_configs" / "Qwen--Qwen3-Next-80B-A3B-Instruct.json")
    assert nxt.defaulted == ("n_mtp_layers=1",)  # shipped without a key


def test_mapping_and_name() -> None:
    data = json.loads((FIXTURES / "hf_configs" / "Qwen--Qwen3-8B.json").read_text(encoding="utf-8"))
    spec = import_config(data, name="mine/Qwen")
    assert isinstance(spec, ModelSpec) and spec.id == "mine/Qwen"


def test_role_can_be_forced() -> None:
    path = FIXTURES / "hf_configs" / "yuhuili--EAGLE3-LLaMA3.1-Instruct-8B.json"
    assert isinstance(import_config(path), DraftSpec)
    assert isinstance(import_config(path, role="model"), ModelSpec)
