"""Schedules at the command line: every kind of text, checked by reading it back as its engine does."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rooflinesim.api import Scenario, resolve
from rooflinesim.api.checking import check_schedule
from rooflinesim.api.emitting import KINDS, emit, lint_config
from rooflinesim.api.scheduling import schedule
from rooflinesim.cli import build
from rooflinesim.engines import parse_schedule
from rooflinesim.engines.schedules import load_config

SAMPLES = Path(__file__).resolve().parents[2] / "docs" / "samples"
runner = CliRunner()


def invoke(*args):
    result = runner.invoke(build("schedule"), ["schedule", *args])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def answer():
    return schedule(resolve(Scenario(gpu="h100")), max_batch=192)


def test_regret_is_bounded_and_gains_follow_from_the_table(answer):
    assert answer.solved.regret_max <= 0.01 + 1e-9
    table = answer.evaluation.goodput[:, :, 0]
    best = table.max(axis=1)
    mine = [table[n - 1, answer.schedule.lookup(n).item()] for n in range(1, 193)]
    assert max(1 - m / b for m, b in zip(mine, best, strict=True)) == pytest.approx(answer.solved.regret_max)


def test_fewer_distinct_k_cost_fewer_graphs(answer):
    two = schedule(answer.resolved, max_batch=192, max_distinct=2)
    assert len([k for k in two.schedule.distinct_k if k > 0]) <= 2
    assert two.capture.n_graphs <= answer.capture.n_graphs
    assert two.solved.regret_max >= answer.solved.regret_max - 1e-12


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_emitted_schedules_read_back_as_solved(tmp_path, engine):
    file = tmp_path / "schedule.json"
    out = json.loads(
        invoke("--gpu", "h100", "--max-batch", "96", "--emit", engine, "--out", str(file), "--json")
    )
    read = parse_schedule(load_config(file), max_batch=96)
    wanted = [k for lo, hi, k in out["ranges"] for _ in range(lo, hi + 1)]
    assert list(read.expand(96)) == wanted


def test_trtllm_text_reads_back_except_where_it_cannot_say_it(tmp_path):
    file = tmp_path / "config.yaml"
    out = json.loads(
        invoke("--gpu", "h100", "--max-batch", "96", "--emit", "trtllm", "--out", str(file), "--json")
    )
    read = parse_schedule(load_config(file), max_batch=96)
    wanted = [k for lo, hi, k in out["ranges"] for _ in range(lo, hi + 1)]
    if max(wanted) == wanted[0]:
        assert list(read.expand(96)) == wanted
    else:
        assert any("cannot express" in w for w in out["warnings"])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_text_is_valid(answer, kind):
    for text in emit(answer, kind):
        if text.file_name.endswith(".json"):
            assert json.loads(text.text)
        assert text.launch


def test_synthetic_rates_are_the_marginals_of_the_curve(answer):
    (text,) = emit(answer, "vllm-synthetic")
    rates = json.loads(text.text)["synthetic_acceptance_rates"]
    expected = answer.resolved.acceptance.curve.marginal(len(rates))
    assert rates == pytest.approx(list(expected), abs=1e-6)


def test_checking_a_file_reports_regret_and_the_implicit_zero():
    checked = check_schedule(Scenario(gpu="h100"), SAMPLES / "trtllm_config.yaml", max_batch=256)
    assert checked.read.lookup(48) == 3 and checked.read.lookup(49) == 2 and checked.read.lookup(200) == 0
    assert any("draft length is 0" in f.message for f in checked.findings)
    assert checked.rated.regret_max > checked.ours.solved.regret_max


def test_graph_cliff_is_named(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"method": "eagle3", "num_speculative_tokens": 7}))
    checked = check_schedule(Scenario(gpu="h100"), file, max_batch=128)
    assert checked.graph_findings == ("batches 65-128 at K = 7 run without a CUDA graph (last graph: 64)",)


def test_lint_prints_the_published_budget_numbers():
    """InferenceX report: K = 2, 32 sequences, budget 32 tokens admits floor(32/3) = 10."""
    config = {
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        "max_num_seqs": 32,
        "max_num_batched_tokens": 32,
    }
    found = lint_config(resolve(Scenario(gpu="h200", model="deepseek-v3", tp=8)), config)
    assert any("admits 10 requests" in f.message for f in found)


def test_lint_knows_sglangs_default_of_48():
    found = lint_config(resolve(Scenario(gpu="h100")), {"speculative_algorithm": "EAGLE", "dp_size": 8})
    assert any("48" in f.message and "6 per worker" in f.message for f in found)


def test_context_mix_collapses_to_one_table():
    out = json.loads(
        invoke("--gpu", "h100", "--ctx", "512,16384", "--mix", "0.8,0.2", "--max-batch", "64", "--json")
    )
    assert out["ranges"][0][0] == 1
    assert out["ranges"][-1][1] == 64
