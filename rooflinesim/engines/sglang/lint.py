"""What an SGLang configuration will silently do to speculation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rooflinesim.engines.reading import whole
from rooflinesim.engines.records import Finding

#: SGLang's limit on running requests once speculation is on and the user gives none.
DEFAULT_MAX_RUNNING: Final = 48
_LIMITED: Final = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "DFLASH", "DSPARK", "NGRAM")
_KNOWN: Final = (*_LIMITED, "STANDALONE", "UNO")


def _get(config: Mapping[str, Any], name: str) -> Any:
    """A setting under its Python or its command-line name."""
    return config.get(name, config.get(name.replace("_", "-")))


def max_running(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """(running requests in all, per data-parallel worker); None where the engine's own limit rules.

    >>> max_running({"speculative_algorithm": "EAGLE", "dp_size": 8})
    (48, 6)
    """
    workers = whole(_get(config, "dp_size"), field="dp_size", minimum=1) or 1
    given = whole(_get(config, "max_running_requests"), field="max_running_requests", minimum=1)
    algorithm = str(_get(config, "speculative_algorithm") or "").upper()
    limit = given or (DEFAULT_MAX_RUNNING if algorithm in _LIMITED else None)
    return limit, None if limit is None else limit // workers


def lint(
    config: Mapping[str, Any],
    *,
    batch_size: int | None = None,
    max_graph_batch: int | None = None,
    trained_k: int | None = None,
) -> tuple[Finding, ...]:
    """Findings on server arguments (underscores or dashes).

    >>> [finding.code for finding in lint({"speculative_algorithm": "EAGLE", "dp_size": 8})]
    ['default-limit']
    """
    algorithm = str(_get(config, "speculative_algorithm") or "").upper()
    if not algorithm or algorithm == "NONE":
        return ()
    found: list[Finding] = []
    if algorithm not in _KNOWN:
        found.append(
            Finding("method-unknown", f"algorithm {algorithm[:40]!r} is not one of {', '.join(_KNOWN)}")
        )
    total, per_worker = max_running(config)
    workers = whole(_get(config, "dp_size"), field="dp_size", minimum=1) or 1
    if _get(config, "max_running_requests") is None and total is not None:
        share = f", {per_worker} per worker at dp={workers}" if workers > 1 else ""
        found.append(
            Finding(
                "default-limit",
                f"max_running_requests is not given: with speculation SGLang runs at most {total}{share}",
            )
        )
    if batch_size is not None and total is not None and batch_size > total:
        found.append(
            Finding("batch-limit", f"batch {batch_size} is never reached: max_running_requests is {total}")
        )
    steps = whole(_get(config, "speculative_num_steps"), field="speculative_num_steps", maximum=1024)
    topk = whole(_get(config, "speculative_eagle_topk"), field="speculative_eagle_topk", maximum=1024)
    width = whole(
        _get(config, "speculative_num_draft_tokens"), field="speculative_num_draft_tokens", maximum=10**6
    )
    found += _shape(steps, topk, width)
    found += _adaptive(config, algorithm, topk)
    if trained_k is not None and steps is not None and steps > trained_k:
        found.append(
            Finding(
                "above-trained-depth",
                f"{steps} steps are above the depth the drafter was trained for ({trained_k})",
            )
        )
    if _get(config, "disable_cuda_graph"):
        found.append(
            Finding("eager", "disable_cuda_graph with speculation: every draft pass pays its kernel launches")
        )
    if batch_size is not None and max_graph_batch is not None and batch_size > max_graph_batch:
        found.append(
            Finding(
                "graph-cliff",
                f"batch {batch_size} is above the last captured graph ({max_graph_batch} requests)",
            )
        )
    return tuple(found)


def _shape(steps: int | None, topk: int | None, width: int | None) -> list[Finding]:
    if steps is None or width is None or (topk or 1) != 1 or width == steps + 1:
        return []
    return [
        Finding(
            "draft-tokens",
            f"with topk 1, num_draft_tokens is num_steps + 1 = {steps + 1} (it counts the root), not {width}",
        )
    ]


def _adaptive(config: Mapping[str, Any], algorithm: str, topk: int | None) -> list[Finding]:
    if not _get(config, "speculative_adaptive"):
        return []
    blockers = []
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN"):
        blockers.append(algorithm)
    if topk is not None and topk > 1:
        blockers.append(f"topk {topk}")
    blockers += [
        text
        for key, text in (
            ("enable_dp_attention", "attention data parallelism"),
            ("enable_multi_layer_eagle", "multi-layer EAGLE"),
            ("enable_two_batch_overlap", "two-batch overlap"),
            ("enable_pdmux", "PD-mux"),
        )
        if _get(config, key)
    ]
    found = (
        [Finding("adaptive-static", f"adaptive speculation stays static with {', '.join(blockers)}")]
        if blockers
        else []
    )
    if not blockers and _get(config, "speculative_adaptive_config") is None:
        found.append(
            Finding(
                "adaptive-default",
                "the default adaptive table turns speculation off from 64 requests, for every model",
            )
        )
    return found
