"""Engines' files: what was measured comes back, what it does not settle is named, others are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rooflinesim.api import Scenario, evaluate, resolve
from rooflinesim.api.scheduling import server_of
from rooflinesim.calibrate.user import fit_user
from rooflinesim.engines import TimingRecord
from rooflinesim.errors import InputError
from rooflinesim.measurements import Measurement
from rooflinesim.schedule import Schedule
from rooflinesim.tuning import read_sources, tune
from rooflinesim.tuning.gains import Rival, gains
from rooflinesim.tuning.overhead import fit_overhead, measurements_of
from rooflinesim.tuning.pages import cell

SAMPLES = Path(__file__).parents[2] / "fixtures" / "engine_samples"


def sample(*names):
    return [SAMPLES / name for name in names]


@pytest.fixture(scope="module")
def served():
    """A benchmark, both scrapes of the server's metrics, and the schedule it might run."""
    files = sample("vllm_bench_serve.json", "vllm_metrics_before.prom", "vllm_metrics_after.prom")
    return tune(Scenario(), [*files, *sample("vllm_speculative_config_dynamic.json")], max_batch=256)


def test_acceptance_and_step_time_of_the_samples(served):
    # the samples' one ground truth: 1000 steps at K = 3, accepted 720/430/260, 9.6 ms at batch 10
    assert served.acceptance.record.acceptance_length == pytest.approx(2.41)
    assert served.acceptance.record.conditional == pytest.approx((0.72, 430 / 720, 260 / 430))
    assert served.acceptance.record.n_steps == 1000  # the scrapes' difference, not their sum
    (point,) = served.overhead.compared
    assert (point.batch_size, point.k, point.measured_s) == (10, 3, pytest.approx(9.6e-3))
    assert point.context_tokens == 512 + 242 / 2  # prompt and half of the answer


def test_what_the_scenario_does_not_say_is_taken_from_the_files_and_said(served):
    assert served.resolved.deployment.profile.engine == "vllm"
    assert served.resolved.scenario.context_tokens == (633,)
    assert any("engine vllm" in line for line in served.assumed)
    assert any("context 633 tokens" in line for line in served.assumed)
    assert not any("acceptance" in line for line in served.assumed)


def test_one_timed_step_settles_nothing_and_says_what_would(served):
    assert served.overhead.fit is None
    assert "too few rows (1): they determine nothing; measure batch" in served.overhead.refusal
    assert {p.k for p in served.measure_next} > {0}
    assert served.measure_next[0].why == "settles host overhead and efficiency"


def test_rivals_are_off_the_given_schedule_and_the_best_fixed_k(served):
    names = [gain.over for gain in served.gains]
    assert names[0] == "SD off" and "vllm_speculative_config_dynamic.json" in names[1]
    assert names[2] == f"the best fixed K = {served.answer.solved.best_fixed}"
    assert all(g.low_frac <= g.mean_frac <= g.high_frac for g in served.gains)
    assert served.given[0].schedule.ranges == ((1, 48, 3), (49, 128, 2), (129, 192, 1), (193, 256, 0))
    # ours is the best of the fitted table: no rival with speculation beats it by more than its regret
    assert all(g.mean_frac > -0.01 for g in served.gains[1:])


def test_gain_over_itself_is_nothing(served):
    same = gains(served.draws, served.answer.schedule, [Rival("itself", served.answer.schedule)])[0]
    assert (same.mean_frac, same.low_frac, same.high_frac, same.p_positive) == (0.0, 0.0, 0.0, 0.0)


def test_gain_over_off_is_that_of_the_table(served):
    """Against the goodput table itself, batch by batch."""
    result = evaluate(served.resolved, batch_sizes=[10], k_values=range(9), n_draws=0)
    k = int(served.answer.schedule.lookup(10))
    by_hand = float(result.goodput[0, k, 0] / result.off_goodput[0, 0] - 1)
    assert served.gains_at_load[0].mean_frac == pytest.approx(by_hand)
    three = gains(served.draws, Schedule(((1, 256, 3),)), [Rival("off", None)], batches=[10])[0]
    assert three.mean_frac == pytest.approx(float(result.goodput[0, 3, 0] / result.off_goodput[0, 0] - 1))


def test_a_server_at_a_fixed_k_drafts_no_more_than_that():
    """vLLM's draft models always draft the configured K: a rival at K = 3 drafts 3, not k_max."""
    scenario = Scenario(model="llama-3.1-70b", draft="llama-3.1-8b", tp=4, context_tokens=(633,))
    found = tune(scenario, sample("vllm_bench_serve.json"), max_batch=16)
    three = server_of(found.resolved, 3)
    alone = evaluate(three, batch_sizes=[10], k_values=[3], n_draws=0).goodput[0, 0, 0]
    k = int(found.answer.schedule.lookup(10))
    ours = evaluate(
        found.answer.resolved, batch_sizes=[10], k_values=range(found.answer.schedule.k_max + 1), n_draws=0
    ).goodput[0, k, 0]
    gain = next(g for g in found.gains_at_load if g.over.startswith("K = 3"))
    assert gain.mean_frac == pytest.approx(float(ours / alone) - 1)


def test_without_a_plain_step_its_host_time_is_refused_by_name():
    scenario = Scenario(context_tokens=(1024,))
    resolved = resolve(scenario)
    times = [
        TimingRecord(
            batch_size=n, n_tokens=4 * n, k=3, context_tokens=1024.0, seconds=s, what="step", source="x"
        )
        for n, s in ((1, 0.0112), (4, 0.0114), (16, 0.0119), (64, 0.0155))
    ]
    found = fit_overhead(resolved, times)
    refused = {item.name: item for item in found.fit.refused}
    assert refused["off_host_s"].reason.startswith("no row without speculation (K = 0)")
    assert any(k == 0 for _, k, _ in refused["off_host_s"].measure)
    assert "off_host_s" not in {item.name for item in found.fit.fitted}


def test_accelerator_times_settle_efficiency_and_never_the_host():
    """A memory-bound verify pass 1.25 times as fast as modelled has 1.25 times the memory efficiency."""
    resolved = resolve(Scenario(context_tokens=(4096,)))
    grid = evaluate(resolved, batch_sizes=[1, 4, 16], k_values=[3], context_tokens=[4096], n_draws=0)
    rows = [
        Measurement(batch_size=float(n), metric="verify_s", value=float(s) / 1.25, k=3, context_tokens=4096.0)
        for n, s in zip((1, 4, 16), grid.step.verify_s[:, 0, 0], strict=True)
    ]
    fit = fit_user(resolved, rows)
    by_name = {item.name: item.value for item in fit.fitted}
    assert set(by_name) == {"mem_eff"}
    assert by_name["mem_eff"] == pytest.approx(1.3, abs=0.08)  # above 1.25: launches do not speed up
    assert {item.name for item in fit.refused} >= {"off_host_s", "sd_host_s"}


def test_steps_at_k_zero_are_not_sd_off():
    record = TimingRecord(
        batch_size=8, n_tokens=8, k=0, context_tokens=None, seconds=0.009, what="step", source="x"
    )
    plain = replace(record, what="decode", seconds=0.007)
    rows, left = measurements_of([record, plain], context_tokens=512.0)
    assert [(r.metric, r.k, r.value, r.context_tokens) for r in rows] == [("step_s", 0, 0.007, 512.0)]
    assert "not steps with SD off" in left[0]


def test_equal_settings_are_pooled():
    times = [
        TimingRecord(
            batch_size=8, n_tokens=32, k=3, context_tokens=c, seconds=s, what="step", source="x", n_samples=2
        )
        for c, s in ((1000.0, 0.010), (1010.0, 0.012), (1004.0, 0.030), (8000.0, 0.02))
    ]
    rows, _ = measurements_of(times, context_tokens=512.0)
    assert [(r.context_tokens, r.value, r.n) for r in rows] == [(1004.0, 0.012, 6), (8000.0, 0.02, 2)]


def test_far_times_are_a_warning():
    times = [
        TimingRecord(
            batch_size=8, n_tokens=32, k=3, context_tokens=512.0, seconds=0.05, what="step", source="x"
        )
    ]
    assert any("check --gpu" in line for line in fit_overhead(resolve(Scenario()), times).warnings)


def test_a_fit_at_the_edge_of_its_range_is_a_warning():
    """A server twice as fast as modelled: no efficiency that is believed reaches it."""
    resolved = resolve(Scenario(context_tokens=(4096,)))
    grid = evaluate(resolved, batch_sizes=[1, 4, 16], k_values=[3], context_tokens=[4096], n_draws=0)
    times = [
        TimingRecord(
            batch_size=n, n_tokens=4 * n, k=3, context_tokens=4096.0, seconds=float(s) / 2.5, what="verify",
            source="x", clock="gpu",
        )
        for n, s in zip((1, 4, 16), grid.step.verify_s[:, 0, 0], strict=True)
    ]  # fmt: skip
    assert any(line.startswith("mem_eff is fitted as 1.6") for line in fit_overhead(resolved, times).warnings)


def test_a_model_that_does_not_fit_is_a_warning():
    found = tune(Scenario(model="llama-3.1-70b"), sample("aiperf_profile_export.jsonl"))
    assert any("does not fit into memory" in line for line in found.warnings)


def test_files_of_one_format_are_pooled_and_each_use_is_named():
    found = read_sources(
        sample("vllm_metrics_before.prom", "vllm_metrics_after.prom", "vllm_server.log", "trtllm_config.yaml")
    )
    uses = {Path(use.path).name: use.used_for for use in found.files}
    assert uses == {
        "vllm_metrics_before.prom": ("acceptance",),
        "vllm_metrics_after.prom": ("acceptance",),
        "vllm_server.log": ("acceptance", "times"),
        "trtllm_config.yaml": ("lints", "schedule"),
    }
    assert found.engines == ("vllm",)


def test_counts_go_before_means_and_more_steps_before_fewer():
    found = read_sources(
        sample(
            "sglang_server.log",
            "vllm_chat_completion_spec_metrics_variable_k.json",
            "aiperf_profile_export.jsonl",
        )
    )
    assert [m.record.format for m in found.acceptance] == ["aiperf", "vllm-per-request", "sglang-log"]


def test_a_stated_acceptance_wins_and_is_said():
    found = tune(Scenario(al="3:2.0"), sample("aiperf_profile_export.jsonl"), max_batch=8)
    assert found.acceptance is None
    assert float(found.resolved.acceptance.curve.acceptance_length(3)) == pytest.approx(2.0)
    assert any("--al is used" in line for line in found.warnings)


def test_different_traffic_is_a_warning(tmp_path):
    harder = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    harder |= {
        "spec_decode_num_drafts": 1800,
        "spec_decode_draft_tokens": 5400,
        "spec_decode_acceptance_length": 1 + 1410 / 1800,
        "spec_decode_per_position_acceptance_rates": [720 / 1800, 430 / 1800, 260 / 1800],
    }
    other = tmp_path / "harder.json"
    other.write_text(json.dumps(harder))
    found = tune(Scenario(), [*sample("aiperf_profile_export.jsonl"), other], max_batch=8)
    assert any("different traffic?" in line for line in found.warnings)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("notes.md", "# nothing\n", "notes.md: neither a log"),
        (
            "latency.json",
            '{"avg_latency": 1.0, "percentiles": {}}',
            "latency.json: .*holds no acceptance and no",
        ),
        ("empty.log", "", "empty.log: empty"),
        ("cut.json", '{"spec_decode_num_drafts": 10', "cut.json"),
        ("table.json", '{"bias_seconds": 0.01, "bs_probes": [1]}', "table.json: .*holds no acceptance"),
    ],
)
def test_a_file_of_no_use_is_one_line_that_names_it(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        tune(Scenario(), [*sample("vllm_bench_serve.json"), path])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (Scenario(draft="none"), "--draft none has no K"),
        (Scenario(ideal=True), "--ideal: the bare roofline"),
    ],
)
def test_deployments_without_an_answer_are_refused(scenario, message):
    with pytest.raises(InputError, match=message):
        tune(scenario, sample("vllm_bench_serve.json"))


def test_no_file_is_refused():
    with pytest.raises(InputError, match="give at least one"):
        tune(Scenario(), [])


def test_text_of_files_is_no_markup():
    assert cell("a|b\n<script>*x*") == r"a\|b \<script\>\*x\*"


def test_draws_are_the_same_each_time(served):
    again = tune(
        Scenario(),
        sample(
            "vllm_bench_serve.json",
            "vllm_metrics_before.prom",
            "vllm_metrics_after.prom",
            "vllm_speculative_config_dynamic.json",
        ),
        max_batch=256,
    )
    assert np.array_equal(again.draws.goodput, served.draws.goodput)
    assert again.gains == served.gains
