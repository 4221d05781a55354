"""The checks that importers make on files whose numbers contradict each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflinesim.engines import read_acceptance, read_timing
from rooflinesim.errors import InputError

SAMPLES = Path(__file__).parents[2] / "fixtures" / "engine_samples"


def _sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text())


def _warnings(folder: Path, content: Any) -> str:
    path = folder / "x.json"
    path.write_text(json.dumps(content))
    return " | ".join(read_acceptance(path).warnings)


def test_percent_that_is_not_accepted_over_drafted(tmp_path: Path) -> None:
    run = _sample("vllm_bench_serve.json")
    assert _warnings(tmp_path, run) == ""
    assert "acceptance rate 60 %" in _warnings(tmp_path, {**run, "spec_decode_acceptance_rate": 60.0})


def test_reported_length_that_is_not_one_plus_the_rates(tmp_path: Path) -> None:
    run = _sample("vllm_bench_serve.json")
    assert "reported AL 2.6" in _warnings(tmp_path, {**run, "spec_decode_acceptance_length": 2.6})
    rates = {**run, "spec_decode_per_position_acceptance_rates": [0.72, 0.43, 0.10]}
    assert "the totals give 2.41" in _warnings(tmp_path, rates)


def test_more_tokens_counted_than_emitted(tmp_path: Path) -> None:
    """1000 steps and 1410 accepted are 2410 tokens; 2010 - 10 came out: committed AL 2.0."""
    run = {**_sample("vllm_bench_serve.json"), "total_output_tokens": 2010}
    assert "2410 tokens counted, 2000 emitted" in _warnings(tmp_path, run)
    assert "committed AL is 2," in _warnings(tmp_path, run)


def test_profile_whose_rates_disagree(tmp_path: Path) -> None:
    profile = _sample("speculation_profile.json")
    assert "product of conditional rates" in _warnings(
        tmp_path, {**profile, "conditional_accept_rates": [0.72, 0.43, 0.26]}
    )
    assert "not measured" in _warnings(tmp_path, {**profile, "measured": False})
    with pytest.raises(InputError, match="do not follow"):
        _warnings(tmp_path, {**profile, "marginal_accept_rates": [0.8, 0.5, 0.3]})
    with pytest.raises(InputError, match=r"schema_version '2\.0'"):
        _warnings(tmp_path, {**profile, "schema_version": "2.0"})


def test_length_above_k_plus_one(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_text("Decode batch, #running-req: 1, accept len: 3.20, accept rate: 0.90\n")
    with pytest.raises(InputError, match=r"3\.2 is above K\+1 = 3"):
        read_acceptance(path, k=2)


def test_tree_drafts_are_named(tmp_path: Path) -> None:
    run = _sample("sglang_bench_serving.jsonl")
    run["server_info"]["speculative_num_draft_tokens"] = 16
    assert "a tree of 16 tokens and depth 3" in _warnings(tmp_path, run)


def test_meta_info_whose_histogram_disagrees(tmp_path: Path) -> None:
    body = _sample("sglang_generate_response_meta_info.json")
    body["meta_info"]["spec_num_correct_drafts"] = 1500
    assert "1500 accepted drafts, the histogram gives 1410" in _warnings(tmp_path, body)
    body["meta_info"]["spec_verify_ct"] = 900
    assert "the histogram holds 1000 steps" in _warnings(tmp_path, body)


def test_choices_whose_histogram_disagrees_and_pooling(tmp_path: Path) -> None:
    body = _sample("trtllm_choice_speculative_decoding.json")
    body["choices"].append(json.loads(json.dumps(body["choices"][0])))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(body))
    assert read_acceptance(path).n_steps == 2000
    body["choices"][1]["speculative_decoding"]["total_accepted_draft_tokens"] = 7
    assert "7 accepted drafts, the histogram gives 1410" in _warnings(tmp_path, body)
    body["choices"][1]["speculative_decoding"]["total_draft_tokens"] = 2500
    assert "draft length varied" in _warnings(tmp_path, body)


def test_aiperf_summary_takes_k_from_the_user(tmp_path: Path) -> None:
    path = tmp_path / "profile_export_aiperf.json"
    path.write_text(json.dumps({"pooled_spec_decode_acceptance_histogram": {"0": 5, "2": 5}}))
    guessed = read_acceptance(path)
    assert guessed.k == 2 and any("deepest acceptance is taken as K" in text for text in guessed.warnings)
    stated = read_acceptance(path, k=4)
    assert stated.k == 4 and stated.acceptance_length == guessed.acceptance_length == 2.0
    with pytest.raises(InputError, match="only 1 are drafted"):
        read_acceptance(path, k=1)


def test_concurrency_that_the_load_did_not_fill(tmp_path: Path) -> None:
    """100 tok/s at 20 ms per token is 2 requests decoding, whatever the limit of 64 says."""
    run = {"max_concurrency": 64, "output_throughput": 100.0, "median_tpot_ms": 20.0, "median_itl_ms": 20.0}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(run))
    times = read_timing(path)
    assert (times.records[0].batch_size, times.records[0].what) == (2, "decode")
    assert any("not max_concurrency = 64" in text for text in times.warnings)


def test_speculation_without_counters_gives_no_guess(tmp_path: Path) -> None:
    """ITL/TPOT = 2.5 and no acceptance: speculation or a stream interval, so no step time."""
    run = {"max_concurrency": 8, "median_tpot_ms": 4.0, "median_itl_ms": 10.0}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(run))
    with pytest.raises(InputError, match="stream interval"):
        read_timing(path)
    (record,) = read_timing(path, k=3).records
    assert (record.k, record.seconds, record.what) == (3, 0.01, "step")


def test_trtllm_iterations_with_prefill_or_uneven_drafts_are_skipped(tmp_path: Path) -> None:
    row = _sample("trtllm_iteration_stats.jsonl")
    prefill = json.loads(json.dumps(row))
    prefill["inflightBatchingStats"]["numContextRequests"] = 1
    prefill["iterLatencyMS"] = 99.0
    uneven = json.loads(json.dumps(row))
    uneven["specDecodingStats"]["numDraftTokens"] = 25
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(item) for item in (row, prefill, uneven)))
    times = read_timing(path)
    assert [(r.what, round(r.seconds * 1e3, 6)) for r in times.records] == [("draft", 1.7), ("step", 9.6)]
    assert any("1 of 3 iterations held a prefill" in text for text in times.warnings)
    assert any("different K" in text for text in times.warnings)
    mixed = read_acceptance(path)
    assert mixed.al_by_k == (
        (3, 2.4, 20.0),
    )  # two iterations at K=3: 28 of 20 requests; the third is no whole K


def test_bench_forward_skips_what_it_cannot_place(tmp_path: Path) -> None:
    cases = _sample("vllm_bench_forward.json")
    cases[0]["requests"][1]["query_len"] = 512
    cases[1]["requests"] = [{"query_len": 4, "kv_len": 4096, "num_draft_tokens": 1}]
    path = tmp_path / "f.json"
    path.write_text(json.dumps(cases))
    times = read_timing(path)
    assert [r.what for r in times.records] == ["step"]
    assert any("requests differ" in text for text in times.warnings)
    assert any("1 drafts in a query of 4" in text for text in times.warnings)
