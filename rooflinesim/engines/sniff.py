"""Which format a file is in, and the importer that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from rooflinesim.engines import csvtimes, neutral, steptables, tally
from rooflinesim.engines.reading import TextFile, json_documents, mapping, number, open_text
from rooflinesim.engines.records import AcceptanceRecord, StepTable
from rooflinesim.engines.serving import Times
from rooflinesim.engines.sglang import acceptance as sglang
from rooflinesim.engines.sglang import timing as sglang_timing
from rooflinesim.engines.trtllm import acceptance as trtllm
from rooflinesim.engines.trtllm import timing as trtllm_timing
from rooflinesim.engines.vllm import acceptance as vllm
from rooflinesim.engines.vllm import metrics as vllm_metrics
from rooflinesim.engines.vllm import timing as vllm_timing
from rooflinesim.errors import InputError, unknown_name

Files = Sequence[TextFile]
Documents = Iterable[Any]


@dataclass(frozen=True)
class Format:
    """One readable format: what it is, and its importers (None: it holds no such data)."""

    name: str
    what: str
    is_json: bool = False
    text_acceptance: Callable[[Files, int | None], AcceptanceRecord] | None = None
    text_timing: Callable[[Files, int | None], Times] | None = None
    json_acceptance: Callable[[Documents, str, int | None], AcceptanceRecord] | None = None
    json_timing: Callable[[Documents, str, int | None], Times] | None = None
    table: bool = False


def _server_info(documents: Documents, source: str, k: int | None) -> AcceptanceRecord:
    length, found = sglang_timing.acceptance_of_server(documents, source=source)
    return tally.from_means(
        format="sglang-server-info", engine="sglang", source=source, acceptance_length=length, k=k or found
    )


def _sweep_csv(files: Files, k: int | None) -> Times:
    runs = list(chain.from_iterable(map(csvtimes.typed, csvtimes.rows(file)) for file in files))
    return vllm_timing.read_bench_serve(runs, source=", ".join(file.name for file in files), k=k)


def _step_csv(files: Files, k: int | None) -> Times:
    times = Times()
    for file in files:
        part = csvtimes.read_times(file, k=k)
        times.records += part.records
        for text in part.warnings:
            times.warn(text)
    return times


_ALL: Final = (
    Format(
        "vllm-prometheus", "vLLM /metrics, one or two scrapes",
        text_acceptance=lambda files, k: vllm_metrics.read_prometheus(files, k=k),
    ),
    Format(
        "vllm-log", "vLLM server log",
        text_acceptance=lambda files, k: vllm.read_log(files, k=k),
        text_timing=lambda files, k: vllm_timing.read_iterations(files, k=k),
    ),
    Format(
        "vllm-v0-log", "vLLM V0 server log",
        text_acceptance=lambda files, k: vllm.read_v0_log(files, k=k),
    ),
    Format(
        "vllm-bench-serve", "vllm bench serve result, or a sweep's summary", is_json=True,
        json_acceptance=lambda docs, source, k: vllm.read_bench_serve(docs, source=source, k=k),
        json_timing=lambda docs, source, k: vllm_timing.read_bench_serve(docs, source=source, k=k),
    ),
    Format(
        "vllm-per-request", "vLLM responses with metrics.speculative_decoding", is_json=True,
        json_acceptance=lambda docs, source, k: vllm.read_per_request(docs, source=source, k=k),
    ),
    Format(
        "vllm-bench-forward", "vllm bench forward result", is_json=True,
        json_timing=lambda docs, source, k: vllm_timing.read_bench_forward(docs, source=source),
    ),
    Format("vllm-bench-latency", "vllm bench latency result: whole generate calls", is_json=True),
    Format("vllm-sweep-csv", "a sweep's summary.csv", text_timing=_sweep_csv),
    Format(
        "sglang-prometheus", "SGLang /metrics gauges",
        text_acceptance=lambda files, k: sglang.read_gauges(files, k=k),
    ),
    Format(
        "sglang-log", "SGLang server log",
        text_acceptance=lambda files, k: sglang.read_log(files, k=k),
        text_timing=lambda files, k: sglang_timing.read_log(files, k=k),
    ),
    Format(
        "sglang-bench-serving", "SGLang bench_serving lines", is_json=True,
        json_acceptance=lambda docs, source, k: sglang.read_bench(
            docs, source=source, key="accept_length", format="sglang-bench-serving", k=k
        ),
        json_timing=lambda docs, source, k: sglang_timing.read_bench_serving(docs, source=source, k=k),
    ),
    Format(
        "sglang-one-batch-server", "SGLang bench_one_batch_server lines", is_json=True,
        json_acceptance=lambda docs, source, k: sglang.read_bench(
            docs, source=source, key="acc_length", format="sglang-one-batch-server", k=k
        ),
        json_timing=lambda docs, source, k: sglang_timing.read_one_batch(docs, source=source, k=k),
    ),
    Format(
        "sglang-bench-speculative", "SGLang bench_speculative lines", is_json=True,
        json_acceptance=lambda docs, source, k: sglang.read_bench(
            docs, source=source, key="acc_length", format="sglang-bench-speculative", k=k
        ),
        json_timing=lambda docs, source, k: sglang_timing.read_bench_speculative(docs, source=source),
    ),
    Format(
        "sglang-meta-info", "SGLang responses with meta_info", is_json=True,
        json_acceptance=lambda docs, source, k: sglang.read_meta_info(docs, source=source, k=k),
    ),
    Format(
        "sglang-server-info", "SGLang /server_info", is_json=True,
        json_acceptance=_server_info,
        json_timing=lambda docs, source, k: sglang_timing.read_server_info(docs, source=source, k=k),
    ),
    Format(
        "trtllm-iteration-stats", "TensorRT-LLM iteration statistics", is_json=True,
        json_acceptance=lambda docs, source, k: trtllm.read_iterations(docs, source=source, k=k),
        json_timing=lambda docs, source, k: trtllm_timing.read_iterations(docs, source=source),
    ),
    Format(
        "trtllm-choice", "TensorRT-LLM responses with choices[].speculative_decoding", is_json=True,
        json_acceptance=lambda docs, source, k: trtllm.read_choices(docs, source=source, k=k),
    ),
    Format(
        "speculation-profile", "speculation_profile.json", is_json=True,
        json_acceptance=lambda docs, source, k: neutral.read_profile(docs, source=source, k=k),
    ),
    Format(
        "aiperf", "AIPerf records or summary", is_json=True,
        json_acceptance=lambda docs, source, k: neutral.read_aiperf(docs, source=source, k=k),
    ),
    Format(
        "llama-cpp", "llama.cpp summary lines",
        text_acceptance=lambda files, k: neutral.read_llama_cpp(files, k=k),
    ),
    Format("step-csv", "CSV with batch_size and step_s, step_ms or step_us", text_timing=_step_csv),
    Format("step-table", "a step-cost table (SGLang or TensorRT-LLM)", is_json=True, table=True),
)  # fmt: skip
FORMATS: Final[dict[str, Format]] = {format.name: format for format in _ALL}


# ---- detection --------------------------------------------------------------------------------------------


def _json_kind(value: Any, *, source: str) -> str | None:
    """The format of a JSON document, by the keys of its first object; asks where counters are ambiguous."""
    first = next(iter(value), None) if isinstance(value, list) and value else value
    head = mapping(first)
    if not head:
        return None
    found = next((name for name, test in _JSON_TESTS if test(head)), None)
    if found is None:
        attempts, accepts = (
            _any(head, *names) for names in (("attempts", "attempt"), ("accepts", "accepted", "accept"))
        )
        if attempts is not None and accepts is not None:
            raise neutral.ambiguous_counters(
                number(attempts, field=f"{source}: attempts") or 0.0,
                number(accepts, field=f"{source}: accepts") or 0.0,
                k=None,
                source=source,
            )
        if "draft_count" in head and "accept_count" in head:
            raise InputError(
                f"{source}: draft_count/accept_count (MLC): versions differ in whether "
                "index 0 is the bonus token; give "
                "marginal rates instead"
            )
    return found


def _any(head: Mapping[str, Any], *keys: str) -> Any:
    return next((head[key] for key in keys if key in head), None)


def _is_choice(head: Mapping[str, Any]) -> bool:
    listed = head.get("choices")
    return isinstance(listed, list) and any("speculative_decoding" in mapping(choice) for choice in listed)


_PROFILE_KEYS: Final = ("accept_length_model", "conditional_accept_rates", "mean_accept_length")
_TABLE_KEYS: Final = ("bias_seconds", "sample_batch_tokens", "step_time_ms")
_JSON_TESTS: Final[tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...]] = (
    ("speculation-profile", lambda h: "schema_version" in h and any(key in h for key in _PROFILE_KEYS)),
    ("aiperf", lambda h: "spec_decode_acceptance" in h or "pooled_spec_decode_acceptance_histogram" in h),
    ("step-table", lambda h: any(key in h for key in _TABLE_KEYS)),
    ("vllm-bench-forward", lambda h: "case" in h and "median_us" in h),
    ("trtllm-iteration-stats", lambda h: "iterLatencyMS" in h or "specDecodingStats" in h),
    ("sglang-bench-speculative", lambda h: "acc_length" in h and "step_time" in h),
    ("sglang-one-batch-server", lambda h: "last_gen_throughput" in h),
    ("sglang-meta-info", lambda h: sglang.find_meta(h) is not None),
    ("trtllm-choice", _is_choice),
    ("vllm-per-request", lambda h: vllm.find_stats(h) is not None),
    ("sglang-bench-serving", lambda h: _is_serving(h) and ("accept_length" in h or "server_info" in h)),
    ("vllm-bench-serve", lambda h: _is_serving(h) or any(str(key).startswith("spec_decode_") for key in h)),
    ("sglang-server-info", lambda h: "internal_states" in h),
    ("vllm-bench-latency", lambda h: "avg_latency" in h and "percentiles" in h),
)  # fmt: skip


def _is_serving(head: Mapping[str, Any]) -> bool:
    return any(key in head for key in ("mean_tpot_ms", "median_tpot_ms", "mean_itl_ms"))


#: (mark, format) of text files; where a file holds several, acceptance lines go before timing lines.
_MARKS: Final = (
    ("vllm:spec_decode_num_draft", "vllm-prometheus"),
    ("vllm_spec_decode_num_draft", "vllm-prometheus"),
    ("sglang:spec_", "sglang-prometheus"),
    ("sglang_spec_", "sglang-prometheus"),
    (vllm.LOG_MARK, "vllm-log"),
    (vllm_timing.ITERATION_MARK, "vllm-log"),
    (vllm.V0_MARK, "vllm-v0-log"),
    (sglang.LOG_MARK, "sglang-log"),
    *((mark, "llama-cpp") for mark in neutral.LLAMA_MARKS),
)


def detect(file: TextFile) -> str:
    """The name of the format of ``file``; one line that lists the known ones if it is none."""
    head = [line for line in islice(file.lines(), 50) if line.strip()]
    first = head[0].lstrip() if head else ""
    if first[:1] in "{[" or first.startswith("data:"):
        kind = _detect_json(file)
        if kind is not None:
            return kind
    if "," in first and first[:1] not in "{[#":
        names = {name.strip().lower() for name in first.split(",")}
        if "mean_tpot_ms" in names or "median_tpot_ms" in names:
            return "vllm-sweep-csv"
        if names & {"batch_size", "batch", "bs", "n"} and names & {
            "step_s",
            "step_ms",
            "step_us",
            "seconds",
            "ms",
            "us",
        }:
            return "step-csv"
    for line in file.lines():
        for mark, name in _MARKS:
            if mark in line:
                return name
        match = neutral.AMBIGUOUS.search(line) if "ttempt" in line and len(line) < 2000 else None
        if match is not None:
            raise neutral.ambiguous_counters(
                float(match.group(1)), float(match.group(2)), k=None, source=file.name
            )
    raise InputError(f"{file.name}: not a known format; state one of {', '.join(FORMATS)}")


def _detect_json(file: TextFile) -> str | None:
    """The format of a file that looks like JSON; None when it is a log whose lines only begin like JSON."""
    try:
        documents = json_documents(file)
        for document in islice(documents, 20):
            kind = _json_kind(document, source=file.name)
            if kind is not None:
                return kind
    except InputError:
        if any(mark in line for line in file.lines() for mark, _ in _MARKS):
            return None
        raise
    return None


# ---- the two questions ------------------------------------------------------------------------------------


def _open(paths: Path | str | Sequence[Path | str], format: str | None) -> tuple[list[TextFile], Format]:
    listed = [paths] if isinstance(paths, Path | str) else list(paths)
    if not listed:
        raise InputError("no file is given")
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    files = [open_text(path) for path in listed]
    kinds = [format or detect(file) for file in files]
    if len(set(kinds)) > 1:
        mixed = ", ".join(f"{file.name}: {kind}" for file, kind in zip(files, kinds, strict=True))
        raise InputError(f"files of different formats cannot be pooled ({mixed})")
    return files, FORMATS[kinds[0]]


def _documents(files: Files) -> Iterable[Any]:
    return chain.from_iterable(json_documents(file) for file in files)


def read_acceptance(
    paths: Path | str | Sequence[Path | str], *, format: str | None = None, k: int | None = None
) -> AcceptanceRecord:
    """Measured acceptance out of one file or several of one format; ``k`` answers where a format does not
    hold K."""
    _check_k(k)
    files, kind = _open(paths, format)
    source = ", ".join(file.name for file in files)
    if kind.json_acceptance is not None:
        return kind.json_acceptance(_documents(files), source, k)
    if kind.text_acceptance is not None:
        return kind.text_acceptance(files, k)
    raise InputError(f"{source}: {kind.what} ({kind.name}) holds no acceptance")


def read_timing(
    paths: Path | str | Sequence[Path | str], *, format: str | None = None, k: int | None = None
) -> Times:
    """Measured times out of one file, several of one format, or a sweep's folder."""
    _check_k(k)
    listed = [paths] if isinstance(paths, Path | str) else list(paths)
    if len(listed) == 1 and Path(listed[0]).is_dir():
        listed = list(sweep_files(Path(listed[0])))
    files, kind = _open(listed, format)
    source = (
        ", ".join(file.name for file in files)
        if len(files) <= 3
        else f"{files[0].name} and {len(files) - 1} more"
    )
    if kind.json_timing is not None:
        return kind.json_timing(_documents(files), source, k)
    if kind.text_timing is not None:
        return kind.text_timing(files, k)
    hint = "; see read_step_table" if kind.table else ""
    raise InputError(f"{source}: {kind.what} ({kind.name}) holds no step time{hint}")


def read_step_table(path: Path | str) -> StepTable:
    """A step-cost table of SGLang (flat or additive) or TensorRT-LLM."""
    file = open_text(path)
    documents = list(islice(json_documents(file), 2))
    if len(documents) != 1:
        raise InputError(f"{file.name}: one JSON object is expected")
    return steptables.read(documents[0], source=file.name)


def _check_k(k: int | None) -> None:
    if k is not None and not 1 <= k <= 1024:
        raise InputError(f"k: {k} is not in 1..1024")


def sweep_files(folder: Path, *, limit: int = 5000) -> Iterable[Path]:
    """The results of a sweep: every ``summary.json``, or the ``run=*.json`` of combinations without one.

    ``warmup.json`` and ``*.failure.json`` are left out, and links are not followed.
    """
    found: list[Path] = []
    for count, path in enumerate(sorted(folder.rglob("*.json")), start=1):
        if count > limit:
            raise InputError(f"{folder}: more than {limit} JSON files")
        if path.is_symlink() or path.name == "warmup.json" or path.name.endswith(".failure.json"):
            continue
        found.append(path)
    summaries = {path.parent for path in found if path.name == "summary.json"}
    chosen = [
        path
        for path in found
        if path.name == "summary.json" or (path.name.startswith("run=") and path.parent not in summaries)
    ]
    if not chosen:
        raise InputError(f"{folder}: no summary.json and no run=*.json in it")
    return chosen
