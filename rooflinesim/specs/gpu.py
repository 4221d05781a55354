"""An accelerator as its data sheet describes it: dense peaks, per-direction links. No efficiencies here."""

from __future__ import annotations

from functools import cached_property

from rooflinesim.specs.base import Frozen, Quantity


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
    price_usd_per_hour: dict[str, float] = {}  # low, typical, high
    price_source: str = ""
    confidence: str = ""
    notes: str = ""

    @cached_property
    def memory_bytes(self) -> float:
        """Usable device memory in bytes: what the driver reports, else 0.985 of the label in GiB for HBM parts.

        The label of NVIDIA HBM parts is really GiB and about 99 % of it is visible.
        """
        if self.memory_reported is not None:
            return self.memory_reported.value * 1024.0**2
        return self.memory.value * 1024.0**3 * 0.985

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
        """Scale-up bandwidth of one device in one direction, bytes per second (PCIe when there is no link)."""
        if self.scaleup_unidir is not None:
            return self.scaleup_unidir.value * 1e9
        return self.pcie_bytes_per_s

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """PCIe bandwidth in one direction, bytes per second."""
        per_lane = {3: 15.8e9 / 16, 4: 31.5e9 / 16, 5: 63e9 / 16, 6: 121e9 / 16}.get(self.pcie_gen or 0)
        return None if per_lane is None else per_lane * (self.pcie_lanes or 16)
