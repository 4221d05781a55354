"""Parallel layout, number formats and expert routing of one deployment."""

from __future__ import annotations

from pydantic import Field

from rooflinesim.specs.base import Frozen


class Parallel(Frozen):
    """Ranks: ``tp`` splits matrices, ``dp`` splits the batch over attention replicas, ``pp`` splits layers.

    ``ep`` splits the experts over the tp*dp ranks of a stage; what is left of those ranks shards each expert.
    """

    tp: int = Field(1, ge=1)
    ep: int = Field(1, ge=1)
    pp: int = Field(1, ge=1)
    dp: int = Field(1, ge=1)

    @property
    def n_gpus(self) -> int:
        """Devices in all."""
        return self.tp * self.dp * self.pp

    @property
    def moe_tp(self) -> int:
        """Ranks that share one expert."""
        return max(1, self.tp * self.dp // self.ep)


class Formats(Frozen):
    """Number formats. ``weights`` is that of the linear layers; head and router stay in ``activations``."""

    weights: str = "bf16"
    experts: str | None = None  # None: same as weights
    activations: str = "bf16"
    kv: str = "bf16"
    draft_weights: str | None = None
    draft_kv: str | None = None
    head: str | None = None  # None: same as activations


class Routing(Frozen):
    """How tokens choose experts.

    ``skew`` is the exponent s of popularity ∝ rank^-s (0: uniform). ``overlap`` is the measured share of experts
    that consecutive tokens of a sequence have in common; ``None`` means chance (top_k / n_experts).
    """

    skew: float = Field(0.0, ge=0.0, le=3.0)
    overlap: float | None = Field(None, ge=0.0, le=1.0)
