"""Step times out of SGLang's texts: decode log lines, benchmark lines, ``step_time_dict``."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rooflinesim.engines import tally
from rooflinesim.engines.reading import TextFile, mapping, number, numbers, required, whole
from rooflinesim.engines.records import TimingRecord, What
from rooflinesim.engines.serving import Times, add_run, ask_k, medians
from rooflinesim.engines.sglang.acceptance import LOG_MARK, decode_line, rate_formula, server_k
from rooflinesim.engines.vllm.acceptance import flatten
from rooflinesim.errors import InputError

_PLAIN = re.compile(
    r"#running-req: ([0-9]{1,9}),.*?gen throughput \(token/s\): ([0-9]{1,12}(?:\.[0-9]{1,9})?)"
)


def read_log(files: Sequence[TextFile], *, k: int | None = None) -> Times:
    """Decode log lines: step = running · accept_len / throughput. K is stated, or follows from the accept
    rate."""
    times = Times()
    source = ", ".join(file.name for file in files)
    groups: dict[tuple[int, int, int, What], list[float]] = {}
    tokens: dict[tuple[int, int, int, What], list[float]] = {}
    unknown = eager = 0
    for file in files:
        for line in file.lines():
            if LOG_MARK not in line:
                continue
            entry = _log_time(line, k=k)
            if entry is None:
                continue
            key, seconds, context, graph = entry
            if key is None:
                unknown += 1
                continue
            eager += graph is False
            groups.setdefault(key, []).append(seconds)
            if context is not None:
                tokens.setdefault(key, []).append(context)
    if not groups:
        if unknown:
            raise ask_k(source, " (the accept rate fits no single K)")
        raise InputError(f"{source}: no '{LOG_MARK}' line with a throughput")
    if unknown:
        times.warn(f"{unknown} lines whose accept rate fits no single K are skipped; state K")
    if eager:
        times.warn(f"{eager} lines ran without a CUDA graph")
    contexts = {key: statistics.median(values) for key, values in tokens.items()}
    times.records += medians(groups, source=f"{source}: running x accept len / throughput", contexts=contexts)
    return times


def _log_time(
    line: str, *, k: int | None
) -> tuple[tuple[int, int, int, What] | None, float, float | None, bool | None] | None:
    """(group, seconds, context, graph) of a line; group None when K is unknown; None for idle lines."""
    parsed = decode_line(line)
    if parsed is None:
        match = _PLAIN.search(line)
        if match is None or int(match.group(1)) == 0 or float(match.group(2)) == 0:
            return None
        running = int(match.group(1))
        return (running, running, 0, "decode"), running / float(match.group(2)), None, None
    if parsed.running == 0 or not parsed.throughput or parsed.length < 1:
        return None
    depth = k
    if depth is None and parsed.rate:
        depth = rate_formula(acceptance_length=parsed.length, rate=parsed.rate, k=None)[1]
    seconds = parsed.running * parsed.length / parsed.throughput
    context = parsed.tokens / parsed.running if parsed.tokens else None
    if depth is None:
        return None if k is not None else (None, seconds, context, parsed.graph)
    return (parsed.running, parsed.running * (depth + 1), depth, "step"), seconds, context, parsed.graph


def read_bench_serving(documents: Iterable[Any], *, source: str, k: int | None = None) -> Times:
    """``bench_serving`` lines: TPOT x AL, or ITL where it is not divided by tokens."""
    times = Times()
    for index, run in enumerate(flatten(documents), start=1):
        where = f"{source}: line {index}"
        length = (
            number(run.get("accept_length"), field=f"{where}: accept_length", minimum=0.0, maximum=1025)
            or None
        )
        depth = k if k is not None else server_k(run, times.warnings, where=where)
        if depth is None and length is None:
            depth = 0
        add_run(run, acceptance_length=length, k=depth, where=where, times=times)
    if not times.records:
        raise InputError(
            f"{source}: no run with a step time" + (f" ({times.warnings[0]})" if times.warnings else "")
        )
    return times


def read_one_batch(documents: Iterable[Any], *, source: str, k: int | None = None) -> Times:
    """``bench_one_batch_server`` lines: step = batch · AL / generation throughput."""
    times = Times()
    for index, run in enumerate(flatten(documents), start=1):
        where = f"{source}: line {index}"
        batch = whole(run.get("batch_size"), field=f"{where}: batch_size", minimum=1, maximum=10**7)
        speed = number(run.get("last_gen_throughput"), field=f"{where}: last_gen_throughput")
        length = number(run.get("acc_length"), field=f"{where}: acc_length", maximum=1025)
        given = number(run.get("input_len"), field=f"{where}: input_len", maximum=1e9)
        made = number(run.get("output_len"), field=f"{where}: output_len", maximum=1e9)
        if batch is None or not speed:
            times.warn(f"{where}: no batch_size or last_gen_throughput; skipped")
            continue
        speculative = length is not None and length > 1.0
        if speculative and k is None:
            raise ask_k(where)
        depth = k if speculative and k is not None else 0
        times.records.append(
            TimingRecord(
                batch_size=batch,
                n_tokens=batch * (depth + 1),
                k=depth,
                context_tokens=given + made / 2 if given is not None and made is not None else None,
                seconds=batch * (length if speculative and length else 1.0) / speed,
                what="step" if speculative else "decode",
                source=f"{where}: batch x AL / last_gen_throughput",
            )
        )
    if not times.records:
        raise InputError(f"{source}: no line with a step time")
    return times


def read_bench_speculative(documents: Iterable[Any], *, source: str) -> Times:
    """``bench_speculative`` lines: step_time as printed (20th percentile); steps = 0 is speculation off."""
    times = Times()
    for index, run in enumerate(flatten(documents), start=1):
        where = f"{source}: line {index}"
        batch = whole(run.get("batch_size"), field=f"{where}: batch_size", minimum=1, maximum=10**7)
        steps = whole(run.get("steps"), field=f"{where}: steps", maximum=1024)
        topk = whole(run.get("topk"), field=f"{where}: topk", maximum=1024) or 1
        width = whole(run.get("num_draft_tokens"), field=f"{where}: num_draft_tokens", maximum=10**6)
        seconds = number(run.get("step_time"), field=f"{where}: step_time", maximum=1e6)
        if batch is None or steps is None or not seconds:
            times.warn(f"{where}: batch_size, steps or step_time is missing; skipped")
            continue
        speed = number(run.get("speed"), field=f"{where}: speed")
        length = number(run.get("acc_length"), field=f"{where}: acc_length", maximum=1025)
        if speed and length and abs(speed * seconds / length - 1.0) > 0.02:
            times.warn(f"{where}: speed {speed:g} is not acc_length/step_time = {length / seconds:.5g}")
        if topk > 1 and steps > 0:
            times.warn(f"{where}: a tree (topk {topk}): tokens are {width}, K is its depth {steps}")
        rows = (width or steps + 1) if steps > 0 else 1
        times.records.append(
            TimingRecord(
                batch_size=batch,
                n_tokens=batch * rows,
                k=steps,
                context_tokens=None,
                seconds=seconds,
                what="step" if steps > 0 else "decode",
                source=f"{where}: step_time",
            )
        )
    if not times.records:
        raise InputError(f"{source}: no line with a step_time")
    return times


def read_server_info(documents: Iterable[Any], *, source: str, k: int | None = None) -> Times:
    """``step_time_dict`` of ``/server_info`` (recorded with SGLANG_RECORD_STEP_TIME=1): medians by batch
    size."""
    times = Times()
    groups: dict[tuple[int, int, int, What], list[float]] = {}
    for info in flatten(documents):
        body = mapping(info.get("server_info")) or info
        speculative = bool(body.get("speculative_algorithm"))
        depth = k if k is not None else server_k(body, times.warnings, where=source)
        states = body.get("internal_states")
        for state in states if isinstance(states, list) else []:
            for key, value in mapping(mapping(state).get("step_time_dict")).items():
                field = f"{source}: step_time_dict[{str(key)[:20]}]"
                if not str(key).isdecimal() or not 1 <= int(str(key)[:8]) <= 10**7:
                    raise InputError(f"{field}: the key must be a batch size")
                batch = int(str(key)[:8])
                values = [
                    seconds for seconds in numbers(value, field=field, maximum=1e6) or () if seconds > 0
                ]
                if not values:
                    continue
                if speculative and depth is None:
                    raise ask_k(source)
                rows = depth if speculative and depth is not None else 0
                what: What = "step" if speculative else "decode"
                groups.setdefault((batch, batch * (rows + 1), rows, what), []).extend(values)
    if not groups:
        raise InputError(f"{source}: no step_time_dict; start the server with SGLANG_RECORD_STEP_TIME=1")
    times.records += medians(groups, source=f"{source}: step_time_dict")
    return times


def acceptance_of_server(documents: Iterable[Any], *, source: str) -> tuple[float, int | None]:
    """(mean accept length, K) that ``/server_info`` holds."""
    for info in flatten(documents):
        body: Mapping[str, Any] = mapping(info.get("server_info")) or info
        states = body.get("internal_states")
        for state in states if isinstance(states, list) else []:
            length = number(mapping(state).get("avg_spec_accept_length"), field=source, maximum=1025)
            if length:
                return required(length, field=source), tally.whole_k(
                    float(server_k(body, [], where=source) or 0)
                )
    raise InputError(f"{source}: no avg_spec_accept_length")
