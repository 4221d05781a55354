"""Hostile, broken and huge files: one clear line each, bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rooflinesim.engines import read_acceptance, read_schedule, read_step_table, read_timing
from rooflinesim.engines.reading import MAX_FILE_BYTES, json_documents, nesting_depth, open_text
from rooflinesim.errors import InputError, RooflinesimError

READERS: tuple[Callable[[Path], object], ...] = (read_acceptance, read_timing, read_schedule, read_step_table)
LINE = (
    "INFO SpecDecoding metrics: Mean acceptance length: 2.41, Accepted throughput: 141.00 tokens/s, "
    "Drafted throughput: "
    "300.00 tokens/s, Accepted: 141 tokens, Drafted: 300 tokens, Per-position acceptance rate: 0.720, "
    "0.430, 0.260, Avg "
    "Draft acceptance rate: 47.0%\n"
)


def _refused(path: Path, match: str, *, readers: tuple[Callable[[Path], object], ...] = READERS) -> None:
    for reader in readers:
        with pytest.raises(RooflinesimError, match=match) as caught:
            reader(path)
        text = str(caught.value)
        assert "\n" not in text and len(text) < 1000


def test_two_gigabytes_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as handle:
        handle.truncate(2 * 1024**3)
    tracemalloc.start()
    _refused(path, "2147483648 bytes, at most")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert MAX_FILE_BYTES == 256 * 1024**2


def test_huge_json_document_is_refused_unread(tmp_path: Path) -> None:
    """It cannot be streamed, so its limit is lower."""
    path = tmp_path / "big.json"
    with path.open("wb") as handle:
        handle.write(b"[\n")
        handle.seek(100 * 1024**2)
        handle.write(b"]")
    _refused(path, "at most", readers=(read_schedule,))


def test_streaming_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text(("noise " * 20 + "\n") * 40_000 + LINE * 3)
    tracemalloc.start()
    record = read_acceptance(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.n_steps == 300
    assert path.stat().st_size > 4_000_000 and peak < 1_000_000


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"  \n\n", "empty"),
        (gzip.compress(b"SpecDecoding metrics:"), "gzip-compressed"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"\x7fELF\x02\x01", "program"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"SpecDecoding\x00\x01\x02", "binary"),
        (bytes(range(128, 256)) * 8, "binary"),
    ],
)
def test_binary_files(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    _refused(path, match)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    _refused(tmp_path / "absent.log", "No such file")
    _refused(tmp_path, "directory|no summary.json")
    os.mkfifo(tmp_path / "pipe.json")
    _refused(tmp_path / "pipe.json", "not a regular file")
    _refused(Path("/dev/zero"), "not a regular file")
    with pytest.raises(InputError):
        read_acceptance("bad\0name")
    with pytest.raises(InputError, match="no file"):
        read_acceptance([])


@pytest.mark.parametrize("opener", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [100, 1_000_000])
def test_deep_nesting(tmp_path: Path, opener: str, depth: int) -> None:
    path = tmp_path / "deep.json"
    path.write_text(opener * depth)
    _refused(path, "nested deeper than 64")


def test_brackets_in_strings_are_no_nesting(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"generated_texts": ["[[{" * 500 + '\\"'], "spec_decode_num_drafts": 0}))
    with pytest.raises(InputError, match="spec_decode"):
        read_acceptance(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"spec_decode_num_drafts": 10, ', "line 1: not JSON .* cut off"),
        ('{"spec_decode_num_drafts": 0, "mean_tpot_ms": 0}\n{"case": ', "not JSON"),
        ('{"a": 1} trailing', "not JSON"),
        ('{"a": ' + "9" * 10_000 + "}", "not readable as JSON|not a known format"),
    ],
)
def test_truncated_json(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    _refused(path, match, readers=(read_acceptance, read_timing))


def test_truncated_log_line(tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    path.write_text(LINE + LINE[: LINE.index("Drafted: ")])
    _refused(path, "line 2: .*cut off", readers=(read_acceptance,))


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-1", "1e400", '"many"', "true", "[1]", "{}", "1" + "0" * 400]
)
@pytest.mark.parametrize(
    "field", ["spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens"]
)
def test_hostile_numbers(tmp_path: Path, field: str, value: str) -> None:
    numbers = {
        "spec_decode_num_drafts": "100",
        "spec_decode_draft_tokens": "300",
        "spec_decode_accepted_tokens": "141",
    }
    numbers[field] = value
    path = tmp_path / "h.json"
    path.write_text("{" + ", ".join(f'"{key}": {item}' for key, item in numbers.items()) + "}")
    _refused(path, field, readers=(read_acceptance,))


@pytest.mark.parametrize("label", ["999999999", "-1", "x", "1025", ""])
def test_hostile_position_labels(tmp_path: Path, label: str) -> None:
    path = tmp_path / "m.prom"
    path.write_text(
        "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_draft_tokens_total 5\n"
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{label}"}} 1\n'
    )
    _refused(path, "position label", readers=(read_acceptance,))


@pytest.mark.parametrize(
    "line",
    [
        "vllm:spec_decode_num_drafts_total{a=",
        "vllm:spec_decode_num_drafts_total x",
        "vllm:spec_decode_num_drafts_total NaN",
        "vllm:spec_decode_num_drafts_total -4",
    ],
)
def test_broken_prometheus(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m.prom"
    path.write_text(line + "\n")
    _refused(path, "line 1", readers=(read_acceptance,))


def test_huge_histograms_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(
        json.dumps(
            {
                "schema_version": "1.0",
                "mean_accept_length": 2.0,
                "acceptance_length_histogram": {"99999999": 1},
            }
        )
    )
    _refused(path, "not in 1..1025", readers=(read_acceptance,))


def test_billion_laughs(tmp_path: Path) -> None:
    path = tmp_path / "laughs.yaml"
    rows = ["a0: &a0 [lol, lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    path.write_text("\n".join(rows))
    _refused(path, "anchors and aliases", readers=(read_schedule,))


@pytest.mark.parametrize(
    "text", ["a: [1, 2", "speculative_config: {4: 1, 4: 2}", "- 1", "!!python/object:os.system {}", "a: b: c"]
)
def test_bad_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(text)
    _refused(path, ".", readers=(read_schedule,))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_encodings_with_a_mark_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "w.log"
    path.write_bytes(LINE.encode(encoding))
    assert read_acceptance(path).acceptance_length == pytest.approx(2.41)


def test_windows_line_ends_and_stray_bytes(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    path.write_bytes(b"caf\xe9 progress 10%\r progress 20%\r\n" + LINE.encode().replace(b"\n", b"\r\n"))
    assert read_acceptance(path).n_steps == 100


def test_log_lines_wrapped_in_json(tmp_path: Path) -> None:
    """Container runtimes write each line as a JSON object."""
    path = tmp_path / "container.log"
    path.write_text("".join(json.dumps({"log": LINE, "stream": "stdout"}) + "\n" for _ in range(2)))
    assert read_acceptance(path).n_steps == 200


def test_server_sent_events(tmp_path: Path) -> None:
    final = {
        "metrics": {
            "speculative_decoding": {
                "acceptance_histogram": [1, 1],
                "num_spec_steps": 2,
                "num_spec_tokens": 1,
                "num_draft_tokens": 2,
            }
        }
    }
    path = tmp_path / "stream.txt"
    path.write_text('data: {"choices": []}\n\ndata: ' + json.dumps(final) + "\n\ndata: [DONE]\n")
    assert read_acceptance(path).acceptance_length == pytest.approx(1.5)


def test_documents_of_every_layout(tmp_path: Path) -> None:
    for text, n in (
        ("[1]\n[2]\n", 2),
        ('{\n"a": 1\n}\n{"b": 2}', 2),
        ("[1, 2]", 1),
        ("\n\n[1]\n\n[2]\n[3]", 3),
    ):
        path = tmp_path / "d.json"
        path.write_text(text)
        assert len(list(json_documents(open_text(path)))) == n


def test_sweep_folder_limits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no summary\.json"):
        read_timing(tmp_path)
    (tmp_path / "summary.json").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match=r"no summary\.json"):
        read_timing(tmp_path)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("", 0),
        ("[]", 1),
        ("[[]]", 2),
        ("{[{[]}]}", 4),
        ("[][][]", 1),
        ('["[[[", {"a\\\\": [1]}]', 3),
        ('["\\"[[[["]', 1),
        ("[" * 10, 10),
        ('{"a\\n": ["}"]}', 2),
    ],
)
def test_nesting_depth_by_hand(text: str, depth: int) -> None:
    assert nesting_depth(text) == depth


def test_a_log_that_begins_with_a_bracket_is_no_json(tmp_path: Path) -> None:
    """SGLang's lines begin with [date]; start-up fills the first lines, and brackets need not pair."""
    path = tmp_path / "sglang.log"
    start = "[2026-11-29 12:00:00] server_args=ServerArgs(x=[[[[[[[[ ...\n" * 3000
    path.write_text(
        start
        + "[2026-11-29 12:00:10 TP0] Decode batch, #running-req: 10, accept len: 2.41, accept rate: 0.47\n"
    )
    assert read_acceptance(path).acceptance_length == pytest.approx(2.41)
