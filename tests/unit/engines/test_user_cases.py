"""Acceptance and timing texts users posted, with the arithmetic of their figures as oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflinesim.engines import read_acceptance, read_timing
from rooflinesim.engines.sglang.acceptance import rate_formula
from rooflinesim.errors import InputError


def _write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a8_01_nine_percent_is_not_broken(tmp_path: Path) -> None:
    """975 drafted at K=15 are 65 steps; AL 2.37; conditional .600 .642 .558 .502 .574; K above 5 is waste."""
    rates = ", ".join(["0.600", "0.385", "0.215", "0.108", "0.062"] + ["0.000"] * 10)
    line = (
        "INFO 05-01 10:00:00 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.37, "
        "Accepted throughput: "
        "8.90 tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: 89 tokens, Drafted: 975 tokens, "
        "Per-position "
        f"acceptance rate: {rates}, Avg Draft acceptance rate: 9.1%\n"
    )
    record = read_acceptance(_write(tmp_path, "line.txt", line))
    assert record.counts is not None
    assert record.n_steps == 65
    assert record.counts.accepted[:6] == (39, 25, 14, 7, 4, 0)
    assert record.acceptance_length == pytest.approx(2.369, abs=1e-3)
    assert record.draft_acceptance_rate == pytest.approx(0.0913, abs=1e-4)
    assert record.conditional[:5] == pytest.approx((0.600, 0.642, 0.558, 0.502, 0.574), abs=0.004)
    assert any("drafting K > 5 is waste" in text for text in record.warnings)


def test_a8_03_rising_conditionals_keep_the_table(tmp_path: Path) -> None:
    stats = {
        "mean_acceptance_length": 1.2326,
        "draft_acceptance_rate": 0.0775,
        "acceptance_histogram": [39, 1, 0, 3],
        "num_spec_steps": 43,
        "num_accepted_draft_tokens": 10,
        "num_draft_tokens": 129,
        "num_spec_tokens": 3,
    }
    record = read_acceptance(_write(tmp_path, "r.json", {"metrics": {"speculative_decoding": stats}}))
    assert record.marginal == pytest.approx((0.0930, 0.0698, 0.0698), abs=5e-5)
    assert record.conditional == pytest.approx((0.093, 0.75, 1.0), abs=5e-4)
    assert record.acceptance_length == pytest.approx(1.2326, abs=5e-5)
    assert any("rises" in text and "table" in text for text in record.warnings)


def _serve_run(*, tpot: float, itl: float, al: float, k: int, concurrency: int = 1) -> dict[str, Any]:
    drafts = 10_000
    accepted = round((al - 1) * drafts)
    return {
        "max_concurrency": concurrency,
        "completed": 50,
        "total_input_tokens": 5000,
        "total_output_tokens": 10**6,
        "output_throughput": concurrency / (tpot * 1e-3),
        "median_tpot_ms": tpot,
        "median_itl_ms": itl,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafts * k,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_acceptance_length": al,
    }


def test_a8_05_itl_is_a_step_or_a_stream_interval(tmp_path: Path) -> None:
    """ITL/TPOT = AL means a chunk is a step; x10 and x20.7 at K=3 are stream intervals: TPOT x AL is the
    step."""
    step = read_timing(_write(tmp_path, "a.json", _serve_run(tpot=2.38, itl=8.23, al=3.46, k=5)))
    assert step.records[0].seconds == pytest.approx(8.23e-3)
    assert step.records[0].source.endswith("ITL") and not step.warnings
    for tpot, itl in ((12.8, 127.4), (43.6, 903.0)):
        times = read_timing(_write(tmp_path, "b.json", _serve_run(tpot=tpot, itl=itl, al=2.6, k=3)))
        assert times.records[0].seconds == pytest.approx(tpot * 2.6e-3)
        assert any("stream interval" in text for text in times.warnings)


def test_a8_05_sglang_divides_itl_by_tokens(tmp_path: Path) -> None:
    """292.29 tok/s with ITL 8.72 before the fix and 3.20 after it: the step is 1/292.29 x 2.55 = 8.72 ms
    both times."""
    for itl, identity in ((8.72, "ITL"), (3.42, "TPOT x AL")):
        run = {
            "backend": "sglang-oai",
            "max_concurrency": 1,
            "completed": 1,
            "total_input_tokens": 10,
            "total_output_tokens": 100,
            "output_throughput": 292.29,
            "median_tpot_ms": 1e3 / 292.29,
            "median_itl_ms": itl,
            "accept_length": 2.55,
            "server_info": {
                "speculative_algorithm": "EAGLE3",
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            },
        }
        times = read_timing(_write(tmp_path, "s.jsonl", run))
        assert times.records[0].seconds == pytest.approx(8.72e-3, rel=2e-3)
        assert times.records[0].source.endswith(identity)


def test_a8_07_counters(tmp_path: Path) -> None:
    text = "\n".join(
        f'vllm:spec_decode_num_{name}_total{{model_name="m",engine="0"}} {value}'
        for name, value in (("drafts", 4816), ("draft_tokens", 33712), ("accepted_tokens", 12208))
    )
    record = read_acceptance(_write(tmp_path, "m.prom", text))
    assert record.acceptance_length == pytest.approx(3.535, abs=5e-4)
    assert record.draft_acceptance_rate == pytest.approx(0.362, abs=5e-4)
    assert record.k == 7 and not record.has_positions


@pytest.mark.parametrize(("rate", "k", "al"), [(0.728, 2, 2.456), (0.7935, 2, 2.587), (0.7185, 3, 3.155)])
def test_a8_09_and_k2_03_mean_rate_is_linear_in_k(tmp_path: Path, rate: float, k: int, al: float) -> None:
    accepted = round(rate * 10_000)
    path = _write(
        tmp_path, "l.log", f"draft acceptance rate = {rate:.5f} ({accepted:5d} accepted / 10000 generated)\n"
    )
    with pytest.raises(InputError, match="state K"):
        read_acceptance(path)
    record = read_acceptance(path, k=k)
    assert record.acceptance_length == pytest.approx(al, abs=1e-3)
    assert record.n_steps == pytest.approx(10_000 / k)


def test_a8_11_stop_inside_accepted_drafts(tmp_path: Path) -> None:
    """Five accepted and the bonus are counted (6), three tokens came out."""
    stats = {
        "acceptance_histogram": [0, 0, 0, 0, 0, 1],
        "num_spec_steps": 1,
        "num_draft_tokens": 5,
        "num_spec_tokens": 5,
    }
    body = {"metrics": {"speculative_decoding": stats}, "usage": {"completion_tokens": 4}}
    record = read_acceptance(_write(tmp_path, "r.json", body))
    assert record.acceptance_length == 6
    assert any(
        "6 tokens counted, 3 emitted" in text and "committed AL is 3" in text for text in record.warnings
    )


@pytest.mark.parametrize("content", ["attempts 1304, accepts 1111\n", '{"attempts": 1304, "accepts": 1111}'])
def test_a8_13_ambiguous_counters_ask(tmp_path: Path, content: str) -> None:
    """1111/1304: AL is 1.852 if an attempt is a step, 1 + 0.852 K if it is a token."""
    with pytest.raises(InputError, match=r"ambiguous.*AL is 1\.852.*1 \+ 0\.852 x K"):
        read_acceptance(_write(tmp_path, "d.txt", content))


def test_a8_15_rate_and_length_agree_on_k(tmp_path: Path) -> None:
    """1 + 0.19 x 3 = 1.57."""
    line = "Decode batch, #running-req: 4, accept len: 1.57, accept rate: 0.19, #queue-req: 0\n"
    record = read_acceptance(_write(tmp_path, "s.log", line))
    assert record.k == 3
    wrong = read_acceptance(_write(tmp_path, "s.log", line), k=5)
    assert any("fits neither" in text for text in wrong.warnings)


def test_a8_17_v0_lines(tmp_path: Path) -> None:
    """K=5: 5 drafted, 1 accepted, 1 emitted of 6 -> efficiency .167. And vLLM 0.6.3: 10616 emitted in
    13311/3 steps."""
    line = (
        "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: {}, System "
        "efficiency: {}, "
        "Number of speculative tokens: {}, Number of accepted tokens: {}, Number of draft tokens: {}, "
        "Number of emitted tokens: {}.\n"
    )
    first = read_acceptance(_write(tmp_path, "a.log", line.format("0.200", "0.167", 5, 1, 5, 1)))
    assert (first.format, first.k, first.acceptance_length, first.n_steps) == ("vllm-v0-log", 5, 1.0, 1.0)
    text = line.format("0.642", "0.500", 3, 10, 30, 20) + line.format("0.642", "0.598", 3, 8547, 13311, 10616)
    last = read_acceptance(_write(tmp_path, "b.log", text))
    assert last.acceptance_length == pytest.approx(10616 / 4437)
    assert not any("efficiency" in warning for warning in last.warnings)  # 10616/(4437 x 4) = .598
    bad = read_acceptance(_write(tmp_path, "c.log", line.format("0.642", "0.700", 3, 8547, 13311, 10616)))
    assert any("efficiency" in warning for warning in bad.warnings)


def test_a8_17_mlc_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MLC"):
        read_acceptance(_write(tmp_path, "m.json", {"draft_count": [10, 10], "accept_count": [9, 7]}))


def test_llama_cpp_newest_lines(tmp_path: Path) -> None:
    """llama.cpp#24536: 87 drafts, 167 of 259 accepted, AL 2.92, rates (0.805, 0.632, 0.483)."""
    text = (
        "slot print_timing: id 1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 "
        "generated), mean acceptance "
        "length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)\n"
        "statistics draft-eagle3: #calls(b,g,a) = 1 87 87, #gen drafts = 87, #acc drafts = 70, #gen "
        "tokens = 259, "
        "#acc tokens = 167, #mean acc len = 2.92, #acc rate/pos = (0.805, 0.632, 0.483), dur(b,g,a) = "
        "0.005, 325.5 ms\n"
    )
    record = read_acceptance(_write(tmp_path, "l.log", text))
    assert record.counts is not None
    assert record.n_steps == 87
    assert record.counts.accepted == pytest.approx((70, 55, 42), abs=0.1)  # 0.805, 0.632, 0.483 of 87
    assert sum(record.counts.accepted) == pytest.approx(167)
    assert record.acceptance_length == pytest.approx(2.92, abs=5e-3)
    stats_only = read_acceptance(_write(tmp_path, "m.log", text.splitlines()[1]))
    assert stats_only.n_steps == 87 and stats_only.acceptance_length == pytest.approx(2.92, abs=5e-3)


def test_llama_cpp_statistics_without_positions(tmp_path: Path) -> None:
    text = "statistics ngram: #gen drafts = 5, #acc drafts = 5, #gen tokens = 187, #acc tokens = 73\n"
    record = read_acceptance(_write(tmp_path, "l.log", text))
    assert record.acceptance_length == pytest.approx(1 + 73 / 5)
    assert record.k is None


def test_sglang_old_and_new_accept_rate() -> None:
    """sglang#23530: (accepted + 1)/(K + 1) before, accepted/drafted after. AL 2.41, K=3: 0.6025, 0.47."""
    assert rate_formula(acceptance_length=2.41, rate=0.60, k=3) == ("AL/(K+1)", 3)
    assert rate_formula(acceptance_length=2.41, rate=0.47, k=3) == ("accepted/drafted", 3)
    assert (
        rate_formula(acceptance_length=4.0, rate=1.0, k=3)[0] == "unknown"
    )  # both agree when all is accepted
    assert rate_formula(acceptance_length=2.41, rate=0.9, k=3)[0] == "unknown"


def test_sglang_gauges_of_an_old_server(tmp_path: Path) -> None:
    text = "".join(
        f'sglang:spec_{name}{{tp_rank="0"}} {value}\n'
        for name, value in (("accept_length", 2.41), ("accept_rate", 0.6025), ("num_draft_tokens", 4))
    )
    record = read_acceptance(_write(tmp_path, "m.prom", text))
    assert record.k == 3
    assert record.draft_acceptance_rate == pytest.approx(0.47)
    assert any("older AL/(K+1)" in warning for warning in record.warnings)


def test_sglang_meta_info_of_an_old_server_and_adaptive_k(tmp_path: Path) -> None:
    meta = {
        "completion_tokens": 2411,
        "spec_verify_ct": 1000,
        "spec_accept_length": 2.411,
        "spec_accept_rate": 0.6025,
        "spec_accept_token_num": 1410,
        "spec_draft_token_num": 3000,
        "spec_accept_histogram": [280, 290, 170, 260],
    }
    old = read_acceptance(_write(tmp_path, "o.json", {"meta_info": meta}))
    assert old.acceptance_length == pytest.approx(2.41)
    assert any("older AL/(K+1)" in warning for warning in old.warnings)
    meta["spec_draft_token_num"] = 2600
    assert read_acceptance(_write(tmp_path, "v.json", {"meta_info": meta})).biased


@pytest.mark.parametrize(
    ("steps", "al", "speed", "expected_ms"), [(5, 4.68, 361.7, 12.94), (8, 5.39, 378.57, 14.24)]
)
def test_k2_15_step_from_speed(
    tmp_path: Path, steps: int, al: float, speed: float, expected_ms: float
) -> None:
    row = {
        "run_name": "x",
        "batch_size": 1,
        "input_len": 1,
        "output_len": 2,
        "last_gen_throughput": speed,
        "acc_length": al,
    }
    (record,) = read_timing(_write(tmp_path, "b.jsonl", row), k=steps).records
    assert record.seconds * 1e3 == pytest.approx(expected_ms, abs=5e-3)
    with pytest.raises(InputError, match="K is not in the file"):
        read_timing(_write(tmp_path, "b.jsonl", row))


@pytest.mark.parametrize(
    ("al", "tpot", "step_ms"),
    [(2.10, 4.37, 9.18), (2.39, 4.48, 10.71), (2.47, 5.20, 12.84), (3.54, 4.29, 15.19)],
)
def test_k2_01_step_is_al_times_tpot(tmp_path: Path, al: float, tpot: float, step_ms: float) -> None:
    run = _serve_run(tpot=tpot, itl=tpot, al=al, k=7)
    (record,) = read_timing(_write(tmp_path, "b.json", run)).records
    assert record.seconds * 1e3 == pytest.approx(step_ms, abs=5e-3)


@pytest.mark.parametrize(
    ("rates", "al", "k"), [((0.844, 0.599, 0.385, 0.271), 3.10, 4), ((0.766, 0.545), 2.31, 2)]
)
def test_k2_05_rates_only_profile(tmp_path: Path, rates: tuple[float, ...], al: float, k: int) -> None:
    profile = {
        "schema_version": "1.0",
        "measured": True,
        "num_speculative_tokens": k,
        "marginal_accept_rates": rates,
        "mean_accept_length": al,
        "accept_length_model": "measured_per_k",
    }
    record = read_acceptance(_write(tmp_path, "p.json", profile))
    assert record.acceptance_length == pytest.approx(al, abs=5e-3)
    assert record.counts is None and record.marginal == rates
    assert any("no intervals" in warning for warning in record.warnings)


def test_variable_k_counters_are_biased(tmp_path: Path) -> None:
    """Dynamic K: 100 drafts but 220 drafted tokens over 3 positions."""
    lines = [("drafts", "", 100), ("draft_tokens", "", 220), ("accepted_tokens", "", 120)]
    lines += [("accepted_tokens_per_pos", f',position="{i}"', n) for i, n in enumerate((70, 35, 15))]
    text = "\n".join(
        f'vllm:spec_decode_num_{name}_total{{model_name="m"{extra}}} {n}' for name, extra, n in lines
    )
    record = read_acceptance(_write(tmp_path, "m.prom", text))
    assert record.biased
    assert any("mean 2.20 of 3" in warning for warning in record.warnings)


def test_variable_k_log_lines_are_biased(tmp_path: Path) -> None:
    """AL 2.2 and the rates say 100 steps, 220 drafted tokens / 3 say 73."""
    line = (
        "SpecDecoding metrics: Mean acceptance length: 2.20, Accepted: 120 tokens, Drafted: 220 tokens, "
        "Per-position "
        "acceptance rate: 0.700, 0.350, 0.150, Avg Draft acceptance rate: 54.5%\n"
    )
    record = read_acceptance(_write(tmp_path, "s.log", line))
    assert record.biased and record.n_steps == pytest.approx(100)


def test_log_lines_are_pooled_and_others_skipped(tmp_path: Path) -> None:
    line = (
        "\x1b[36m(APIServer pid=1)\x1b[0m INFO SpecDecoding metrics: Mean acceptance length: 2.41, "
        "Accepted: 141 tokens, "
        "Drafted: 300 tokens, Per-position acceptance rate: 0.720, 0.430, 0.260, Avg Draft acceptance "
        "rate: 47.0%\n"
    )
    idle = "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens\n"
    other = (
        "DiffusionDecoding metrics: Mean acceptance length: 9.00, Accepted: 999 tokens, Drafted: 999 tokens\n"
    )
    record = read_acceptance(_write(tmp_path, "s.log", line * 3 + idle + other + "noise\n"))
    assert record.n_steps == 300 and record.acceptance_length == pytest.approx(2.41)
    with pytest.raises(InputError, match="idle"):
        read_acceptance(_write(tmp_path, "i.log", idle))


def test_several_engines_are_summed_and_several_models_refused(tmp_path: Path) -> None:
    def scrape(model: str, engine: int, factor: int) -> str:
        rows = [("drafts", "", 100), ("draft_tokens", "", 300), ("accepted_tokens", "", 141)]
        rows += [("accepted_tokens_per_pos", f',position="{i}"', n) for i, n in enumerate((72, 43, 26))]
        return "".join(
            f'vllm:spec_decode_num_{name}_total{{engine="{engine}",model_name="{model}"{extra}}} '
            f"{n * factor}\n"
            for name, extra, n in rows
        )

    record = read_acceptance(_write(tmp_path, "a.prom", scrape("m", 0, 1) + scrape("m", 1, 4)))
    assert record.n_steps == 500 and record.marginal == pytest.approx((0.72, 0.43, 0.26))
    with pytest.raises(InputError, match="several models"):
        read_acceptance(_write(tmp_path, "b.prom", scrape("m", 0, 1) + scrape("n", 0, 4)))


def test_restart_between_scrapes(tmp_path: Path) -> None:
    text = (
        'vllm:spec_decode_num_drafts_total{{model_name="m"}} {n}\n'
        'vllm:spec_decode_num_drafts_created{{model_name="m"}} {t}\n'
        'vllm:spec_decode_num_draft_tokens_total{{model_name="m"}} {n}\n'
    )
    before = _write(tmp_path, "a.prom", text.format(n=100, t=1.0e9))
    with pytest.raises(InputError, match="restarted"):
        read_acceptance([before, _write(tmp_path, "b.prom", text.format(n=900, t=1.1e9))])
    no_times = [
        _write(tmp_path, f"{n}.prom", f'vllm:spec_decode_num_drafts_total{{model_name="m"}} {n}\n')
        for n in (9, 3)
    ]
    with pytest.raises(InputError, match="older scrape first"):
        read_acceptance(no_times, format="vllm-prometheus")


def test_iteration_log_separates_k_and_skips_uneven(tmp_path: Path) -> None:
    def line(gen: int, tokens: int, ms: float, ctx: int = 0) -> str:
        return (
            f"Engine 000: Iteration(1): {ctx} context requests, 0 context tokens, {gen} generation "
            f"requests, {tokens} "
            f"generation tokens, iteration elapsed time: {ms} ms, GPU KV cache usage: 3.1%\n"
        )

    text = (
        line(8, 32, 9.0)
        + line(8, 32, 11.0)
        + line(8, 32, 10.0)
        + line(8, 16, 7.0)
        + line(8, 17, 5.0)
        + line(8, 8, 6.0)
    )
    times = read_timing(_write(tmp_path, "i.log", text))
    found = [(r.k, r.what, r.n_samples, round(r.seconds * 1e3, 6)) for r in times.records]
    assert found == [(0, "step", 1, 6.0), (1, "step", 1, 7.0), (3, "step", 3, 10.0)]
    assert any("different K" in warning for warning in times.warnings)
    plain = read_timing(_write(tmp_path, "p.log", line(8, 8, 6.0)))
    assert plain.records[0].what == "decode"  # no speculation anywhere: SD off, not K=0


def test_step_time_dict(tmp_path: Path) -> None:
    info = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
        "internal_states": [
            {"avg_spec_accept_length": 2.41, "step_time_dict": {"10": [0.0095, 0.0096, 0.02]}}
        ],
    }
    path = _write(tmp_path, "info.json", info)
    (record,) = read_timing(path).records
    assert (record.batch_size, record.n_tokens, record.k, record.seconds, record.n_samples) == (
        10,
        40,
        3,
        0.0096,
        3,
    )
    accepted = read_acceptance(path)
    assert (accepted.acceptance_length, accepted.k) == (2.41, 3)


def test_step_csv(tmp_path: Path) -> None:
    path = _write(
        tmp_path, "t.csv", "batch_size,k,context_tokens,step_ms,what\n8,3,1024,7.4,step\n8,0,,6.1,decode\n"
    )
    found = [
        (r.batch_size, r.k, r.n_tokens, r.context_tokens, round(r.seconds, 9), r.what)
        for r in read_timing(path).records
    ]
    assert found == [(8, 3, 32, 1024.0, 0.0074, "step"), (8, 0, 8, None, 0.0061, "decode")]
    with pytest.raises(InputError, match="step_ms"):
        read_timing(_write(tmp_path, "u.csv", "batch_size,stepms\n8,7.4\n"), format="step-csv")


def test_trtllm_zero_draft_time_is_missing(tmp_path: Path) -> None:
    row = {
        "iterLatencyMS": 9.6,
        "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 10},
        "specDecodingStats": {
            "numDraftTokens": 30,
            "numAcceptedTokens": 14,
            "numRequestsWithDraftTokens": 10,
            "iterLatencyMS": 0.0,
            "draftOverhead": 0.0,
        },
    }
    times = read_timing(_write(tmp_path, "t.jsonl", row))
    assert [r.what for r in times.records] == ["step"]
    assert any("not measured" in warning for warning in times.warnings)


def test_several_k_give_al_by_k(tmp_path: Path) -> None:
    rows = [
        {
            "batch_size": 1,
            "steps": s,
            "topk": 1,
            "num_draft_tokens": s + 1,
            "acc_length": al,
            "step_time": 0.01,
        }
        for s, al in ((1, 1.7), (3, 2.41))
    ]
    record = read_acceptance(_write(tmp_path, "b.jsonl", "\n".join(map(json.dumps, rows))))
    assert record.al_by_k == ((1, 1.7, 1.0), (3, 2.41, 1.0))
    assert (record.k, record.acceptance_length) == (3, 2.41)


def test_format_override_and_near_misses(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.txt", "nothing here\n")
    with pytest.raises(InputError, match="not a known format"):
        read_acceptance(path)
    with pytest.raises(InputError, match="did you mean vllm-log"):
        read_acceptance(path, format="vllm-logs")
    with pytest.raises(InputError, match="SpecDecoding"):
        read_acceptance(path, format="vllm-log")


def test_mixed_formats_are_not_pooled(tmp_path: Path) -> None:
    a = _write(tmp_path, "a.log", "SpecDecoding metrics: Accepted: 1 tokens, Drafted: 2 tokens\n")
    b = _write(tmp_path, "b.log", "Decode batch, #running-req: 1, accept len: 1.5\n")
    with pytest.raises(InputError, match="different formats"):
        read_acceptance([a, b])


@pytest.mark.parametrize(
    ("line", "k", "steps", "al"),
    [
        (  # a fork that prints its current depth: 308/7 = 44 steps
            "SpecDecoding metrics: Mean acceptance length: 6.82, Current speculative depth: 7, Accepted "
            "throughput: 6.46 tokens/s, Accepted: 256 tokens, Drafted: 308 tokens, "
            "Per-position acceptance rate: 1.000, 1.000, 1.000, 1.000, 0.795, 0.614, 0.409, Avg Draft "
            "acceptance rate: 83.1%",
            7,
            44,
            1 + 256 / 44,
        ),
        (  # all accepted: 90/2 = 45 steps
            "SpecDecoding metrics: Mean acceptance length: 3.00, Accepted throughput: 9.00 tokens/s, Drafted "
            "throughput: 9.00 tokens/s, Accepted: 90 tokens, Drafted: 90 tokens, Per-position "
            "acceptance rate: 1.000, 1.000, Avg Draft acceptance rate: 100.0%",
            2,
            45,
            3.0,
        ),
        (  # June 2025, n-gram, rate first and no average: 387/3 = 129 steps
            "SpecDecoding metrics: Draft acceptance rate: 38.8%, Mean acceptance length: 2.16, Accepted: 150 "
            "tokens, Drafted: 387 tokens, Per-position acceptance rate: 0.543, 0.357, 0.264",
            3,
            129,
            1 + 150 / 129,
        ),
    ],
)
def test_lines_seen_in_public_logs(tmp_path: Path, line: str, k: int, steps: int, al: float) -> None:
    record = read_acceptance(_write(tmp_path, "s.log", line + "\n"))
    assert (record.k, record.n_steps, record.biased) == (k, steps, False)
    assert record.acceptance_length == pytest.approx(al, abs=1e-9)


@pytest.mark.parametrize(
    ("fields", "k"),
    [
        ("accept len: 1.57, accept rate: 0.29, cuda graph: True", 2),  # 1 + 0.29 x 2 = 1.58
        ("mamba num: 12, accept len: 2.77, accept rate: 0.69, cuda graph: True", 3),  # older: 2.77/4 = 0.69
        ("accept len: 2.00, accept rate: 1.00, modeled throughput (token/s): 1000.00", None),  # both, K = 1
    ],
)
def test_sglang_lines_seen_in_public_logs(tmp_path: Path, fields: str, k: int | None) -> None:
    line = f"[2026-09-27 00:15:25 TP0] Decode batch, #running-req: 10, #full token: 685000, {fields}\n"
    assert read_acceptance(_write(tmp_path, "s.log", line)).k == k


def test_bench_result_of_a_varying_k(tmp_path: Path) -> None:
    """vLLM's own test of its result: 5 drafts, 18 drafted, 9 accepted, AL 2.8, rates 1.0/0.6/0.2."""
    run = {
        "spec_decode_acceptance_rate": 50.0,
        "spec_decode_acceptance_length": 2.8,
        "spec_decode_num_drafts": 5,
        "spec_decode_draft_tokens": 18,
        "spec_decode_accepted_tokens": 9,
        "spec_decode_per_position_acceptance_rates": [1.0, 0.6, 0.2],
    }
    record = read_acceptance(_write(tmp_path, "b.json", run))
    assert record.acceptance_length == pytest.approx(2.8) and record.biased
