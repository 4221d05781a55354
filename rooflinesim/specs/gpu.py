"""An accelerator as its data sheet describes it: dense peaks, per-direction links. No efficiencies here."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from rooflinesim.specs.base import Frozen, Quantity

#: The unit each stored quantity must carry: a vendor's own prefixes, so a value can be compared with its
#: sheet.
UNITS: Final[dict[str, str]] = {
    "memory": "GB",
    "memory_reported": "MiB",
    "memory_bandwidth": "GB/s",
    "l2_cache": "MB",
    "last_level_cache": "MB",
    "boost_clock": "MHz",
    "scaleup_unidir": "GB/s",
    "scaleup_bidir": "GB/s",
    "p2p_pair_unidir": "GB/s",
    "tdp": "W",
}
PEAK_FORMATS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
_SHORT = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*$")


def expand_short(value: Any) -> Any:
    """``"3350 GB/s"`` in a user's own file is a quantity whose source is that file."""
    if isinstance(value, int | float):
        raise ValueError(f"{value:g} has no unit; write a number with its unit, such as '3350 GB/s'")
    if isinstance(value, str):
        match = _SHORT.match(value)
        if match is None:
            raise ValueError(f"{value!r} is not a number with a unit, such as '3350 GB/s'")
        return {"value": float(match[1]), "unit": match[2], "kind": "guess", "source": "this file"}
    return value


class GpuSpec(Frozen):
    """One accelerator variant (one device, not a package or board).

    Quantities keep the data sheet's unit; the ``*_per_s`` and ``*_bytes`` properties are SI.
    A quantity is ``None`` when the vendor does not publish it or the format does not exist in hardware.
    """

    id: str
    aliases: tuple[str, ...] = ()
    vendor: str
    architecture: str
    arch_target: str = ""
    year: int | None = None
    status: str = ""
    form_factor: str = ""
    memory: Quantity  # GB as labelled
    memory_reported: Quantity | None = None  # MiB as the driver reports it
    memory_type: str = ""
    memory_bandwidth: Quantity  # GB/s
    l2_cache: Quantity | None = None  # MB
    last_level_cache: Quantity | None = None  # MB
    sm_count: int | None = None
    boost_clock: Quantity | None = None  # MHz
    flop_per_clk_per_sm_16bit: float | None = None
    peaks: dict[str, Quantity]  # fp32 tf32 fp16 bf16 fp8 int8 fp4 -> TFLOP/s (dense)
    scaleup_link: str = ""
    scaleup_unidir: Quantity | None = None  # GB/s per direction
    scaleup_bidir: Quantity | None = None  # GB/s, both directions
    p2p_pair_unidir: Quantity | None = None  # GB/s between one pair
    scaleup_max_devices: int | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None
    tdp: Quantity | None = None  # W
    price_usd_per_hour: dict[str, float] = Field(default_factory=dict)  # low, typical, high
    price_source: str = ""
    confidence: str = ""
    notes: str = ""
    #: check of specs.checks -> why it does not hold for this part
    check_exceptions: dict[str, str] = Field(default_factory=dict)

    @field_validator(*UNITS, mode="before")
    @classmethod
    def _expand_short(cls, value: Any) -> Any:
        return expand_short(value)

    @field_validator("peaks", mode="before")
    @classmethod
    def _expand_peaks(cls, value: Any) -> Any:
        return {key: expand_short(item) for key, item in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _units(self) -> GpuSpec:
        for name, unit in UNITS.items():
            quantity: Quantity | None = getattr(self, name)
            check_unit(name, quantity, unit)
        for name, peak in self.peaks.items():
            if name not in PEAK_FORMATS:
                raise ValueError(f"peaks.{name}: not a number format; allowed are {', '.join(PEAK_FORMATS)}")
            check_unit(f"peaks.{name}", peak, "TFLOP/s")
        return self

    @cached_property
    def memory_bytes(self) -> float:
        """Device memory a process can see, in bytes: what the driver reports, else a share of the label in
        GiB.

        Labels are really GiB. Shares seen where the driver's figure is known: HBM 0.99, GDDR6 with ECC 0.93,
        GDDR6X and GDDR7 0.98. Of memory shared with a CPU Apple's driver gives 0.75; elsewhere the label is
        decimal, 0.93.
        """
        if self.memory_reported is not None:
            return self.memory_reported.value * 1024.0**2
        kind = self.memory_type.upper()
        share = 0.99
        if "UNIFIED" in kind or kind.startswith("LPDDR"):
            share = 0.75 if self.vendor == "Apple" else 0.93
        elif kind.startswith("GDDR"):
            share = 0.93 if kind == "GDDR6" else 0.98
        return self.memory.value * 1024.0**3 * share

    @property
    def mem_bytes_per_s(self) -> float:
        """Memory bandwidth, bytes per second."""
        return self.memory_bandwidth.value * 1e9

    def peak_flops_per_s(self, compute_format: str) -> float | None:
        """Dense peak of one number format in FLOP/s, ``None`` when the hardware lacks it."""
        peak = self.peaks.get(compute_format)
        return None if peak is None else peak.value * 1e12

    @property
    def link_bytes_per_s(self) -> float | None:
        """Scale-up bandwidth of one device in one direction, bytes per second (PCIe when there is no
        link)."""
        if self.scaleup_unidir is not None:
            return self.scaleup_unidir.value * 1e9
        return self.pcie_bytes_per_s

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """PCIe bandwidth in one direction, bytes per second."""
        per_lane = {3: 15.8e9 / 16, 4: 31.5e9 / 16, 5: 63e9 / 16, 6: 121e9 / 16}.get(self.pcie_gen or 0)
        return None if per_lane is None else per_lane * (self.pcie_lanes or 16)

    def group_link_bytes_per_s(self, n_devices: int) -> float | None:
        """One direction's bandwidth of one device inside a group of ``n_devices``, bytes per second.

        A switch gives every device its whole bandwidth whatever the group; on a mesh a device reaches each
        peer over its own link, so a group of n uses n-1 links; beyond the domain of the scale-up link, PCIe.
        ``None`` when neither link is known.
        """
        domain = self.scaleup_max_devices
        if self.scaleup_unidir is None or (domain is not None and n_devices > domain):
            return self.pcie_bytes_per_s
        total = self.scaleup_unidir.value * 1e9
        if self.p2p_pair_unidir is None or n_devices <= 1:
            return total
        return min(total, self.p2p_pair_unidir.value * 1e9 * (n_devices - 1))


def check_unit(name: str, quantity: Quantity | None, unit: str) -> None:
    if quantity is None:
        return
    if quantity.unit != unit:
        raise ValueError(f"{name}: unit {quantity.unit!r} was given, {unit!r} is expected")
    if not 0 < quantity.value < 1e9:
        raise ValueError(f"{name}: {quantity.value:g} {unit} was given, a positive number is expected")
