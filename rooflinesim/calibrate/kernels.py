"""``calibrate kernels``: every family of one (accelerator, engine) from measured kernels, and its YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from rooflinesim import registry
from rooflinesim.calibrate import tables
from rooflinesim.calibrate.attention import fit_attention
from rooflinesim.calibrate.collective import (
    fit_allreduce,
    fit_dispatch,
    fit_elementwise,
    fit_linear_state,
    fit_nccl,
)
from rooflinesim.calibrate.gemm import FORMATS as GEMM_FORMATS
from rooflinesim.calibrate.gemm import fit_gemm
from rooflinesim.calibrate.moe import FORMATS as MOE_FORMATS
from rooflinesim.calibrate.moe import fit_moe
from rooflinesim.errors import SpecError
from rooflinesim.specs.base import Estimate, Frozen
from rooflinesim.specs.calibration import Calibration, FamilyFit
from rooflinesim.specs.gpu import GpuSpec

FitT = TypeVar("FitT", bound=FamilyFit)

ATTENTION_KEYS: Final = ("bf16", "fp8", "mla-bf16", "mla-fp8")
#: Kernels whose rows in one engine time something else than a step pays, taken from another engine instead:
#: SGLang's cast table times an unfused reference kernel; TensorRT-LLM's recurrent table another state format.
_FOREIGN: Final = {("sglang", "elementwise"): "vllm"}
#: whose rows stand in where an engine has none, in this order
_LENDERS: Final = ("sglang", "trtllm", "vllm")


def pairs() -> list[tuple[str, str]]:
    """(accelerator, engine) that have measured products."""
    return [
        (gpu, engine)
        for gpu in tables.FOLDERS
        for engine in tables.ENGINES
        if tables.versions(gpu, engine, "gemm", "gemm")
    ]


def _own_or_lent(
    fit: Callable[[GpuSpec, str], FitT | None], gpu: GpuSpec, engine: str, family: str = ""
) -> FitT | None:
    """The engine's own fit, else another engine's on the same accelerator (``source`` then says so)."""
    first = _FOREIGN.get((engine, family), engine)
    for lender in (first, *(name for name in _LENDERS if name != first)):
        found = fit(gpu, lender)
        if found is not None:
            if lender == engine:
                return found
            return found.model_copy(update={"source": f"lent by {lender}: {found.source}"})
    return None


def fit_kernels(gpu: str, engine: str) -> Calibration:
    """Fit every family of one accelerator under one engine; without rows anywhere, the rule's values."""
    spec = registry.gpu(gpu)
    rule = registry.calibration("rule")
    if spec.id not in tables.FOLDERS:
        raise SpecError(f"gpu: {spec.id} has no measured kernels; measured are {', '.join(tables.FOLDERS)}")
    if engine not in tables.ENGINES or (spec.id, engine) not in pairs():
        known = [name for gpu_id, name in pairs() if gpu_id == spec.id]
        raise SpecError(f"engine: {engine!r} has no measured kernels on {spec.id}; it has {', '.join(known)}")
    assert rule is not None
    gemm = _each(
        GEMM_FORMATS.values(), lambda key: _own_or_lent(lambda g, e: fit_gemm(g, e, key), spec, engine)
    )
    attention = _each(
        ATTENTION_KEYS, lambda key: _own_or_lent(lambda g, e: fit_attention(g, e, key), spec, engine)
    )
    moe = _each(MOE_FORMATS, lambda key: _own_or_lent(lambda g, e: fit_moe(g, e, key), spec, engine))
    version = tables.load(spec.id, engine, "gemm", "gemm")
    return Calibration(
        id=f"{spec.id}--{engine}",
        gpu=spec.id,
        engine=engine,
        engine_version=version.version if version is not None else "",
        kind="measured",
        gemm=gemm,
        attention=attention,
        moe=moe or rule.moe,
        elementwise=_own_or_lent(fit_elementwise, spec, engine, "elementwise") or rule.elementwise,
        linear_state=_own_or_lent(fit_linear_state, spec, engine),
        allreduce=fit_allreduce(spec, engine) or rule.allreduce,
        alltoall=fit_dispatch(spec, engine) or rule.alltoall,
        allgather=fit_nccl(spec, "all_gather") or rule.allgather,
        source=tables.PACKAGE_VERSION,
        attribution=tables.ATTRIBUTION,
    )


def _each(keys: Iterable[str], fit: Callable[[str], FitT | None]) -> dict[str, FitT]:
    found = {key: fit(key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def fit_all(
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    n_jobs: int = 1,
    on_done: Callable[[Calibration], None] | None = None,
) -> list[Calibration]:
    """Fit many (accelerator, engine) pairs in parallel; ``on_done`` is called as each one is ready."""
    from joblib import Parallel, delayed  # only when many are fitted: start-up time

    work = list(wanted) if wanted is not None else pairs()
    stream = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(fit_kernels)(gpu, engine) for gpu, engine in work
    )
    out = []
    for done in stream:
        out.append(done)
        if on_done is not None:
            on_done(done)
    return out


def _rounded(value: Any) -> Any:
    """Estimates to four figures: more would claim what the standard error denies."""
    if isinstance(value, Estimate):
        number = float(f"{value.value:.4g}")
        out: dict[str, float] = {"value": 0.0 if abs(number) < 1e-15 else number}
        if value.stderr is not None:
            out["stderr"] = float(f"{value.stderr:.2g}")
        return out
    if isinstance(value, Frozen):
        fields = type(value).model_fields
        return {
            name: _rounded(getattr(value, name))
            for name, info in fields.items()
            if getattr(value, name) != info.get_default(call_default_factory=True)
        }
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(item) for item in value]
    return value


def to_yaml(calibration: Calibration) -> str:
    """The calibration as a spec file: values left at their default are not written.

    >>> from rooflinesim.efficiency import ideal_calibration
    >>> to_yaml(ideal_calibration("x")).splitlines()[0]
    'id: x--ideal'
    """
    return yaml.safe_dump(
        _rounded(calibration), sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )


def write(calibration: Calibration, folder: Path) -> Path:
    """Write ``<gpu>--<engine>.yaml`` into ``folder``."""
    path = folder / f"{calibration.id}.yaml"
    head = (
        "# Fitted to measured kernels by `rooflinesim calibrate kernels`; see NOTICE. Half of the shapes of\n"
        "# each family were fitted; `score` is on the other half. A fit that another engine lends says so.\n"
    )
    path.write_text(head + to_yaml(calibration), encoding="utf-8")
    return path
