"""Step-cost tables of confidence schedulers: SGLang's flat and additive forms, TensorRT-LLM's; read and
written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rooflinesim.engines.reading import number, numbers, required, shown
from rooflinesim.engines.records import StepTable
from rooflinesim.errors import InputError

_MS = 1e-3


def read(document: Any, *, source: str) -> StepTable:
    """Any of the three forms, told apart by their keys."""
    if not isinstance(document, Mapping):
        raise InputError(f"{source}: a JSON object is expected, got {shown(document)}")
    if "bias_seconds" in document:
        return _sglang_additive(document, source=source)
    if "sample_batch_tokens" in document:
        return _sglang_flat(document, source=source)
    if "token_counts" in document:
        return _trtllm(document, source=source)
    raise InputError(f"{source}: no bias_seconds, sample_batch_tokens or token_counts: not a step-cost table")


def _curve(
    document: Mapping[str, Any], x_key: str, y_key: str, *, source: str, minimum: float = 0.0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x = numbers(document.get(x_key), field=f"{source}: {x_key}", max_len=100_000)
    y = numbers(document.get(y_key), field=f"{source}: {y_key}", minimum=minimum, max_len=100_000)
    if not x or not y or len(x) != len(y):
        raise InputError(f"{source}: {x_key} and {y_key} must be lists of the same length, at least 1")
    if any(b <= a for a, b in itertools.pairwise(x)):
        raise InputError(f"{source}: {x_key} must rise strictly")
    return x, y


def _sglang_flat(document: Mapping[str, Any], *, source: str) -> StepTable:
    tokens, rates = _curve(
        document, "sample_batch_tokens", "sample_steps_per_sec", source=source, minimum=1e-9
    )
    top = number(document.get("max_batch_tokens"), field=f"{source}: max_batch_tokens")
    if top is not None and top < tokens[-1]:
        raise InputError(f"{source}: max_batch_tokens {top:g} is below the last sample {tokens[-1]:g}")
    return StepTable(
        form="flat",
        token_counts=tokens,
        token_s=tuple(1.0 / rate for rate in rates),
        engine="sglang",
        source=source,
    )


def _sglang_additive(document: Mapping[str, Any], *, source: str) -> StepTable:
    bias = required(
        number(document.get("bias_seconds"), field=f"{source}: bias_seconds"), field="bias_seconds"
    )
    if bias <= 0:
        raise InputError(f"{source}: bias_seconds must be above 0")
    batches, alpha = _curve(document, "bs_probes", "alpha_seconds", source=source)
    tokens, theta = _curve(document, "m_probes", "theta_seconds", source=source)
    return StepTable(
        form="additive", token_counts=tokens, token_s=theta, batch_sizes=batches, batch_s=alpha, bias_s=bias,
        engine="sglang", source=source,
    )  # fmt: skip


def _trtllm(document: Mapping[str, Any], *, source: str) -> StepTable:
    tokens, theta = _curve(document, "token_counts", "step_time_ms", source=source)
    fixed = number(document.get("fixed_overhead_ms"), field=f"{source}: fixed_overhead_ms") or 0.0
    batches: tuple[float, ...] = (1.0,)
    alpha: tuple[float, ...] = (0.0,)
    if document.get("batch_sizes") is not None:
        batches, alpha = _curve(document, "batch_sizes", "batch_overhead_ms", source=source)
    return StepTable(
        form="additive", token_counts=tokens, token_s=tuple(value * _MS for value in theta),
        batch_sizes=batches,
        batch_s=tuple(value * _MS for value in alpha), bias_s=fixed * _MS, engine="trtllm", source=source,
    )  # fmt: skip


def _check(points: Sequence[float], values: Sequence[float], *, field: str) -> None:
    if not points or len(points) != len(values) or any(b <= a for a, b in itertools.pairwise(points)):
        raise InputError(f"{field}: points must rise strictly, with one value each")


def write_sglang_flat(
    *, token_counts: Sequence[int], step_s: Sequence[float], max_batch_tokens: int | None = None
) -> str:
    """``--speculative-dspark-sps-table-path``, flat: steps per second of a batch of M tokens.

    >>> print(write_sglang_flat(token_counts=[8, 64], step_s=[0.005, 0.008]), end="")
    {"sample_batch_tokens": [8, 64], "sample_steps_per_sec": [200.0, 125.0], "max_batch_tokens": 64}
    """
    _check(token_counts, step_s, field="token_counts")
    if min(step_s) <= 0:
        raise InputError("step_s: every time must be above 0")
    table = {
        "sample_batch_tokens": [int(n) for n in token_counts],
        "sample_steps_per_sec": [round(1.0 / s, 6) for s in step_s],
        "max_batch_tokens": int(max_batch_tokens or token_counts[-1]),
    }
    return json.dumps(table) + "\n"


def write_sglang_additive(
    *,
    bias_s: float,
    batch_sizes: Sequence[int],
    batch_s: Sequence[float],
    token_counts: Sequence[int],
    token_s: Sequence[float],
) -> str:
    """``--speculative-dspark-sps-table-path``, additive: bias + alpha(requests) + theta(tokens)."""
    if bias_s <= 0:
        raise InputError(f"bias_s: {bias_s:g} must be above 0")
    _check(batch_sizes, batch_s, field="batch_sizes")
    _check(token_counts, token_s, field="token_counts")
    table = {
        "bias_seconds": bias_s,
        "bs_probes": [int(n) for n in batch_sizes],
        "alpha_seconds": [float(s) for s in batch_s],
        "m_probes": [int(n) for n in token_counts],
        "theta_seconds": [float(s) for s in token_s],
    }
    return json.dumps(table) + "\n"


def write_trtllm(
    *,
    token_counts: Sequence[int],
    token_s: Sequence[float],
    batch_sizes: Sequence[int],
    batch_s: Sequence[float],
    fixed_s: float = 0.0,
) -> str:
    """``confidence_sps_table_path`` of TensorRT-LLM; times in the file are milliseconds."""
    _check(batch_sizes, batch_s, field="batch_sizes")
    _check(token_counts, token_s, field="token_counts")
    table = {
        "token_counts": [int(n) for n in token_counts],
        "step_time_ms": [round(s / _MS, 9) for s in token_s],
        "fixed_overhead_ms": round(fixed_s / _MS, 9),
        "batch_sizes": [int(n) for n in batch_sizes],
        "batch_overhead_ms": [round(s / _MS, 9) for s in batch_s],
    }
    return json.dumps(table) + "\n"
