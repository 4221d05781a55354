"""First defaults from published ceilings: stored facts are the table's, the derivation is as documented."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rooflinesim import registry
from rooflinesim.specs.achievable import LAYER_OVER_STREAM, Achievable, first_defaults
from rooflinesim.specs.base import Quantity
from rooflinesim.specs.calibration import Calibration
from rooflinesim.specs.files import load_yaml_spec, spec_root

TABLE = Path(__file__).parents[2] / "fixtures" / "achievable_ceilings.csv"
ROWS = list(csv.DictReader(TABLE.open(encoding="utf-8")))
FOLDER = spec_root("hw_specs") / "calibrations" / "achievable"
FILES = sorted(FOLDER.glob("*.yaml"))


def rule() -> Calibration:
    found = registry.calibration("rule")
    assert found is not None
    return found


def measured(gpu: str, metric: str, dtype: str | None = None) -> list[float]:
    return [
        float(row["fraction_of_peak"] or row["value"])
        for row in ROWS
        if (row["accelerator_id"], row["metric"]) == (gpu, metric) and dtype in (None, row["dtype"])
    ]


def test_the_parts_without_kernel_tables_are_there() -> None:
    wanted = """h100-pcie gh200-96gb gh200-144gb h20-96gb a40 l40 l4 t4 v100-sxm2-16gb rtx-3090 rtx-4090
    rtx-5090 gb10 mi210 mi300x mi325x mi355x gaudi2 gaudi3 a10 a10g"""
    assert set(wanted.split()) <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_facts_are_the_tables(path: Path) -> None:
    spec = load_yaml_spec(path, Achievable)
    assert spec.gpu == path.stem == registry.gpu(path.stem).id
    quantities: list[tuple[Quantity | None, str | None]] = [
        (spec.stream_frac, None),
        (spec.graph_kernel, None),
    ]
    quantities += [(one, key) for key, one in spec.best_frac.items()]
    for quantity, dtype in quantities:
        if quantity is None or quantity.kind == "paper":
            continue
        source = quantity.source
        owner = spec.gpu
        if source.startswith("lent by "):
            assert quantity.kind == "guess"
            owner, source = source.removeprefix("lent by ").split(": ", 1)
        assert quantity.value in measured(owner, source.split(", ", 1)[0], dtype), (quantity, owner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("engine", ["vllm", None])
def test_every_part_gets_a_calibration(path: Path, engine: str | None) -> None:
    found = registry.calibration(path.stem, engine=engine)
    assert found is not None and found.gpu == path.stem
    for fit in found.gemm.values():
        assert 0.5 < fit.mem_eff.value <= 1.0
        assert 0.1 < fit.compute_eff.value < 1.25
    if found.kind == "rule":
        assert found.notes


def test_derivation_by_hand() -> None:
    """h100-pcie: stream 0.836 x 0.94 = 0.786, best product 0.656 x 0.90 = 0.590; 8-bit in proportion."""
    found = registry.calibration("h100-pcie")  # no engine: the general rule
    assert found is not None and found.kind == "rule"
    assert found.gemm["*"].mem_eff.value == pytest.approx(0.836 * 0.94, abs=1e-9)
    assert found.gemm["*"].compute_eff.value == pytest.approx(0.656 * 0.90, abs=1e-9)
    base = rule()
    ratio = found.gemm["*"].compute_eff.value / base.gemm["*"].compute_eff.value
    assert found.gemm["fp8"].compute_eff.value == pytest.approx(base.gemm["fp8"].compute_eff.value * ratio)
    assert found.allreduce == base.allreduce


def test_streaming_factor_predicts_a_part_it_was_not_taken_from() -> None:
    """L40 streams 0.898; the same die as L40S reaches 0.83 in linear layers."""
    found = registry.calibration("l40")
    assert found is not None
    assert found.gemm["*"].mem_eff.value == pytest.approx(0.83, rel=0.03)
    # and the two parts it was taken from: A100 stream 0.852 to layers 0.78-0.82, H200 copy 0.896 to 0.836
    assert pytest.approx((0.78 + 0.818) / 2, rel=0.01) == 0.852 * LAYER_OVER_STREAM
    assert pytest.approx(0.836, rel=0.01) == 0.896 * LAYER_OVER_STREAM


def test_allreduce_lines_meet_the_measurements() -> None:
    """PCIe lines go through the 16 KB and 2 MB rows of L40S and RTX PRO 6000; MI355X through its own."""
    import numpy as np

    from rooflinesim.roofline import collective_s

    for gpu, owner, metric, link in (
        ("l4", "l40s", "allreduce_latency_vllm_graph", 31.5e9),
        ("rtx-5090", "rtx-pro-6000-server", "allreduce_latency_vllm_graph", 63e9),
        ("mi355x", "mi355x", "allreduce_latency_vllm", 537.5e9),
    ):
        found = registry.calibration(gpu)
        assert found is not None
        rows = [row for row in ROWS if (row["accelerator_id"], row["metric"]) == (owner, metric)]
        checked = 0
        for row in rows:
            size, ranks = float(row["message_bytes"]), int(row["n_devices"])
            if ranks not in found.allreduce.ranks or size not in (16384, 24576, 1572864, 2097152):
                continue
            model_s = collective_s(
                message_bytes=np.array(size), n_ranks=ranks, pattern="allreduce", link_bytes_per_s=link,
                fit=found.allreduce, graph=True,
            )  # fmt: skip
            assert float(model_s) * 1e6 == pytest.approx(float(row["value"]), rel=0.06), (gpu, row)
            checked += 1
        assert checked >= 2, gpu


def test_same_silicon_takes_the_fits_over() -> None:
    lender = registry.calibration("h100-sxm", engine="vllm")
    borrower = registry.calibration("h800-sxm", engine="vllm")
    assert lender is not None and borrower is not None
    if lender.kind == "measured":
        assert borrower.gemm == lender.gemm and borrower.kind == "rule"
        assert "h100-sxm" in borrower.notes


def test_nothing_measured_is_the_rule_itself() -> None:
    base = rule()
    found = first_defaults(Achievable(gpu="x"), base)
    assert (found.gemm, found.attention, found.moe, found.allreduce) == (
        base.gemm, base.attention, base.moe, base.allreduce,
    )  # fmt: skip


def test_lenders_are_accelerators() -> None:
    for path in FILES:
        like = load_yaml_spec(path, Achievable).like
        if like is not None:
            assert registry.gpu(like).id == like
