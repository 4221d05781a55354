"""Untrusted spec files: one clear line, never a traceback, never code, never a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflinesim.errors import SpecError
from rooflinesim.specs.files import load_yaml_spec, read_json, read_yaml, spec_root
from rooflinesim.specs.gpu import GpuSpec

LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- " * 50_000, "nested deeper than"),
        ("[" * 100_000, "nested deeper than"),
        ("{a: " * 200 + "}" * 200, "nested deeper than"),
        ("\n".join(" " * i + "a:" for i in range(1200)), "nested deeper than"),
        (LAUGHS, "line 1: anchors and aliases are not read"),
        ("{a: 1", "did not find expected"),
        ("!!python/object/apply:os.system ['true']", "python/object"),
        ("5", "a mapping 'key: value' is expected, got int"),
        ("", "a mapping 'key: value' is expected, got NoneType"),
        ("\x00", "not YAML"),
        ("a" * 1_000_001, "at most 1000000 are read"),
    ],
    ids=[
        "dashes",
        "brackets",
        "braces",
        "indent",
        "laughs",
        "open",
        "object",
        "scalar",
        "empty",
        "nul",
        "size",
    ],
)
def test_bad_yaml_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_yaml_spec(path, GpuSpec)
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_not_text_missing_and_folder(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_yaml(tmp_path / "b.yaml")
    with pytest.raises(SpecError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(SpecError):
        read_yaml(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "a JSON object is expected, got list"),
        ('{"a": ', "line 1: not JSON"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested deeper than"),
        ('{"a": ' + "9" * 6000 + "}", "not readable as JSON"),
    ],
)
def test_bad_json_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=message):
        read_json(path)


def test_folders_are_found() -> None:
    assert (spec_root("hw_specs") / "gpus" / "h100-sxm.yaml").is_file()
    with pytest.raises(SpecError, match="no_such_specs: folder not found"):
        spec_root("no_such_specs")
