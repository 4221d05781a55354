"""TensorRT-LLM's ``draft_len_schedule``: written with inclusive upper bounds, read in both meanings it has
had.

Rules: a batch takes the value of the first key that is not smaller; above the last key the draft length is
0; the smallest key's value must be ``max_draft_len``, no value may exceed it. An older release read the same
keys as lower bounds.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import yaml

from rooflinesim.engines.reading import number, shown, whole
from rooflinesim.engines.records import EngineText, Finding
from rooflinesim.engines.tables import (
    MAX_BATCH,
    Ranges,
    ReadSchedule,
    check_ranges,
    constant_finding,
    cut,
    highest_k,
    merge,
    starts_to_ranges,
)
from rooflinesim.errors import InputError, unknown_name

DECODING_TYPES: Final = {
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "pard": "PARD",
    "draft_model": "DraftTarget",
    "sa": "SA",
}
#: Known to the engine, but without a draft-length table.
STATIC_TYPES: Final = {"ngram": "NGram", "dspark": "DSpark"}


def emit(
    ranges: Iterable[Sequence[int]],
    *,
    method: str,
    max_batch_size: int,
    model: str = "MODEL",
    draft_model: str | None = None,
    graph_sizes: Sequence[int] | None = None,
    first_k: Literal["refuse", "raise-first"] = "raise-first",
    config_path: str = "config.yaml",
    tensor_parallel: int = 1,
) -> EngineText:
    """The YAML and launch line that run ``ranges`` up to ``max_batch_size``.

    A table whose first K is not its largest cannot be written: the engine wants the smallest key's value to
    be max_draft_len. ``first_k="raise-first"`` lets batch 1 alone draft the largest K, with a warning;
    ``"refuse"`` raises.

    >>> print(emit([(1, 48, 3), (49, 64, 0)], method="eagle3", max_batch_size=64).text, end="")
    speculative_config:
      decoding_type: Eagle3
      max_draft_len: 3
      draft_len_schedule:
        48: 3
    """
    table = merge(cut(check_ranges(ranges), max_batch_size))
    top = highest_k(table, engine="TensorRT-LLM")
    key = method.lower()
    if key not in DECODING_TYPES and key not in STATIC_TYPES:
        raise unknown_name("TensorRT-LLM method", method, [*DECODING_TYPES, *STATIC_TYPES])
    if len(table) > 1 and key not in DECODING_TYPES:
        raise InputError(
            f"TensorRT-LLM schedule: {method} runs no draft_len_schedule (only "
            f"{', '.join(DECODING_TYPES)} do)"
        )
    warnings: list[str] = []
    if table[0][2] != top:
        table = _raise_first(table, top, how=first_k, warnings=warnings)
    spec: dict[str, Any] = {"decoding_type": DECODING_TYPES.get(key) or STATIC_TYPES[key]}
    if draft_model is not None:
        spec["speculative_model"] = draft_model
    spec["max_draft_len"] = top
    if len(table) > 1:
        kept = table[:-1] if table[-1][2] == 0 else table
        spec["draft_len_schedule"] = {hi: k for _, hi, k in kept}
        if any(k == 0 for _, _, k in kept):
            warnings.append(
                "K=0 between drafting ranges: drafting is skipped, the draft cache "
                "gets holes and acceptance of the "
                "requests concerned collapses when it resumes"
            )
        elif table[-1][2] == 0:
            warnings.append(
                f"above batch {kept[-1][1]} the draft length is 0 by the engine's rule (no key needed)"
            )
        else:
            warnings.append(
                f"the last key is max_batch_size = {max_batch_size}: above it the engine would stop drafting"
            )
    else:
        warnings.append(f"K={top} at every batch size: no schedule is needed")
    if key == "pard":
        warnings.append("PARD spends 2K tokens per request and step, not K+1")
    config: dict[str, Any] = {"speculative_config": spec}
    settings = [f"max_batch_size={max_batch_size}"]
    if graph_sizes is not None:
        sizes = sorted({int(size) for size in graph_sizes} | {hi for _, hi, _ in table})
        config["cuda_graph_config"] = {"enable_padding": True, "batch_sizes": sizes}
        settings.append(f"cuda_graph_config.batch_sizes={sizes} (the engine adds the schedule's keys)")
    args = [f"--config {shlex.quote(config_path)}", f"--max_batch_size {max_batch_size}"]
    if tensor_parallel > 1:
        args.append(f"--tp_size {tensor_parallel}")
    return EngineText(
        engine="trtllm",
        file_name="config.yaml",
        text=yaml.safe_dump(config, sort_keys=False),
        launch=" ".join(["trtllm-serve", shlex.quote(model), *args]),
        settings=tuple(settings),
        warnings=tuple(warnings),
    )


def _raise_first(table: Ranges, top: int, *, how: str, warnings: list[str]) -> Ranges:
    """The nearest table the engine can express: batch 1 drafts ``top``."""
    first = table[0][2]
    if how == "refuse":
        raise InputError(
            f"TensorRT-LLM schedule: the first K is {first}, the largest {top}: "
            "not expressible, the smallest key must "
            "hold max_draft_len"
        )
    warnings.append(
        f"the first K, {first}, is below the largest, {top}: TensorRT-LLM "
        f"cannot express it; batch 1 drafts {top}"
    )
    lo, hi, k = table[0]
    rest = ((lo + 1, hi, k),) if hi > lo else ()
    return merge(((1, 1, top), *rest, *table[1:]))


def read(
    config: Any, *, max_batch_size: int | None = None, keys_are: Literal["upper", "lower"] = "upper"
) -> ReadSchedule:
    """A configuration, its speculative_config, or the schedule alone, as the engine runs it.

    ``keys_are="lower"`` reads the meaning of the older release.

    >>> read({4: 4, 8: 2, 32: 1}).expand(33)[3:33:4]
    (4, 2, 1, 1, 1, 1, 1, 1)
    >>> read({4: 4, 8: 2, 32: 1}, max_batch_size=40).lookup(33)
    0
    """
    if not isinstance(config, Mapping):
        raise InputError(f"TensorRT-LLM schedule: a mapping is expected, got {shown(config)}")
    spec = config.get("speculative_config", config)
    if not isinstance(spec, Mapping):
        raise InputError("TensorRT-LLM schedule: speculative_config must be a mapping")
    findings: list[Finding] = []
    method = spec.get("decoding_type")
    schedule = spec.get("draft_len_schedule")
    if schedule is None and spec and all(_as_batch(key) is not None for key in spec):
        schedule = spec
        spec = {}
    given = whole(spec.get("max_draft_len"), field="max_draft_len", minimum=1, maximum=1024)
    limit = whole(spec.get("max_concurrency"), field="max_concurrency", minimum=1)
    if schedule is not None and limit is not None:
        raise InputError("TensorRT-LLM schedule: draft_len_schedule and max_concurrency exclude each other")
    findings += _gate_findings(spec)
    if schedule is None:
        return _static(given, limit, max_batch_size=max_batch_size, method=method, findings=findings)
    points = _points(schedule)
    if keys_are == "lower":
        findings.append(Finding("lower-bounds", "keys read as lower bounds, as an older release did", "note"))
        ranges, top, max_batch = _lower(points, max_batch_size)
    else:
        top = _check_upper(points, given, findings)
        findings += _upper_findings(points)
        max_batch = max_batch_size or min(points[-1][0] + 1, MAX_BATCH)
        ranges = _upper(points, max_batch)
        if max_batch > points[-1][0] and points[-1][1] > 0:
            findings.append(
                Finding(
                    "implicit-zero",
                    f"above batch {points[-1][0]} the draft length is 0: give a larger last key to go on",
                )
            )
    findings += constant_finding(ranges, [k for _, k in points], where="TensorRT-LLM schedule")
    return ReadSchedule(
        engine="trtllm",
        ranges=ranges,
        max_batch=max_batch,
        max_k=top,
        method=str(method)[:40] if method is not None else None,
        findings=tuple(findings),
    )


def _as_batch(key: Any) -> int | None:
    if isinstance(key, bool):
        return None
    if isinstance(key, int):
        return key if abs(key) <= MAX_BATCH * 1000 else None
    if isinstance(key, str) and key.isdecimal() and len(key) < 10:
        return int(key)
    return None


def _points(schedule: Any) -> list[tuple[int, int]]:
    """(key, K) in the order of keys."""
    if not isinstance(schedule, Mapping) or not schedule:
        raise InputError(
            f"draft_len_schedule: a mapping of batch size to draft length is expected, got {shown(schedule)}"
        )
    if len(schedule) > 10_000:
        raise InputError(f"draft_len_schedule: {len(schedule)} keys, at most 10000 are read")
    points: list[tuple[int, int]] = []
    for key, value in schedule.items():
        batch = _as_batch(key)
        if batch is None or batch < 1:
            raise InputError(f"draft_len_schedule: key {shown(key)} must be a batch size of at least 1")
        k = whole(value, field=f"draft_len_schedule[{batch}]", maximum=1024)
        if k is None:
            raise InputError(f"draft_len_schedule[{batch}]: no draft length")
        points.append((batch, k))
    return sorted(points)


def _check_upper(points: list[tuple[int, int]], given: int | None, findings: list[Finding]) -> int:
    top = given if given is not None else points[0][1]
    if given is None:
        findings.append(
            Finding("no-maximum", f"max_draft_len is not given; the smallest key's {top} is assumed", "note")
        )
    if points[0][1] != top:
        raise InputError(
            f"draft_len_schedule: the smallest key {points[0][0]} holds {points[0][1]}, "
            f"it must hold max_draft_len = {top}"
        )
    over = [k for _, k in points if k > top]
    if over:
        raise InputError(f"draft_len_schedule: {over[0]} is above max_draft_len = {top}")
    return top


def _upper_findings(points: list[tuple[int, int]]) -> list[Finding]:
    found = []
    if points[0][0] == 1 and len(points) > 1:
        found.append(
            Finding(
                "old-meaning",
                "key 1 holds for batch 1 alone: written for the older release, whose keys were lower bounds?",
            )
        )
    zero = [index for index, (_, k) in enumerate(points) if k == 0]
    if zero and any(k > 0 for _, k in points[zero[0] :]):
        found.append(
            Finding("draft-holes", "K=0 below a drafting range: acceptance collapses when drafting resumes")
        )
    return found


def _upper(points: list[tuple[int, int]], max_batch: int) -> Ranges:
    starts: list[tuple[int, int]] = []
    lo = 1
    for hi, k in points:
        starts.append((lo, k))
        lo = hi + 1
    starts.append((lo, 0))
    return starts_to_ranges(starts, max_batch)


def _lower(points: list[tuple[int, int]], max_batch_size: int | None) -> tuple[Ranges, int, int]:
    max_batch = max_batch_size or min(points[-1][0], MAX_BATCH)
    starts = [(1, max(k for _, k in points)), *points] if points[0][0] > 1 else points
    return starts_to_ranges(starts, max_batch), max(k for _, k in points), max_batch


def _static(
    given: int | None, limit: int | None, *, max_batch_size: int | None, method: Any, findings: list[Finding]
) -> ReadSchedule:
    if given is None:
        raise InputError("TensorRT-LLM schedule: neither draft_len_schedule nor max_draft_len is given")
    max_batch = max_batch_size or (min(limit + 1, MAX_BATCH) if limit is not None else MAX_BATCH)
    ranges: Ranges = ((1, max_batch, given),)
    if limit is not None and limit < max_batch:
        ranges = ((1, limit, given), (limit + 1, max_batch, 0))
        findings.append(
            Finding("implicit-zero", f"max_concurrency: above batch {limit} the draft length is 0", "note")
        )
    else:
        findings.append(Finding("static", f"no schedule: K={given} at every batch size", "note"))
    return ReadSchedule(
        engine="trtllm", ranges=ranges, max_batch=max_batch, max_k=given,
        method=str(method)[:40] if method is not None else None, findings=tuple(findings),
    )  # fmt: skip


def _gate_findings(spec: Mapping[str, Any]) -> list[Finding]:
    threshold = number(spec.get("acceptance_rate_threshold"), field="acceptance_rate_threshold", maximum=1.0)
    if threshold is None:
        return []
    return [
        Finding(
            "permanent-off",
            f"below an accepted/drafted rate of {threshold:g} speculation is "
            "switched off for good, until a restart",
        )
    ]
