"""Reading measured serving rows: layouts, settings, and the split that keeps fits and scores apart."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from rooflinesim.errors import InputError
from rooflinesim.measured.comparison import estimates
from rooflinesim.measured.scoring import predict_rows, scores_by
from rooflinesim.measured.serving_rows import (
    fit_pairs,
    layout,
    probably_speculative,
    provenance,
    read_rows,
    split,
    table_path,
)

COLUMNS = {
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h100_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "8192",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "batch_size": "4.0",
    "tp_size": "8.0",
    "pp_size": "1.0",
    "attention_dp_size": "1.0",
    "moe_tp_size": "8.0",
    "moe_ep_size": "1.0",
    "silicon_ttft_ms": "73.08",
    "silicon_tpot_ms": "9.195",
    "silicon_data_source": "source_file=2026-04-06.csv; model=Llama-3.1-70B",
}


def table(tmp_path: Path, *changes: dict[str, str]) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows({**COLUMNS, **change} for change in changes)
    return path


@pytest.fixture(scope="module")
def shipped() -> list:
    try:
        table_path()
    except InputError:
        pytest.skip("aiconfigurator-core is not installed")
    return read_rows()


def test_a_row_becomes_a_scenario(tmp_path: Path) -> None:
    (row,) = read_rows(table(tmp_path, {}))
    assert row.scenario is not None
    assert (row.scenario.gpu, row.scenario.tp, row.scenario.weights) == ("h100-sxm", 8, "fp8")
    assert row.tpot_s == pytest.approx(9.195e-3)
    assert row.isl_tokens == pytest.approx(921.6)  # uniform in 0.8..1 of 1024
    assert row.pair == ("meta-llama/Llama-3.1-70B", "h100_sxm")


def test_disaggregated_rows_are_not_read(tmp_path: Path) -> None:
    assert read_rows(table(tmp_path, {"mode": "disagg"})) == []


def test_a_layout_nobody_can_run_is_said_not_guessed(tmp_path: Path) -> None:
    (scored,) = predict_rows(read_rows(table(tmp_path, {"tp_size": "12", "moe_tp_size": "12"})))
    assert not scored.answered
    assert "12" in scored.why_not


@pytest.mark.parametrize(
    ("tp", "dp", "moe_tp", "ep", "expected"),
    [
        (8, 1, 8, 1, (8, 1, 1)),  # plain tensor parallelism
        (64, 1, 8, 8, (8, 8, 1)),  # 8 ranks for both, written as their product
        (1, 64, 8, 8, (1, 8, 8)),  # 8 attention replicas
        (2, 2, 1, 4, (1, 2, 2)),
        (8, 1, 1, 8, (8, 8, 1)),  # already ranks
    ],
)
def test_ranks(tp: int, dp: int, moe_tp: int, ep: int, expected: tuple[int, int, int]) -> None:
    got = layout(
        {"tp_size": str(tp), "attention_dp_size": str(dp), "moe_tp_size": str(moe_tp), "moe_ep_size": str(ep)}
    )
    assert (got["tp"], got["ep"], got["dp"]) == expected


def test_provenance() -> None:
    assert provenance({"silicon_data_source": "db-dump/2026-04-27; config_id=88"}) == "inferencex"
    assert provenance({"silicon_data_source": "source_file=/home/a/h100_sxm/vllm/x.csv"}) == "author"


def test_no_pair_is_both_fitted_and_scored(shipped: list) -> None:
    fitted, scored = split(shipped)
    assert len(fitted) + len(scored) == len(shipped) == 3619
    assert {r.pair for r in fitted} & {r.pair for r in scored} == set()
    assert 0.2 < len(fitted) / len(shipped) < 0.4


def test_the_split_does_not_depend_on_order_or_on_rows(shipped: list) -> None:
    pairs = [r.pair for r in shipped]
    assert fit_pairs(pairs) == fit_pairs(set(pairs)) == fit_pairs(reversed(pairs))


def test_the_published_35_points_were_never_fitted(shipped: list) -> None:
    fitted, _ = split(shipped)
    assert not [r for r in fitted if "Llama-3.1-70B" in r.pair[0]]


def test_coverage_of_the_aggregated_rows(shipped: list) -> None:
    """At least 95 % of all 3,619 rows get an answer (aiconfigurator's own: 76 % of a sample of 828)."""
    answered = [r for r in shipped if r.scenario is not None]
    assert len(answered) / len(shipped) > 0.95


def deepseek(tmp_path: Path, *speeds: tuple[str, str, str]) -> list:
    """Rows of one DeepSeek deployment: (date, concurrency, TPOT in ms)."""
    changes = [
        {
            "backend": "trtllm",
            "model_path": "deepseek-ai/DeepSeek-R1",
            "system": "b200_sxm",
            "batch_size": concurrency,
            "silicon_tpot_ms": tpot,
            "silicon_data_source": f"db-dump/2026-04-27; measured={date}T00:00:00.000Z",
        }
        for date, concurrency, tpot in speeds
    ]
    return read_rows(table(tmp_path, *changes))


def test_a_run_twice_as_fast_is_probably_speculative(tmp_path: Path) -> None:
    """The whole run is marked, also where it gained little; the slow run is not."""
    rows = deepseek(
        tmp_path,
        ("2026-01-29", "4", "10.3"),
        ("2026-01-29", "8", "11.1"),
        ("2026-02-05", "4", "5.4"),
        ("2026-02-05", "8", "6.8"),
        ("2026-02-05", "128", "20.5"),
    )
    assert probably_speculative(rows) == {2, 3, 4}


def test_an_engine_update_is_not_taken_for_speculation(tmp_path: Path) -> None:
    rows = deepseek(tmp_path, ("2025-11-02", "4", "12.0"), ("2026-01-29", "4", "10.3"))
    assert probably_speculative(rows) == frozenset()


def test_models_without_such_layers_are_never_marked(tmp_path: Path) -> None:
    rows = read_rows(table(tmp_path, {"silicon_tpot_ms": "18"}, {"backend_version": "0.11.2"}))
    assert probably_speculative(rows) == frozenset()


def test_side_by_side_counts(shipped: list) -> None:
    """300 sampled rows, of which aiconfigurator answered 284; all of pairs that nothing was fitted on."""
    theirs = estimates()
    assert len(theirs) == 300
    assert sum(math.isfinite(tpot) for tpot, _ in theirs.values()) == 284
    _, held = split(shipped)
    assert theirs.keys() <= {r.row for r in held}


def test_scores_by_key_count_what_was_not_answered(tmp_path: Path) -> None:
    rows = read_rows(table(tmp_path, {}, {"batch_size": "8"}, {"tp_size": "12", "moe_tp_size": "12"}))
    lines = scores_by(predict_rows(rows), "gpu")
    assert [(line["n"], line["coverage"]) for line in lines] == [(3, pytest.approx(2 / 3, abs=1e-4))]
    by_tp = {line["tp"]: line for line in scores_by(predict_rows(rows), "tp")}
    assert by_tp[8]["n"] == 2
    assert "mape" in by_tp[8]
    assert all("mape" not in line for tp, line in by_tp.items() if tp != 8)
