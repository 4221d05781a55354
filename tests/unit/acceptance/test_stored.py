"""Stored acceptance: lookup, fallbacks, refusals."""

from __future__ import annotations

import pytest

from rooflinesim.acceptance.stored import default_curve, measured_curve, measured_spec, workload_name
from rooflinesim.errors import InputError, SpecError
from rooflinesim.specs.acceptance import AcceptanceSpec
from rooflinesim.specs.files import validate


def test_method_spellings():
    assert default_curve("EAGLE-3", "Code").curve == default_curve("eagle3", "coding").curve
    assert default_curve("n-gram", "rag").curve.form == "split"
    assert default_curve("draft-model").curve == default_curve("draft_model").curve
    assert default_curve("p-eagle").text.startswith("peagle--mixed")


def test_mixed_without_a_row_mixes_the_rows():
    mixed = default_curve("dspark", "mixed").curve
    lengths = [float(default_curve("dspark", w).curve.acceptance_length(5)) for w in ("coding", "chat")]
    assert float(mixed.acceptance_length(5)) == pytest.approx(sum(lengths) / 2)


def test_a_stand_in_is_announced():
    assert "that of eagle is used" in default_curve("medusa", "chat").warnings[0]
    rag = default_curve("dflash", "rag")
    assert "no default of dflash for rag, that for chat/qa is used" in rag.warnings[0]


def test_names_in_any_spelling_and_near_misses():
    assert measured_curve("Qwen3-4B--EAGLE3--Chat").measured_k == 7
    assert measured_spec("gemma-4-31b--dflash--qa").marginal[0] == 0.675
    with pytest.raises(InputError, match=r"did you mean .*qwen3-4b--eagle3--chat"):
        measured_curve("qwen3-4b--eagle3--chta")
    with pytest.raises(InputError, match=r"drafter method 'eagle4'.*eagle"):
        default_curve("eagle4")
    with pytest.raises(InputError, match="unknown workload"):
        workload_name("opera")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({}, "exactly one"),
        ({"conditional": [0.5], "marginal": [0.5]}, "given: conditional, marginal"),
        ({"conditional": [1.5]}, "less than or equal to 1"),
        ({"form": "geometric", "params": {"c1": 0.5}}, "c1, decay"),
        ({"acceptance_length": {2: 3.5}}, "outside 1..3"),
        ({"conditionals": [0.5]}, "did you mean conditional"),
    ],
)
def test_spec_files_are_checked(extra, words):
    data = {"id": "x", "method": "eagle3", "kind": "measured", "source": "s", **extra}
    with pytest.raises(SpecError, match=words):
        validate(data, AcceptanceSpec, where="x.yaml")
