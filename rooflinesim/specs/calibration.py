"""Fitted (or ruled) efficiencies of one accelerator under one engine. Facts of the data sheet stay in GpuSpec."""

from __future__ import annotations

from typing import Literal

from rooflinesim.specs.base import Estimate, Frozen


class FamilyFit(Frozen):
    """What every fitted family carries: how many rows, how far off, and from where."""

    log_sd: float  # spread of log(measured / model), the one-sigma relative error
    n: int = 0
    source: str = ""


class GemmFit(FamilyFit):
    """t = t_fixed + ‖ F_padded/(P·compute_eff), Q·(1 + half_bytes/Q)/(B·mem_eff) ‖_p."""

    t_fixed_s: Estimate
    mem_eff: Estimate
    compute_eff: Estimate
    ridge_p: Estimate
    half_bytes: Estimate = Estimate(value=0.0)
    tile_m: int = 1  # rows are padded up to a multiple of this


class AttentionFit(FamilyFit):
    """t = t_fixed + per_seq·N·heads_kv + ‖ F/(P·compute_eff), Q/(B·mem_eff) ‖_p."""

    t_fixed_s: Estimate
    mem_eff: Estimate
    compute_eff: Estimate
    per_seq_head_s: Estimate = Estimate(value=0.0)
    ridge_p: Estimate = Estimate(value=4.0)


class MoeFit(FamilyFit):
    """t = t_fixed + ‖ F_padded/(P·compute_eff), experts·bytes/(B·mem_eff) ‖_p, rows padded to a tile per expert."""

    t_fixed_s: Estimate
    mem_eff: Estimate
    compute_eff: Estimate
    ridge_p: Estimate = Estimate(value=4.0)
    tile_rows: int = 16
    kernel: str = ""


class ElementwiseFit(FamilyFit):
    """t = launches·t_fixed + Q/(B·mem_eff)."""

    t_fixed_s: Estimate
    mem_eff: Estimate


class CollectiveFit(FamilyFit):
    """t = alpha(ranks) + wire_bytes/(link·link_eff)."""

    alpha_s: dict[int, Estimate]  # by number of ranks
    link_eff: Estimate
    alpha_eager_s: dict[int, Estimate] = {}


class Calibration(Frozen):
    """All efficiencies of one (accelerator, engine)."""

    id: str
    gpu: str
    engine: str | None = None
    kind: Literal["measured", "rule", "ideal", "machine"]
    gemm: dict[str, GemmFit]  # by weight format; "*" serves the rest
    attention: dict[str, AttentionFit]  # by KV format, "mla"; "*" serves the rest
    moe: dict[str, MoeFit]
    elementwise: ElementwiseFit
    allreduce: CollectiveFit
    alltoall: CollectiveFit | None = None
    allgather: CollectiveFit | None = None
    source: str = ""
    notes: str = ""
