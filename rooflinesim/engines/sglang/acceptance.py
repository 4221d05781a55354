"""Acceptance out of SGLang's texts: gauges, decode log lines, benchmark lines, per-request meta_info.

Only meta_info has positions; the rest are means. ``accept rate`` changed its meaning in spring 2026
(sglang#23530): older versions print (accepted + 1)/(K + 1) = AL/(K+1), newer ones accepted/drafted = (AL -
1)/K. Which one a file holds is told by which identity its numbers obey.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rooflinesim.acceptance import PositionCounts
from rooflinesim.engines import tally
from rooflinesim.engines.prometheus import read_scrapes
from rooflinesim.engines.reading import TextFile, mapping, number, numbers, required, whole
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.engines.vllm.acceptance import flatten
from rooflinesim.errors import InputError

LOG_MARK: Final = "Decode batch"
_WANTED = re.compile(
    r"sglang[:_]spec_(?:accept_length|accept_rate|num_steps|num_draft_tokens|verify_calls)(?:_total)?[{ ]"
)
_RUNNING = re.compile(r"#running-req: ([0-9]{1,9})")
_LENGTH = re.compile(r"accept len: ([0-9]+(?:\.[0-9]+)?)")
_RATE = re.compile(r"accept rate: ([0-9]+(?:\.[0-9]+)?)")
_STEPS_CHANGE = re.compile(r"Adaptive spec params updated: steps ([0-9]{1,4}) -> ([0-9]{1,4})")

Formula = Literal["accepted/drafted", "AL/(K+1)", "unknown"]


def rate_formula(
    *, acceptance_length: float, rate: float, k: int | None, digits: float = 0.005
) -> tuple[Formula, int | None]:
    """Which formula a printed accept rate obeys, and the K that follows when none is known.

    >>> rate_formula(acceptance_length=2.41, rate=0.47, k=None)
    ('accepted/drafted', 3)
    >>> rate_formula(acceptance_length=2.41, rate=0.6025, k=3)
    ('AL/(K+1)', 3)
    """
    new = tally.consistent_k(
        acceptance_length=acceptance_length, rate=rate, al_digits=digits, rate_digits=digits
    )
    old = [
        value - 1
        for value in tally.consistent_k(
            acceptance_length=acceptance_length + 1.0, rate=rate, al_digits=digits, rate_digits=digits
        )
        if value >= 2
    ]
    if k is not None:
        new, old = [k for value in new if value == k], [k for value in old if value == k]
    if len(new) + len(old) != 1:
        return ("unknown", k)
    return ("accepted/drafted", new[0]) if new else ("AL/(K+1)", old[0])


def _means(
    *, format: str, source: str, length: float, rate: float | None, k: int | None,
    n_steps: float | None = None,
    warnings: Sequence[str] = (), al_by_k: tuple[tuple[int, float, float], ...] = (),
) -> AcceptanceRecord:  # fmt: skip
    """A record of SGLang's means: the printed rate is checked, translated to accepted/drafted, and gives K
    if needed."""
    notes = list(warnings)
    true_rate: float | None = None
    if rate is not None:
        formula, found_k = rate_formula(acceptance_length=length, rate=rate, k=k)
        if formula == "AL/(K+1)":
            notes.append("accept rate is the older AL/(K+1): it counts the bonus token")
        elif formula == "unknown" and k is not None:
            notes.append(
                f"accept rate {rate:g} fits neither (AL-1)/K = {(length - 1) / k:.3g} nor AL/(K+1) = "
                f"{length / (k + 1):.3g}: K varied, or the tree is wider than the chain"
            )
        if k is None and found_k is not None:
            notes.append(f"K = {found_k} follows from accept length {length:g} and accept rate {rate:g}")
        k = k if k is not None else found_k
    if k is not None and k > 0:
        true_rate = (length - 1.0) / k
    return tally.from_means(
        format=format, engine="sglang", source=source, acceptance_length=length, k=k, rate=true_rate,
        n_steps=n_steps, reported=length, al_by_k=al_by_k, warnings=notes,
    )  # fmt: skip


# ---- gauges and log ---------------------------------------------------------------------------------------


def read_gauges(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """``sglang:spec_*`` gauges: the last log interval's means. Ranks that differ are averaged."""
    source = ", ".join(file.name for file in files)
    scrapes = [scrape for file in files for scrape in read_scrapes(file, wanted=_WANTED)]
    if not scrapes:
        raise InputError(f"{source}: no sglang:spec_* series: speculation is off or this is another server")

    def mean(name: str) -> float | None:
        values = [series.value for scrape in scrapes for series in scrape if series.name == f"sglang_{name}"]
        return sum(values) / len(values) if values else None

    length, rate = mean("spec_accept_length"), mean("spec_accept_rate")
    if not length:
        raise InputError(
            f"{source}: sglang:spec_accept_length is missing or 0: no decode step with drafts yet"
        )
    verify = [series.value for series in scrapes[-1] if series.name == "sglang_spec_verify_calls"]
    warnings = ["gauges hold the last log interval only, not the run"]
    return _means(
        format="sglang-prometheus", source=source, length=length, rate=rate,
        k=k or _chain_k(mean("spec_num_steps"), mean("spec_num_draft_tokens"), warnings),
        n_steps=sum(verify) or None, warnings=warnings,
    )  # fmt: skip


def _chain_k(steps: float | None, draft_tokens: float | None, warnings: list[str]) -> int | None:
    """K of a chain: num_draft_tokens - 1 = num_steps; of a tree (more tokens than steps) the depth is
    num_steps."""
    if steps is not None and draft_tokens is not None and draft_tokens > steps + 1:
        warnings.append(
            f"a tree of {draft_tokens:g} tokens and depth {steps:g}: the acceptance "
            "length is not that of a chain"
        )
        return tally.whole_k(steps)
    if draft_tokens is not None:
        return tally.whole_k(draft_tokens - 1)
    return tally.whole_k(steps) if steps is not None else None


@dataclass(frozen=True)
class DecodeLine:
    """One ``Decode batch`` line."""

    running: int
    length: float
    rate: float | None
    throughput: float | None
    tokens: int | None
    graph: bool | None


_TOKENS = re.compile(r"#(?:full )?token: ([0-9]{1,12})")
_THROUGHPUT = re.compile(r"gen throughput \(token/s\): ([0-9]+(?:\.[0-9]+)?)")
_GRAPH = re.compile(r"cuda graph: (True|False)")


def decode_line(line: str) -> DecodeLine | None:
    """The fields of a decode log line with speculation; None for any other line.

    >>> decode_line("Decode batch, #running-req: 10, accept len: 2.41, accept rate: 0.47").length
    2.41
    """
    at = line.find(LOG_MARK)
    if at < 0:
        return None
    running, length = _RUNNING.search(line, at), _LENGTH.search(line, at)
    if running is None or length is None:
        return None
    rate, speed, tokens, graph = (
        pattern.search(line, at) for pattern in (_RATE, _THROUGHPUT, _TOKENS, _GRAPH)
    )
    return DecodeLine(
        running=int(running.group(1)),
        length=float(length.group(1)),
        rate=float(rate.group(1)) if rate else None,
        throughput=float(speed.group(1)) if speed else None,
        tokens=int(tokens.group(1)) if tokens else None,
        graph=graph.group(1) == "True" if graph else None,
    )


def read_log(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """Decode log lines: accept lengths averaged with the running requests as weight (lines span equally many
    steps)."""
    source = ", ".join(file.name for file in files)
    weight = total = rates = 0.0
    adaptive: set[int] = set()
    for file in files:
        for line in file.lines():
            change = _STEPS_CHANGE.search(line)
            if change is not None:
                adaptive |= {int(change.group(1)), int(change.group(2))}
            parsed = decode_line(line)
            if parsed is None or parsed.running == 0:
                continue
            if not 1.0 <= parsed.length <= 1025:
                raise InputError(f"{source}: accept len {parsed.length:g} is not in [1, 1025]")
            weight += parsed.running
            total += parsed.running * parsed.length
            rates += parsed.running * (parsed.rate or 0.0)
    if weight == 0:
        raise InputError(f"{source}: no '{LOG_MARK}' line with an accept len: speculation is off")
    warnings = []
    if len(adaptive) > 1:
        warnings.append(
            f"the server changed K between {sorted(adaptive)}: the mean mixes them; pin K to measure"
        )
    return _means(
        format="sglang-log", source=source, length=total / weight, rate=rates / weight if rates > 0 else None,
        k=k, warnings=warnings,
    )  # fmt: skip


# ---- benchmark lines --------------------------------------------------------------------------------------


def server_k(run: Mapping[str, Any], warnings: list[str], *, where: str) -> int | None:
    """K from a run's recorded server arguments."""
    info = mapping(run.get("server_info")) or run
    if not info.get("speculative_algorithm", True):
        return None
    steps = number(info.get("speculative_num_steps"), field=f"{where}: speculative_num_steps", maximum=1024)
    tokens = number(
        info.get("speculative_num_draft_tokens"), field=f"{where}: speculative_num_draft_tokens", maximum=1e6
    )
    if info.get("speculative_adaptive"):
        warnings.append(f"{where}: adaptive speculation: the mean mixes several K")
    return _chain_k(steps, tokens, warnings)


def read_bench(
    documents: Iterable[Any], *, source: str, key: str, format: str, k: int | None = None
) -> AcceptanceRecord:
    """Benchmark lines that report one mean acceptance length each under ``key``."""
    rows: dict[int | None, list[float]] = {}
    warnings: list[str] = []
    for index, run in enumerate(flatten(documents), start=1):
        where = f"{source}: line {index}"
        length = number(run.get(key), field=f"{where}: {key}", maximum=1025)
        if not length:
            internal = mapping(run.get("server_info")).get("internal_states")
            if isinstance(internal, list) and internal:
                length = number(mapping(internal[0]).get("avg_spec_accept_length"), field=where, maximum=1025)
        steps = whole(run.get("steps"), field=f"{where}: steps", maximum=1024)
        if not length or steps == 0:
            continue
        depth = k or (
            _chain_k(steps, number(run.get("num_draft_tokens"), field=where), warnings) if steps else None
        )
        rows.setdefault(depth or server_k(run, warnings, where=where), []).append(length)
    if not rows:
        raise InputError(f"{source}: no {key}: the server did not speculate")
    by_k = tuple(
        (depth, sum(values) / len(values), float(len(values)))
        for depth, values in sorted((d, v) for d, v in rows.items() if d is not None)
    )
    depth = by_k[-1][0] if by_k else None
    values = rows[depth]
    if len(rows) > 1:
        warnings.append(f"several K in the file: the acceptance length is that of K = {depth}; see al_by_k")
    if len(values) > 1:
        warnings.append(f"{len(values)} runs averaged with equal weight (steps are not recorded)")
    return _means(
        format=format, source=source, length=sum(values) / len(values), rate=None, k=depth, warnings=warnings,
        al_by_k=by_k if len(by_k) > 1 else (),
    )  # fmt: skip


# ---- per-request meta_info --------------------------------------------------------------------------------


@dataclass
class _Requests:
    parts: list[PositionCounts] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    means: list[tuple[float, float, float]] = field(default_factory=list)
    lengths: list[tuple[float, float]] = field(default_factory=list)


def find_meta(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of a response that holds ``spec_verify_ct``, in any of the places SGLang puts it."""
    usage = mapping(response.get("usage"))
    for holder in (
        mapping(response.get("meta_info")),
        response,
        mapping(response.get("spec_tokens_details")),
        mapping(usage.get("spec_tokens_details")),
        mapping(mapping(usage.get("completion_tokens_details")).get("spec_tokens_details")),
    ):
        if "spec_verify_ct" in holder:
            return holder
    return None


def read_meta_info(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """``meta_info`` of responses: the histogram gives positions; its own accept length counts the prefill
    token too."""
    found = _Requests()
    for index, response in enumerate(flatten(documents), start=1):
        meta = find_meta(response)
        if meta is not None:
            _add_meta(meta, found, where=f"{source}: response {index}", k=k)
    counts = tally.pool(found.parts)
    weight = sum(n for _, n in found.lengths)
    reported = sum(al * n for al, n in found.lengths) / weight if weight else None
    if counts is not None:
        return tally.from_counts(
            counts, format="sglang-meta-info", engine="sglang", source=source, reported=reported,
            tolerance=0.011 + len(found.parts) / counts.n_steps, warnings=found.warnings,
        )  # fmt: skip
    if not found.means:
        raise InputError(f"{source}: no meta_info with a verify step: the server did not speculate")
    steps, drafted, accepted = (sum(column) for column in zip(*found.means, strict=True))
    al, rate, mean_k = tally.mean_of_counters(
        n_steps=steps, drafted_tokens=drafted, accepted_tokens=accepted, field=source
    )
    return tally.from_means(
        format="sglang-meta-info", engine="sglang", source=source, acceptance_length=al,
        k=k or tally.whole_k(mean_k), rate=rate, n_steps=steps, reported=reported, warnings=found.warnings,
    )  # fmt: skip


def _first(meta: Mapping[str, Any], *keys: str) -> Any:
    return next((meta[key] for key in keys if meta.get(key) is not None), None)


def _add_meta(meta: Mapping[str, Any], found: _Requests, *, where: str, k: int | None) -> None:
    steps = number(meta.get("spec_verify_ct"), field=f"{where}: spec_verify_ct")
    if not steps:
        return
    accepted = number(
        _first(meta, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
        field=f"{where}: accepted drafts",
    )
    drafted = number(
        _first(meta, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
        field=f"{where}: proposed drafts",
    )
    values = numbers(
        _first(meta, "spec_correct_drafts_histogram", "spec_acceptance_histogram", "spec_accept_histogram"),
        field=f"{where}: histogram", max_len=1025,
    )  # fmt: skip
    length = number(meta.get("spec_accept_length"), field=f"{where}: spec_accept_length")
    rate = number(meta.get("spec_accept_rate"), field=f"{where}: spec_accept_rate", maximum=1.0 + 1e-6)
    if length is not None:
        found.lengths.append((length, steps))
    depth = k or (tally.whole_k(drafted / steps) if drafted else None)
    if values and sum(values) > 0:
        if abs(sum(values) - steps) > 0.5:
            found.warnings.append(
                f"{where}: the histogram holds {sum(values):g} steps, spec_verify_ct says {steps:g}"
            )
        counts = tally.histogram(values, field=f"{where}: histogram", k=depth, drafted_tokens=drafted)
        found.parts.append(counts)
        accepted_sum = sum(counts.accepted)
        if accepted is not None and abs(accepted - accepted_sum) > 0.5:
            found.warnings.append(
                f"{where}: {accepted:g} accepted drafts, the histogram gives {accepted_sum:g}"
            )
        if rate is not None:
            formula, _ = rate_formula(
                acceptance_length=counts.acceptance_length, rate=rate, k=counts.k_max, digits=0.001
            )
            if formula == "AL/(K+1)":
                found.warnings.append("accept rate is the older AL/(K+1): it counts the bonus token")
        return
    if accepted is None or drafted is None:
        raise InputError(f"{where}: neither a histogram nor accepted and proposed drafts")
    found.means.append((steps, required(drafted, field=where), accepted))
