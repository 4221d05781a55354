"""Rules for unmeasured accelerators: medians by hand, classes, and the leave-one-out error they carry."""

from __future__ import annotations

import pytest

from rooflinesim import registry
from rooflinesim.calibrate.transfer import Measured, rule_of, stored
from rooflinesim.efficiency import Ceilings, ideal_calibration
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import Calibration, RanksFit, rule_classes
from rooflinesim.specs.files import load_yaml_spec, spec_root

RULES = sorted((spec_root("hw_specs") / "calibrations").glob("rule--*.yaml"))


def _machine(gpu: str, mem_eff: float, t_fixed_s: float, alpha_s: float) -> Measured:
    base = ideal_calibration(gpu)
    fit = base.gemm["*"].model_copy(
        update={
            "mem_eff": Estimate(value=mem_eff),
            "t_fixed_s": Estimate(value=t_fixed_s),
            "tile_m_max": 128 if mem_eff < 0.8 else 256,
            "log_sd": 0.1,
        }
    )
    ranks = {8: RanksFit(alpha_s=Estimate(value=alpha_s), two_shot_eff=Estimate(value=0.5))}
    allreduce = base.allreduce.model_copy(update={"ranks": ranks})
    return Measured(
        registry.gpu(gpu), base.model_copy(update={"gemm": {"bf16": fit}, "allreduce": allreduce})
    )


def test_a_rule_is_the_median_of_each_parameter() -> None:
    peers = [
        _machine("h100-sxm", 0.90, 3e-6, 5e-6),
        _machine("h200-sxm", 0.84, 4e-6, 4e-6),
        _machine("b200-sxm", 0.76, 9e-6, 8e-6),
    ]
    rule = rule_of("hbm", "vllm", peers)
    fit = rule.gemm["*"]  # 16 bit serves every format nobody measured
    assert fit.mem_eff.value == 0.84
    assert fit.t_fixed_s.value == 4e-6
    assert fit.tile_m_max == 256
    assert rule.allreduce.ranks[8].alpha_s.value == 5e-6
    # standard error of a median of three: 1.2533·σ/√3, σ of .90 .84 .76 = 0.07024
    assert fit.mem_eff.stderr == pytest.approx(1.2533 * 0.070238 / 3**0.5, rel=1e-3)
    assert (rule.kind, rule.id) == ("rule", "rule--hbm--vllm")


def test_classes_run_from_the_silicon_to_the_memory() -> None:
    assert rule_classes(architecture="Hopper", memory_type="HBM3") == ("hopper-hbm", "hbm")
    assert rule_classes(architecture="Ada Lovelace", memory_type="GDDR6X") == ("ada-lovelace-gddr", "gddr")
    assert rule_classes(architecture="M4", memory_type="LPDDR5X unified")[1] == "gddr"


@pytest.mark.parametrize("path", RULES, ids=lambda p: p.stem)
def test_stored_rules_say_how_far_off_they_are(path: object) -> None:
    rule = load_yaml_spec(path, Calibration)  # type: ignore[arg-type]
    assert rule.kind == "rule"
    for family in (rule.gemm, rule.attention, rule.moe):
        for key, fit in family.items():
            assert fit.log_sd >= 0.02, (rule.id, key)


def test_a_rule_is_less_sure_than_the_fits_it_came_from() -> None:
    rule = registry.calibration("rule--hbm", engine="vllm")
    assert rule is not None
    fits = [m.fits.gemm["bf16"].log_sd for m in stored("vllm") if "hbm" in m.classes]
    assert rule.gemm["*"].log_sd >= sorted(fits)[len(fits) // 2]


def test_products_of_an_unmeasured_accelerator_within_fifteen_percent() -> None:
    """Leave one accelerator out: H100 predicted by H200, B200 by GB200, and so on."""
    for engine in ("vllm", "sglang", "trtllm"):
        for name in ("hopper-hbm", "blackwell-hbm", "blackwell-ultra-hbm"):
            rule = registry.calibration(f"rule--{name}", engine=engine)
            assert rule is not None
            assert rule.gemm["*"].score[0].mape <= 0.15, rule.id


def test_an_unmeasured_accelerator_finds_its_class() -> None:
    fits = registry.calibration("a30", engine="vllm")
    assert fits is not None and fits.kind == "rule"
    ceilings = Ceilings(gpu=registry.gpu("a30"), calibration=fits)
    assert ceilings.gemm_fit("bf16").mem_eff.value <= 1.0
    amd = registry.calibration("mi300x", engine="vllm")
    assert amd is not None and amd.kind == "rule"
