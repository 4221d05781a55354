"""Every sample file: one made-up ground truth, so every importer must give the same answer.

Ground truth (fixtures/engine_samples/README.md): K = 3, 1000 steps, accepted 720/430/260, AL 2.41, 47.0 %,
step 9.6 ms.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rooflinesim.engines import read_acceptance, read_schedule, read_step_table, read_timing
from rooflinesim.errors import InputError

SAMPLES = Path(__file__).parents[2] / "fixtures" / "engine_samples"

WITH_POSITIONS = {
    "aiperf_profile_export.jsonl": "aiperf",
    "sglang_generate_response_meta_info.json": "sglang-meta-info",
    "speculation_profile.json": "speculation-profile",
    "trtllm_choice_speculative_decoding.json": "trtllm-choice",
    "vllm_bench_serve.json": "vllm-bench-serve",
    "vllm_bench_serve_detailed.json": "vllm-bench-serve",
    "vllm_bench_sweep_summary.json": "vllm-bench-serve",
    "vllm_chat_completion_spec_metrics.json": "vllm-per-request",
    "vllm_metrics_after.prom": "vllm-prometheus",
    "vllm_server.log": "vllm-log",
}
MEANS_ONLY = {
    "sglang_bench_serving.jsonl": "sglang-bench-serving",
    "sglang_bench_speculative.jsonl": "sglang-bench-speculative",
    "sglang_metrics.prom": "sglang-prometheus",
    "sglang_one_batch_server.jsonl": "sglang-one-batch-server",
    "sglang_server.log": "sglang-log",
}


@pytest.mark.parametrize(("name", "format"), WITH_POSITIONS.items())
def test_positions_agree(name: str, format: str) -> None:
    record = read_acceptance(SAMPLES / name)
    assert record.format == format
    assert record.k == 3
    assert record.acceptance_length == pytest.approx(2.41, abs=1e-9)
    assert record.marginal == pytest.approx((0.72, 0.43, 0.26), abs=1e-9)
    assert record.conditional == pytest.approx((0.72, 0.5972, 0.6047), abs=5e-5)
    assert record.draft_acceptance_rate == pytest.approx(0.47, abs=1e-9)
    assert not record.biased


@pytest.mark.parametrize(
    "name", [name for name in WITH_POSITIONS if not name.startswith(("vllm_bench_sweep", "vllm_metrics"))]
)
def test_counts_are_exact(name: str) -> None:
    counts = read_acceptance(SAMPLES / name).counts
    assert counts is not None
    assert counts.n_steps == 1000
    assert counts.accepted == pytest.approx((720, 430, 260), abs=1e-6)


def test_two_scrapes_are_differenced() -> None:
    before, after = SAMPLES / "vllm_metrics_before.prom", SAMPLES / "vllm_metrics_after.prom"
    record = read_acceptance([before, after])
    assert record.counts is not None
    assert record.counts.accepted == (720.0, 430.0, 260.0)
    assert record.n_steps == 1000
    assert record.warnings == ()
    reversed_order = read_acceptance([after, before])
    assert reversed_order.counts == record.counts
    assert any("order" in text for text in reversed_order.warnings)
    single = read_acceptance(after)
    assert single.n_steps == 1100
    assert any("since server start" in text for text in single.warnings)


def test_scrapes_appended_to_one_file(tmp_path: Path) -> None:
    both = tmp_path / "metrics.prom"
    both.write_text(
        (SAMPLES / "vllm_metrics_before.prom").read_text() + (SAMPLES / "vllm_metrics_after.prom").read_text()
    )
    assert read_acceptance(both).n_steps == 1000


@pytest.mark.parametrize(("name", "format"), MEANS_ONLY.items())
def test_means_agree_and_say_so(name: str, format: str) -> None:
    record = read_acceptance(SAMPLES / name, k=3)
    assert record.format == format
    assert record.k == 3
    assert record.acceptance_length == pytest.approx(2.41, abs=1e-9)
    assert record.draft_acceptance_rate == pytest.approx(0.47, abs=1e-9)
    assert record.marginal == () and not record.has_positions
    assert any("no per-position data" in text for text in record.warnings)


def test_k_is_found_where_the_file_holds_it() -> None:
    for name in ("sglang_bench_serving.jsonl", "sglang_metrics.prom", "sglang_server.log"):
        assert read_acceptance(SAMPLES / name).k == 3
    assert read_acceptance(SAMPLES / "sglang_one_batch_server.jsonl").k is None


def test_single_iteration_of_trtllm() -> None:
    """14 of 30 drafts accepted for 10 requests: 1 + 14/10."""
    record = read_acceptance(SAMPLES / "trtllm_iteration_stats.jsonl")
    assert record.acceptance_length == pytest.approx(2.4)
    assert record.k == 3 and record.n_steps == 10


def test_variable_k_per_step_arrays_are_unbiased() -> None:
    """Steps (accepted, drafted): (1,1) (0,3) (2,3) (1,3): position 1 in 3 of 4, position 2 in 1 of 2 that
    reached it."""
    record = read_acceptance(SAMPLES / "vllm_chat_completion_spec_metrics_variable_k.json")
    assert not record.biased
    assert record.acceptance_length == pytest.approx(2.0)
    assert record.conditional == pytest.approx((0.75, 0.5, 0.0))
    assert any("draft lengths differ" in text for text in record.warnings)


def test_variable_k_by_draft_length_equals_per_step(tmp_path: Path) -> None:
    text = (SAMPLES / "vllm_chat_completion_spec_metrics_variable_k.json").read_text()
    body = json.loads(text)
    stats = body["metrics"]["speculative_decoding"]
    del stats["per_step_accepted"], stats["per_step_drafted"]
    (tmp_path / "a.json").write_text(json.dumps(body))
    record = read_acceptance(tmp_path / "a.json")
    assert not record.biased
    assert record.counts is not None
    assert record.counts.drafted == (4.0, 3.0, 3.0)
    assert record.counts.accepted == (3.0, 1.0, 0.0)
    del stats["acceptance_histogram_by_draft_length"]
    (tmp_path / "b.json").write_text(json.dumps(body))
    summary = read_acceptance(tmp_path / "b.json")
    assert summary.biased
    assert any("mean 2.50 of 3" in text for text in summary.warnings)


STEP_S = {
    "sglang_bench_serving.jsonl": (10, 40, 633.0),
    "sglang_bench_speculative.jsonl": (10, 40, None),
    "sglang_one_batch_server.jsonl": (10, 40, 633.0),
    "sglang_server.log": (10, 40, 612.0),
    "trtllm_iteration_stats.jsonl": (10, 40, None),
    "vllm_bench_serve.json": (10, 40, 633.0),
    "vllm_bench_serve_detailed.json": (10, 40, 633.0),
}


@pytest.mark.parametrize(("name", "expected"), STEP_S.items())
def test_step_times_agree(name: str, expected: tuple[int, int, float | None]) -> None:
    times = read_timing(SAMPLES / name, k=3)
    steps = [record for record in times.records if record.what == "step"]
    assert len(steps) == 1
    record = steps[0]
    assert record.seconds == pytest.approx(9.6e-3, rel=2e-4)
    assert (record.batch_size, record.n_tokens, record.context_tokens) == expected
    assert record.k == 3


def test_iteration_lines() -> None:
    times = read_timing(SAMPLES / "vllm_server.log")
    (record,) = times.records
    assert (record.batch_size, record.n_tokens, record.k, record.seconds) == (
        10,
        40,
        3,
        pytest.approx(9.58e-3),
    )
    assert any("1 of 2 iterations held a prefill" in text for text in times.warnings)


def test_draft_time_of_trtllm() -> None:
    times = read_timing(SAMPLES / "trtllm_iteration_stats.jsonl")
    assert [(r.what, round(r.seconds * 1e3, 6)) for r in times.records] == [("draft", 1.7), ("step", 9.6)]


def test_plain_baseline_of_bench_speculative() -> None:
    times = read_timing(SAMPLES / "sglang_bench_speculative.jsonl")
    assert [(r.what, r.k, r.seconds) for r in times.records] == [("decode", 0, 0.0063), ("step", 3, 0.0096)]


def test_bench_forward_separates_draft_and_verify() -> None:
    times = read_timing(SAMPLES / "vllm_bench_forward.json")
    found = [
        (r.what, r.batch_size, r.n_tokens, r.k, r.context_tokens, round(r.seconds * 1e6))
        for r in times.records
    ]
    assert found == [
        ("decode", 2, 2, 0, 4096.0, 5480),
        ("verify", 2, 8, 3, 4096.0, 5610),
        ("step", 2, 8, 3, 4096.0, 6475),
        ("draft", 2, 8, 3, 4096.0, 865),
    ]
    assert {r.clock for r in times.records} == {"gpu"}


def test_sweep_summary() -> None:
    times = read_timing(SAMPLES / "vllm_bench_sweep_summary.json")
    found = [(r.what, r.batch_size, r.k, round(r.seconds * 1e3, 3)) for r in times.records]
    assert found == [
        ("decode", 8, 0, 6.1),
        ("step", 8, 3, 7.4),
        ("decode", 64, 0, 8.9),
        ("step", 64, 3, 14.8),
    ]


def test_sweep_folder_skips_warmup_failures_and_double_counts(tmp_path: Path) -> None:
    summary = (SAMPLES / "vllm_bench_sweep_summary.json").read_text()
    runs = json.loads(summary)
    for index, run in enumerate(runs):
        folder = tmp_path / f"combo-{index}"
        folder.mkdir()
        (folder / "run=0.json").write_text(json.dumps(run))
        (folder / "warmup.json").write_text("{}")
        (folder / "x.failure.json").write_text("{}")
        if index < 2:
            (folder / "summary.json").write_text(json.dumps([run]))
    assert len(read_timing(tmp_path).records) == 4


def test_sweep_csv(tmp_path: Path) -> None:
    runs = json.loads((SAMPLES / "vllm_bench_sweep_summary.json").read_text())
    keys = [
        "max_concurrency",
        "output_throughput",
        "median_tpot_ms",
        "median_itl_ms",
        "spec_decode_acceptance_length",
        "speculative_config.num_speculative_tokens",
    ]
    rows = [",".join(keys)] + [",".join(str(run.get(key, "")) for key in keys) for run in runs]
    (tmp_path / "summary.csv").write_text("\n".join(rows) + "\n")
    times = read_timing(tmp_path / "summary.csv")
    assert [(r.batch_size, r.k, round(r.seconds * 1e3, 3)) for r in times.records] == [
        (8, 0, 6.1),
        (8, 3, 7.4),
        (64, 0, 8.9),
        (64, 3, 14.8),
    ]


def test_concatenated_results_are_pooled(tmp_path: Path) -> None:
    """--append-result: objects one after the other, on one line each or spread over lines."""
    one = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    for name, text in (
        ("lines.json", json.dumps(one) + "\n" + json.dumps(one) + "\n"),
        ("pretty.json", json.dumps(one, indent=1) + "\n" + json.dumps(one, indent=1)),
    ):
        (tmp_path / name).write_text(text)
        record = read_acceptance(tmp_path / name)
        assert record.n_steps == 2000
        assert record.acceptance_length == pytest.approx(2.41)
        assert len(read_timing(tmp_path / name).records) == 2


def test_step_tables() -> None:
    flat = read_step_table(SAMPLES / "sglang_dspark_sps_flat.json")
    assert 1 / flat.seconds(batch_size=1, n_tokens=255) == pytest.approx(165.0)  # floor look-up: a staircase
    assert 1 / flat.seconds(batch_size=1, n_tokens=256) == pytest.approx(110.0)
    additive = read_step_table(SAMPLES / "sglang_dspark_sps_additive.json")
    # 3.1 ms + alpha(16) = 1.1 ms + theta(64) = 0.6 ms
    assert additive.seconds(batch_size=16, n_tokens=64) == pytest.approx(4.8e-3)
    # half way between the probes 16 and 64, and clamped above the last token probe
    assert additive.seconds(batch_size=40, n_tokens=9999) == pytest.approx(3.1e-3 + 1.6e-3 + 6.1e-3)
    trtllm = read_step_table(SAMPLES / "trtllm_dspark_sps.json")
    assert trtllm.seconds(batch_size=16, n_tokens=256) == pytest.approx(3.4e-3 + 4.1e-3)


CONFIGS = {
    "vllm_speculative_config_dynamic.json": (
        "vllm",
        ((1, 48, 3), (49, 128, 2), (129, 192, 1), (193, 512, 0)),
    ),
    "sglang_adaptive_config_pinned.json": (
        "sglang",
        ((1, 48, 3), (49, 128, 2), (129, 192, 1), (193, 512, 0)),
    ),
    "trtllm_config.yaml": ("trtllm", ((1, 48, 3), (49, 128, 2), (129, 192, 1), (193, 512, 0))),
    "vllm_speculative_config_synthetic.json": ("vllm", ((1, 512, 3),)),
    "vllm_speculative_config_adaptive_verification.json": ("vllm", ((1, 512, 7),)),
}


@pytest.mark.parametrize(("name", "expected"), CONFIGS.items())
def test_the_same_schedule_in_three_languages(name: str, expected: tuple[str, object]) -> None:
    schedule = read_schedule(SAMPLES / name, max_batch=512)
    assert (schedule.engine, schedule.ranges) == expected


def test_adaptive_config_is_not_a_table() -> None:
    schedule = read_schedule(SAMPLES / "sglang_adaptive_config.json", max_batch=100)
    assert schedule.ranges == ()
    assert schedule.candidates == ((1, 7, (1, 3, 5)), (8, 63, (1, 3)), (64, 100, (0, 1)))
    with pytest.raises(InputError, match="adaptive"):
        schedule.lookup(4)


@pytest.mark.parametrize(
    "name",
    [
        "vllm_bench_latency.json",
        "vllm_bench_forward_cases.json",
        "vllm_sweep_bench_params.json",
        "vllm_sweep_serve_params.json",
        "vllm_dynamic_sd_lookup_cases.json",
        "trtllm_config.yaml",
    ],
)
def test_what_holds_no_measurement_says_so(name: str) -> None:
    for reader in (read_acceptance, read_timing):
        with pytest.raises(InputError) as caught:
            reader(SAMPLES / name)
        assert "\n" not in str(caught.value) and name in str(caught.value)
