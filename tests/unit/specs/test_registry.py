"""Names of models, drafters, nodes and engines; the generated indexes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rooflinesim import registry
from rooflinesim.errors import InputError, SpecError
from rooflinesim.specs.index import (
    INDEX,
    build_index,
    index_text,
    indexed_folders,
    model_names,
    names_by_stem,
)
from rooflinesim.specs.model import ModelSpec

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROWS = list(csv.DictReader((FIXTURES / "models.csv").open(encoding="utf-8")))
MODELS = [row for row in ROWS if set(row["role"].split(";")) & {"target", "draft_lm"}]
HEADS = [row for row in ROWS if row not in MODELS]


def test_123_rows() -> None:
    assert (len(ROWS), len(MODELS), len(HEADS)) == (123, 76, 47)
    assert set(registry.models()) >= {row["model_id"] for row in MODELS}
    assert set(registry.drafts()) >= {row["model_id"] for row in HEADS}
    assert registry.models() == sorted(registry.models()) and registry.drafts() == sorted(registry.drafts())


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row["model_id"])
def test_model_names(row: dict[str, str]) -> None:
    names = [row["model_id"], row["model_id"].split("/")[-1], *filter(None, row["aliases"].split(";"))]
    for name in names:
        assert registry.model(name).id == row["model_id"], name
        assert registry.model(name.upper()).id == row["model_id"], name


@pytest.mark.parametrize("row", HEADS, ids=lambda row: row["model_id"])
def test_draft_names(row: dict[str, str]) -> None:
    for name in [row["model_id"], *filter(None, row["aliases"].split(";"))]:
        assert registry.draft(name).id == row["model_id"], name
    assert registry.draft(row["model_id"]).method == row["role"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("Llama 3.1 8B", "meta-llama/Llama-3.1-8B"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B"),
        ("Qwen3_235B_A22B", "Qwen/Qwen3-235B-A22B"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-V3"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("qwq-32b", "Qwen/Qwen2.5-32B"),
        ("command-a-plus", "CohereLabs/command-a-plus-05-2026"),
    ],
)
def test_short_names(name: str, expected: str) -> None:
    assert registry.model(name).id == expected


def test_unknown_model_is_one_line_with_near_misses() -> None:
    with pytest.raises(
        InputError, match=r"unknown model 'llama-3.1-9b'; did you mean llama-3.1-8b"
    ) as caught:
        registry.model("llama-3.1-9b")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="is a draft head, not a model"):
        registry.model("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    with pytest.raises(InputError, match="unknown draft 'egle3'; did you mean eagle3"):
        registry.draft("egle3", target="llama-3.1-8b")


def test_method_gives_the_targets_head() -> None:
    assert registry.draft("eagle3", target="llama-3.1-8b").id == "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    assert registry.draft("EAGLE-3", target="llama-3.1-8b").id == "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    assert (
        registry.draft("eagle", target=registry.model("llama-3.1-8b")).id
        == "yuhuili/EAGLE-LLaMA3.1-Instruct-8B"
    )
    assert registry.draft("mtp", target="deepseek-v3").id == "deepseek-ai/DeepSeek-V3#mtp"
    # a released head before a training recipe, whatever its target is called first
    assert (
        registry.draft("eagle3", target="llama-3.3-70b-instruct").id == "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
    )
    assert registry.draft("eagle3", target="llama-3.1-70b").id == "SpecForge/llama3-70B-eagle3"
    assert registry.draft("dflash", target="qwen3-8b").block_size == 16
    with pytest.raises(InputError, match="a target model is needed"):
        registry.draft("eagle3")


def test_model_as_draft() -> None:
    draft = registry.draft("llama-3.2-1b", target="llama-3.1-8b")
    assert (draft.method, draft.vocab_size, draft.owns_lm_head, draft.tie_embeddings) == (
        "draft_model",
        128256,
        True,
        True,
    )
    assert draft.layers == registry.model("llama-3.2-1b").layers


@pytest.mark.parametrize("method", ["eagle", "eagle3", "peagle", "dflash", "dspark", "medusa"])
def test_head_nobody_published_says_so(method: str) -> None:
    draft = registry.draft(method, target="command-a-plus")
    assert draft.method == method
    assert "is assumed" in draft.defaulted[0]


def test_generic_head_has_the_widths_of_a_published_one() -> None:
    """Built for Llama-3.1-8B the EAGLE-3 and EAGLE shapes are those of the released heads."""
    from rooflinesim.specs.heads import generic_head

    target = registry.model("llama-3.1-8b")
    for method in ("eagle", "eagle3"):
        published, built = registry.draft(method, target=target), generic_head(target, method)
        for field in (
            "layers",
            "vocab_size",
            "fc_in_features",
            "fc_bias",
            "fc_per_step",
            "extra_norms",
            "owns_lm_head",
        ):
            assert getattr(built, field) == getattr(published, field), (method, field)


def test_mtp_of_a_target_without_a_stored_head() -> None:
    head = registry.draft("nextn", target="minimax-m2")
    assert (head.n_modules, head.is_moe, head.fc_in_features) == (3, True, 2 * 3072)
    with pytest.raises(InputError, match="ships no MTP layer"):
        registry.draft("mtp", target="llama-3.1-8b")
    # built from the shape, it is the stored one
    from rooflinesim.specs.heads import mtp_head

    for name in ("deepseek-v3", "glm-4.5", "qwen3-next-80b-a3b-instruct", "qwen3.5-27b"):
        built, stored = mtp_head(registry.model(name)), registry.draft("mtp", target=name)
        assert (built.layers, built.fc_in_features, built.extra_norms) == (
            stored.layers, stored.fc_in_features, stored.extra_norms,
        )  # fmt: skip


def test_drafts_of_a_target() -> None:
    found = registry.drafts(target="qwen3-8b")
    assert {"AngelSlim/Qwen3-8B_eagle3", "z-lab/Qwen3-8B-DFlash-b16", "SpecForge/qwen3-8b-peagle"} <= set(
        found
    )


def test_every_head_names_targets_of_the_registry() -> None:
    for name in registry.drafts():
        draft = registry.draft(name)
        for target in filter(None, [draft.target_id, *draft.target_ids]):
            assert registry.model(target).id == target


def test_names_do_not_collide() -> None:
    """One comparison form never stands for two files (the later one would be unreachable under it)."""
    for folder in indexed_folders()[3:]:
        ids = {names[0]: stem for stem, names in names_by_stem(folder).items()}
        table = model_names(folder)
        from rooflinesim.specs.index import model_key

        assert {table[model_key(name)] for name in ids} == set(ids.values())


@pytest.mark.parametrize("folder", indexed_folders(), ids=lambda folder: folder.name)
def test_index_is_up_to_date(folder: Path) -> None:
    """Run ``python -m rooflinesim.registry`` after adding or renaming a spec."""
    assert (folder / INDEX).read_text(encoding="utf-8") == index_text(folder)


def test_dropped_in_file_is_found_without_an_index_entry(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text('files:\n  "gone": ["gone"]\n', encoding="utf-8")
    (tmp_path / "new.yaml").write_text("id: lab/New-7B\naliases: [new]\n", encoding="utf-8")
    assert names_by_stem(tmp_path) == {"new": ["lab/New-7B", "new"]}
    assert model_names(tmp_path) == {"lab/new7b": "new", "new7b": "new", "new": "new"}
    assert build_index(tmp_path) == {"new": ["lab/New-7B", "new"]}


def test_model_by_config_and_by_yaml(tmp_path: Path) -> None:
    spec = registry.model(str(FIXTURES / "hf_configs" / "Qwen--Qwen3-8B.json"))
    assert (spec.id, spec.n_layers) == ("Qwen/Qwen3-8B", 36)
    with pytest.raises(SpecError, match="configuration of a eagle3 draft head"):
        registry.model(str(FIXTURES / "hf_configs" / "yuhuili--EAGLE3-LLaMA3.1-Instruct-8B.json"))
    draft = registry.draft(str(FIXTURES / "hf_configs" / "yuhuili--EAGLE3-LLaMA3.1-Instruct-8B.json"))
    assert (draft.method, draft.vocab_size) == ("eagle3", 32000)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(
        (FIXTURES / "hf_configs" / "Qwen--Qwen3-8B.json").read_text(encoding="utf-8")
    )
    assert registry.model(str(folder)).hidden_size == 4096
    path = tmp_path / "own.yaml"
    path.write_text(
        "id: own\nhidden_size: 64\nvocab_size: 100\nmax_context_tokens: 128\nlayers:\n"
        "  - {count: 2, attention: {n_heads: 2, n_kv_heads: 1, head_dim: 32},"
        " dense: {intermediate_size: 128}}\n",
        encoding="utf-8",
    )
    own = registry.model(str(path))
    assert isinstance(own, ModelSpec) and own.n_layers == 2
    assert registry.draft(str(path)).method == "draft_model"
    path.write_text(path.read_text(encoding="utf-8").replace("n_heads", "n_head"), encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"layers.0.attention.n_head: not a known field; did you mean n_heads"
    ):
        registry.model(str(path))


def test_nodes() -> None:
    assert registry.node("hgx-h100").group_bytes_per_s(8) == 450e9
    mi300x = registry.node("mi300x")
    assert [mi300x.group_bytes_per_s(n) for n in (2, 8)] == [64e9, 448e9]
    assert registry.node("gb200-nvl72").group_bytes_per_s(72) == 900e9
    assert registry.node("l40s").group_bytes_per_s(4) == 31.5e9
    assert registry.node("h100-pcie-8x").group_bytes_per_s(2) == 300e9
    assert registry.node("h100-pcie-8x").group_bytes_per_s(4) == 63e9
    assert registry.node("gaudi2-8x").group_bytes_per_s(16) == 37.5e9
    for name in registry.nodes():
        assert registry.gpu(registry.node(name).gpu).id == registry.node(name).gpu
    for name in registry.gpus():  # every accelerator has a node, on file or assumed
        assert registry.node(name).gpu == name
    with pytest.raises(InputError, match="unknown node 'hgx-h101'; did you mean hgx-h100"):
        registry.node("hgx-h101")


def test_engine_by_bare_name_is_the_newest_profile() -> None:
    assert registry.engine("vllm").id == "vllm-0.33"
    assert registry.engine("SGLang").engine == "sglang"
    with pytest.raises(InputError, match="unknown engine 'vlm'"):
        registry.engine("vlm")


def test_calibration_is_optional() -> None:
    assert registry.calibration("no-such-gpu") is None
