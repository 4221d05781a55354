"""What a TensorRT-LLM configuration will silently do to speculation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflinesim.engines.reading import mapping, whole
from rooflinesim.engines.records import Finding
from rooflinesim.engines.trtllm.schedule import DECODING_TYPES, STATIC_TYPES, read
from rooflinesim.errors import RooflinesimError


def lint(
    config: Mapping[str, Any],
    *,
    batch_size: int | None = None,
    max_graph_batch: int | None = None,
    trained_k: int | None = None,
) -> tuple[Finding, ...]:
    """Findings on a parsed configuration, its schedule included.

    >>> spec = {"decoding_type": "MTP", "max_draft_len": 3, "draft_len_schedule": {8: 3}}
    >>> [finding.code for finding in lint({"speculative_config": spec}, batch_size=16)]
    ['above-schedule']
    """
    spec = mapping(config.get("speculative_config"))
    if not spec:
        return ()
    found: list[Finding] = []
    known = {name.lower(): name for name in (*DECODING_TYPES.values(), *STATIC_TYPES.values())}
    kind = str(spec.get("decoding_type", ""))
    if kind.lower() not in known:
        found.append(
            Finding(
                "method-unknown", f"decoding_type {kind[:40]!r} is not one of {', '.join(known.values())}"
            )
        )
    has_schedule = spec.get("draft_len_schedule") is not None
    if has_schedule and kind.lower() in {name.lower() for name in STATIC_TYPES.values()}:
        found.append(Finding("schedule-unsupported", f"{kind} does not follow draft_len_schedule"))
    k = whole(spec.get("max_draft_len"), field="max_draft_len", maximum=1024)
    if kind.upper() == "PARD" and k:
        found.append(
            Finding("pard-tokens", f"PARD spends 2K = {2 * k} tokens per request and step, not K+1", "note")
        )
    if k is not None and trained_k is not None and k > trained_k:
        found.append(
            Finding(
                "above-trained-depth",
                f"max_draft_len {k} is above the depth the drafter was trained for ({trained_k})",
            )
        )
    try:
        schedule = read(config, max_batch_size=batch_size)
    except RooflinesimError as error:
        found.append(Finding("schedule-invalid", str(error), "error"))
    else:
        found += [finding for finding in schedule.findings if finding.code not in ("static", "implicit-zero")]
        if batch_size is not None and schedule.lookup(batch_size) == 0:
            found.append(
                Finding(
                    "above-schedule", f"at batch {batch_size} the draft length is 0: no speculation there"
                )
            )
    graphs = config.get("cuda_graph_config", mapping({}))
    if "cuda_graph_config" in config and graphs is None:
        found.append(Finding("eager", "cuda_graph_config is null: speculation runs without CUDA graphs"))
    if batch_size is not None and max_graph_batch is not None and batch_size > max_graph_batch:
        found.append(
            Finding(
                "graph-cliff",
                f"batch {batch_size} is above the last captured graph ({max_graph_batch} requests)",
            )
        )
    return tuple(found)
