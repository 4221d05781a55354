"""Formats that belong to no engine (speculation_profile.json, AIPerf) and llama.cpp's summary lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rooflinesim.acceptance import PositionCounts
from rooflinesim.engines import tally
from rooflinesim.engines.reading import TextFile, mapping, number, numbers, shown, whole
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.engines.vllm.acceptance import flatten, request_counts
from rooflinesim.errors import InputError

LLAMA_MARKS: Final = ("draft acceptance =", "draft acceptance rate =", "#gen drafts", "n_drafted")
_LLAMA_RATE = re.compile(
    r"draft acceptance(?: rate)? *= *([0-9.]{1,12}) *\( *([0-9]{1,15}) accepted */ *([0-9]{1,15}) generated\)"
)
_LLAMA_LENGTH = re.compile(r"mean acceptance length *= *([0-9]{1,6}(?:\.[0-9]{1,9})?)")
_LLAMA_POSITIONS = re.compile(r"acceptance rate per position *= *\(([0-9., ]{1,8000})\)")
_LLAMA_STATS = re.compile(
    r"#gen drafts *= *([0-9]{1,15}), *#acc drafts *= *([0-9]{1,15}), "
    r"*#gen tokens *= *([0-9]{1,15}), *#acc tokens *= *([0-9]{1,15})"
)
_LLAMA_STATS_POSITIONS = re.compile(r"#acc rate/pos *= *\(([0-9., ]{1,8000})\)")
_LLAMA_EXAMPLE = re.compile(r"\b(n_draft|n_drafted|n_accept) *= *([0-9]{1,15})")
AMBIGUOUS: Final = re.compile(
    r"\battempts?\b\W{0,10}([0-9]{1,15})\b.{0,80}?\baccept(?:s|ed)?\b\W{0,10}([0-9]{1,15})", re.I
)


# ---- speculation_profile.json -----------------------------------------------------------------------------


def read_profile(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """``speculation_profile.json`` (schema 1.0): histogram if there is one, else its rates."""
    profiles = [item for item in flatten(documents) if "schema_version" in item]
    if len(profiles) != 1:
        raise InputError(f"{source}: one speculation profile is expected, it holds {len(profiles)}")
    profile = profiles[0]
    version = str(profile.get("schema_version"))
    if version.split(".")[0] != "1":
        raise InputError(f"{source}: schema_version {shown(version)} is not read; 1.x is")
    warnings: list[str] = []
    if profile.get("measured") is False:
        warnings.append("the profile says it is not measured")
    depth = k or whole(
        profile.get("num_speculative_tokens"), field=f"{source}: num_speculative_tokens", maximum=1024
    )
    length = number(profile.get("mean_accept_length"), field=f"{source}: mean_accept_length", maximum=1025)
    marginal = _rates(profile, "marginal_accept_rates", source)
    conditional = _rates(profile, "conditional_accept_rates", source)
    if marginal and conditional:
        product = 1.0
        for position, (rate, given) in enumerate(zip(conditional, marginal, strict=False), start=1):
            product *= rate
            if abs(product - given) > 0.005:
                warnings.append(
                    f"position {position}: product of conditional rates {product:.4g} is "
                    f"not the marginal rate {given:.4g}"
                )
                break
    al_by_k = _al_by_k(profile.get("accept_length_by_k"), source=source)
    shifted = profile.get("acceptance_length_histogram")
    common: dict[str, Any] = {"format": "speculation-profile", "engine": "neutral", "source": source}
    if isinstance(shifted, Mapping) and shifted:
        counts = _sparse(shifted, k=depth, shift=1, field=f"{source}: acceptance_length_histogram")
        record = tally.from_counts(counts, **common, reported=length, al_by_k=al_by_k, warnings=warnings)
        if marginal and max(abs(a - b) for a, b in zip(marginal, record.marginal, strict=False)) > 0.005:
            raise InputError(
                f"{source}: marginal_accept_rates do not follow from acceptance_length_histogram"
            )
        return record
    if not marginal and conditional:
        marginal = tuple(_product(conditional))
    if marginal:
        return _rates_only(marginal, common, length=length, al_by_k=al_by_k, warnings=warnings)
    if length is None:
        raise InputError(f"{source}: neither a histogram, nor rates, nor mean_accept_length")
    return tally.from_means(**common, acceptance_length=length, k=depth, al_by_k=al_by_k, warnings=warnings)


def _rates(profile: Mapping[str, Any], key: str, source: str) -> tuple[float, ...]:
    return numbers(profile.get(key), field=f"{source}: {key}", maximum=1.0, max_len=1024) or ()


def _product(rates: Sequence[float]) -> Iterable[float]:
    product = 1.0
    for rate in rates:
        product *= rate
        yield product


def _rates_only(
    marginal: tuple[float, ...],
    common: Mapping[str, str],
    *,
    length: float | None,
    al_by_k: tuple[tuple[int, float, float], ...],
    warnings: list[str],
) -> AcceptanceRecord:
    if any(b > a + 1e-9 for a, b in itertools.pairwise(marginal)):
        raise InputError(
            f"{common['source']}: marginal_accept_rates rise with position; marginal rates cannot"
        )
    implied = 1.0 + sum(marginal)
    if length is not None and abs(length - implied) > 0.02:
        warnings.append(
            f"mean_accept_length {length:.4g} differs from 1 + sum of marginal rates = {implied:.4g}"
        )
    return AcceptanceRecord(
        format=common["format"],
        engine=common["engine"],
        source=common["source"],
        acceptance_length=implied,
        k=len(marginal),
        reported_acceptance_length=length,
        draft_acceptance_rate=sum(marginal) / len(marginal),
        rates=marginal,
        al_by_k=al_by_k,
        warnings=(*warnings, "rates without counts: no intervals"),
    )


def _al_by_k(value: Any, *, source: str) -> tuple[tuple[int, float, float], ...]:
    rows: list[tuple[int, float, float]] = []
    for key, item in mapping(value).items():
        field = f"{source}: accept_length_by_k[{str(key)[:20]}]"
        if not str(key).isdecimal() or not 1 <= int(str(key)[:6]) <= 1024:
            raise InputError(f"{field}: the key must be a K of 1..1024")
        length = number(item, field=field, minimum=1.0, maximum=1025)
        if length is not None:
            rows.append((int(key), length, 0.0))
    return tuple(sorted(rows))


def _sparse(value: Mapping[str, Any], *, k: int | None, shift: int, field: str) -> PositionCounts:
    """Counts of a sparse histogram whose keys are accepted drafts + ``shift``."""
    dense: dict[int, float] = {}
    for key, item in value.items():
        label = str(key)
        if not label.isdecimal() or not shift <= int(label[:6]) <= 1024 + shift or len(label) > 6:
            raise InputError(f"{field}: key {label[:20]!r} is not in {shift}..{1024 + shift}")
        dense[int(label) - shift] = number(item, field=f"{field}[{label}]") or 0.0
    depth = max(dense, default=0)
    values = [dense.get(index, 0.0) for index in range(depth + 1)]
    return tally.histogram(values if depth else [*values, 0.0], field=field, k=k)


# ---- AIPerf -----------------------------------------------------------------------------------------------


def read_aiperf(documents: Iterable[Any], *, source: str, k: int | None = None) -> AcceptanceRecord:
    """AIPerf records (``spec_decode_acceptance`` per line) pooled, or the run's pooled histogram."""
    parts: list[PositionCounts] = []
    warnings: list[str] = []
    reported: list[tuple[float, float]] = []
    for index, item in enumerate(flatten(documents), start=1):
        where = f"{source}: record {index}"
        pooled = item.get("pooled_spec_decode_acceptance_histogram")
        stats = item.get("spec_decode_acceptance")
        if isinstance(pooled, Mapping) and pooled:
            histogram = (
                pooled.get("histogram", pooled) if isinstance(pooled.get("histogram"), Mapping) else pooled
            )
            if k is None:
                warnings.append("the pooled histogram does not hold K: its deepest acceptance is taken as K")
            parts.append(_sparse(histogram, k=k, shift=0, field=f"{where}: pooled histogram"))
        elif isinstance(stats, Mapping):
            counts = _aiperf_record(stats, where=where, k=k)
            length = number(stats.get("mean_acceptance_length"), field=f"{where}: mean_acceptance_length")
            if counts is not None:
                parts.append(counts)
                if length is not None:
                    reported.append((length, counts.n_steps))
    counted = tally.pool(parts)
    if counted is None:
        raise InputError(f"{source}: no spec_decode_acceptance with a drafting step")
    weight = sum(n for _, n in reported)
    return tally.from_counts(
        counted, format="aiperf", engine="neutral", source=source, warnings=warnings,
        reported=sum(al * n for al, n in reported) / weight if weight else None,
    )  # fmt: skip


def _aiperf_record(stats: Mapping[str, Any], *, where: str, k: int | None) -> PositionCounts | None:
    depth = whole(stats.get("num_spec_tokens"), field=f"{where}: num_spec_tokens", maximum=1024) or k
    drafted = number(stats.get("num_draft_tokens"), field=f"{where}: num_draft_tokens")
    sparse = stats.get("acceptance_histogram")
    if stats.get("per_step_accepted") or not isinstance(sparse, Mapping):
        return request_counts(stats, where=where, depth=depth, drafted=drafted)
    if not any(number(value, field=f"{where}: acceptance_histogram") for value in sparse.values()):
        return None
    counts = _sparse(sparse, k=depth, shift=0, field=f"{where}: acceptance_histogram")
    if drafted is None:
        return counts
    return tally.counters(
        n_steps=counts.n_steps, accepted_per_position=counts.accepted, drafted_tokens=drafted, field=where
    )


# ---- llama.cpp --------------------------------------------------------------------------------------------


def read_llama_cpp(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """llama.cpp's summary lines, all requests pooled.

    Newest lines print steps and rates by position; older ones only accepted/generated, which is no acceptance
    length: K must be stated, and AL = 1 + K·accepted/generated assumes that every draft had K tokens.
    """
    source = ", ".join(file.name for file in files)
    parts: list[PositionCounts] = []
    totals: list[tuple[float, float, float | None]] = []
    example: dict[str, float] = {}
    for file in files:
        for line_number, line in enumerate(file.lines(), start=1):
            if len(line) > 20_000:
                continue
            where = f"{file.name}: line {line_number}"
            rate, stats = _LLAMA_RATE.search(line), _LLAMA_STATS.search(line)
            if rate is not None:
                _llama_request(line, rate, parts, totals, where=where)
            elif stats is None and ("n_draft" in line or "n_accept" in line):
                example.update({name: float(value) for name, value in _LLAMA_EXAMPLE.findall(line)})
    if not parts and not totals:
        stats_line = _last_stats(files)
        if stats_line is not None:
            return _llama_statistics(stats_line, source=source)
        if {"n_drafted", "n_accept"} <= example.keys():
            totals.append((example["n_accept"], example["n_drafted"], None))
            k = k or (int(example["n_draft"]) if 1 <= example.get("n_draft", 0) <= 1024 else None)
    if parts:
        counts = tally.pool(parts)
        assert counts is not None
        return tally.from_counts(counts, format="llama-cpp", engine="llama.cpp", source=source)
    drafted, accepted = sum(row[1] for row in totals), sum(row[0] for row in totals)
    if drafted <= 0:
        raise InputError(f"{source}: no llama.cpp summary line with generated drafts")
    return _from_ratio(accepted, drafted, k=k, source=source)


def _from_ratio(accepted: float, drafted: float, *, k: int | None, source: str) -> AcceptanceRecord:
    if k is None:
        raise InputError(
            f"{source}: {accepted:g} accepted of {drafted:g} drafted tokens says nothing without K; state K "
            "(AL = 1 + K x accepted/drafted)"
        )
    rate = accepted / drafted
    if rate > 1:
        raise InputError(f"{source}: {accepted:g} accepted of {drafted:g} drafted tokens")
    return tally.from_means(
        format="llama-cpp", engine="llama.cpp", source=source, acceptance_length=1.0 + k * rate, k=k,
        rate=rate,
        n_steps=drafted / k, warnings=["AL = 1 + K x accepted/drafted assumes that every draft had K tokens"],
    )  # fmt: skip


def _llama_request(
    line: str,
    rate: re.Match[str],
    parts: list[PositionCounts],
    totals: list[tuple[float, float, float | None]],
    *,
    where: str,
) -> None:
    accepted, drafted = float(rate.group(2)), float(rate.group(3))
    length, positions = _LLAMA_LENGTH.search(line), _LLAMA_POSITIONS.search(line)
    if drafted == 0:
        return
    if accepted > drafted:
        raise InputError(f"{where}: {accepted:g} accepted of {drafted:g} generated drafts")
    if length is not None and positions is not None and float(length.group(1)) > 1.0:
        steps = accepted / (float(length.group(1)) - 1.0)
        rates = _llama_rates(positions.group(1), where=where)
        if rates and sum(rates) > 0:
            steps = _steps(accepted, steps, sum(rates))
            parts.append(_llama_counts(rates, steps=steps, accepted=accepted, drafted=drafted, where=where))
            return
    totals.append((accepted, drafted, None))


def _steps(accepted: float, by_length: float, rate_sum: float) -> float:
    """Steps from the sum of rates, the finer print; a whole number if it lies close to one that AL allows
    too."""
    by_rates = accepted / rate_sum
    near = float(round(by_rates))
    return near if near >= 1 and abs(near - by_rates) < 0.005 * near + 0.05 else (by_rates or by_length)


def _llama_rates(text: str, *, where: str) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{where}: {shown(text)} is not a list of rates") from None
    tally.check_depth(len(rates), field=where)
    if any(not 0 <= rate <= 1 for rate in rates):
        raise InputError(f"{where}: an acceptance rate is not in [0, 1]")
    return rates


def _llama_counts(
    rates: Sequence[float], *, steps: float, accepted: float, drafted: float, where: str
) -> PositionCounts:
    """Counts by position; the last drafts of a request are shorter, which is no more than noise unless it is
    much."""
    by_position = [rate * steps for rate in rates]
    scale = accepted / sum(by_position)
    by_position = [min(value * scale, steps) for value in by_position]
    short = 1.0 - drafted / (steps * len(rates))
    return tally.counters(
        n_steps=steps, accepted_per_position=by_position,
        drafted_tokens=drafted if abs(short) > 0.02 else None,
        field=where,
    )  # fmt: skip


def _last_stats(files: Sequence[TextFile]) -> str | None:
    """The last cumulative statistics line."""
    last: str | None = None
    for file in files:
        for line in file.lines():
            if len(line) <= 20_000 and _LLAMA_STATS.search(line):
                last = line
    return last


def _llama_statistics(line: str, *, source: str) -> AcceptanceRecord:
    """``statistics``: drafts are steps, so AL = 1 + acc tokens/gen drafts; acc drafts/gen drafts is position
    1."""
    match = _LLAMA_STATS.search(line)
    assert match is not None
    steps, first, drafted, accepted = (float(value) for value in match.groups())
    if steps <= 0 or drafted <= 0:
        raise InputError(f"{source}: llama.cpp statistics without a generated draft")
    positions = _LLAMA_STATS_POSITIONS.search(line)
    rates = _llama_rates(positions.group(1), where=source) if positions else []
    if rates and sum(rates) > 0 and accepted > 0:
        counts = _llama_counts(rates, steps=steps, accepted=accepted, drafted=drafted, where=source)
        return tally.from_counts(counts, format="llama-cpp", engine="llama.cpp", source=source)
    al, rate, mean_k = tally.mean_of_counters(
        n_steps=steps, drafted_tokens=drafted, accepted_tokens=accepted, field=source
    )
    return tally.from_means(
        format="llama-cpp", engine="llama.cpp", source=source, acceptance_length=al, k=tally.whole_k(mean_k),
        rate=rate, n_steps=steps, warnings=[f"position 1 was accepted in {first:g} of {steps:g} drafts"],
    )  # fmt: skip


def ambiguous_counters(attempts: float, accepts: float, *, k: int | None, source: str) -> InputError:
    """The question to ask when counters do not say whether an attempt is a step or a token.

    >>> print(ambiguous_counters(1304, 1111, k=3, source="dump"))
    dump: 'attempts 1304, accepts 1111' is ambiguous: if an attempt is a step AL is 1.852, if it is a drafted
    token AL is 3.556 at K = 3; give steps, drafted and accepted tokens
    """
    ratio = accepts / attempts if attempts > 0 else float("nan")
    token = f"AL is {1 + k * ratio:.4g} at K = {k}" if k is not None else f"AL is 1 + {ratio:.4g} x K"
    return InputError(
        f"{source}: 'attempts {attempts:.0f}, accepts {accepts:.0f}' is "
        "ambiguous: if an attempt is a step AL is "
        f"{1 + ratio:.4g}, if it is a drafted token {token}; give steps, drafted and accepted tokens"
    )
