"""Fitted (or ruled) efficiencies of one accelerator under one engine; data-sheet facts stay in GpuSpec.

Each family's equation is in ``rooflinesim.forms``; the field names here are the parameter names there.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar, Literal

from rooflinesim.specs.base import Estimate, Frozen

_ZERO = Estimate(value=0.0)
_ONE = Estimate(value=1.0)


class Score(Frozen):
    """How far a fit is from measured rows it never saw: errors |model/measured − 1|, as fractions."""

    domain: str  # which rows
    n: int
    mape: float
    median: float
    p90: float
    bias: float  # median of model/measured − 1


class FamilyFit(Frozen):
    """What every fitted family carries: how many rows, how far off, and from where.

    ``log_sd`` is the spread of log(measured / model) on the scored rows, the one-sigma relative error.
    """

    #: fields that are parameters of the form but no estimates: tile sizes and the like, chosen from a short
    #: list
    choices: ClassVar[tuple[str, ...]] = ()
    #: estimates that the form does not take under that name
    not_params: ClassVar[tuple[str, ...]] = ()

    log_sd: float
    n: int = 0  # rows the parameters were fitted on
    kernel: str = ""  # the kernel that the rows timed
    source: str = ""
    score: tuple[Score, ...] = ()  # on held-out rows

    @cached_property
    def params(self) -> dict[str, float]:
        """Parameter name → value, as the family's form takes them."""
        out = {name: float(getattr(self, name)) for name in self.choices}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Estimate) and name not in self.not_params:
                out[name] = value.value
        return out


class GemmFit(FamilyFit):
    """Dense products: see ``forms.gemm_form``."""

    choices = ("tile_m_min", "tile_m_max", "tile_n", "stream_tile_n")

    t_fixed_s: Estimate
    k_latency_s: Estimate = _ZERO  # at 1024 inputs, ∝ √inputs
    mem_eff: Estimate
    compute_eff: Estimate
    ridge_p: Estimate
    pad_frac: Estimate = _ONE  # share of a tile's padding that is paid
    wave_frac: Estimate = _ZERO  # share of a wave's idle SMs that is paid
    occupancy_exp: Estimate = _ZERO
    tile_m_min: int = 1
    tile_m_max: int = 1
    tile_n: int = 128
    stream_tile_n: int = 64


class AttentionFit(FamilyFit):
    """Attention over a cache: see ``forms.attention_form``."""

    choices = ("ridge_p",)

    t_fixed_s: Estimate
    mem_eff: Estimate
    compute_eff: Estimate
    per_seq_head_s: Estimate = _ZERO
    per_query_head_s: Estimate = _ZERO
    per_token_s: Estimate = _ZERO
    narrow_eff: Estimate = _ONE  # at head width 64, relative to 128
    wide_eff: Estimate = _ONE  # at head width 256
    ramp_s: Estimate = _ZERO
    ramp_bytes: Estimate = _ONE
    ridge_p: float = 4.0  # 1, 2 or 4; anything else is a plain maximum


class MoeFit(FamilyFit):
    """Routed experts: see ``forms.moe_form``."""

    choices = ("tile_rows",)

    t_fixed_s: Estimate
    mem_eff: Estimate
    compute_eff: Estimate
    ridge_p: Estimate = Estimate(value=4.0)
    per_expert_s: Estimate = _ZERO
    activation_passes: Estimate = _ONE
    routing_passes: Estimate = _ZERO
    tile_rows: int = 16


class ElementwiseFit(FamilyFit):
    """t = launches·t_fixed + Q/(B·mem_eff)."""

    t_fixed_s: Estimate
    mem_eff: Estimate


class RanksFit(Frozen):
    """One collective over one number of ranks: see ``forms.collective_form``."""

    alpha_s: Estimate
    one_shot_eff: Estimate = _ONE
    two_shot_s: Estimate = _ZERO
    two_shot_eff: Estimate
    big_bytes: float = float("inf")
    big_s: Estimate = _ZERO
    big_eff: Estimate = _ONE
    eager_alpha_s: Estimate | None = None  # outside a captured graph: at least this long ...
    eager_factor: Estimate = _ONE  # ... and this many times the time inside one


class CollectiveFit(FamilyFit):
    """Collectives by number of ranks; a number that was not fitted scales from the nearest."""

    ranks: dict[int, RanksFit]


class Calibration(Frozen):
    """All efficiencies of one (accelerator, engine)."""

    id: str
    gpu: str
    engine: str | None = None
    engine_version: str = ""
    kind: Literal["measured", "rule", "ideal", "machine"]
    gemm: dict[str, GemmFit]  # by weight format; "*", then bf16, serve the rest
    attention: dict[str, AttentionFit]  # by KV format, "mla"; "*", then bf16, serve the rest
    moe: dict[str, MoeFit]  # by expert format
    elementwise: ElementwiseFit
    linear_state: ElementwiseFit | None = None  # linear mixers' recurrent step; else elementwise
    allreduce: CollectiveFit
    alltoall: CollectiveFit | None = None
    allgather: CollectiveFit | None = None
    off_host_s: Estimate | None = (
        None  # measured on one's own machine: replaces the engine profile's off_step_s
    )
    sd_host_s: Estimate | None = None  # ... and its sd_round_s
    source: str = ""
    attribution: str = ""
    notes: str = ""


def rule_classes(*, architecture: str, memory_type: str) -> tuple[str, str]:
    """Classes whose rule may stand in for an unmeasured accelerator, the closest first.

    The kind of memory is ``hbm`` or ``gddr`` (everything else).

    >>> rule_classes(architecture="Blackwell (GB202)", memory_type="GDDR7")
    ('blackwell-gb202-gddr', 'gddr')
    """
    memory = "hbm" if memory_type.upper().startswith("HBM") else "gddr"
    family = re.sub(r"[^a-z0-9]+", "-", architecture.lower()).strip("-")
    return f"{family}-{memory}", memory
