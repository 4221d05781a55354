"""Published achievable ceilings of an accelerator, and the first defaults that follow from them.

An accelerator without measured kernel tables is priced by the documented rule, with whatever somebody has
measured of it put in: how much bandwidth a streaming kernel reaches, how much of the peak a large product,
how long a tiny kernel takes, how an all-reduce behaves. A part that shares its silicon with a measured one
names it.
"""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic import Field

from rooflinesim.specs.base import Estimate, Frozen, Quantity
from rooflinesim.specs.calibration import (
    AttentionFit,
    Calibration,
    CollectiveFit,
    ElementwiseFit,
    GemmFit,
    MoeFit,
    RanksFit,
)

#: Bandwidth of a large weight matrix over that of a streaming kernel: A100 0.80 / 0.852, H200 0.836 / 0.896.
LAYER_OVER_STREAM: Final = 0.94
#: Median of large products over the best one: mean of A100 1.00, H100 0.98, B200 0.86, B300 0.88, GB200 0.77.
TYPICAL_OVER_BEST: Final = 0.90
#: Time of a tiny kernel inside a graph on H200, the machine whose fixed times the rule resembles.
REFERENCE_KERNEL_S: Final = 1.29e-6

FitT = TypeVar("FitT", GemmFit, AttentionFit, MoeFit, ElementwiseFit)


class AllreduceCeiling(Frozen):
    """A straight line through measured all-reduce times of one number of ranks."""

    alpha: Quantity  # us, at no bytes
    bandwidth_frac: Quantity  # ring bandwidth over the link's data-sheet rate per direction


class Achievable(Frozen):
    """What was measured on one accelerator, as fractions of its data sheet; all of it optional."""

    gpu: str
    like: str | None = None  # accelerator with the same silicon whose fits serve
    stream_frac: Quantity | None = None  # streaming kernel (scale or copy) over data-sheet bandwidth
    best_frac: dict[str, Quantity] = Field(default_factory=dict)  # best large product by format over its peak
    graph_kernel: Quantity | None = None  # us per tiny kernel inside a graph
    allreduce: dict[int, AllreduceCeiling] = Field(default_factory=dict)  # by number of ranks
    notes: str = ""


def first_defaults(achievable: Achievable, rule: Calibration) -> Calibration:
    """The rule with the measured ceilings put in.

    mem_eff = 0.94·stream for dense products, and every other family's in proportion; compute_eff = 0.90·best
    of the format, other formats and families in proportion to 16 bit; fixed times in proportion to a tiny
    kernel's.
    """
    base = rule.gemm["*"]
    stream = achievable.stream_frac
    memory = 1.0 if stream is None else LAYER_OVER_STREAM * stream.value / base.mem_eff.value
    best = {key: TYPICAL_OVER_BEST * one.value for key, one in achievable.best_frac.items()}
    sixteen = best.get("bf16", best.get("fp16"))
    compute = 1.0 if sixteen is None else sixteen / base.compute_eff.value
    kernel = achievable.graph_kernel
    fixed = 1.0 if kernel is None else kernel.value * 1e-6 / REFERENCE_KERNEL_S

    def scaled(fit: FitT, compute_eff: float | None = None) -> FitT:
        update: dict[str, object] = {
            "mem_eff": Estimate(value=min(1.0, fit.mem_eff.value * memory)),
            "t_fixed_s": Estimate(value=fit.t_fixed_s.value * fixed),
        }
        if not isinstance(fit, ElementwiseFit):
            value = fit.compute_eff.value * compute if compute_eff is None else compute_eff
            update["compute_eff"] = Estimate(value=value)
        return fit.model_copy(update=update)

    return rule.model_copy(
        update={
            "id": f"{achievable.gpu}--achievable",
            "gpu": achievable.gpu,
            "gemm": {key: scaled(fit, best.get(key)) for key, fit in rule.gemm.items()},
            "attention": {key: scaled(fit) for key, fit in rule.attention.items()},
            "moe": {key: scaled(fit) for key, fit in rule.moe.items()},
            "elementwise": scaled(rule.elementwise),
            "allreduce": _allreduce(achievable, rule.allreduce),
            "kind": "rule",
            "source": f"published achievable ceilings of {achievable.gpu} put into: {rule.source}",
            "notes": f"published achievable ceilings put into the rule. {achievable.notes}".rstrip(". "),
        }
    )


def lent(achievable: Achievable, lender: Calibration) -> Calibration:
    """The fits of an accelerator with the same silicon: relative efficiencies carry over, so it is a rule."""
    allreduce = _allreduce(achievable, lender.allreduce)
    note = f"fits of {lender.gpu}, which has the same silicon"
    return lender.model_copy(
        update={
            "id": f"{achievable.gpu}--like-{lender.id}",
            "gpu": achievable.gpu,
            "kind": "rule",
            "allreduce": allreduce,
            "notes": f"{note}. {achievable.notes}".rstrip(". ") if achievable.notes else note,
        }
    )


def _allreduce(achievable: Achievable, rule: CollectiveFit) -> CollectiveFit:
    """Measured lines replace the rule's; both algorithms of the form are given the measured line."""
    if not achievable.allreduce:
        return rule
    ranks = {}
    for count, line in achievable.allreduce.items():
        eff = line.bandwidth_frac.value
        # one-shot moves r/2 times the ring's bytes: the same line needs r/2 times the efficiency
        one_shot, two_shot = Estimate(value=eff * count / 2), Estimate(value=eff)
        alpha = Estimate(value=line.alpha.value * 1e-6)
        ranks[count] = RanksFit(alpha_s=alpha, one_shot_eff=one_shot, two_shot_eff=two_shot)
    return rule.model_copy(update={"ranks": ranks})
