"""Step times out of vLLM's texts: iteration log lines, ``bench forward``, ``bench serve`` and sweeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rooflinesim.engines.reading import TextFile, mapping, number, required, whole
from rooflinesim.engines.records import TimingRecord, What
from rooflinesim.engines.serving import Times, add_run, medians
from rooflinesim.engines.tally import whole_k
from rooflinesim.engines.vllm.acceptance import flatten
from rooflinesim.errors import InputError

ITERATION_MARK: Final = "iteration elapsed time"
_ITERATION = re.compile(
    r"Iteration\(([0-9]{1,15})\): ([0-9]{1,9}) context requests, ([0-9]{1,9}) context tokens, "
    r"([0-9]{1,9}) generation requests, ([0-9]{1,9}) generation tokens, "
    r"iteration elapsed time: ([0-9]{1,9}(?:\.[0-9]{1,9})?) ms"
)
_K_KEYS: Final = (
    "speculative_config.num_speculative_tokens",
    "num_speculative_tokens",
    "spec_k",
    "spec_tokens",
    "k",
)


def read_iterations(files: Sequence[TextFile], *, k: int | None = None) -> Times:
    """``Iteration(...)`` lines without prefill: one record per (requests, tokens), the median of its times.

    generation tokens / generation requests = 1 + K; a step in which requests differ in width is skipped.
    Elapsed is the engine loop's wall time, overlapped under asynchronous scheduling: the interval of steps.
    """
    times = Times()
    groups: dict[tuple[int, int, int, What], list[float]] = {}
    mixed = uneven = total = 0
    source = ", ".join(file.name for file in files)
    for file in files:
        for line in file.lines():
            at = line.find("Iteration(")
            match = _ITERATION.search(line, at) if at >= 0 else None
            if match is None:
                continue
            total += 1
            prefills, requests, tokens = int(match.group(2)), int(match.group(4)), int(match.group(5))
            elapsed_s = float(match.group(6)) * 1e-3
            if prefills > 0:
                mixed += 1
                continue
            if requests == 0 or elapsed_s == 0:
                continue
            if tokens % requests or tokens == 0:
                uneven += 1
                continue
            depth = tokens // requests - 1
            groups.setdefault((requests, tokens, depth, "step"), []).append(elapsed_s)
    if not groups:
        raise InputError(
            f"{source}: {total} Iteration lines, none of them a pure decode step of equal widths"
        )
    if mixed:
        times.warn(f"{mixed} of {total} iterations held a prefill and are skipped")
    if uneven:
        times.warn(f"{uneven} iterations held requests of different K and are skipped")
    speculative = any(depth > 0 for _, _, depth, _ in groups)
    if not speculative:
        groups = {(b, n, depth, "decode"): values for (b, n, depth, _), values in groups.items()}
    times.records += medians(groups, source=f"{source}: iteration elapsed time")
    return times


def run_k(run: Mapping[str, Any], *, where: str) -> int | None:
    """K of a bench run, from the overridden parameters, ``--metadata``, or drafted tokens per draft."""
    for key in _K_KEYS:
        value = run.get(key)
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 5:
            return int(value)
        if value is not None and not isinstance(value, str):
            return whole(value, field=f"{where}: {key}", maximum=1024)
    drafts = number(run.get("spec_decode_num_drafts"), field=f"{where}: spec_decode_num_drafts")
    drafted = number(run.get("spec_decode_draft_tokens"), field=f"{where}: spec_decode_draft_tokens")
    return whole_k(drafted / drafts) if drafts and drafted else None


def read_bench_serve(documents: Iterable[Any], *, source: str, k: int | None = None) -> Times:
    """``bench serve`` runs, or a sweep's summary: ITL where it is the step time, else TPOT x AL."""
    times = Times()
    for index, run in enumerate(flatten(documents), start=1):
        where = f"{source}: run {index}"
        length = number(
            run.get("spec_decode_acceptance_length"), field=f"{where}: spec_decode_acceptance_length",
            minimum=1.0, maximum=1025,
        )  # fmt: skip
        depth = run_k(run, where=where)
        add_run(run, acceptance_length=length, k=depth if depth is not None else k, where=where, times=times)
    if not times.records:
        raise InputError(
            f"{source}: no run with a step time" + (f" ({times.warnings[0]})" if times.warnings else "")
        )
    return times


def read_bench_forward(documents: Iterable[Any], *, source: str) -> Times:
    """``bench forward``: exact batches as one graph; target alone, and target with drafter.

    Where a case exists in both scopes, their difference is the draft time; target_and_drafter alone is a
    step without sampling and host.
    """
    times = Times()
    cases = [
        case
        for index, item in enumerate(flatten(documents), start=1)
        if (case := _forward_case(item, where=f"{source}: case {index}", times=times)) is not None
    ]
    if not cases:
        raise InputError(f"{source}: no case of equal requests with a time")
    targets = {case[:4]: case[4] for case in cases if case[5] == "target_only"}
    for case in cases:
        batch, n_tokens, _, _, seconds, scope, name = case
        what: What = "step" if scope == "target_and_drafter" else "decode" if n_tokens == batch else "verify"
        times.records.append(_forward_record(case, what, seconds, f"{source}: {name}"))
        alone = targets.get(case[:4])
        if scope != "target_and_drafter" or alone is None:
            continue
        if seconds > alone:
            how = f"{source}: {name} minus its target_only case"
            times.records.append(_forward_record(case, "draft", seconds - alone, how))
        else:
            times.warn(f"{source}: {name}: target and drafter take no longer than the target alone")
    return times


_Case = tuple[int, int, int, float, float, str, str]


def _forward_record(case: _Case, what: What, seconds: float, source: str) -> TimingRecord:
    batch, n_tokens, k, context, *_ = case
    return TimingRecord(
        batch_size=batch, n_tokens=n_tokens, k=k, context_tokens=context, seconds=seconds, what=what,
        source=source,
        clock="gpu",
    )  # fmt: skip


def _forward_case(item: Mapping[str, Any], *, where: str, times: Times) -> _Case | None:
    """(batch, tokens, K, context, seconds, scope, name) of one case."""
    requests = item.get("requests")
    if not isinstance(requests, list) or not requests:
        raise InputError(f"{where}: no requests")
    name = str(item.get("case", where))[:80]
    shapes: set[tuple[int, int, int]] = set()
    batch = 0
    kv_total = 0.0
    for index, raw in enumerate(requests):
        request = mapping(raw)
        field = f"{where}: requests[{index}]"
        query = whole(request.get("query_len"), field=f"{field}: query_len", minimum=1)
        kv = number(request.get("kv_len"), field=f"{field}: kv_len", maximum=1e9)
        drafts = whole(request.get("num_draft_tokens"), field=f"{field}: num_draft_tokens", maximum=1024) or 0
        count = whole(request.get("count"), field=f"{field}: count", minimum=1) or 1
        if query is None or kv is None:
            raise InputError(f"{field}: query_len and kv_len are needed")
        shapes.add((query, drafts, bool(request.get("chunked"))))
        batch += count
        kv_total += kv * count
    if len(shapes) > 1 or next(iter(shapes))[2]:
        times.warn(f"{where}: requests differ or are chunked prefills; skipped")
        return None
    query, drafts, _ = next(iter(shapes))
    median = required(number(item.get("median_us"), field=f"{where}: median_us"), field=f"{where}: median_us")
    ranks = item.get("ranks")
    scope = mapping(ranks[0]).get("timing_scope") if isinstance(ranks, list) and ranks else None
    scope = scope if scope in ("target_only", "target_and_drafter") else "target_only"
    if median == 0:
        times.warn(f"{where}: median_us is 0; skipped")
        return None
    if drafts and drafts != query - 1:
        times.warn(f"{where}: {drafts} drafts in a query of {query} tokens; skipped")
        return None
    return batch, batch * query, query - 1, kv_total / batch, median * 1e-6, scope, name
