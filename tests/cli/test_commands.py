"""The command line as a user meets it: keys of the JSON, one-line errors, files never overwritten."""

import csv
import io
import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rooflinesim.cli import COMMANDS, build

runner = CliRunner()


def call(*args):
    return subprocess.run(
        [sys.executable, "-m", "rooflinesim", *args], capture_output=True, text=True, timeout=120, check=False
    )


def invoke(*args):
    result = runner.invoke(build(args[0]), list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def data(*args):
    return json.loads(invoke(*args, "--json"))


def test_predict_works_with_nothing_but_a_gpu_and_a_batch():
    result = call("predict", "--gpu", "h100", "--bs", "64")
    assert result.returncode == 0
    assert "best K = " in result.stdout
    assert "assumed: model meta-llama/Llama-3.1-8B" in result.stdout


def test_predict_json_has_the_documented_keys():
    out = data("predict", "--gpu", "h100", "--bs", "1,64", "--ctx", "512,2048")
    assert {"schema", "scenario", "assumed", "points", "provenance"} <= set(out)
    assert out["schema"] == 1
    assert len(out["points"]) == 4
    point = out["points"][0]
    assert {"batch_size", "context_tokens", "best_k", "tie_band", "break_even_c1", "rows", "off"} <= set(
        point
    )
    assert {"step_s", "goodput_tokens_per_s"} <= set(point["off"])
    wanted = {
        "k",
        "draft_s",
        "verify_s",
        "sample_s",
        "host_s",
        "step_s",
        "acceptance_length",
        "goodput_tokens_per_s",
        "speedup",
        "speedup_low",
        "speedup_high",
        "bound",
        "flags",
    }
    assert wanted <= set(point["rows"][0])
    assert [row["k"] for row in point["rows"]] == list(range(9))


def test_goodput_and_speedup_follow_from_the_printed_times():
    point = data("predict", "--gpu", "h100", "--bs", "64")["points"][0]
    for row in point["rows"]:
        parts = row["draft_s"] + row["verify_s"] + row["sample_s"] + row["host_s"]
        assert row["step_s"] == pytest.approx(parts, rel=1e-9)
        assert row["goodput_tokens_per_s"] == pytest.approx(64 * row["acceptance_length"] / row["step_s"])
        assert row["speedup"] == pytest.approx(
            row["goodput_tokens_per_s"] / point["off"]["goodput_tokens_per_s"]
        )
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["predict", "--gpu", "h1000"], "unknown GPU 'h1000'; did you mean"),
        (["predict", "--model", "lama-3.1-8b"], "did you mean"),
        (["predict", "--bs", "0"], "--bs: '0' must hold whole numbers of 1 or more"),
        (["predict", "--bs", "1:2:3:4"], "is not a range"),
        (["predict", "--tp", "7"], "--tp: 7 does not divide the 32 query heads"),
        (["predict", "--weights", "fp9"], "--weights: 'fp9' is not one of"),
        (["predict", "--accept", "1.4"], "c1"),
        (["predict", "--accept", "0.7", "--al", "3:2.4"], "exactly one"),
        (["predict", "--al", "3:5"], "AL"),
        (["predict", "--marginal", "0.4,0.6"], "marginal"),
        (["predict", "--ep", "8"], "--ep"),
        (["predict", "--draft", "medusa"], "does not support medusa"),
        (["predict", "--k-max", "99"], "--k-max"),
        (["predict", "--plot", "x.bmp"], "must end in"),
        (["sweep", "--out", "x.xls"], "must end in .csv, .parquet or .json"),
        (["schedule", "--draft", "none"], "no K to choose"),
        (["specs", "show", "nothing-like-this"], "unknown spec"),
        (["acceptance", "no-such-file.log"], "no-such-file.log"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, message):
    result = call(*args)
    assert result.returncode == 2, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert message in lines[0]


def test_every_command_has_help_and_at_most_15_options_in_its_first_panel():
    for name, (_, _, is_group) in COMMANDS.items():
        text = re.sub(r"\x1b\[[0-9;]*m", "", invoke(name, "--help"))
        assert "Usage" in text
        if not is_group and "╭─ Options" in text:
            panel = text.split("╭─ Options", 1)[1].split("╰", 1)[0]
            options = re.findall(r"^│ [* ]\s*(--[a-z-]+)", panel, re.M)
            assert len(options) <= 15, (name, options)


def test_root_help_names_every_command():
    result = call("--help")
    assert result.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", result.stdout)


def test_sweep_csv_json_and_parquet_agree(tmp_path):
    args = ("sweep", "--gpu", "l40s", "--bs", "1:3", "--ctx", "256,1024", "--k-max", "2")
    rows = list(csv.DictReader(io.StringIO(call(*args).stdout)))
    assert len(rows) == 3 * 3 * 2
    columns = data(*args)["columns"]
    assert [float(r["step_s"]) for r in rows] == pytest.approx(columns["step_s"])
    target = tmp_path / "grid.parquet"
    invoke(*args, "--out", str(target))
    import pyarrow.parquet as pq

    assert pq.read_table(target)["step_s"].to_pylist() == pytest.approx(columns["step_s"])


def test_files_are_never_overwritten_without_force(tmp_path):
    target = tmp_path / "grid.csv"
    target.write_text("mine")
    result = call("sweep", "--bs", "1", "--out", str(target))
    assert result.returncode == 2
    assert "--force" in result.stderr
    assert target.read_text() == "mine"
    assert call("sweep", "--bs", "1", "--out", str(target), "--force").returncode == 0
    assert target.read_text() != "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["grid.csv"]  # no temporary file left


def test_scenario_file_is_read_and_flags_win(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("gpu: h200\nmodel: qwen3-8b\nbatch_sizes: [4]\naccept: '0.6'\n")
    out = data("predict", "--scenario", str(file), "--bs", "8")
    assert out["scenario"]["gpu"] == "h200"
    assert out["points"][0]["batch_size"] == 8
    file.write_text("gppu: h200\n")
    result = call("predict", "--scenario", str(file))
    assert result.returncode == 2
    assert "gppu" in result.stderr and "fields are" in result.stderr


def test_every_scenario_flag_changes_the_answer(tmp_path):
    base_args = {"--gpu": "h200", "--model": "qwen3-30b-a3b", "--bs": "300", "--ctx": "2048"}
    curve = tmp_path / "curve.csv"
    curve.write_text("rows,ms\n1,5\n300,20\n3000,90\n")

    def answer(extra):
        merged = dict(base_args)
        merged.update(extra)
        flags = [
            part
            for name, value in merged.items()
            for part in ((name, value) if value is not None else (name,))
        ]
        return json.dumps(data("predict", *flags)["points"])

    base = answer({})
    changes = [
        {"--gpu": "h100"}, {"--model": "qwen3-8b"}, {"--draft": "ngram"}, {"--engine": "sglang"},
        {"--bs": "8"},
        {"--ctx": "512"}, {"--k-max": "3"}, {"--tp": "2"}, {"--tp": "2", "--ep": "2"}, {"--pp": "2"},
        {"--dp": "2"},
        {"--tp": "2", "--draft-tp": "1"}, {"--weights": "fp8"}, {"--experts": "fp8"}, {"--kv": "fp8"},
        {"--draft-weights": "fp8"}, {"--accept": "0.6"}, {"--al": "3:2"}, {"--marginal": "0.5,0.2"},
        {"--conditional": "0.5,0.4"}, {"--workload": "coding"}, {"--max-num-seqs": "64"}, {"--eager": None},
        {"--skew": "1.0"}, {"--overlap": "0.5"}, {"--ideal": None}, {"--verify-curve": str(curve)},
    ]  # fmt: skip
    small = {"--skew", "--overlap"}  # at 300 sequences every expert is read: look at a small batch
    base_small = answer({"--bs": "4"})
    for change in changes:
        if set(change) & small:
            assert answer({**change, "--bs": "4"}) != base_small, change
        else:
            assert answer(change) != base, change


def test_measured_verify_curve_decides(tmp_path):
    """Apple M4, 27B: eight rows cost 6.54 x one row (published), acceptance 0.46-0.95: no gain at K = 2."""
    curve = tmp_path / "m4.csv"
    curve.write_text("rows,ms\n1,172\n2,320\n3,475\n8,1125\n")
    out = data(
        "predict", "--gpu", "apple-m4-max", "--model", "qwen3-32b", "--draft", "ngram", "--bs", "1",
        "--verify-curve", str(curve), "--conditional", "0.8,0.75", "--k-max", "2",
    )  # fmt: skip
    assert out["points"][0]["choice"] == "off"
    rows = {row["k"]: row for row in out["points"][0]["rows"]}
    assert rows[2]["speedup"] < 1.0
