"""Tables for charts: against hand arithmetic and published counts."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from rooflinesim.acceptance import AcceptanceCurve
from rooflinesim.api import Scenario, predict, resolve
from rooflinesim.api.express import as_command, as_python
from rooflinesim.api.scheduling import schedule
from rooflinesim.api.tables import (
    acceptance_table,
    batch_evaluation,
    best_single_k,
    chart_batches,
    choice_table,
    conditional_text,
    experts_table,
    map_table,
    memory_table,
    next_token_table,
    policy_table,
    request_table,
    roof_table,
    schedule_table,
)

LLAMA = Scenario(gpu="h100", model="llama-3.1-8b", accept="0.8,0.5")


@pytest.fixture(scope="module")
def llama():
    return resolve(LLAMA)


@pytest.fixture(scope="module")
def over_batches(llama):
    return batch_evaluation(llama, context_tokens=1024, batch_sizes=chart_batches(100))


def test_acceptance_in_every_form():
    """c = 0.8, 0.4; p = 0.8, 0.32; AL = 1.8, 2.12; accepted over drafted = 0.8, 0.56."""
    one, two = acceptance_table(AcceptanceCurve.geometric(c1=0.8, decay=0.5), k_max=2)
    assert [one["conditional"], two["conditional"]] == pytest.approx([0.8, 0.4])
    assert [one["marginal"], two["marginal"]] == pytest.approx([0.8, 0.32])
    assert [one["acceptance_length"], two["acceptance_length"]] == pytest.approx([1.8, 2.12])
    assert [one["mean_accepted_frac"], two["mean_accepted_frac"]] == pytest.approx([0.8, 0.56])


def test_conditional_text_is_read_back():
    text = conditional_text(AcceptanceCurve.geometric(c1=0.8, decay=0.5), k_max=3)
    assert text == "0.8,0.4,0.2"
    assert resolve(Scenario(conditional=text)).acceptance.curve.conditional(3) == pytest.approx(
        [0.8, 0.4, 0.2]
    )


def test_next_tokens_add_up_to_the_whole():
    point = predict(LLAMA).points[0]
    rows = next_token_table(point)
    last = point.rows[-1]
    assert [row["k"] for row in rows] == list(range(1, 9))
    assert sum(row["gain_tokens"] for row in rows) == pytest.approx(last.acceptance_length - 1.0)
    assert sum(row["cost_s"] for row in rows) == pytest.approx(last.step_s - point.off_step_s)
    assert sum(row["verify_cost_s"] for row in rows) == pytest.approx(last.verify_s - point.rows[0].verify_s)
    assert rows[1]["gain_frac"] == pytest.approx(0.32 / 1.8)  # AL goes from 1.8 to 2.12
    assert {row["pays"] for row in rows} <= {"pays", "does not pay"}


def test_one_request_from_al_and_step():
    point = predict(LLAMA).points[0]
    row = request_table(point.rows)[3]
    assert row["tpot_s"] * row["request_tokens_per_s"] == pytest.approx(1.0)
    assert row["request_tokens_per_s"] * 64 == pytest.approx(point.rows[3].goodput_tokens_per_s)


def test_dynamic_never_loses(over_batches):
    rows = policy_table(over_batches, fixed_k=[1, 3, 99])
    by_batch: dict[int, dict[str, float]] = {}
    for row in rows:
        by_batch.setdefault(row["batch_size"], {})[row["policy"]] = row["speedup"]
    assert set(by_batch[100]) == {"SD off", "K = 1", "K = 3", "dynamic K"}  # K = 99 was not computed
    for policies in by_batch.values():
        assert policies["SD off"] == 1.0
        assert policies["dynamic K"] >= 0.99 * max(policies.values())  # ties within 1 % go to the smaller K
        assert policies["dynamic K"] >= 1.0


def test_choices_are_those_of_the_policy(over_batches):
    choices = choice_table(over_batches)
    assert [row["batch_size"] for row in choices] == chart_batches(100)
    assert all(row["choice"] in {"SD off", f"K = {row['k']}"} for row in choices)
    assert best_single_k(over_batches) in range(9)


def test_the_map_has_a_cell_for_each_batch_and_k(over_batches):
    cells, best = map_table(over_batches)
    assert len(cells) == 9 * len(best) == 9 * len(chart_batches(100))
    for row in best:
        mine = [cell for cell in cells if cell["batch_size"] == row["batch_size"]]
        lost = next(cell["lost_frac"] for cell in mine if cell["k"] == row["best_k"])
        assert row["choice"] == "off" or lost <= 0.01
    # 512 sequences of 9 tokens are past vLLM's largest capture; one sequence of 1 token is not
    assert next(c for c in cells if c["batch_size"] == 512 and c["k"] == 8)["graph"] == "eager"
    assert next(c for c in cells if c["batch_size"] == 1 and c["k"] == 0)["graph"] == "captured"


def test_experts_read_is_the_published_formula():
    """Qwen3-30B-A3B: 128 experts, 8 per token. 8 tokens read 128·(1 − 0.9375^8) = 51.62."""
    rows = experts_table(resolve(Scenario(gpu="h100", model="qwen3-30b-a3b")), batch_size=2, k_max=3)
    curve = {row["n_tokens"]: row["experts_read"] for row in rows if row["series"] == "curve"}
    assert curve[1] == pytest.approx(8.0) and curve[8] == pytest.approx(51.62, abs=0.01)
    asked = {row["k"]: row for row in rows if row["series"] == "this batch"}
    assert asked[3]["n_tokens"] == 8 and asked[3]["experts_read"] == pytest.approx(51.62, abs=0.01)


def test_dense_models_have_no_experts(llama):
    assert experts_table(llama, batch_size=8, k_max=4) == []


def test_the_roof_meets_at_the_ridge(llama):
    """H100 SXM data sheet: 989 TFLOP/s in bf16 over 3.35 TB/s is a ridge of 295 FLOP per byte."""
    rows = roof_table(llama)
    assert rows[0]["ridge_flops_per_byte"] == pytest.approx(295, rel=0.01)
    at = {row["intensity_flops_per_byte"]: row["flops_per_s"] for row in rows}
    assert at[0.1] == pytest.approx(0.335e12, rel=0.01) and max(at.values()) == pytest.approx(
        989e12, rel=0.01
    )


def test_memory_falls_with_context_and_stops_at_the_models_own_limit(llama):
    rows = memory_table(llama, k=3)
    batches = [row["largest_batch"] for row in rows]
    assert batches == sorted(batches, reverse=True)
    assert rows[-1]["context_tokens"] == 131072
    # Llama-3.1-8B: 2·8·128·32 elements of 2 bytes are 128 KiB per token; the drafter's one layer adds 4 KiB
    assert rows[1]["seq_bytes"] == pytest.approx((128 + 4) * 1024 * (1024 + 4), rel=0.01)


def test_schedule_steps_hold_the_schedule(llama):
    answer = schedule(llama, max_batch=64)
    rows = [row for row in schedule_table(answer) if row["series"] == "schedule"]
    assert rows[0]["batch_size"] == 1 and rows[-1]["batch_size"] == 64
    for row in rows:
        assert row["k"] == int(answer.schedule.lookup(row["batch_size"]))


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(gpu="h100-sxm"),
        Scenario(gpu="b200-sxm", model="Qwen/Qwen3-30B-A3B", tp=2, ep=2, weights="fp8", accept="0.7,0.95"),
        Scenario(engine="sglang", draft="ngram", batch_sizes=(1, 8), context_tokens=(4096,), k_max=5),
        Scenario(marginal="0.7,0.4", graphs=False, skew=0.5, overlap=0.3, max_num_seqs=64),
        Scenario(ideal=True, al="3:2.4", kv="fp8"),
    ],
)
def test_the_command_and_the_python_ask_the_same(scenario):
    import json

    from rooflinesim.cli import build

    words = shlex.split(as_command(scenario))
    assert words[:2] == ["rooflinesim", "predict"]
    result = CliRunner().invoke(build(), [*words[1:], "--json"])
    assert result.exit_code == 0, result.output
    assert Scenario(**json.loads(result.stdout)["scenario"]) == scenario
    space: dict[str, object] = {}
    exec(compile(as_python(scenario).split("for point")[0], "copied", "exec"), space)
    assert space["answer"].resolved.scenario == scenario
