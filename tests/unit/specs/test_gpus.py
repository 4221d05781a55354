"""Every stored accelerator against its source table; names; checks that catch usual mistakes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from rooflinesim import registry
from rooflinesim.errors import InputError, SpecError
from rooflinesim.specs.checks import check_gpu
from rooflinesim.specs.gpu import GpuSpec

TABLE = Path(__file__).parents[2] / "fixtures" / "accelerators.csv"
ROWS = list(csv.DictReader(TABLE.open(encoding="utf-8")))
COLUMNS = {
    "memory": ("memory_gb", "GB"),
    "memory_reported": ("memory_reported_mib", "MiB"),
    "memory_bandwidth": ("mem_bw_gbs", "GB/s"),
    "l2_cache": ("l2_cache_mb", "MB"),
    "last_level_cache": ("llc_mb", "MB"),
    "boost_clock": ("boost_clock_mhz", "MHz"),
    "scaleup_bidir": ("scaleup_bw_bidir_gbs", "GB/s"),
    "tdp": ("tdp_w", "W"),
}
PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


def test_all_rows_and_no_more() -> None:
    assert len(ROWS) == 63
    assert registry.gpus() == sorted(row["id"] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_is_stored_unchanged(row: dict[str, str]) -> None:
    spec = registry.gpu(row["id"])
    for field, (column, unit) in COLUMNS.items():
        quantity = getattr(spec, field)
        if row[column]:
            assert (quantity.value, quantity.unit) == (float(row[column]), unit), field
            assert quantity.source and quantity.kind, field
        else:
            assert quantity is None, field
    for name in PEAKS:
        cell = row["peak_int8_tops" if name == "int8" else f"peak_{name}_tflops"]
        assert (spec.peaks[name].value if name in spec.peaks else None) == (float(cell) if cell else None), (
            name
        )
    for field, column in (
        ("scaleup_unidir", "scaleup_bw_unidir_gbs"),
        ("p2p_pair_unidir", "p2p_pair_unidir_gbs"),
    ):
        quantity = getattr(spec, field)
        # the table prints half of 112.5 as 56.2 and 56.3
        expected = float(row[column]) if row[column] else None
        assert (quantity.value if quantity else None) == pytest.approx(expected, abs=0.06), field
    assert (spec.vendor, spec.architecture, spec.arch_target) == (
        row["vendor"],
        row["architecture"],
        row["arch_target"],
    )
    assert (str(spec.sm_count or ""), str(spec.pcie_gen or "")) == (row["sm_count"], row["pcie_gen"])
    prices = {
        key: float(row[f"price_{key}_usd_hr"])
        for key in ("low", "typical", "high")
        if row[f"price_{key}_usd_hr"]
    }
    assert spec.price_usd_per_hour == prices


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_name_resolves(row: dict[str, str]) -> None:
    for name in [row["id"], *filter(None, row["aliases"].split(";"))]:
        for spelling in (
            name,
            name.upper(),
            name.replace("-", "_"),
            name.replace("-", " "),
            f"{row['vendor']} {name}",
        ):
            assert registry.gpu(spelling).id == row["id"], spelling


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H20", "h20-96gb"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        # bare family names are the common server variant
        ("h100", "h100-sxm"),
        ("H100_SXM5_80GB", "h100-sxm"),
        ("a100", "a100-80gb-sxm"),
        ("v100", "v100-sxm2-16gb"),
        ("rtx-pro-6000", "rtx-pro-6000-ws"),
    ],
)
def test_driver_strings_and_family_names(driver: str, expected: str) -> None:
    assert registry.gpu(driver).id == expected


def test_unknown_name_is_one_line_with_near_misses() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'h10o'; did you mean .*h100") as caught:
        registry.gpu("h10o")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="unknown GPU 'zzzz'; known are "):
        registry.gpu("zzzz")
    with pytest.raises(InputError, match=r"no-such-file\.yaml: no such file"):
        registry.gpu("no-such-file.yaml")


def test_stored_parts_pass_their_checks() -> None:
    assert [
        (name, check_gpu(registry.gpu(name))) for name in registry.gpus() if check_gpu(registry.gpu(name))
    ] == []


def test_exceptions_are_needed() -> None:
    """An exception that excuses nothing would hide a later mistake."""
    for name in registry.gpus():
        spec = registry.gpu(name)
        bare = spec.model_copy(update={"check_exceptions": {}})
        assert {one.check for one in check_gpu(bare)} == set(spec.check_exceptions), name


def altered(name: str, **peaks: float) -> GpuSpec:
    spec = registry.gpu(name)
    changed = {key: spec.peaks[key].model_copy(update={"value": value}) for key, value in peaks.items()}
    return spec.model_copy(update={"peaks": spec.peaks | changed})


def test_sparse_peak_is_caught() -> None:
    # 1979 TFLOP/s is the sparse bf16 figure of an H100
    findings = {one.check: one.message for one in check_gpu(altered("h100", bf16=1979.0))}
    assert "twice is the sparse figure" in findings["peak_from_clock"]
    assert "fp8_over_bf16" in findings
    # 624 for an A100, half of it is dense
    assert {one.check for one in check_gpu(altered("a100", bf16=624.0))} >= {"peak_from_clock"}
    assert [one.check for one in check_gpu(altered("h100", fp8=3958.0))] == ["fp8_over_bf16"]


def test_bidirectional_link_and_wrong_prefix_are_caught() -> None:
    spec = registry.gpu("h100")
    assert spec.scaleup_unidir is not None
    both = spec.model_copy(update={"scaleup_unidir": spec.scaleup_unidir.model_copy(update={"value": 900.0})})
    assert [one.check for one in check_gpu(both)] == ["link_halves"]
    slow = spec.model_copy(
        update={"memory_bandwidth": spec.memory_bandwidth.model_copy(update={"value": 3.35})}
    )
    assert [one.check for one in check_gpu(slow)] == ["balance"]


def test_si_properties() -> None:
    h100 = registry.gpu("h100")
    assert h100.mem_bytes_per_s == 3.35e12
    assert h100.peak_flops_per_s("bf16") == 989e12
    assert h100.peak_flops_per_s("fp4") is None
    assert h100.link_bytes_per_s == 450e9
    assert h100.memory_bytes == 81090 * 1024**2
    # two sources in the reference: 79.2 GiB visible of an 80 GB A100
    assert registry.gpu("a100").memory_bytes / 1024**3 == pytest.approx(79.2, abs=0.05)
    assert registry.gpu("l40s").pcie_bytes_per_s == 31.5e9


def test_mesh_pair_is_a_seventh() -> None:
    """MI300X: 64 of 448 GB/s for a pair, all seven links over eight devices; a switch gives a pair all."""
    mi300x, h100, l40s = registry.gpu("mi300x"), registry.gpu("h100"), registry.gpu("l40s")
    assert [mi300x.group_link_bytes_per_s(n) for n in (2, 4, 8)] == [64e9, 192e9, 448e9]
    assert [h100.group_link_bytes_per_s(n) for n in (2, 8)] == [450e9, 450e9]
    assert h100.group_link_bytes_per_s(16) == 63e9
    assert l40s.group_link_bytes_per_s(2) == 31.5e9


USER = """\
id: my-card
vendor: Me
architecture: Mine
memory: 48 GB
memory_bandwidth: 1000 GB/s
sm_count: 100
boost_clock: 2000 MHz
flop_per_clk_per_sm_16bit: 1024
peaks: {bf16: 204.8 TFLOP/s, fp8: 409.6 TFLOP/s}
"""


def test_own_file_is_accepted_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(USER, encoding="utf-8")
    spec = registry.gpu(str(path))
    assert (spec.id, spec.mem_bytes_per_s, spec.peak_flops_per_s("fp8")) == ("my-card", 1e12, 409.6e12)
    assert check_gpu(spec) == ()
    path.write_text(USER.replace("409.6", "819.2"), encoding="utf-8")
    assert [one.check for one in check_gpu(registry.gpu(str(path)))] == ["fp8_over_bf16"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1000 GB/s", "1 TB/s", "memory_bandwidth: unit 'TB/s' was given, 'GB/s' is expected"),
        ("48 GB", "48", "memory: 48 has no unit"),
        ("48 GB", "-48 GB", "memory: '-48 GB' is not a number with a unit"),
        ("vendor", "vendr", "vendr: not a known field; did you mean vendor"),
        ("bf16:", "bf17:", "peaks.bf17: not a number format; allowed are fp32, tf32"),
        ("id: my-card\n", "", "id: required, not given"),
        ("sm_count: 100", "sm_count: many", "sm_count: .*(given 'many')"),
        ("id: my-card", "id: a\nid: b", "line 2: key 'id' is given twice"),
    ],
)
def test_own_file_errors_name_file_and_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(USER.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        registry.gpu(str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    assert re.search(message.replace("(given", r"\(given").replace("')", r"'\)"), text), text


def test_every_source_key_is_explained() -> None:
    import yaml

    from rooflinesim.specs.files import spec_root

    known = set(yaml.safe_load((spec_root("hw_specs") / "sources.yaml").read_text(encoding="utf-8")))
    for name in registry.gpus():
        spec = registry.gpu(name)
        quantities = [getattr(spec, field) for field in COLUMNS] + list(spec.peaks.values())
        texts = [
            one.source for one in quantities if one is not None and one.kind in ("datasheet", "measured")
        ]
        for text in [*texts, spec.price_source]:
            keys = {key.strip() for key in re.sub(r"\([^)]*\)", "", text).split(";")} - {""}
            assert keys <= known, (name, keys - known)


def test_findings_of_an_own_file_are_warnings(tmp_path: Path) -> None:
    from rooflinesim.api import Scenario, resolve

    path = tmp_path / "card.yaml"
    path.write_text(USER.replace("409.6", "819.2").replace("204.8", "409.6"), encoding="utf-8")
    warnings = resolve(Scenario(gpu=str(path))).warnings
    assert any("twice is the sparse figure" in warning for warning in warnings)
    assert not any("sparse" in warning for warning in resolve(Scenario(gpu="h100")).warnings)
