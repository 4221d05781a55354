"""``rooflinesim tune``: JSON keys, the report's folder, nothing overwritten, one-line errors."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rooflinesim.cli import build
from rooflinesim.errors import InputError

SAMPLES = Path(__file__).parents[1] / "fixtures" / "engine_samples"
FILES = [str(SAMPLES / name) for name in ("vllm_bench_serve.json", "trtllm_config.yaml")]
runner = CliRunner()


def invoke(*args):
    return runner.invoke(build("tune"), ["tune", *args])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("tune") / "deep" / "report"
    result = invoke(*FILES, "--gpu", "h100", "--max-batch", "64", "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), out


def test_json_has_the_documented_keys(made):
    data, out = made
    assert data["schema"] == 1
    assert {
        "scenario", "assumed", "files", "acceptance", "curve", "overhead", "schedule", "engine", "launch",
        "settings", "gains", "gains_at_load", "given", "measure_next", "findings", "warnings", "report",
    } <= set(data)  # fmt: skip
    assert data["acceptance"]["acceptance_length"] == pytest.approx(2.41)
    (time,) = data["overhead"]["times"]
    assert time["measured_s"] == pytest.approx(9.6e-3) and time["batch_size"] == 10
    assert {"over", "where", "mean_frac", "low_frac", "high_frac", "p_positive"} == set(data["gains"][0])
    assert data["schedule"]["ranges"][-1][1] == 64
    assert data["report"] == str(out / "report.md")


def test_the_folder_holds_the_page_both_plots_and_what_to_run(made):
    data, out = made
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names == {
        "report.md", "goodput.png", "step_time.png", "tune.json", "speculative_config.json",
        "next/forward_cases.json", "next/serve_params.json", "next/bench_params.json",
    }  # fmt: skip
    assert [path.name for path in out.parent.iterdir()] == ["report"]  # no temporary folder left
    for name in ("goodput.png", "step_time.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "speculative_config.json").read_text()) == json.loads(
        data["schedule"]["engine_text"]
    )
    stored = json.loads((out / "tune.json").read_text())
    assert stored == {key: value for key, value in data.items() if key != "report"}


def test_the_page_says_what_the_json_says(made):
    data, out = made
    page = (out / "report.md").read_text()
    for low, high, k in data["schedule"]["ranges"]:
        assert f"| {low}-{high} | {k} |" in page
    assert data["launch"] in page
    assert "acceptance length 2.410 at K = 3 over 1,000 steps" in page
    assert "| 1 | 0.7200 | 0.691-0.747 | 0.7200 |" in page  # Wilson interval of 720 in 1000
    assert "| 10 | 3 | 633 | step | 9.600 |" in page
    assert "![Goodput per K over the batch](goodput.png)" in page and "step_time.png" in page
    assert "too few rows" in page
    assert f"{100 * data['gains'][0]['mean_frac']:+.1f} %" in page


def test_the_python_of_the_page_on_tune_runs():
    text = (Path(__file__).parents[2] / "docs" / "tune.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["k"] in {0, 1, 2, 3, 5}


def test_nothing_is_overwritten_unless_told(made):
    _, out = made
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    result = invoke(*FILES, "--out", str(out))
    assert isinstance(result.exception, InputError)
    assert "not empty; use --force" in str(result.exception)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    result = invoke(FILES[0], "--max-batch", "16", "--out", str(out), "--force", "--emit", "trtllm")
    assert result.exit_code == 0, result.output
    assert (out / "report.md").read_bytes() != before[out / "report.md"]
    assert "trtllm" in result.stdout and f"report: {out / 'report.md'}" in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing.json"], "nothing.json"),
        ([*FILES, "--emit", "vlm"], "did you mean vllm"),
        ([*FILES, "--draft", "none"], "no K to choose"),
        ([str(SAMPLES / "sglang_one_batch_server.jsonl")], "with --k"),
    ],
)
def test_bad_input_is_one_line(args, message, tmp_path):
    result = invoke(*args, "--out", str(tmp_path / "new"))
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception) and "\n" not in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_out_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    result = invoke(*FILES, "--out", str(path))
    assert isinstance(result.exception, InputError) and "not a folder" in str(result.exception)
    assert path.read_text() == "mine"


def test_k_may_be_stated_where_a_file_does_not_say(tmp_path):
    file = str(SAMPLES / "sglang_one_batch_server.jsonl")
    result = invoke(file, "--k", "3", "--max-batch", "16", "--out", str(tmp_path / "r"), "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["scenario"]["engine"] == "sglang" and data["engine"] == "sglang"
    assert data["acceptance"]["acceptance_length"] == pytest.approx(2.41)
