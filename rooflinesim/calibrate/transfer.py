"""Rules for accelerators that nobody measured: medians over those that were, and how far off such a rule is.

An unmeasured accelerator takes the class of its architecture and kind of memory (``hopper-hbm``), else that
of its memory (``hbm``, ``gddr``), else the general rule. The error of a rule is measured by leaving one
accelerator out: its class without it predicts its held-out rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rooflinesim import registry
from rooflinesim.calibrate import attention, collective, gemm, moe, tables
from rooflinesim.calibrate.fitting import log_spread, score
from rooflinesim.grid import FloatArray
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import (
    Calibration,
    CollectiveFit,
    ElementwiseFit,
    FamilyFit,
    RanksFit,
    Score,
    rule_classes,
)
from rooflinesim.specs.gpu import GpuSpec

FitT = TypeVar("FitT", bound=FamilyFit)
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Measured:
    """One fitted calibration with the accelerator it belongs to."""

    gpu: GpuSpec
    fits: Calibration

    @property
    def classes(self) -> tuple[str, str]:
        """Its rule classes, the closest first."""
        return rule_classes(architecture=self.gpu.architecture, memory_type=self.gpu.memory_type)


def _median(estimates: Sequence[Estimate]) -> Estimate:
    """Median value; its standard error is that of a median of that many (1.25·σ/√n)."""
    values = [e.value for e in estimates]
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(
        value=statistics.median(values),
        stderr=None if spread is None else 1.2533 * spread / len(values) ** 0.5,
    )


def _merge(fits: Sequence[FitT], source: str) -> FitT:
    """Parameter by parameter: the median of estimates, the middle one of choices."""
    first = fits[0]
    update: dict[str, Any] = {
        "source": source,
        "score": (),
        "kernel": "",
        "n": sum(f.n for f in fits),
        "log_sd": statistics.median(f.log_sd for f in fits),
    }
    for name in type(first).model_fields:
        values = [getattr(f, name) for f in fits]
        if isinstance(values[0], Estimate):
            update[name] = _median(values)
        elif name in first.choices:
            update[name] = sorted(values)[len(values) // 2]
    return type(first).model_validate(first.model_copy(update=update).model_dump())


def _merge_collective(fits: Sequence[CollectiveFit], source: str) -> CollectiveFit:
    counts = sorted({count for f in fits for count in f.ranks})
    ranks: dict[int, RanksFit] = {}
    for count in counts:
        have = [f.ranks[count] for f in fits if count in f.ranks]
        eager = [r.eager_alpha_s for r in have if r.eager_alpha_s is not None]
        ranks[count] = RanksFit(
            alpha_s=_median([r.alpha_s for r in have]),
            one_shot_eff=_median([r.one_shot_eff for r in have]),
            two_shot_s=_median([r.two_shot_s for r in have]),
            two_shot_eff=_median([r.two_shot_eff for r in have]),
            eager_alpha_s=_median(eager) if eager else None,
            eager_factor=_median([r.eager_factor for r in have]),
        )
    return CollectiveFit(
        ranks=ranks,
        log_sd=statistics.median(f.log_sd for f in fits),
        n=sum(f.n for f in fits),
        source=source,
    )


def _merge_keys(parts: Sequence[Mapping[str, FitT]], source: str) -> dict[str, FitT]:
    """Key by key; 16 bit becomes ``*``, which serves every key that nobody measured."""
    keys = dict.fromkeys(key for part in parts for key in part)
    merged = {key: _merge([part[key] for part in parts if key in part], source) for key in keys}
    return {"*" if key == "bf16" else key: fit for key, fit in merged.items()}


def rule_of(name: str, engine: str, peers: Sequence[Measured]) -> Calibration:
    """The class rule over ``peers``: medians of every family."""
    fits = [p.fits for p in peers]
    source = f"median over {', '.join(p.gpu.id for p in peers)}"

    def elementwise(parts: Iterable[ElementwiseFit | None]) -> ElementwiseFit | None:
        have = [part for part in parts if part is not None]
        return _merge(have, source) if have else None

    def collective_(parts: Iterable[CollectiveFit | None]) -> CollectiveFit | None:
        have = [part for part in parts if part is not None]
        return _merge_collective(have, source) if have else None

    small, reduce = elementwise(f.elementwise for f in fits), collective_(f.allreduce for f in fits)
    assert small is not None and reduce is not None
    return Calibration(
        id=f"rule--{name}--{engine}",
        gpu="*",
        engine=engine,
        kind="rule",
        gemm=_merge_keys([f.gemm for f in fits], source),
        attention=_merge_keys([f.attention for f in fits], source),
        moe=_merge_keys([f.moe for f in fits], source),
        elementwise=small,
        linear_state=elementwise(f.linear_state for f in fits),
        allreduce=reduce,
        alltoall=collective_(f.alltoall for f in fits),
        allgather=collective_(f.allgather for f in fits),
        source=source,
        attribution=tables.ATTRIBUTION,
        notes=f"efficiencies are medians over {', '.join(p.gpu.id for p in peers)} ({name})",
    )


def _class_members(name: str, measured: Sequence[Measured]) -> list[Measured]:
    return [m for m in measured if name in m.classes]


def _evaluations(rule: Calibration, target: Measured) -> dict[tuple[str, str], Pair]:
    """(family, key) → (model, measured) of the rule on one accelerator's held-out rows."""
    engine = rule.engine or ""
    out: dict[tuple[str, str], Pair] = {}

    def keep(family: str, key: str, pair: Pair | None) -> None:
        if pair is not None and pair[0].size:
            out[family, key] = pair

    for key, fit in rule.gemm.items():
        keep("gemm", key, gemm.evaluate(target.gpu, engine, _measured_key(key), fit))
    for key, att in rule.attention.items():
        keep("attention", key, attention.evaluate(target.gpu, engine, _measured_key(key), att))
    for key, experts in rule.moe.items():
        keep("moe", key, moe.evaluate(target.gpu, engine, _measured_key(key), experts))
    keep("allreduce", "", collective.evaluate(target.gpu, engine, rule.allreduce))
    return out


def _measured_key(key: str) -> str:
    return "bf16" if key == "*" else key


def leave_one_out(measured: Sequence[Measured], engine: str) -> dict[str, dict[tuple[str, str], list[Pair]]]:
    """Class → (family, key) → pairs: each accelerator predicted by the others of its class."""
    out: dict[str, dict[tuple[str, str], list[Pair]]] = {}
    for target in measured:
        others = [m for m in measured if m.gpu.id != target.gpu.id]
        for name in target.classes:
            peers = _class_members(name, others)
            if not peers:
                continue
            rule = rule_of(name, engine, peers)
            for where, pair in _evaluations(rule, target).items():
                out.setdefault(name, {}).setdefault(where, []).append(pair)
    return out


def _scored(fit: FitT, pairs: Sequence[Pair] | None, fallback: float) -> FitT:
    """The rule's fit with its leave-one-out score and a spread that holds 80 % of those errors."""
    if not pairs:
        return fit.model_copy(update={"log_sd": round(max(fallback, 1.5 * fit.log_sd), 5)})
    model = np.concatenate([a for a, _ in pairs])
    seen = np.concatenate([b for _, b in pairs])
    spread = log_spread(model_s=model, measured_s=seen)
    scores: tuple[Score, ...] = (
        score(domain=f"leave one accelerator out, {len(pairs)} in turn", model_s=model, measured_s=seen),
    )
    return fit.model_copy(update={"log_sd": round(max(spread, fit.log_sd), 5), "score": scores})


def rules(measured: Sequence[Measured], engine: str) -> list[Calibration]:
    """A rule for every class that has members, scored by leave-one-out where the class has two or more.

    A class of one takes the spread of its memory's class.
    """
    tested = leave_one_out(measured, engine)
    names = dict.fromkeys(name for m in measured for name in m.classes)
    out = []
    for name in names:
        rule = rule_of(name, engine, _class_members(name, measured))
        memory = name.rsplit("-", 1)[-1]
        near = tested.get(name) or tested.get(memory) or {}
        wide = [log_spread(model_s=a, measured_s=b) for pairs in near.values() for a, b in pairs]
        fallback = statistics.median(wide) if wide else 0.25
        own = tested.get(name, {})

        def done(
            family: str,
            own: dict[tuple[str, str], list[Pair]] = own,
            fallback: float = fallback,
        ) -> Callable[[str, FitT], FitT]:
            return lambda key, fit: _scored(fit, own.get((family, key)), fallback)

        out.append(
            rule.model_copy(
                update={
                    "gemm": {k: done("gemm")(k, f) for k, f in rule.gemm.items()},
                    "attention": {k: done("attention")(k, f) for k, f in rule.attention.items()},
                    "moe": {k: done("moe")(k, f) for k, f in rule.moe.items()},
                    "allreduce": done("allreduce")("", rule.allreduce),
                }
            )
        )
    return out


def stored(engine: str) -> list[Measured]:
    """The calibrations in the registry that were fitted to measured kernels of this engine."""
    out = []
    for gpu_id in tables.FOLDERS:
        gpu = registry.gpu(gpu_id)
        fits = registry.calibration(gpu_id, engine=engine)
        if fits is not None and fits.kind == "measured" and fits.engine == engine:
            out.append(Measured(gpu, fits))
    return out


__all__ = ["Measured", "leave_one_out", "rule_of", "rules", "stored"]
