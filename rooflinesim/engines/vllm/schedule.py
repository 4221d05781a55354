"""vLLM's dynamic speculative decoding table: written in the list form, read in both, expanded as the engine
does.

Rules of version 0.33 (looked up at every step by the number of scheduled requests): rows ``[start, end,
K]``, both ends inclusive, sorted by start before use; the first row starts at 1; a gap and everything above
the last row carry the K before them; K above ``num_speculative_tokens`` is clamped to it without a word.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rooflinesim.engines.reading import shown, whole
from rooflinesim.engines.records import EngineText, Finding
from rooflinesim.engines.tables import (
    MAX_BATCH,
    ReadSchedule,
    check_ranges,
    constant_finding,
    cut,
    highest_k,
    merge,
    starts_to_ranges,
)
from rooflinesim.engines.vllm.methods import METHODS, method_findings
from rooflinesim.errors import InputError, unknown_name

KEY: Final = "num_speculative_tokens_per_batch_size"
PROPOSED_KEY: Final = "speculative_token_schedule"
_SPAN = re.compile(r"^\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?$")


def emit(
    ranges: Iterable[Sequence[int]],
    *,
    method: str,
    max_num_seqs: int,
    model: str = "MODEL",
    draft_model: str | None = None,
    max_num_batched_tokens: int | None = None,
    capture_sizes: Sequence[int] | None = None,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    runner: str = "v2",
) -> EngineText:
    """The ``--speculative-config`` value and launch line that run ``ranges``.

    ``capture_sizes`` are CUDA-graph sizes in tokens; None leaves the engine's own list.

    >>> text = emit([(1, 64, 3), (65, 256, 1)], method="eagle3", max_num_seqs=256).text
    >>> json.loads(text)[KEY]
    [[1, 64, 3], [65, 256, 1]]
    """
    table = merge(cut(check_ranges(ranges), max_num_seqs))
    top = highest_k(table, engine="vLLM")
    if method not in METHODS:
        raise unknown_name("vLLM method", method, METHODS)
    config: dict[str, Any] = {"method": method}
    if draft_model is not None:
        config["model"] = draft_model
    config["num_speculative_tokens"] = top
    warnings: list[str] = []
    if len(table) > 1:
        config[KEY] = [list(row) for row in table]
        warnings += [
            finding.message
            for finding in method_findings(method, runner=runner, data_parallel=data_parallel, dynamic=True)
        ]
        if any(k == 0 for _, _, k in table):
            warnings.append(
                "K=0 rows keep the drafter warm: they cost more than a server without speculation"
            )
        distinct = len({k for _, _, k in table})
        if distinct > 4:
            warnings.append(f"{distinct} distinct K: each one is captured as its own set of CUDA graphs")
    else:
        warnings.append(f"K={top} at every batch size: a static K is written (no table needed)")
    need = max(hi * (k + 1) for _, hi, k in table)
    settings = [f"max_num_seqs={max_num_seqs}"]
    args = [f"--max-num-seqs {max_num_seqs}"]
    if max_num_batched_tokens is not None:
        settings.append(f"max_num_batched_tokens={max_num_batched_tokens}")
        args.append(f"--max-num-batched-tokens {max_num_batched_tokens}")
        if need > max_num_batched_tokens:
            warnings.append(
                f"the table needs {need} tokens in a step, the budget is {max_num_batched_tokens}: "
                "fewer requests will be scheduled"
            )
    if capture_sizes is not None:
        sizes = sorted({int(size) for size in capture_sizes})
        settings.append(f"cudagraph_capture_sizes={sizes}")
        compilation = json.dumps({"cudagraph_capture_sizes": sizes})
        args.append(f"--compilation-config {shlex.quote(compilation)}")
    if tensor_parallel > 1:
        args.append(f"--tensor-parallel-size {tensor_parallel}")
    if data_parallel > 1:
        args.append(f"--data-parallel-size {data_parallel}")
    text = json.dumps(config)
    launch = " ".join(["vllm serve", shlex.quote(model), f"--speculative-config {shlex.quote(text)}", *args])
    return EngineText(
        engine="vllm",
        file_name="speculative_config.json",
        text=text + "\n",
        launch=launch,
        settings=tuple(settings),
        warnings=tuple(warnings),
    )


def read(
    config: Any,
    *,
    num_speculative_tokens: int | None = None,
    max_num_seqs: int | None = None,
    context_tokens: int | None = None,
) -> ReadSchedule:
    """A speculative config, or its table alone, as the engine runs it.

    Reads the list form, the ``"1-16": 3`` mapping of an early proposal (no released version takes it), and,
    for one stated ``context_tokens``, the proposed five-item rows.

    >>> read({"num_speculative_tokens": 3, KEY: [[1, 4, 3], [8, 16, 1]]}).expand(9)
    (3, 3, 3, 3, 3, 3, 3, 1, 1)
    """
    spec, table, findings = _find_table(config)
    method = spec.get("method")
    given = whole(
        spec.get("num_speculative_tokens", num_speculative_tokens), field="num_speculative_tokens", minimum=1
    )
    if max_num_seqs is not None and not 1 <= max_num_seqs <= MAX_BATCH:
        raise InputError(f"max_num_seqs: {max_num_seqs} is not in 1..{MAX_BATCH}")
    if table is None:
        if given is None:
            raise InputError(f"vLLM schedule: neither {KEY} nor num_speculative_tokens is given")
        top_batch = max_num_seqs or MAX_BATCH
        return ReadSchedule(
            engine="vllm",
            ranges=((1, top_batch, given),),
            max_batch=top_batch,
            max_k=given,
            method=method if isinstance(method, str) else None,
            findings=(*findings, Finding("static", f"no table: K={given} at every batch size", "note")),
        )
    rows = _rows(table, context_tokens=context_tokens, findings=findings)
    rows = _validated(rows, findings=findings)
    wanted = [k for _, _, k in rows]
    top = given if given is not None else max(wanted)
    if given is None:
        findings.append(
            Finding(
                "no-maximum", f"num_speculative_tokens is not given; {top}, the largest K, is assumed", "note"
            )
        )
    last = rows[-1][1]
    max_batch = max_num_seqs or min(last, MAX_BATCH)
    findings += _row_findings(rows, top=top, max_batch=max_batch, known=max_num_seqs is not None)
    ranges = starts_to_ranges([(lo, min(k, top)) for lo, _, k in rows], max_batch)
    findings += constant_finding(ranges, wanted, where="vLLM schedule")
    return ReadSchedule(
        engine="vllm",
        ranges=ranges,
        max_batch=max_batch,
        max_k=top,
        method=method if isinstance(method, str) else None,
        findings=tuple(findings),
    )


def _find_table(config: Any) -> tuple[Mapping[str, Any], Any, list[Finding]]:
    """The speculative config (empty if only a table was given), the table or None, first findings."""
    if isinstance(config, list):
        return {}, config, []
    if not isinstance(config, Mapping):
        raise InputError(
            f"vLLM schedule: a speculative config or a list of rows is expected, got {shown(config)}"
        )
    for key in ("speculative_config", "speculative-config"):
        if isinstance(config.get(key), Mapping):
            config = config[key]
    for key in (KEY, PROPOSED_KEY):
        if key in config:
            found = []
            if key == PROPOSED_KEY:
                found.append(Finding("proposed-key", f"{key} is a proposal; version 0.33 reads {KEY}"))
            return config, config[key], found
    if config and all(isinstance(key, str) and _SPAN.match(key) for key in config):
        return {}, config, []
    if "num_speculative_tokens" in config or "method" in config or "model" in config:
        return config, None, []
    raise InputError(
        f"vLLM schedule: no {KEY}, no num_speculative_tokens; keys are {shown(sorted(map(str, config)))}"
    )


def _rows(table: Any, *, context_tokens: int | None, findings: list[Finding]) -> list[tuple[int, int, int]]:
    """The table as rows of three whole numbers; not yet validated against each other."""
    if isinstance(table, Mapping):
        findings.append(
            Finding(
                "mapping-form",
                f'the "1-16": 3 form is refused by released vLLM; write {KEY} as a list of rows',
            )
        )
        table = [_mapping_row(str(key), value) for key, value in table.items()]
    if not isinstance(table, list | tuple):
        raise InputError(f"{KEY}: a list of [start, end, K] is expected, got {shown(table)}")
    if not table:
        raise InputError(f"{KEY}: must not be empty; leave the key out to turn dynamic speculation off")
    if len(table) > 10_000:
        raise InputError(f"{KEY}: {len(table)} rows, at most 10000 are read")
    lengths = {len(row) if isinstance(row, list | tuple) else -1 for row in table}
    if lengths == {5}:
        return _slice_context(table, context_tokens=context_tokens, findings=findings)
    if lengths == {3, 5}:
        raise InputError(f"{KEY}: rows of 3 and of 5 items are mixed; use one form")
    if lengths != {3}:
        raise InputError(f"{KEY}: each row must be a 3-item sequence [start, end, K]")
    return [(row[0], row[1], row[2]) for row in (_whole_row(row) for row in table)]


def _whole_row(row: Sequence[Any]) -> tuple[int, ...]:
    return tuple(
        value
        for item in row
        if (value := whole(item if item is not None else "null", field=KEY, minimum=-(2**31))) is not None
    )


def _mapping_row(key: str, value: Any) -> list[Any]:
    match = _SPAN.match(key)
    if match is None:
        raise InputError(f"{KEY}: key {key[:40]!r} is not of the form 'start-end'")
    return [int(match.group(1)), int(match.group(2) or match.group(1)), value]


def _slice_context(
    table: Sequence[Sequence[Any]], *, context_tokens: int | None, findings: list[Finding]
) -> list[tuple[int, int, int]]:
    """The rows of one context length of the proposed [bs_lo, bs_hi, ctx_lo, ctx_hi, K] form."""
    if context_tokens is None:
        raise InputError(
            f"{KEY}: 5-item rows [bs_lo, bs_hi, ctx_lo, ctx_hi, K] are a proposal "
            "that no released vLLM reads; "
            "state one context length to read its slice"
        )
    rows = [_whole_row(row) for row in table]
    batches = {(row[0], row[1]) for row in rows}
    contexts = {(row[2], row[3]) for row in rows}
    if len({row[:4] for row in rows}) != len(rows) or len(rows) != len(batches) * len(contexts):
        raise InputError(
            f"{KEY}: 5-item rows must fill the whole grid of batch and context ranges, once each"
        )
    findings.append(
        Finding("context-form", "5-item rows: no released vLLM reads them; one context slice is shown")
    )
    kept = [(row[0], row[1], row[4]) for row in rows if row[2] <= context_tokens <= row[3]]
    if not kept:
        raise InputError(f"{KEY}: no row covers a context of {context_tokens} tokens")
    return kept


def _validated(rows: list[tuple[int, int, int]], *, findings: list[Finding]) -> list[tuple[int, int, int]]:
    """Rows sorted by start; refuses what the engine refuses, in the same words where they are known."""
    for lo, hi, k in rows:
        if lo <= 0 or hi <= 0:
            raise InputError(f"{KEY}: [{lo}, {hi}, {k}]: start and end must be positive")
        if lo > hi:
            raise InputError(f"{KEY}: [{lo}, {hi}, {k}]: start must be <= end")
        if k < 0:
            raise InputError(f"{KEY}: [{lo}, {hi}, {k}]: K must be >= 0")
    ordered = sorted(rows)
    if ordered != rows:
        findings.append(Finding("unsorted", "rows are not sorted; the engine sorts them by start", "note"))
    if ordered[0][0] != 1:
        raise InputError(f"{KEY}: the first range must start at 1, it starts at {ordered[0][0]}")
    for before, after in itertools.pairwise(ordered):
        if after[0] <= before[1]:
            raise InputError(
                f"{KEY}: ranges must be non-overlapping and sorted; {list(before[:2])} "
                f"and {list(after[:2])} overlap"
            )
    return ordered


def _row_findings(
    rows: list[tuple[int, int, int]], *, top: int, max_batch: int, known: bool
) -> list[Finding]:
    found: list[Finding] = []
    over = sorted({k for _, _, k in rows if k > top})
    if over:
        found.append(
            Finding(
                "clamped", f"K={', '.join(map(str, over))} above num_speculative_tokens={top} runs as {top}"
            )
        )
    for before, after in itertools.pairwise(rows):
        if after[0] > before[1] + 1:
            found.append(
                Finding(
                    "gap",
                    f"batch {before[1] + 1}..{after[0] - 1} is in no row; K={min(before[2], top)} is carried",
                )
            )
    lo, hi, k = rows[-1]
    if known and hi < max_batch:
        found.append(
            Finding("tail", f"above batch {hi} the last K={min(k, top)} is carried up to {max_batch}", "note")
        )
    if known and lo > max_batch:
        found.append(Finding("beyond", f"rows that start above max_num_seqs={max_batch} never run", "note"))
    if max(k for _, _, k in rows) < top:
        found.append(
            Finding(
                "unused-maximum",
                f"num_speculative_tokens={top} is above every K of the table: captured for nothing",
            )
        )
    if any(k == 0 for _, _, k in rows):
        found.append(
            Finding("k0", "a K=0 row keeps the drafter warm: it is not the same as speculation off", "note")
        )
    return found
