"""How accelerators are joined: GPUs per node, the links inside it, and the network out of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator, model_validator

from rooflinesim.specs.base import Frozen, Quantity
from rooflinesim.specs.gpu import GpuSpec, check_unit, expand_short

#: switch: every device reaches every other at full rate. mesh: one link to each peer. bridge: small groups
#: joined by a bridge, PCIe beyond. pcie: no scale-up link. torus: nearest neighbours only.
Topology = Literal["switch", "mesh", "bridge", "pcie", "torus"]


class NodeSpec(Frozen):
    """One server (or rack-scale domain) with equal accelerators. Rates are per accelerator and per
    direction."""

    id: str
    aliases: tuple[str, ...] = ()
    gpu: str  # id in hw_specs/gpus
    n_gpus: int  # accelerators in the box (rack for rack-scale domains)
    topology: Topology
    scaleup_domain: int  # accelerators joined by the scale-up link (1: none)
    scaleup: Quantity | None = None  # GB/s per direction, all links of one accelerator
    pair: Quantity | None = None  # GB/s per direction between one pair
    host: Quantity | None = None  # GB/s per direction, PCIe to the host, and between cards without a link
    scaleout: Quantity | None = None  # GB/s per direction and accelerator, network out of the node
    scaleout_latency: Quantity | None = None  # us of one small exchange between two nodes
    confidence: str = ""
    notes: str = ""

    @field_validator("scaleup", "pair", "host", "scaleout", "scaleout_latency", mode="before")
    @classmethod
    def _expand_short(cls, value: Any) -> Any:
        return expand_short(value)

    @model_validator(mode="after")
    def _consistent(self) -> NodeSpec:
        for name in ("scaleup", "pair", "host", "scaleout"):
            check_unit(name, getattr(self, name), "GB/s")
        check_unit("scaleout_latency", self.scaleout_latency, "us")
        if self.n_gpus < 1 or not 1 <= self.scaleup_domain <= self.n_gpus:
            raise ValueError(
                f"scaleup_domain: {self.scaleup_domain} was given, 1..n_gpus={self.n_gpus} is allowed"
            )
        if self.scaleup_domain > 1 and self.scaleup is None:
            raise ValueError("scaleup: required when scaleup_domain is above 1")
        return self

    def group_bytes_per_s(self, n_devices: int) -> float | None:
        """One direction's bandwidth of one accelerator in a group of ``n_devices``, bytes per second.

        Inside the scale-up domain: the whole link (switch, torus) or one pair's link per peer (mesh, bridge);
        inside the box: the host link; beyond it: the network, ``None`` when that is not known.
        """
        if n_devices <= self.scaleup_domain and self.scaleup is not None:
            total = self.scaleup.value * 1e9
            if self.topology in ("mesh", "bridge") and self.pair is not None and n_devices > 1:
                return min(total, self.pair.value * 1e9 * (n_devices - 1))
            return total
        if n_devices <= self.n_gpus:
            return None if self.host is None else self.host.value * 1e9
        return None if self.scaleout is None else self.scaleout.value * 1e9


def default_node(gpu: GpuSpec) -> NodeSpec:
    """The node to assume for an accelerator without one on file: its scale-up domain, or eight cards on
    PCIe."""
    linked = gpu.scaleup_unidir is not None
    domain = (gpu.scaleup_max_devices or 1) if linked else 1
    link = gpu.scaleup_link.lower()
    topology: Topology = "pcie"
    if domain > 1:
        pair, whole = gpu.p2p_pair_unidir, gpu.scaleup_unidir
        meshed = pair is not None and whole is not None and pair.value < whole.value
        topology = (
            "torus" if "torus" in link else "bridge" if "bridge" in link else "mesh" if meshed else "switch"
        )
    pcie = gpu.pcie_bytes_per_s
    host = None
    if pcie is not None:
        source = f"PCIe gen {gpu.pcie_gen} x{gpu.pcie_lanes or 16}, one direction"
        host = Quantity(value=pcie / 1e9, unit="GB/s", kind="datasheet", source=source)
    return NodeSpec(
        id=f"{gpu.id}-node",
        gpu=gpu.id,
        n_gpus=max(domain, 8 if pcie is not None else 1),
        topology=topology,
        scaleup_domain=domain,
        scaleup=gpu.scaleup_unidir if domain > 1 else None,
        pair=gpu.p2p_pair_unidir if domain > 1 else None,
        host=host,
        confidence="assumed",
        notes="assumed from the accelerator's data sheet",
    )
