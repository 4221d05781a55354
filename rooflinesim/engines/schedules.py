"""Schedules of any engine: written by name, read with the engine told by the file's content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rooflinesim.engines import reading
from rooflinesim.engines.records import EngineText
from rooflinesim.engines.sglang import schedule as sglang
from rooflinesim.engines.tables import ReadSchedule
from rooflinesim.engines.trtllm import schedule as trtllm
from rooflinesim.engines.vllm import schedule as vllm
from rooflinesim.errors import InputError, unknown_name
from rooflinesim.specs.files import read_yaml

ENGINES: Final = ("vllm", "sglang", "trtllm")


def emit_schedule(
    ranges: Iterable[Sequence[int]],
    *,
    engine: str,
    method: str,
    max_batch: int,
    model: str = "MODEL",
    draft_model: str | None = None,
    capture_sizes: Sequence[int] | None = None,
    max_num_batched_tokens: int | None = None,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
) -> EngineText:
    """``ranges`` (lo, hi, k) as ``engine`` reads them, up to ``max_batch`` requests.

    ``capture_sizes`` count what the engine counts: tokens for vLLM, requests for the others.
    """
    if not 1 <= max_batch <= 1_000_000:
        raise InputError(f"max_batch: {max_batch} is not in 1..1000000")
    if engine == "vllm":
        return vllm.emit(
            ranges, method=method, max_num_seqs=max_batch, model=model, draft_model=draft_model,
            capture_sizes=capture_sizes, max_num_batched_tokens=max_num_batched_tokens,
            tensor_parallel=tensor_parallel, data_parallel=data_parallel,
        )  # fmt: skip
    if engine == "sglang":
        return sglang.emit(
            ranges, method=method, max_running_requests=max_batch, model=model, draft_model=draft_model,
            graph_sizes=capture_sizes, tensor_parallel=tensor_parallel,
        )  # fmt: skip
    if engine == "trtllm":
        return trtllm.emit(
            ranges, method=method, max_batch_size=max_batch, model=model, draft_model=draft_model,
            graph_sizes=capture_sizes, tensor_parallel=tensor_parallel,
        )  # fmt: skip
    raise unknown_name("engine", engine, ENGINES)


def sniff_engine(config: Any) -> str:
    """Whose schedule a parsed configuration is.

    >>> sniff_engine({"1": {"candidate_steps": [3]}}), sniff_engine({48: 3}), sniff_engine([[1, 8, 3]])
    ('sglang', 'trtllm', 'vllm')
    """
    if isinstance(config, list):
        return "vllm"
    if not isinstance(config, Mapping) or not config:
        raise InputError(f"schedule: a mapping or a list of rows is expected, got {reading.shown(config)}")
    spec = next(
        (
            config[key]
            for key in ("speculative_config", "speculative-config")
            if isinstance(config.get(key), Mapping)
        ),
        config,
    )
    if any(key in spec for key in ("draft_len_schedule", "max_draft_len", "decoding_type")):
        return "trtllm"
    if any(key in spec for key in (vllm.KEY, vllm.PROPOSED_KEY, "num_speculative_tokens", "method")):
        return "vllm"
    if "candidate_steps" in config or any(
        isinstance(value, Mapping) and "candidate_steps" in value for value in config.values()
    ):
        return "sglang"
    if all(isinstance(value, int) for value in spec.values()):
        if all(isinstance(key, int) or (isinstance(key, str) and key.isdecimal()) for key in spec):
            return "trtllm"
        return "vllm"
    raise InputError(
        "schedule: of no known engine (vLLM speculative config, SGLang adaptive config, TensorRT-LLM YAML)"
    )


def load_config(path: Path | str) -> Any:
    """A JSON or YAML configuration, with limits on size, nesting and anchors."""
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        reading.open_text(path, max_bytes=1_000_000)
        return read_yaml(Path(path))
    return reading.json_document(path)


def read_schedule(
    path: Path | str, *, engine: str | None = None, max_batch: int | None = None,
    num_speculative_tokens: int | None = None,
    context_tokens: int | None = None, graph_sizes: Sequence[int] | None = None,
) -> ReadSchedule:  # fmt: skip
    """The schedule in a file, as its engine runs it."""
    return parse_schedule(
        load_config(path), engine=engine, max_batch=max_batch, num_speculative_tokens=num_speculative_tokens,
        context_tokens=context_tokens, graph_sizes=graph_sizes,
    )  # fmt: skip


def parse_schedule(
    config: Any, *, engine: str | None = None, max_batch: int | None = None,
    num_speculative_tokens: int | None = None,
    context_tokens: int | None = None, graph_sizes: Sequence[int] | None = None,
) -> ReadSchedule:  # fmt: skip
    """A parsed configuration's schedule; the engine is told by its content unless given."""
    name = engine or sniff_engine(config)
    if name == "vllm":
        return vllm.read(
            config,
            num_speculative_tokens=num_speculative_tokens,
            max_num_seqs=max_batch,
            context_tokens=context_tokens,
        )
    if name == "sglang":
        return sglang.read(
            config, num_steps=num_speculative_tokens, max_running_requests=max_batch, graph_sizes=graph_sizes
        )
    if name == "trtllm":
        return trtllm.read(config, max_batch_size=max_batch)
    raise unknown_name("engine", name, ENGINES)
