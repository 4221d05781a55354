"""Acceptance out of vLLM's texts: Prometheus scrapes, periodic log lines, bench results, per-request
metrics."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rooflinesim.acceptance import PositionCounts
from rooflinesim.engines import tally
from rooflinesim.engines.reading import TextFile, mapping, number, numbers, required, shown, whole
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.errors import InputError

_NUM = r"(nan|[0-9]+(?:\.[0-9]+)?)"
_AL = re.compile(r"Mean acceptance length: " + _NUM)
_RATE = re.compile(r"Draft acceptance rate: " + _NUM + "%")
_ACCEPTED = re.compile(r"Accepted: ([0-9]{1,18}) tokens")
_DRAFTED = re.compile(r"Drafted: ([0-9]{1,18}) tokens")
_PER_POSITION = re.compile(r"Per-position acceptance rate: ([0-9., ]+)")
LOG_MARK: Final = "SpecDecoding metrics:"
V0_MARK: Final = "Speculative metrics: Draft acceptance rate:"
_V0 = re.compile(
    r"Speculative metrics: Draft acceptance rate: " + _NUM + r", System efficiency: " + _NUM
    + r", Number of speculative tokens: ([0-9]{1,6}), Number of accepted tokens: ([0-9]{1,18}), "
    r"Number of draft tokens: ([0-9]{1,18}), Number of emitted tokens: ([0-9]{1,18})"
)  # fmt: skip


# ---- periodic log lines -----------------------------------------------------------------------------------


def read_log(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """Every ``SpecDecoding metrics:`` line pooled.

    A line prints AL to 2 decimals, rates to 3, totals exactly. The number of steps is drafted/K where that
    agrees with AL = 1 + accepted/steps; where it does not, K varied, and the counts are marked biased.
    """
    pooled: dict[int, tuple[list[float], list[float], list[bool]]] = {}
    means = [0.0, 0.0, 0.0]  # steps, drafted, accepted of lines without positions
    n_lines = 0
    for file in files:
        for number_, line in enumerate(file.lines(), start=1):
            at = line.find(LOG_MARK)
            if at < 0:
                continue
            n_lines += 1
            parsed = _log_line(line[at:], field=f"{file.name}: line {number_}", k=k)
            if parsed is None:
                continue
            steps, accepted, biased, totals = parsed
            if not accepted:
                means = [a + b for a, b in zip(means, totals, strict=True)]
                continue
            held = pooled.setdefault(len(accepted), ([], [0.0] * len(accepted), []))
            held[0].append(steps)
            held[1][:] = [a + b for a, b in zip(held[1], accepted, strict=True)]
            held[2].append(biased)
    source = ", ".join(file.name for file in files)
    parts = [
        PositionCounts((sum(steps),) * depth, tuple(accepted), sum(steps), any(biased), _bias_note(biased))
        for depth, (steps, accepted, biased) in sorted(pooled.items())
    ]
    counts = tally.pool(parts)
    if counts is not None:
        warnings = [f"{len(parts)} draft depths were logged and are pooled"] if len(parts) > 1 else []
        return tally.from_counts(counts, format="vllm-log", engine="vllm", source=source, warnings=warnings)
    if means[1] > 0:
        al, rate, mean_k = tally.mean_of_counters(
            n_steps=means[0], drafted_tokens=means[1], accepted_tokens=means[2], field=source
        )
        return tally.from_means(
            format="vllm-log", engine="vllm", source=source, acceptance_length=al,
            k=k or tally.whole_k(mean_k),
            rate=rate, n_steps=means[0],
        )  # fmt: skip
    what = "only idle lines (nothing drafted)" if n_lines else f"no line with '{LOG_MARK}' drafted anything"
    raise InputError(f"{source}: {what}")


def _bias_note(biased: list[bool]) -> str:
    return (
        f"draft length varied in {sum(biased)} of {len(biased)} log lines: deep rates are too low"
        if any(biased)
        else ""
    )


def _log_line(
    text: str, *, field: str, k: int | None
) -> tuple[float, list[float], bool, tuple[float, float, float]] | None:
    """(steps, accepted by position, biased, (steps, drafted, accepted)) of one line; None when nothing was
    drafted."""
    accepted_match, drafted_match = _ACCEPTED.search(text), _DRAFTED.search(text)
    if accepted_match is None or drafted_match is None:
        raise InputError(
            f"{field}: '{LOG_MARK}' without 'Accepted: N tokens, Drafted: N tokens'; the line is cut off"
        )
    accepted, drafted = float(accepted_match.group(1)), float(drafted_match.group(1))
    if drafted == 0:
        return None
    if accepted > drafted:
        raise InputError(f"{field}: accepted {accepted:g} of {drafted:g} drafted tokens")
    length_match, rates_match = _AL.search(text), _PER_POSITION.search(text)
    length = float(length_match.group(1)) if length_match else float("nan")
    if rates_match is None:
        return _line_means(accepted, drafted, length, field=field, k=k)
    rates = [_rate(part, field=field) for part in rates_match.group(1).rstrip(", ").split(", ")]
    tally.check_depth(len(rates), field=field)
    steps = drafted / len(rates)
    biased = steps != round(steps) or not _explains(steps, accepted, length, sum(rates), len(rates))
    if biased and sum(rates) > 0:
        steps = accepted / sum(rates)
    by_position = [min(rate, 1.0) * steps for rate in rates]
    rounded = [float(round(value)) for value in by_position]
    if not biased and steps < 1000 and sum(rounded) == accepted:
        by_position = rounded
    elif sum(by_position) > 0 and accepted > 0:
        scale = accepted / sum(by_position)
        by_position = [min(value * scale, steps) for value in by_position]
    if any(b > a * (1 + 1e-9) for a, b in itertools.pairwise(by_position)):
        raise InputError(f"{field}: per-position acceptance rates rise; marginal rates cannot")
    return steps, by_position, biased, (steps, drafted, accepted)


def _rate(text: str, *, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{field}: {shown(text)} is not an acceptance rate") from None
    if not 0.0 <= value <= 1.0005:
        raise InputError(f"{field}: acceptance rate {value:g} is not in [0, 1]")
    return value


def _explains(steps: float, accepted: float, length: float, rate_sum: float, depth: int) -> bool:
    """Whether ``steps`` gives the printed AL (2 decimals) and the printed sum of rates (3 decimals each)."""
    gain = accepted / steps
    by_al = length != length or abs(1.0 + gain - length) <= 0.0051
    return by_al and abs(gain - rate_sum) <= 0.00051 * depth + 1e-9


def _line_means(
    accepted: float, drafted: float, length: float, *, field: str, k: int | None
) -> tuple[float, list[float], bool, tuple[float, float, float]]:
    """An older line without positions: steps from AL, or from K."""
    if length == length and length > 1.0 and accepted > 0:
        steps = accepted / (length - 1.0)
        depth = k if k is not None else round(drafted / steps)
        steps = drafted / depth if depth >= 1 else steps
    elif k is not None:
        steps = drafted / k
    else:
        raise InputError(f"{field}: prints neither acceptance length nor positions; state K")
    return steps, [], False, (steps, drafted, accepted)


def read_v0_log(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """The cumulative ``Speculative metrics:`` line of the V0 engine: AL = emitted·K/drafted; the last line
    counts.

    V0 counts a draft as accepted even after an earlier one of its step was rejected, so its acceptance rate
    is not accepted-prefix acceptance; the emitted tokens are exact.
    """
    last: re.Match[str] | None = None
    name = ", ".join(file.name for file in files)
    for file in files:
        for line in file.lines():
            last = _V0.search(line) or last
    if last is None:
        raise InputError(f"{name}: no complete '{V0_MARK}' line")
    depth, drafted, emitted = int(last.group(3)), float(last.group(5)), float(last.group(6))
    tally.check_depth(depth, field=name)
    if depth < 1 or drafted < depth or emitted <= 0:
        raise InputError(
            f"{name}: V0 line with K={depth}, {drafted:g} drafted and {emitted:g} emitted tokens"
        )
    steps = drafted / depth
    warnings = ["V0 counts accepted drafts behind a rejected one: its acceptance rate is not used"]
    efficiency = last.group(2)
    if efficiency != "nan" and abs(float(efficiency) - emitted / (steps * (depth + 1))) > 0.002:
        warnings.append(f"system efficiency {efficiency} does not follow from emitted and drafted tokens")
    return tally.from_means(
        format="vllm-v0-log", engine="vllm", source=name, acceptance_length=emitted / steps, k=depth,
        n_steps=steps,
        warnings=warnings,
    )  # fmt: skip


# ---- bench serve and per-request metrics ------------------------------------------------------------------


@dataclass
class _Sum:
    parts: list[PositionCounts] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reported: list[tuple[float, float]] = field(default_factory=list)
    means: list[tuple[float, float, float]] = field(default_factory=list)

    def reported_mean(self) -> float | None:
        """Reported AL, weighted by steps."""
        weight = sum(n for _, n in self.reported)
        return sum(al * n for al, n in self.reported) / weight if weight > 0 else None


def flatten(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """The objects among ``documents``, one level of lists opened."""
    for document in documents:
        for item in document if isinstance(document, list) else [document]:
            if isinstance(item, Mapping):
                yield item


def read_bench_serve(
    documents: Iterable[Any], *, source: str, k: int | None = None, format: str = "vllm-bench-serve"
) -> AcceptanceRecord:
    """``vllm bench serve`` results (one, several, or a sweep's summary): counts of all speculative runs
    pooled."""
    found = _Sum()
    for index, run in enumerate(flatten(documents), start=1):
        _add_bench_run(run, found, where=f"{source}: run {index}")
    counts = tally.pool(found.parts)
    if counts is not None:
        return tally.from_counts(
            counts, format=format, engine="vllm", source=source, reported=found.reported_mean(),
            warnings=found.warnings,
        )  # fmt: skip
    if not found.means:
        raise InputError(
            f"{source}: no spec_decode_* fields: speculation was off, or the server exposed no counters"
        )
    steps, drafted, accepted = (sum(column) for column in zip(*found.means, strict=True))
    al, rate, mean_k = tally.mean_of_counters(
        n_steps=steps, drafted_tokens=drafted, accepted_tokens=accepted, field=source
    )
    return tally.from_means(
        format=format, engine="vllm", source=source, acceptance_length=al, k=k or tally.whole_k(mean_k),
        rate=rate, n_steps=steps, reported=found.reported_mean(), warnings=found.warnings,
    )  # fmt: skip


def _add_bench_run(run: Mapping[str, Any], found: _Sum, *, where: str) -> None:
    steps = number(run.get("spec_decode_num_drafts"), field=f"{where}: spec_decode_num_drafts")
    if not steps:
        return
    drafted = required(
        number(run.get("spec_decode_draft_tokens"), field=f"{where}: spec_decode_draft_tokens"),
        field=f"{where}: spec_decode_draft_tokens",
    )
    accepted = required(
        number(run.get("spec_decode_accepted_tokens"), field=f"{where}: spec_decode_accepted_tokens"),
        field=f"{where}: spec_decode_accepted_tokens",
    )
    rates = numbers(
        run.get("spec_decode_per_position_acceptance_rates"),
        field=f"{where}: spec_decode_per_position_acceptance_rates", maximum=1.0 + 1e-9, max_len=1024,
    )  # fmt: skip
    percent = number(
        run.get("spec_decode_acceptance_rate"), field=f"{where}: spec_decode_acceptance_rate", maximum=100.01
    )
    length = number(run.get("spec_decode_acceptance_length"), field=f"{where}: spec_decode_acceptance_length")
    al, rate, _ = tally.mean_of_counters(
        n_steps=steps, drafted_tokens=drafted, accepted_tokens=accepted, field=where
    )
    if percent is not None and abs(percent / 100 - rate) > 0.006:
        found.warnings.append(
            f"{where}: acceptance rate {percent:g} % is not accepted/drafted = {100 * rate:.3g} %"
        )
    if length is not None:
        found.reported.append((length, steps))
    if not rates:
        found.means.append((steps, drafted, accepted))
    else:
        counts = tally.counters(
            n_steps=steps, accepted_per_position=[min(r, 1.0) * steps for r in rates], drafted_tokens=drafted,
            field=where,
        )  # fmt: skip
        if abs(counts.acceptance_length - al) > 0.011:
            found.warnings.append(
                f"{where}: 1 + sum of per-position rates = {counts.acceptance_length:.4g}, "
                f"but the totals give {al:.4g}"
            )
        found.parts.append(counts)
    _committed(run, counted=steps + accepted, al=al, steps=steps, found=found, where=where)


def _committed(
    run: Mapping[str, Any], *, counted: float, al: float, steps: float, found: _Sum, where: str
) -> None:
    """Whether more tokens were counted as accepted than came out: an end-of-sequence inside accepted
    drafts."""
    completed = number(run.get("completed"), field=f"{where}: completed")
    output = number(run.get("total_output_tokens"), field=f"{where}: total_output_tokens")
    if not completed or output is None:
        return
    emitted = output - completed  # the first token of a request comes from its prefill
    if emitted > 0 and counted > emitted * 1.005 + completed:
        found.warnings.append(
            f"{where}: {counted:.0f} tokens counted, {emitted:.0f} emitted (stop inside accepted drafts): "
            f"committed AL is {emitted / steps:.4g}, not {al:.4g}"
        )


def read_per_request(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """``metrics.speculative_decoding`` of responses (summary or detailed), pooled.

    Detailed arrays, or a histogram by draft length, give unbiased rates at a varying K; a summary histogram
    does not, and is marked.
    """
    found = _Sum()
    for index, response in enumerate(flatten(documents), start=1):
        stats = find_stats(response)
        if stats is not None:
            _add_request(stats, response, found, where=f"{source}: response {index}", k=k)
    counts = tally.pool(found.parts)
    if counts is None:
        raise InputError(f"{source}: no metrics.speculative_decoding with a drafting step")
    return tally.from_counts(
        counts, format="vllm-per-request", engine="vllm", source=source, reported=found.reported_mean(),
        warnings=found.warnings,
    )  # fmt: skip


def find_stats(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The per-request statistics of a response, wherever a proxy put them; None if there are none."""
    for holder in (mapping(response.get("metrics")), response):
        stats = holder.get("speculative_decoding")
        if isinstance(stats, Mapping):
            return stats
    return response if "acceptance_histogram" in response and "num_spec_steps" in response else None


def _add_request(
    stats: Mapping[str, Any], response: Mapping[str, Any], found: _Sum, *, where: str, k: int | None
) -> None:
    depth = whole(stats.get("num_spec_tokens"), field=f"{where}: num_spec_tokens") or k
    drafted = number(stats.get("num_draft_tokens"), field=f"{where}: num_draft_tokens")
    length = number(stats.get("mean_acceptance_length"), field=f"{where}: mean_acceptance_length")
    counts = request_counts(stats, where=where, depth=depth, drafted=drafted)
    if counts is None:
        return
    found.parts.append(counts)
    if length is not None:
        found.reported.append((length, counts.n_steps))
    emitted = number(
        mapping(response.get("usage")).get("completion_tokens"), field=f"{where}: completion_tokens"
    )
    counted = counts.n_steps * counts.acceptance_length
    if emitted is not None and emitted > 1 and counted > (emitted - 1) * 1.005 + 0.5:
        found.warnings.append(
            f"{where}: {counted:.0f} tokens counted, {emitted - 1:.0f} emitted "
            "(stop inside accepted drafts): "
            f"committed AL is {(emitted - 1) / counts.n_steps:.4g}"
        )


def request_counts(
    stats: Mapping[str, Any], *, where: str, depth: int | None, drafted: float | None
) -> PositionCounts | None:
    """Counts of one request, from the least biased part of its statistics; None when nothing was drafted."""
    steps_accepted = numbers(
        stats.get("per_step_accepted"), field=f"{where}: per_step_accepted", maximum=1024
    )
    steps_drafted = numbers(stats.get("per_step_drafted"), field=f"{where}: per_step_drafted", maximum=1024)
    if steps_accepted and steps_drafted:
        if not any(steps_drafted):
            return None
        try:
            return PositionCounts.from_steps(accepted=steps_accepted, drafted=steps_drafted)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    by_length = stats.get("acceptance_histogram_by_draft_length")
    if isinstance(by_length, Mapping) and by_length:
        return tally.pool(_by_draft_length(by_length, where=where))
    values = numbers(stats.get("acceptance_histogram"), field=f"{where}: acceptance_histogram", max_len=1025)
    if values is None:
        raise InputError(f"{where}: no acceptance_histogram")
    if sum(values) <= 0:
        return None
    return tally.histogram(values, field=f"{where}: acceptance_histogram", k=depth, drafted_tokens=drafted)


def _by_draft_length(by_length: Mapping[str, Any], *, where: str) -> Iterator[PositionCounts]:
    for key, value in by_length.items():
        label = f"{where}: acceptance_histogram_by_draft_length[{str(key)[:20]}]"
        if not str(key).isdecimal() or len(str(key)) > 4:
            raise InputError(f"{label}: the key must be a draft length")
        values = numbers(value, field=label, max_len=1025) or ()
        if int(key) > 0 and sum(values) > 0:
            yield tally.histogram(values, field=label, k=int(key))
