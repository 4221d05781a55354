"""Step and draft times out of TensorRT-LLM's iteration statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rooflinesim.engines.reading import mapping, number, whole
from rooflinesim.engines.records import What
from rooflinesim.engines.serving import Times, medians
from rooflinesim.engines.tally import whole_k
from rooflinesim.engines.trtllm.acceptance import iteration_draft
from rooflinesim.engines.vllm.acceptance import flatten
from rooflinesim.errors import InputError


def read_iterations(documents: Iterable[Any], *, source: str) -> Times:
    """Pure generation iterations: ``iterLatencyMS`` is the step; the one in specDecodingStats is the draft
    alone.

    Draft times of 0 come from paths that do not measure them: missing, not free.
    """
    times = Times()
    groups: dict[tuple[int, int, int, What], list[float]] = {}
    mixed = uneven = unmeasured = total = 0
    for index, stats in enumerate(flatten(documents), start=1):
        where = f"{source}: iteration {index}"
        latency = number(stats.get("iterLatencyMS"), field=f"{where}: iterLatencyMS", maximum=1e9)
        batching = mapping(stats.get("inflightBatchingStats"))
        requests = whole(batching.get("numGenRequests"), field=f"{where}: numGenRequests", maximum=10**7)
        prefills = whole(
            batching.get("numContextRequests"), field=f"{where}: numContextRequests", maximum=10**7
        )
        if not latency or not requests:
            continue
        total += 1
        if prefills:
            mixed += 1
            continue
        spec = mapping(stats.get("specDecodingStats"))
        drafted = iteration_draft(stats, where=where)
        k = 0
        if drafted is not None:
            depth = whole_k(drafted[1] / drafted[0])
            if depth is None or drafted[0] != requests:
                uneven += 1
                continue
            k = depth
        what: What = "step" if spec else "decode"
        groups.setdefault((requests, requests * (k + 1), k, what), []).append(latency * 1e-3)
        draft = number(
            spec.get("iterLatencyMS"), field=f"{where}: specDecodingStats.iterLatencyMS", maximum=1e9
        )
        if not draft:
            unmeasured += drafted is not None
            continue
        if draft > latency:
            times.warn(f"{where}: draft time {draft:g} ms is above the iteration's {latency:g} ms; skipped")
            continue
        overhead = number(spec.get("draftOverhead"), field=f"{where}: draftOverhead", maximum=1.0)
        if overhead and abs(draft / latency - overhead) > 0.02:
            times.warn(f"{where}: draftOverhead {overhead:.3g} is not draft/total = {draft / latency:.3g}")
        groups.setdefault((requests, requests * (k + 1), k, "draft"), []).append(draft * 1e-3)
    if not groups:
        raise InputError(
            f"{source}: {total} iterations, none of them a pure generation step of equal draft length"
        )
    if mixed:
        times.warn(f"{mixed} of {total} iterations held a prefill and are skipped")
    if uneven:
        times.warn(f"{uneven} iterations held requests of different K and are skipped")
    if unmeasured:
        times.warn(f"draft time was not measured in {unmeasured} iterations (reported as 0)")
    times.records += medians(groups, source=f"{source}: iterLatencyMS")
    return times
