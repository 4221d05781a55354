"""Acceptance out of TensorRT-LLM's texts: iteration statistics and per-choice statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rooflinesim.acceptance import PositionCounts
from rooflinesim.engines import tally
from rooflinesim.engines.reading import mapping, number, numbers, required, whole
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.engines.vllm.acceptance import flatten
from rooflinesim.errors import InputError


def iteration_draft(stats: Mapping[str, Any], *, where: str) -> tuple[float, float, float] | None:
    """(requests with drafts, drafted, accepted) of one iteration; None when it drafted nothing."""
    spec = mapping(stats.get("specDecodingStats"))
    requests = number(spec.get("numRequestsWithDraftTokens"), field=f"{where}: numRequestsWithDraftTokens")
    drafted = number(spec.get("numDraftTokens"), field=f"{where}: numDraftTokens")
    accepted = number(spec.get("numAcceptedTokens"), field=f"{where}: numAcceptedTokens")
    if not requests or not drafted:
        return None
    accepted = required(accepted, field=f"{where}: numAcceptedTokens")
    if accepted > drafted:
        raise InputError(f"{where}: {accepted:g} accepted of {drafted:g} drafted tokens")
    return requests, drafted, accepted


def read_iterations(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """Iteration statistics: AL = 1 + accepted/requests by K; no positions."""
    by_k: dict[int | None, list[float]] = {}
    for index, stats in enumerate(flatten(documents), start=1):
        found = iteration_draft(stats, where=f"{source}: iteration {index}")
        if found is None:
            continue
        requests, drafted, accepted = found
        held = by_k.setdefault(tally.whole_k(drafted / requests), [0.0, 0.0, 0.0])
        held[:] = [held[0] + requests, held[1] + drafted, held[2] + accepted]
    if not by_k:
        raise InputError(
            f"{source}: no specDecodingStats with draft tokens: speculation is off or not recorded"
        )
    steps, drafted, accepted = (sum(column) for column in zip(*by_k.values(), strict=True))
    al, rate, mean_k = tally.mean_of_counters(
        n_steps=steps, drafted_tokens=drafted, accepted_tokens=accepted, field=source
    )
    rows = tuple(
        (depth, 1.0 + held[2] / held[0], held[0])
        for depth, held in sorted((d, h) for d, h in by_k.items() if d is not None)
    )
    warnings = [] if len(by_k) == 1 else ["K changed between iterations: the mean mixes them; see al_by_k"]
    depth = k or tally.whole_k(mean_k) or (rows[-1][0] if rows else None)
    return tally.from_means(
        format="trtllm-iteration-stats", engine="trtllm", source=source, acceptance_length=al, k=depth,
        rate=rate,
        n_steps=steps, al_by_k=rows if len(by_k) > 1 else (), warnings=warnings,
    )  # fmt: skip


def choices(documents: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    """The ``speculative_decoding`` objects of responses."""
    for response in flatten(documents):
        listed = response.get("choices")
        for choice in listed if isinstance(listed, list) else [response]:
            stats = mapping(choice).get("speculative_decoding")
            if isinstance(stats, Mapping):
                yield stats


def read_choices(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """Per-choice statistics: the histogram gives positions. ``num_spec_tokens`` is null under a schedule."""
    parts: list[PositionCounts] = []
    warnings: list[str] = []
    for index, stats in enumerate(choices(documents), start=1):
        where = f"{source}: choice {index}"
        values = numbers(
            stats.get("acceptance_histogram"), field=f"{where}: acceptance_histogram", max_len=1025
        )
        drafted = number(stats.get("total_draft_tokens"), field=f"{where}: total_draft_tokens")
        accepted = number(
            stats.get("total_accepted_draft_tokens"), field=f"{where}: total_accepted_draft_tokens"
        )
        depth = whole(stats.get("num_spec_tokens"), field=f"{where}: num_spec_tokens", maximum=1024) or k
        if not values or sum(values) <= 0:
            continue
        if drafted is None and depth is None:
            warnings.append(f"{where}: neither draft tokens nor K: the histogram's length is taken as K + 1")
        counts = tally.histogram(values, field=where, k=depth, drafted_tokens=drafted)
        if accepted is not None and abs(sum(counts.accepted) - accepted) > 0.5:
            warnings.append(
                f"{where}: {accepted:g} accepted drafts, the histogram gives {sum(counts.accepted):g}"
            )
        parts.append(counts)
    counted = tally.pool(parts)
    if counted is None:
        raise InputError(f"{source}: no choice with an acceptance_histogram")
    return tally.from_counts(
        counted, format="trtllm-choice", engine="trtllm", source=source, warnings=warnings
    )
