"""Schedules: vLLM's own look-up results, both of its syntaxes, what the other engines cannot say, and
findings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rooflinesim.engines import emit_schedule, parse_schedule, read_schedule
from rooflinesim.engines.sglang import schedule as sglang
from rooflinesim.engines.trtllm import schedule as trtllm
from rooflinesim.engines.vllm import plan
from rooflinesim.engines.vllm import schedule as vllm
from rooflinesim.errors import InputError

SAMPLES = Path(__file__).parents[2] / "fixtures" / "engine_samples"
FOUR = [(1, 48, 3), (49, 128, 2), (129, 192, 1), (193, 512, 0)]
LOOKUP = json.loads((SAMPLES / "vllm_dynamic_sd_lookup_cases.json").read_text())
INVALID = json.loads((SAMPLES / "vllm_dynamic_sd_invalid_cases.json").read_text())


def _codes(schedule: Any) -> set[str]:
    return {finding.code for finding in schedule.findings}


@pytest.mark.parametrize("case", LOOKUP, ids=[case["note"] for case in LOOKUP])
def test_vllm_lookup_cases(case: dict[str, Any]) -> None:
    schedule = vllm.read(
        case["schedule"],
        num_speculative_tokens=case["num_speculative_tokens"],
        max_num_seqs=case["max_num_seqs"],
    )
    table = schedule.expand(case["max_num_seqs"])
    for batch, k in case["k_at"].items():
        assert table[int(batch) - 1] == schedule.lookup(int(batch)) == k


@pytest.mark.parametrize("case", INVALID, ids=[case["error_contains"] for case in INVALID])
def test_vllm_invalid_cases(case: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        vllm.read(case["schedule"], num_speculative_tokens=3, max_num_seqs=64)
    assert case["error_contains"] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_k2_07_mapping_form() -> None:
    """K(32)=3 (gap), K(200)=2 (gap), K(300)=0, K(5000)=0 (above the last row)."""
    for config in (
        {"1-16": 3, "64-128": 2, "256-4096": 0},
        {"num_speculative_tokens": 3, vllm.KEY: [[1, 16, 3], [64, 128, 2], [256, 4096, 0]]},
    ):
        schedule = parse_schedule(config, num_speculative_tokens=3)
        assert [schedule.lookup(n) for n in (1, 32, 200, 300, 5000)] == [3, 3, 2, 0, 0]
    assert "mapping-form" in _codes(parse_schedule({"1-16": 3, "64-128": 2}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"2-16": 3}, "must start at 1"),
        ({"1-16": 3, "16-32": 1}, "non-overlapping"),
        ({"1-16": -1}, "must be >= 0"),
        ({"16-1": 3}, "start must be <= end"),
        ({"1-x": 3}, "start-end"),
        ([[1, 16, 3], [17, 32, 0, 8192, 1]], "mixed"),
        ([[1, 16, 0, 8192, 3]], "5-item"),
        ([[1, 16, 2.5]], "whole number"),
        ([[1, 16, None]], "null"),
        ("1-16", "list"),
    ],
)
def test_k2_07_bad_tables(table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vllm.read({"num_speculative_tokens": 3, vllm.KEY: table})


def test_context_rows_are_sliced_only_on_request() -> None:
    rows = [[1, 16, 1, 4096, 3], [17, 64, 1, 4096, 0], [1, 16, 4097, 131072, 3], [17, 64, 4097, 131072, 2]]
    short = vllm.read(rows, context_tokens=1000, max_num_seqs=64)
    long = vllm.read(rows, context_tokens=50_000, max_num_seqs=64)
    assert (short.lookup(32), long.lookup(32)) == (0, 2)
    with pytest.raises(InputError, match="whole grid"):
        vllm.read(rows[:3], context_tokens=1000)


def test_k2_13_clamped_schedule_is_a_constant() -> None:
    schedule = vllm.read([[1, 8, 5], [9, 16, 4]], num_speculative_tokens=3, max_num_seqs=16)
    assert schedule.ranges == ((1, 16, 3),) and schedule.is_constant
    assert {"constant", "clamped"} <= _codes(schedule)
    assert any("constant K=3" in finding.message for finding in schedule.findings)
    assert "constant" not in _codes(vllm.read([[1, 16, 3]], num_speculative_tokens=3))


def test_vllm_findings() -> None:
    schedule = vllm.read([[8, 16, 1], [1, 4, 2], [200, 300, 0]], num_speculative_tokens=3, max_num_seqs=64)
    assert {"unsorted", "gap", "beyond", "unused-maximum", "k0"} <= _codes(schedule)
    assert schedule.ranges == ((1, 7, 2), (8, 64, 1))
    assert "tail" in _codes(vllm.read([[1, 4, 2]], num_speculative_tokens=2, max_num_seqs=64))


def test_vllm_emit_is_the_documented_form() -> None:
    text = emit_schedule(
        FOUR, engine="vllm", method="eagle3", max_batch=512, draft_model="example-org/draft-eagle3"
    )
    assert json.loads(text.text) == json.loads((SAMPLES / "vllm_speculative_config_dynamic.json").read_text())
    words = shlex.split(text.launch)
    assert words[:3] == ["vllm", "serve", "MODEL"]
    assert json.loads(words[words.index("--speculative-config") + 1]) == json.loads(text.text)
    assert words[words.index("--max-num-seqs") + 1] == "512"


def test_vllm_emit_settings_and_warnings() -> None:
    text = emit_schedule(
        FOUR,
        engine="vllm",
        method="dflash",
        max_batch=512,
        capture_sizes=[8, 4],
        max_num_batched_tokens=256,
        data_parallel=2,
    )
    words = shlex.split(text.launch)
    assert json.loads(words[words.index("--compilation-config") + 1]) == {"cudagraph_capture_sizes": [4, 8]}
    joined = " | ".join(text.warnings)
    # the widest step of the table: 193..512 at K=0 needs 512; 129..192 at K=1 needs 384; 49..128 at K=2
    # needs 384
    assert "needs 512 tokens" in joined and "data parallel 2" in joined and "whole block" in joined
    assert "K=0 rows" in joined


def test_constant_schedules_need_no_table() -> None:
    assert json.loads(emit_schedule([(1, 64, 2)], engine="vllm", method="mtp", max_batch=64).text) == {
        "method": "mtp",
        "num_speculative_tokens": 2,
    }
    assert (
        "--speculative-adaptive"
        not in emit_schedule([(1, 64, 2)], engine="sglang", method="eagle", max_batch=64).launch
    )
    config = yaml.safe_load(emit_schedule([(1, 64, 2)], engine="trtllm", method="mtp", max_batch=64).text)
    assert config == {"speculative_config": {"decoding_type": "MTP", "max_draft_len": 2}}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_never_speculating_is_refused(engine: str) -> None:
    with pytest.raises(InputError, match="leave speculation off"):
        emit_schedule([(1, 64, 0)], engine=engine, method="eagle3", max_batch=64)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "empty"),
        ([(2, 8, 1)], "1 is expected"),
        ([(1, 8, 1), (10, 12, 0)], "9 is expected"),
        ([(1, 8, -1)], "k >= 0"),
        ([(1, 0, 1)], "lo <= hi"),
        ([(1, 2)], r"\(lo, hi, k\)"),
    ],
)
def test_bad_ranges(ranges: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        emit_schedule(ranges, engine="vllm", method="eagle3", max_batch=64)


def test_unknown_methods_name_near_misses() -> None:
    for engine, given, wanted in (
        ("vllm", "eagel3", "eagle3"),
        ("sglang", "eagel", "eagle"),
        ("trtllm", "mpt", "mtp"),
    ):
        with pytest.raises(InputError, match=wanted):
            emit_schedule(FOUR, engine=engine, method=given, max_batch=512)


def test_sglang_emit() -> None:
    text = emit_schedule(FOUR, engine="sglang", method="eagle3", max_batch=512, draft_model="d")
    assert json.loads(text.text) == json.loads((SAMPLES / "sglang_adaptive_config_pinned.json").read_text())
    for flag in (
        "--speculative-algorithm EAGLE3",
        "--speculative-num-steps 3",
        "--speculative-eagle-topk 1",
        "--speculative-num-draft-tokens 4",
        "--speculative-adaptive-config adaptive_config.json",
        "--max-running-requests 512",
    ):
        assert flag in text.launch
    with pytest.raises(InputError, match="runs no K table"):
        emit_schedule(FOUR, engine="sglang", method="standalone", max_batch=512)


def test_sglang_padding_moves_a_threshold() -> None:
    """Sizes ... 48, 52: batches 49..51 pad to 52, so a slot at 51 holds from 49."""
    sizes = [1, 2, 4, 8, 16, 32, 48, 52, 64]
    table = [(1, 50, 3), (51, 64, 1)]
    text = sglang.emit(table, method="eagle3", max_running_requests=64, graph_sizes=sizes)
    assert any("starts at batch 49, not 51" in warning for warning in text.warnings)
    read = sglang.read(json.loads(text.text), max_running_requests=64, graph_sizes=sizes)
    assert read.ranges == ((1, 48, 3), (49, 64, 1)) and "padding" in _codes(read)
    aligned = sglang.emit(
        [(1, 48, 3), (49, 64, 1)], method="eagle3", max_running_requests=64, graph_sizes=sizes
    )
    assert not any("starts at batch" in warning for warning in aligned.warnings)


def test_sglang_reader_refuses_and_warns() -> None:
    with pytest.raises(InputError, match="no longer loads"):
        sglang.read({"candidate_steps": [1, 3]})
    with pytest.raises(InputError, match="candidate_steps"):
        sglang.read({"1": {"candidate_steps": []}})
    with pytest.raises(InputError, match="at least 1"):
        sglang.read({"0": {"candidate_steps": [1]}})
    read = sglang.read({"8": {"candidate_steps": [3]}}, num_steps=5)
    assert {"gap", "num-steps", "default-limit"} <= _codes(read)
    shared = sglang.read(
        {"candidate_steps": [2], "1": {}, "9": {"candidate_steps": [0]}}, max_running_requests=16
    )
    assert shared.ranges == ((1, 8, 2), (9, 16, 0))


def test_trtllm_emit() -> None:
    text = emit_schedule(
        FOUR, engine="trtllm", method="eagle3", max_batch=512, draft_model="example-org/draft-eagle3"
    )
    expected = yaml.safe_load((SAMPLES / "trtllm_config.yaml").read_text())["speculative_config"]
    assert yaml.safe_load(text.text)["speculative_config"] == expected  # the last K=0 range is implicit
    keep = emit_schedule(FOUR[:3], engine="trtllm", method="eagle3", max_batch=4096)
    assert yaml.safe_load(keep.text)["speculative_config"]["draft_len_schedule"] == {48: 3, 128: 2, 4096: 1}
    assert any("last key is max_batch_size" in warning for warning in keep.warnings)


def test_trtllm_first_k_below_the_largest() -> None:
    valley = [(1, 4, 1), (5, 64, 3), (65, 128, 2)]
    with pytest.raises(InputError, match="not expressible"):
        trtllm.emit(valley, method="mtp", max_batch_size=128, first_k="refuse")
    text = trtllm.emit(valley, method="mtp", max_batch_size=128)
    schedule = yaml.safe_load(text.text)["speculative_config"]["draft_len_schedule"]
    assert schedule == {1: 3, 4: 1, 64: 3, 128: 2}
    assert any("batch 1 drafts 3" in warning for warning in text.warnings)
    holes = trtllm.emit([(1, 4, 3), (5, 8, 0), (9, 16, 2)], method="mtp", max_batch_size=16)
    assert any("holes" in warning for warning in holes.warnings)


def test_trtllm_graph_sizes_hold_the_keys() -> None:
    text = trtllm.emit(FOUR, method="pard", max_batch_size=512, graph_sizes=[1, 8, 64])
    config = yaml.safe_load(text.text)
    assert config["cuda_graph_config"]["batch_sizes"] == [1, 8, 48, 64, 128, 192, 512]
    assert any("2K" in warning for warning in text.warnings)


def test_trtllm_reader() -> None:
    spec = {"decoding_type": "Eagle3", "max_draft_len": 4, "draft_len_schedule": {4: 4, 8: 2, 32: 1}}
    schedule = trtllm.read({"speculative_config": spec}, max_batch_size=40)
    assert schedule.ranges == ((1, 4, 4), (5, 8, 2), (9, 32, 1), (33, 40, 0))
    assert "implicit-zero" in _codes(schedule)
    old = {"decoding_type": "MTP", "max_draft_len": 4, "draft_len_schedule": {1: 4, 4: 2, 8: 0}}
    assert "old-meaning" in _codes(trtllm.read(old))
    lower = trtllm.read(old, keys_are="lower", max_batch_size=12)
    assert lower.ranges == ((1, 3, 4), (4, 7, 2), (8, 12, 0))
    assert trtllm.read({"max_draft_len": 3, "max_concurrency": 16}, max_batch_size=32).ranges == (
        (1, 16, 3),
        (17, 32, 0),
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"max_draft_len": 3, "draft_len_schedule": {4: 2, 8: 3}}, "must hold max_draft_len"),
        ({"max_draft_len": 3, "draft_len_schedule": {4: 3, 8: 4}}, "above max_draft_len"),
        ({"max_draft_len": 3, "draft_len_schedule": {0: 3}}, "at least 1"),
        ({"max_draft_len": 3, "draft_len_schedule": {4: -1}}, "not a number"),
        ({"max_draft_len": 3, "draft_len_schedule": {4: 3}, "max_concurrency": 4}, "exclude each other"),
        ({"max_draft_len": 3, "draft_len_schedule": []}, "mapping"),
        ({"decoding_type": "MTP"}, "neither"),
    ],
)
def test_trtllm_reader_refuses(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trtllm.read({"speculative_config": spec})


def test_yaml_of_vllm_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("speculative-config:\n  method: mtp\n  num_speculative_tokens: 2\n")
    schedule = read_schedule(path, max_batch=8)
    assert (schedule.engine, schedule.ranges) == ("vllm", ((1, 8, 2),))


def test_forward_cases_equal_the_sample() -> None:
    sample = json.loads((SAMPLES / "vllm_bench_forward_cases.json").read_text())
    ours = json.loads(plan.forward_cases([(16, 0, 4096), (16, 3, 4096), (16, 3, 4096)]).text)
    assert [case["requests"] for case in ours["cases"]] == [case["requests"] for case in sample["cases"]]
    assert "--kv-len-jitter 0" in plan.forward_cases([(16, 0, 4096)]).launch
    assert any("ngram" in warning for warning in plan.forward_cases([(1, 1, 8)], method="ngram").warnings)


def test_sweep_params_cover_the_plan() -> None:
    serve, bench = plan.sweep_params(
        [(8, 0, 1024), (8, 3, 1024), (64, 3, 1024)], method="eagle3", draft_model="d"
    )
    assert json.loads(serve.text) == [
        {"_benchmark_name": "k0"},
        {
            "_benchmark_name": "k3",
            "speculative_config.method": "eagle3",
            "speculative_config.model": "d",
            "speculative_config.num_speculative_tokens": 3,
        },
    ]
    rows = json.loads(bench.text)
    sample = json.loads((SAMPLES / "vllm_sweep_bench_params.json").read_text())
    assert [{key: row[key] for key in ("max_concurrency", "num_prompts")} for row in rows] == sample
    # the mean context over a request's decode is input + output/2
    assert all(row["random_input_len"] + row["random_output_len"] / 2 == 1024 for row in rows)
    assert any("all 4 combinations" in warning for warning in serve.warnings)


def test_synthetic_acceptance_equals_the_sample() -> None:
    text = plan.synthetic_acceptance(
        [0.72, 0.43, 0.26], method="eagle3", draft_model="example-org/draft-eagle3"
    )
    assert json.loads(text.text) == json.loads(
        (SAMPLES / "vllm_speculative_config_synthetic.json").read_text()
    )
    for bad in ([], [1.2], [0.5, 0.6]):
        with pytest.raises(InputError, match="synthetic acceptance"):
            plan.synthetic_acceptance(bad, method="eagle3")


@pytest.mark.parametrize("points", [[], [(0, 1, 1)], [(1, -1, 1)], [(1, 1, 0)], [(1, 1)]])
def test_bad_plans(points: Any) -> None:
    with pytest.raises(InputError, match="measurement plan"):
        plan.forward_cases(points)


def test_step_tables_round_trip(tmp_path: Path) -> None:
    from rooflinesim.engines import read_step_table, steptables

    flat = steptables.write_sglang_flat(token_counts=[8, 64, 512], step_s=[0.005, 0.006, 0.02])
    additive = {
        "batch_sizes": [1, 64],
        "batch_s": [0.001, 0.002],
        "token_counts": [1, 512],
        "token_s": [0.0, 0.006],
    }
    for name, text, expected in (
        ("flat.json", flat, 0.006),
        ("add.json", steptables.write_sglang_additive(bias_s=0.003, **additive), 0.003 + 0.002 + 0.006),
        ("trt.json", steptables.write_trtllm(fixed_s=0.001, **additive), 0.001 + 0.002 + 0.006),
    ):
        path = tmp_path / name
        path.write_text(text)
        tokens = 64 if name == "flat.json" else 512
        assert read_step_table(path).seconds(batch_size=64, n_tokens=tokens) == pytest.approx(
            expected, rel=1e-6
        )
    for bad in ({"token_counts": [8, 8], "step_s": [1.0, 1.0]}, {"token_counts": [8], "step_s": [0.0]}):
        with pytest.raises(InputError):
            steptables.write_sglang_flat(**bad)
