"""Anything a user can type or point a flag at ends with exit status 0, or 2 and one line; no traceback."""

import itertools
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rooflinesim import cli
from rooflinesim.errors import InputError
from rooflinesim.output import write_text
from rooflinesim.specs.files import read_yaml

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture
def call(monkeypatch, capsys):
    """Run one command line in this process: exit status, stdout, stderr."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["rooflinesim", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return run


@pytest.fixture
def refused(call):
    """Run a command line that must be refused in one line; returns the line."""

    def run(*args):
        status, out, err = call(*args)
        assert status == 2, (args, out, err)
        assert len(err.splitlines()) == 1 and err.startswith("error: "), err
        assert "Traceback" not in err
        return err

    return run


def process(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "rooflinesim", *args], text=True, timeout=60, check=False, **options
    )


def bomb(letters="abcdefghi"):
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in itertools.pairwise(letters):
        lines.append(f"{name}: &{name} [{','.join(['*' + before] * 9)}]")
    return "\n".join(lines) + "\n"


CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "deep": b"[" * 5000 + b"]" * 5000,
    "scalar": b"3\n",
    "list": b"[1, 2]\n",
    "huge_number": b'{"tp": ' + b"9" * 5000 + b"}",
    "large": b'{"model_type": "llama", "x": "' + b"y" * 10_000_000 + b'"}',
    "bomb": bomb().encode(),
    "not_a_number": b'{"model_type": "llama", "hidden_size": NaN}',
    "list_as_key": b"? [a, b]\n: c\n",
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize(
    "command",
    [
        ("predict", "--scenario", "f.yaml"),
        ("predict", "--gpu", "f.yaml"),
        ("predict", "--engine", "f.yaml"),
        ("predict", "--calibration", "f.yaml"),
        ("predict", "--model", "f.yaml"),
        ("predict", "--model", "f.json"),
        ("predict", "--draft", "f.json"),
        ("predict", "--verify-curve", "f.csv"),
        ("predict", "--accept-by-ctx", "f.csv"),
        ("predict", "--accept-file", "f.log"),
        ("acceptance", "f.log"),
        ("schedule", "--check", "f.json"),
        ("calibrate", "f.csv"),
        ("validate", "f.csv"),
        ("specs", "show", "f.yaml"),
        ("specs", "import", "f.json"),
        ("tune", "f.log"),
    ],
    ids=" ".join,
)
def test_files_of_every_wrong_kind(refused, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / command[-1]).write_bytes(CONTENTS[name])
    refused(*command)


@pytest.mark.parametrize("target", ["folder", "missing", "/dev/zero", "/dev/null"])
@pytest.mark.parametrize(
    "command",
    [
        ("predict", "--scenario"),
        ("predict", "--calibration"),
        ("predict", "--verify-curve"),
        ("predict", "--accept-by-ctx"),
        ("predict", "--accept-file"),
        ("acceptance",),
        ("schedule", "--check"),
        ("calibrate",),
        ("specs", "import"),
        ("tune",),
    ],
    ids=" ".join,
)
def test_folders_devices_and_missing_files(refused, tmp_path, monkeypatch, command, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    refused(*command, target)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nope", "No such command 'nope'"),
        ("predict --nope", "No such option: --nope"),
        ("predict --tp two", "--tp"),
        ("predict --bs", "--bs"),
        ("predict extra", "extra"),
        ("predict --explain 1000", "--explain"),
        ("predict --bs 1:100000000", "holds more than"),
        ("predict --bs 1:100000", "at most 20,000"),
        ("predict --bs 99999999999999999999", "at most 1,000,000,000"),
        ("predict --ctx 99999999999999999999", "--ctx"),
        ("predict --accept nan", "c1"),
        ("predict --skew nan", "--skew"),
        ("predict --bs \u2603", "--bs"),
        ("predict --gpu \u2603", "unknown GPU"),
        ("predict --gpu ../../../etc/passwd", "unknown GPU"),
        ("sweep --bs 1:100000 --ctx 1:100000", "at most 10,000,000"),
        ("sweep --out x.csv/../../../../../../../../../proc/x.csv --bs 1", "cannot be written"),
        ("schedule --max-batch 0", "1..16384"),
        ("schedule --max-batch 100000000", "1..16384"),
        ("schedule --hysteresis 0", "--hysteresis"),
        ("schedule --distinct 0", "--distinct"),
        ("schedule --mix nan", "--mix"),
        ("schedule --ctx 100,1000 --mix inf,1", "--mix"),
        ("calibrate kernels --jobs 0", "--jobs"),
        ("acceptance --accept 0.7 some.log", "not both"),
        ("app --port 0", "--port"),
    ],
)
def test_numbers_and_words_that_make_no_sense(refused, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(*line.split())


@pytest.mark.parametrize(
    "content", ["rows,ms\nnan,1\n2,3\n", "rows,ms\ninf,1\n", "rows,ms\n1,nan\n", "rows,ms\n1,-5\n", "a\n1\n"]
)
def test_verify_curves_that_are_no_curves(refused, tmp_path, content):
    curve = tmp_path / "curve.csv"
    curve.write_text(content)
    assert "--verify-curve" in refused("predict", "--verify-curve", curve)


@pytest.mark.parametrize("content", ["\ufeffrows,ms\n1,5\n600,20\n", "rows,ms\n1,10\n8,1\n"])
def test_verify_curve_of_a_spreadsheet_or_with_noise_at_its_end(call, tmp_path, content):
    """A byte order mark is read over; a falling end is not extrapolated to negative times."""
    curve = tmp_path / "curve.csv"
    curve.write_text(content, encoding="utf-8")
    status, out, _ = call("predict", "--verify-curve", curve, "--json")
    rows = json.loads(out)["points"][0]["rows"]
    assert status == 0 and all(0 < row["step_s"] < 1 and row["speedup"] > 0 for row in rows)


@pytest.mark.parametrize("key", sorted(LLAMA))
@pytest.mark.parametrize("value", [None, -1, 1.5, "x", [], {}, 10**30, float("nan"), "\x1b[31m"], ids=repr)
def test_a_configuration_with_one_wrong_value(call, tmp_path, key, value):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA | {key: value}))
    status, out, err = call("predict", "--model", config, "--json")
    assert status in (0, 2) and "Traceback" not in err and "\x1b" not in err
    if status == 0:
        json.loads(out, parse_constant=pytest.fail)
    else:
        assert len(err.splitlines()) == 1


def test_quoted_text_of_any_size_stays_one_short_line(refused, tmp_path):
    """A name of 100,000 characters, a header of 20,000 columns, a file name with a line break."""
    assert len(refused("predict", "--gpu", "x" * 100_000)) < 700
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{i}" for i in range(20_000)) + "\n")
    for command in ("calibrate", "validate"):
        assert "20000 columns" in refused(command, wide)
    assert len(refused("predict", "--verify-curve", wide)) < 700
    odd = tmp_path / "a\nb.yaml"
    odd.write_text("")
    refused("predict", "--scenario", odd)


def test_a_schedule_with_an_absurd_k_is_refused(refused, tmp_path):
    file = tmp_path / "schedule.json"
    file.write_text("[[1, 8, 99999999]]")
    assert "K = 99999999" in refused("schedule", "--check", file)


def test_json_has_no_nan(call):
    for args in (
        ("predict", "--memory", "--explain", "2"),
        ("predict", "--draft", "none"),
        ("predict", "--bs", "1,500", "--ctx", "64,200000", "--accept", "1"),
        ("sweep", "--draft", "none"),
        ("schedule", "--max-batch", "8"),
        ("acceptance", "--conditional", "0"),
        ("specs", "show", "h100"),
    ):
        status, out, err = call(*args, "--json")
        assert status == 0, err
        json.loads(out, parse_constant=pytest.fail)


def test_a_scenario_file_reads_like_the_command_line(call, tmp_path):
    """``1:32`` and ``3:2.41`` are base-60 numbers to YAML 1.1; here they are what they look like."""
    file = tmp_path / "mine.yaml"
    file.write_text("gpu: h200\nbs: 1:32\nctx: 512\nk-max: 4\nal: 3:2.41\nweights: FP8\n")
    assert read_yaml(file)["bs"] == "1:32"
    status, out, _ = call("predict", "--scenario", file, "--json")
    got = json.loads(out)["scenario"]
    assert status == 0
    assert (got["batch_sizes"], got["context_tokens"]) == (list(range(1, 33)), [512])
    assert (got["k_max"], got["al"], got["weights"]) == (4, "3:2.41", "fp8")


def test_a_group_alone_shows_its_help(call):
    for args in ((), ("specs",), ("bench",)):
        status, out, err = call(*args)
        assert status == 0 and "Usage" in out and not err


def test_a_model_that_does_not_fit_is_said_by_schedule(call):
    status, out, _ = call("schedule", "--model", "llama-3.1-405b", "--gpu", "l4", "--json")
    assert status == 0
    assert any("short by" in note for note in json.loads(out)["notes"])


def test_a_device_or_folder_is_never_replaced(tmp_path):
    """A rename over /dev/null would replace the device itself."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(InputError, match=r"regular file|a folder"):
            write_text(target, "x", force=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_server_file_states_how_many_requests_run(call, tmp_path):
    """InferenceX 2444: budget 32 at K = 2 admits 10 requests of 32; graphs of 39 and 96 tokens are dead."""
    file = tmp_path / "server.json"
    sizes = [3, 6, 12, 24, 30, 39, 96]
    method = {"method": "eagle3", "num_speculative_tokens": 2}
    limits = {"max_num_seqs": 32, "max_num_batched_tokens": 32}
    compilation = {"compilation_config": {"cudagraph_capture_sizes": sizes}}
    file.write_text(json.dumps({**limits, **compilation, "speculative_config": method}))
    status, out, _ = call("schedule", "--check", file, "--json")
    read = json.loads(out)
    messages = " ".join(finding["message"] for finding in read["findings"])
    assert status == 0
    assert read["ranges"] == [[1, 32, 2]]
    assert "admits 10 requests" in messages and "39, 96 are never used" in messages
    assert read["graph_findings"] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        result = process("specs", "list", stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 2
    assert result.stderr.startswith("error: output: ") and len(result.stderr.splitlines()) == 1


def test_a_closed_pipe_ends_quietly():
    line = f"set -o pipefail; {sys.executable} -m rooflinesim sweep --bs 1:3000 | head -1"
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith('"batch_size"')


def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, call):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    status, out, _ = call("predict", "--bs", "64")
    assert status == 0 and "\u2026" not in out
    first = re.sub(r"\x1b\[[0-9;]*m", "", out.splitlines()[0])
    assert len(first) <= 40  # text is wrapped, tables are not
