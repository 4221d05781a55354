"""Ceilings of one accelerator under one engine: data-sheet peaks with the efficiencies that a calibration
gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from rooflinesim.errors import SpecError
from rooflinesim.forms import SHARP_RIDGE_P
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import (
    AttentionFit,
    Calibration,
    CollectiveFit,
    ElementwiseFit,
    GemmFit,
    MoeFit,
    RanksFit,
)
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.units import COMPUTE_FORMAT

T = TypeVar("T")


def _one(value: float) -> Estimate:
    return Estimate(value=value)


def ideal_calibration(gpu: str) -> Calibration:
    """The bare roofline: efficiency 1, no fixed cost, a sharp ridge. The floor no kernel can beat."""
    none = {"log_sd": 0.0, "n": 0, "source": "definition"}
    sharp = _one(SHARP_RIDGE_P)
    free_pad = _one(0)
    return Calibration(
        id=f"{gpu}--ideal",
        gpu=gpu,
        kind="ideal",
        gemm={
            "*": GemmFit(
                t_fixed_s=_one(0),
                mem_eff=_one(1),
                compute_eff=_one(1),
                ridge_p=sharp,
                pad_frac=free_pad,
                **none,
            )
        },
        attention={
            "*": AttentionFit(
                t_fixed_s=_one(0), mem_eff=_one(1), compute_eff=_one(1), ridge_p=SHARP_RIDGE_P, **none
            )
        },
        moe={
            "*": MoeFit(
                t_fixed_s=_one(0), mem_eff=_one(1), compute_eff=_one(1), ridge_p=sharp, tile_rows=1, **none
            )
        },
        elementwise=ElementwiseFit(t_fixed_s=_one(0), mem_eff=_one(1), **none),
        allreduce=CollectiveFit(
            ranks={2: RanksFit(alpha_s=_one(0), one_shot_eff=_one(1), two_shot_eff=_one(1))}, **none
        ),
    )


@dataclass(frozen=True)
class Network:
    """Between nodes: accelerators of one node, bandwidth of one network card in one direction, latency."""

    ranks_per_node: int
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class Ceilings:
    """What the roofline needs of the machine: peaks in SI, and the fits by kernel family."""

    gpu: GpuSpec
    calibration: Calibration
    network: Network | None = None  # None: every rank is in one node

    def nodes_of(self, n_ranks: int) -> int:
        """Nodes that ``n_ranks`` ranks span."""
        return 1 if self.network is None else -(-n_ranks // self.network.ranks_per_node)

    @property
    def mem_bytes_per_s(self) -> float:
        """Data-sheet memory bandwidth, bytes per second."""
        return self.gpu.mem_bytes_per_s

    def link_bytes_per_s(self, n_ranks: int) -> float:
        """Link bandwidth of one rank in one direction within a group, bytes per second.

        On a mesh a pair has one link of many; beyond the domain of the scale-up link it is PCIe.
        """
        link = self.gpu.group_link_bytes_per_s(n_ranks)
        if link is None:
            raise SpecError(f"{self.gpu.id}: no scale-up link and no PCIe generation known; use tp=1")
        return link

    def peak_flops_per_s(self, weight_format: str) -> float:
        """Dense peak of the arithmetic that ``weight_format`` runs in.

        A format the hardware lacks runs in the next wider one it has (fp4 → fp8 → 16 bit): weight-only
        kernels dequantise.
        """
        wanted = COMPUTE_FORMAT.get(weight_format, weight_format)
        for fmt in {
            "fp4": ("fp4", "fp8", "bf16", "fp16"),
            "fp8": ("fp8", "bf16", "fp16"),
            "int8": ("int8", "bf16", "fp16"),
            "bf16": ("bf16", "fp16", "fp32"),
            "fp16": ("fp16", "bf16", "fp32"),
            "fp32": ("tf32", "fp32"),
        }.get(wanted, (wanted,)):
            peak = self.gpu.peak_flops_per_s(fmt)
            if peak is not None:
                return peak
        raise SpecError(f"{self.gpu.id}: no peak for {weight_format!r} arithmetic in its data sheet")

    def gemm_fit(self, weight_format: str) -> GemmFit:
        """The fit of dense products with these weights."""
        return _pick(self.calibration.gemm, weight_format, self.calibration.id, "gemm")

    def attention_fit(self, key: str) -> AttentionFit:
        """The fit of attention: key is the KV format, or ``mla-`` and the KV format."""
        return _pick(self.calibration.attention, key, self.calibration.id, "attention")

    def moe_fit(self, weight_format: str) -> MoeFit:
        """The fit of routed experts with these weights."""
        return _pick(self.calibration.moe, weight_format, self.calibration.id, "moe")


def _pick(fits: dict[str, T], key: str, calibration_id: str, family: str) -> T:
    """The fit for ``key``, else the one that stands in for it, else ``*``, else 16 bit."""
    stand_in = {
        "fp16": "bf16",
        "bf16": "fp16",
        "fp8-block": "fp8",
        "fp8": "fp8-block",
        "int8": "fp8",
        "mla-fp8": "mla",
        "mla-bf16": "mla",
    }
    for name in (key, stand_in.get(key, key), "*", "bf16"):
        if name in fits:
            return fits[name]
    raise SpecError(
        f"calibration {calibration_id}: no {family} fit for {key!r}; it has {', '.join(sorted(fits))}"
    )
