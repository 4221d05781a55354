"""SGLang's adaptive-speculation file: a pinned table written, any table read.

Rules of version 0.5.23: integer-string keys are the lower bounds of batch-size slots, each with its
candidate steps; one candidate pins K. The batch is padded to its CUDA-graph size first, then matched to the
closest lower slot.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

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

#: Algorithms whose adaptive table is honoured; every other runs its static steps with a warning.
ADAPTIVE: Final = {"eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "EAGLE", "nextn": "EAGLE"}
STATIC: Final = {"draft_model": "STANDALONE", "standalone": "STANDALONE"}
_SHARED: Final = (
    "ema_alpha",
    "update_interval",
    "warmup_batches",
    "up_hysteresis",
    "down_hysteresis",
    "ceiling_coeff",
)
#: What the engine uses without a file: speculation off from 64 requests, for every model and accelerator.
DEFAULT_TABLE: Final = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}


def padded(batch_size: int, graph_sizes: Sequence[int] | None) -> int:
    """The batch after padding to a captured size; itself above the largest, or without graphs.

    >>> padded(49, [40, 48, 52]), padded(60, [40, 48, 52])
    (52, 60)
    """
    if not graph_sizes:
        return batch_size
    index = bisect_left(graph_sizes, batch_size)
    return graph_sizes[index] if index < len(graph_sizes) else batch_size


def emit(
    ranges: Iterable[Sequence[int]],
    *,
    method: str,
    max_running_requests: int,
    model: str = "MODEL",
    draft_model: str | None = None,
    graph_sizes: Sequence[int] | None = None,
    config_path: str = "adaptive_config.json",
    tensor_parallel: int = 1,
) -> EngineText:
    """The pinned adaptive config and the launch line that run ``ranges``.

    ``graph_sizes`` are the captured decode batch sizes (requests); given, they are written into the launch
    line and thresholds that padding moves are named.

    >>> emit([(1, 48, 3), (49, 64, 1)], method="eagle3", max_running_requests=64).text
    '{"1": {"candidate_steps": [3]}, "49": {"candidate_steps": [1]}}\\n'
    """
    table = merge(cut(check_ranges(ranges), max_running_requests))
    top = highest_k(table, engine="SGLang")
    key = method.lower()
    if key not in ADAPTIVE and key not in STATIC:
        raise unknown_name("SGLang method", method, [*ADAPTIVE, *STATIC])
    if len(table) > 1 and key not in ADAPTIVE:
        raise InputError(
            f"SGLang schedule: {method} runs no K table (only {', '.join(ADAPTIVE)} "
            "do); give one K for all batches"
        )
    algorithm = ADAPTIVE.get(key) or STATIC[key]
    warnings: list[str] = []
    args = [
        f"--speculative-algorithm {algorithm}",
        *([f"--speculative-draft-model-path {shlex.quote(draft_model)}"] if draft_model else []),
        f"--speculative-num-steps {top}",
        "--speculative-eagle-topk 1",
        f"--speculative-num-draft-tokens {top + 1}",
    ]
    if len(table) > 1:
        args += ["--speculative-adaptive", f"--speculative-adaptive-config {shlex.quote(config_path)}"]
        warnings.append("adaptive tables need topk 1, and no attention data parallelism; else K stays static")
        if any(k == 0 for _, _, k in table):
            warnings.append(
                "at K=0 the verify path and draft-extend still run: dearer than a server without speculation"
            )
    else:
        warnings.append(f"K={top} at every batch size: static flags are written (no adaptive file needed)")
    args.append(f"--max-running-requests {max_running_requests}")
    settings = [
        f"max_running_requests={max_running_requests} (48 unless given)",
        f"speculative_num_steps={top}",
    ]
    sizes = _sizes(graph_sizes)
    if sizes:
        args.append("--cuda-graph-bs " + " ".join(map(str, sizes)))
        settings.append(f"cuda_graph_bs={sizes}")
        warnings += _moved(table, sizes)
    if tensor_parallel > 1:
        args.append(f"--tp-size {tensor_parallel}")
    slots = {str(lo): {"candidate_steps": [k]} for lo, _, k in table}
    return EngineText(
        engine="sglang",
        file_name="adaptive_config.json",
        text=json.dumps(slots) + "\n",
        launch=" ".join(["python -m sglang.launch_server --model-path", shlex.quote(model), *args]),
        settings=tuple(settings),
        warnings=tuple(warnings),
    )


def _sizes(graph_sizes: Sequence[int] | None) -> list[int]:
    sizes = sorted({int(size) for size in graph_sizes or ()})
    if sizes and sizes[0] < 1:
        raise InputError(f"graph_sizes: {sizes[0]} is not a batch size")
    return sizes


def _moved(table: Ranges, sizes: Sequence[int]) -> list[str]:
    """Thresholds inside a padding step: batches below them already pad into the next slot."""
    found = []
    for lo, _, k in table[1:]:
        first = next((size for size in reversed(sizes) if size < lo), 0) + 1
        if first < lo and padded(first, sizes) >= lo:
            found.append(
                f"K={k} starts at batch {first}, not {lo}: batches {first}..{lo - 1} "
                f"are padded to {padded(first, sizes)}"
            )
    return found


def read(
    config: Any,
    *,
    num_steps: int | None = None,
    max_running_requests: int | None = None,
    graph_sizes: Sequence[int] | None = None,
) -> ReadSchedule:
    """An adaptive config as the engine runs it; ``graph_sizes`` apply the padding that precedes the look-up.

    >>> read({"1": {"candidate_steps": [3]}, "4": {"candidate_steps": [1]}}, max_running_requests=5).expand(5)
    (3, 3, 3, 1, 1)
    """
    if not isinstance(config, Mapping):
        raise InputError(f"SGLang schedule: a JSON object is expected, got {shown(config)}")
    slots: dict[int, tuple[int, ...]] = {}
    findings: list[Finding] = []
    for key, value in config.items():
        text = str(key)
        if text.lstrip("-").isdecimal():
            if len(text) > 9 or int(text) < 1:
                raise InputError(f"SGLang schedule: slot {text[:20]!r} must be a batch size of at least 1")
            slots[int(text)] = _candidates(value, slot=text, shared=config.get("candidate_steps"))
        elif text not in _SHARED and text != "candidate_steps":
            findings.append(Finding("unknown-key", f"key {text[:40]!r} is not one the engine reads", "note"))
    for key in _SHARED:
        number(config.get(key), field=f"SGLang schedule: {key}", minimum=-1e6)
    if not slots:
        raise InputError(
            "SGLang schedule: no integer-string key (a slot); a flat candidate_steps no longer loads"
        )
    lows = sorted(slots)
    top_batch = max_running_requests or max(48, lows[-1])
    if not 1 <= top_batch <= MAX_BATCH:
        raise InputError(f"max_running_requests: {top_batch} is not in 1..{MAX_BATCH}")
    if max_running_requests is None:
        findings.append(
            Finding(
                "default-limit",
                "without --max-running-requests SGLang runs at most 48 requests once speculation is on",
            )
        )
    findings += _slot_findings(slots, top_batch, num_steps)
    top = max(max(steps) for steps in slots.values())
    starts = [(1 if index == 0 else low, slots[low]) for index, low in enumerate(lows)]
    spans = _spans(starts, top_batch, _sizes(graph_sizes), findings)
    pinned = all(len(steps) == 1 for _, _, steps in spans)
    ranges: Ranges = merge(tuple((lo, hi, steps[0]) for lo, hi, steps in spans)) if pinned else ()
    if pinned:
        findings += constant_finding(ranges, [steps[0] for steps in slots.values()], where="SGLang schedule")
        findings += [
            Finding(
                "k0", "at K=0 the verify path and draft-extend still run: it is not speculation off", "note"
            )
            for _ in range(any(k == 0 for _, _, k in ranges))
        ]
    else:
        findings.append(
            Finding("adaptive", "K is chosen at run time by an acceptance average, not by cost", "note")
        )
    return ReadSchedule(
        engine="sglang",
        ranges=ranges,
        max_batch=top_batch,
        max_k=top,
        candidates=() if pinned else tuple(spans),
        findings=tuple(findings),
    )


def _candidates(value: Any, *, slot: str, shared: Any) -> tuple[int, ...]:
    """The candidate steps of one slot, ascending."""
    steps = value.get("candidate_steps", shared) if isinstance(value, Mapping) else None
    field = f"SGLang schedule: slot {slot}: candidate_steps"
    if not isinstance(steps, list) or not steps or len(steps) > 1000:
        raise InputError(f"{field}: a list of at least one number of steps is needed")
    result = {whole(step, field=field, maximum=1024) for step in steps}
    return tuple(sorted(step for step in result if step is not None)) or (0,)


def _slot_findings(
    slots: Mapping[int, tuple[int, ...]], top_batch: int, num_steps: int | None
) -> list[Finding]:
    found = []
    if min(slots) > 1:
        found.append(Finding("gap", f"batches below the first slot {min(slots)} take that slot"))
    late = [low for low in slots if low > top_batch]
    if late:
        found.append(
            Finding(
                "beyond", f"slots {sorted(late)[:5]} start above max_running_requests={top_batch}", "note"
            )
        )
    union = {step for steps in slots.values() for step in steps}
    if num_steps is not None and num_steps not in union:
        found.append(
            Finding(
                "num-steps",
                f"--speculative-num-steps {num_steps} is in no slot ({sorted(union)}): the server refuses",
                "error",
            )
        )
    return found


def _spans(
    starts: Sequence[tuple[int, tuple[int, ...]]], top_batch: int, sizes: list[int], findings: list[Finding]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """(lo, hi, candidates) by *actual* batch: a slot begins where padding first reaches its key."""
    moved: list[tuple[int, tuple[int, ...]]] = []
    for low, steps in starts:
        first = low
        if sizes and low > 1:
            below = next((size for size in reversed(sizes) if size < low), 0)
            first = below + 1 if padded(below + 1, sizes) >= low else low
        if moved and first <= moved[-1][0]:
            moved.pop()
        if first < low:
            findings.append(
                Finding(
                    "padding",
                    f"slot {low} already holds from batch {first}: it is padded to a graph size",
                    "note",
                )
            )
        moved.append((first, steps))
    index = {low: number_ for number_, (low, _) in enumerate(moved)}
    ranges = starts_to_ranges([(low, index[low]) for low, _ in moved], top_batch)
    return [(lo, hi, moved[which][1]) for lo, hi, which in ranges]
