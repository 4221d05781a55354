"""Acceptance against published numbers: default rows, golden AL curves, n-alpha, user reports, traces."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rooflinesim.acceptance import (
    AcceptanceCurve,
    PositionCounts,
    choose_curve,
    counter_summary,
    fit_acceptance_lengths,
    from_mean_acceptance,
)
from rooflinesim.acceptance.stored import default_curve, measured_curve, measured_names, measured_spec
from rooflinesim.goodput import break_even_c1, break_even_dar

DATA = Path(__file__).parent / "data" / "golden_al.csv"

# AL at K = 1, 3, 5, 7 as printed beside the published evidence for each drafter and workload
DEFAULTS = [
    ("eagle3", "coding", (1.80, 2.89, 3.47, 3.75)),
    ("eagle3", "math", (1.80, 2.89, 3.47, 3.75)),
    ("eagle3", "mixed", (1.74, 2.66, 3.10, 3.31)),
    ("eagle3", "chat", (1.58, 2.16, 2.42, 2.56)),
    ("eagle", "chat", (1.77, 2.76, 3.25, 3.47)),
    ("mtp", "coding", (1.90, 3.32, 4.23, 4.72)),
    ("mtp-single", "coding", (1.85, 2.65, 2.77, 2.77)),
    ("draft_model", "mixed", (1.68, 2.46, 2.82, 2.98)),
    ("draft_model", "coding", (1.94, 3.65, 5.17, 6.51)),
    ("self_sparse", "long-context", (1.82, 3.04, 3.87, 4.42)),
    ("dflash", "coding", (1.87, 3.23, 4.15, 4.71)),
    ("dflash", "chat", (1.73, 2.55, 2.86, 2.95)),
    ("dspark", "coding", (1.89, 3.34, 4.40, 5.12)),
    ("dspark", "chat", (1.77, 2.77, 3.28, 3.52)),
    ("ngram", "chat", (1.16, 1.34, 1.41, 1.44)),
    ("ngram", "rag", (1.30, 1.74, 2.03, 2.22)),
    ("ngram", "editing", (1.70, 3.00, 4.17, 5.22)),
]


@pytest.mark.parametrize(("method", "workload", "expected"), DEFAULTS)
def test_default_rows_give_their_printed_acceptance_lengths(method, workload, expected):
    conversion = default_curve(method, workload)
    np.testing.assert_allclose(conversion.curve.acceptance_length([1, 3, 5, 7]), expected, atol=0.0051)
    assert conversion.warnings == ()
    assert conversion.measured_k == 0


def golden():
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        yield row["curve"], [float(row[f"k{k}"]) for k in range(1, 9)], row


def test_two_numbers_describe_the_fourteen_golden_curves():
    errors, flat_errors = [], []
    for name, lengths, row in golden():
        c1, decay, rmse = fit_acceptance_lengths(k=range(1, 9), acceptance_length=lengths)
        # an independent least-squares fit, printed to three decimals
        assert c1 == pytest.approx(float(row["a1"]), abs=0.002), name
        assert decay == pytest.approx(float(row["rho"]), abs=0.002), name
        assert rmse == pytest.approx(float(row["rmse"]), abs=0.001), name
        errors.append(rmse)
        grid = np.linspace(0.5, 0.99, 491)
        table = np.array([AcceptanceCurve.geometric(c1=c).acceptance_length(np.arange(1, 9)) for c in grid])
        flat = float(np.sqrt(((table - lengths) ** 2).mean(axis=1)).min())
        assert flat == pytest.approx(float(row["rmse_flat"]), abs=0.002), name
        flat_errors.append(flat)
    assert len(errors) == 14
    assert np.median(errors) <= 0.06
    assert np.median(errors) < 0.5 * np.median(flat_errors)


def test_stored_golden_curves_are_the_published_points():
    stored = [measured_spec(name) for name in measured_names() if "--speed-bench-coding-" in name]
    published = sorted(tuple(lengths) for _, lengths, _ in golden())
    assert sorted(tuple(spec.acceptance_length.values()) for spec in stored) == published


def test_eagle_n_alpha_and_chain_acceptance_length():
    # EAGLE paper: n-alpha of Tables 2-3 against the separately measured chain AL of Table 5 (5 drafts, T = 0)
    chain = {
        "vicuna-7b": 3.20,
        "vicuna-13b": 3.23,
        "vicuna-33b": 2.97,
        "llama2-chat-7b": 3.00,
        "llama2-chat-13b": 3.18,
        "llama2-chat-70b": 3.12,
    }
    for name, length in chain.items():
        curve = measured_curve(f"{name}--eagle--mt-bench-t0").curve
        assert float(curve.acceptance_length(5)) == pytest.approx(length, rel=0.06), name


@pytest.mark.parametrize(
    ("name", "implied"),
    [("dflash--math", 4.80), ("eagle3--math", 4.56), ("dspark--math", 5.58), ("dflash--code", 4.48),
     ("eagle3--code", 3.92), ("dspark--code", 5.18), ("dflash--chat", 2.97), ("eagle3--chat", 2.41),
     ("dspark--chat", 3.52)],
)  # fmt: skip
def test_dspark_figure_2_conditionals_imply_its_table(name, implied):
    assert float(measured_curve(f"qwen3-4b--{name}").curve.acceptance_length(7)) == pytest.approx(
        implied, abs=0.02
    )


def test_every_stored_curve_is_valid_up_to_its_depth():
    assert len(measured_names()) >= 60
    for name in measured_names():
        conversion = measured_curve(name)
        lengths = conversion.curve.acceptance_length(np.arange(0, 17))
        assert lengths[0] == 1.0 and np.all(np.diff(lengths) >= 0) and np.all(lengths <= np.arange(1, 18)), (
            name
        )
        assert measured_spec(name).id == name


def test_beta_mixture_matches_rising_published_conditionals():
    # EAGLE on code-edit prompts: conditionals rise because easy requests survive
    published = [0.587, 0.617, 0.679, 0.736, 0.759, 0.796]
    beta = AcceptanceCurve.beta(a=2.9, b=2.0).conditional(6)
    np.testing.assert_allclose(beta, published, atol=0.045)
    flat = np.full(6, np.mean(published))
    assert np.abs(flat - published).max() > 2 * np.abs(beta - published).max()


def test_a8_01_seven_percent_is_not_broken():
    # vLLM log, K = 15: accepted 89, drafted 975, per-position .600 .385 .215 .108 .062 then zeros
    counts = PositionCounts.from_rates(
        n_steps=975 / 15, marginal=[0.600, 0.385, 0.215, 0.108, 0.062] + [0.0] * 10
    )
    assert counts.n_steps == 65
    assert counts.acceptance_length == pytest.approx(2.370, abs=0.001)
    assert counts.mean_accepted_frac == pytest.approx(0.0913, abs=0.0001)
    np.testing.assert_allclose(counts.conditional[:5], [0.600, 0.642, 0.558, 0.502, 0.574], atol=0.001)
    assert counts.useful_depth() == 5
    choice = choose_curve(counts)
    # nothing rises: a short form is enough, near p = 0.57-0.6, and AL at the measured K comes back
    assert choice.form in ("geometric", "beta", "split")
    assert 0.5 < float(choice.curve.conditional(3).mean()) < 0.65
    assert float(choice.curve.acceptance_length(15)) == pytest.approx(2.37, abs=0.1)


def test_a8_03_rising_conditionals_switch_to_the_table():
    counts = PositionCounts.from_histogram([39, 1, 0, 3])
    assert counts.acceptance_length == pytest.approx(1.2326, abs=0.0001)
    assert counts.mean_accepted_frac == pytest.approx(0.0775, abs=0.0001)
    np.testing.assert_allclose(counts.marginal, [0.0930, 0.0698, 0.0698], atol=0.0001)
    choice = choose_curve(counts)
    assert choice.form == "table"
    np.testing.assert_allclose(choice.curve.conditional(3), [0.093, 0.75, 1.0], atol=0.001)
    assert any("rises" in warning for warning in choice.warnings)
    assert float(choice.curve.conditional(4)[3]) < 0.95  # 3 of 3 does not make the rest certain


def test_a8_07_counters():
    summary = counter_summary(n_steps=4816, drafted_tokens=33712, accepted_tokens=12208)
    assert summary.acceptance_length == pytest.approx(3.535, abs=0.001)
    assert summary.mean_accepted_frac == pytest.approx(0.362, abs=0.0005)
    assert summary.mean_k == 7.0


def test_a8_09_mean_acceptance_is_not_a_probability():
    conversion = from_mean_acceptance(k=2, mean_accepted_frac=0.728)
    assert float(conversion.curve.acceptance_length(2)) == pytest.approx(2.456, abs=0.001)
    wrong = AcceptanceCurve.geometric(c1=0.728).acceptance_length(2)
    assert float(wrong) == pytest.approx(2.26, abs=0.005)


def test_a8_15_low_rate_and_length_agree():
    assert float(
        from_mean_acceptance(k=3, mean_accepted_frac=0.19).curve.acceptance_length(3)
    ) == pytest.approx(1.57)


def test_m3_09_break_even():
    assert float(break_even_dar(r=2.907, k=5)) == pytest.approx(0.381, abs=0.0005)
    assert float(break_even_dar(r=6.046, k=5)) == pytest.approx(1.009, abs=0.0005)
    p = float(break_even_c1(r=2.907, k=5))
    assert sum(p**i for i in range(6)) == pytest.approx(2.907, abs=1e-6)
    assert np.isnan(break_even_c1(r=6.046, k=5))
