"""What a vLLM configuration will silently do to speculation. Pure functions of a parsed configuration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rooflinesim.engines.reading import mapping, numbers, whole
from rooflinesim.engines.records import Finding
from rooflinesim.engines.vllm.methods import method_findings
from rooflinesim.engines.vllm.schedule import KEY

#: Above this share of the token budget, decode steps leave prefill chunks so small that TTFT suffers.
BUDGET_SHARE: Final = 0.5


def _get(config: Mapping[str, Any], name: str) -> Any:
    """A setting under its Python or its command-line name."""
    return config.get(name, config.get(name.replace("_", "-")))


def admitted(*, max_num_batched_tokens: int, k: int) -> int:
    """Requests one decode step admits: each takes K+1 tokens of the budget.

    >>> admitted(max_num_batched_tokens=32, k=2)
    10
    """
    return max_num_batched_tokens // (k + 1)


def dead_sizes(sizes: Sequence[int], *, max_tokens: int) -> list[int]:
    """Captured sizes (tokens) that no step can reach: a smaller one already holds the largest step.

    >>> dead_sizes([3, 6, 9, 12], max_tokens=7)
    [12]
    """
    ordered = sorted(set(sizes))
    index = bisect_left(ordered, max_tokens)
    return ordered[index + 1 :]


def lint(
    config: Mapping[str, Any],
    *,
    batch_size: int | None = None,
    max_graph_batch: int | None = None,
    trained_k: int | None = None,
    default_max_num_seqs: int | None = None,
    default_max_num_batched_tokens: int | None = None,
    runner: str = "v2",
) -> tuple[Finding, ...]:
    """Findings on engine arguments with a ``speculative_config``.

    ``max_graph_batch`` is the largest batch that still replays a full decode graph at this K (physics,
    given); ``trained_k`` the depth the drafter was trained for; the two defaults apply where the
    configuration is silent.

    >>> config = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}, "max_num_seqs": 32,
    ...           "max_num_batched_tokens": 32}
    >>> lint(config)[0].message
    'max_num_batched_tokens=32 admits 10 requests of K+1 = 3 tokens, not max_num_seqs=32'
    """
    spec = mapping(_get(config, "speculative_config"))
    k = whole(spec.get("num_speculative_tokens"), field="num_speculative_tokens", maximum=1024)
    if not spec or not k:
        return ()
    dynamic = bool(spec.get(KEY))
    data_parallel = whole(_get(config, "data_parallel_size"), field="data_parallel_size", minimum=1) or 1
    seqs = whole(_get(config, "max_num_seqs"), field="max_num_seqs", minimum=1) or default_max_num_seqs
    budget = (
        whole(_get(config, "max_num_batched_tokens"), field="max_num_batched_tokens", minimum=1)
        or default_max_num_batched_tokens
    )
    found: list[Finding] = []
    found += _budget(config, k=k, seqs=seqs, budget=budget)
    method = spec.get("method")
    if isinstance(method, str):
        found += method_findings(method.lower(), runner=runner, data_parallel=data_parallel, dynamic=dynamic)
        found += _method_depth(method.lower(), k=k, trained_k=trained_k)
    found += _eager(config, spec)
    if batch_size is not None and max_graph_batch is not None and batch_size > max_graph_batch:
        found.append(
            Finding(
                "graph-cliff",
                f"batch {batch_size} at K={k} is above the last full CUDA graph ({max_graph_batch} requests)"
                ": the step runs without one",
            )
        )
    if spec.get("tensor_parallel_size") is not None:
        found.append(
            Finding(
                "draft-tp",
                "speculative_config.tensor_parallel_size is refused; use draft_tensor_parallel_size",
                "error",
            )
        )
    if spec.get(KEY) == []:
        found.append(
            Finding(
                "empty-table",
                f"{KEY} is an empty list: half of the engine takes it as on; leave it out",
                "error",
            )
        )
    return tuple(found)


def _budget(config: Mapping[str, Any], *, k: int, seqs: int | None, budget: int | None) -> list[Finding]:
    if budget is None:
        return []
    found: list[Finding] = []
    most = admitted(max_num_batched_tokens=budget, k=k)
    if seqs is not None and most < seqs:
        found.append(
            Finding(
                "token-budget",
                f"max_num_batched_tokens={budget} admits {most} requests of K+1 = {k + 1} tokens, "
                f"not max_num_seqs={seqs}",
            )
        )
    elif seqs is not None and seqs * (k + 1) > BUDGET_SHARE * budget:
        found.append(
            Finding(
                "prefill-budget",
                f"a full batch takes {seqs * (k + 1)} of {budget} tokens per step: prefills get the rest, "
                "TTFT rises",
            )
        )
    compilation = mapping(_get(config, "compilation_config"))
    sizes = numbers(
        _get(config, "cudagraph_capture_sizes") or compilation.get("cudagraph_capture_sizes"),
        field="cudagraph_capture_sizes", minimum=1, maximum=1e9, max_len=100_000,
    )  # fmt: skip
    if sizes:
        reachable = min(most, seqs if seqs is not None else most) * (k + 1)
        dead = dead_sizes([int(size) for size in sizes], max_tokens=reachable)
        if dead:
            listed = (
                ", ".join(map(str, dead)) if len(dead) <= 40 else f"{dead[0]}..{dead[-1]} ({len(dead)} sizes)"
            )
            found.append(
                Finding(
                    "dead-graphs",
                    f"no decode step has more than {reachable} tokens: capture sizes {listed} are never used",
                )
            )
    return found


def _method_depth(method: str, *, k: int, trained_k: int | None) -> list[Finding]:
    if trained_k is None or k <= trained_k:
        return []
    found = [
        Finding(
            "above-trained-depth",
            f"K={k} is above the depth the drafter was trained for ({trained_k}): acceptance falls",
        )
    ]
    if method == "mtp" and k % trained_k:
        found.append(
            Finding(
                "mtp-multiple",
                f"MTP: K={k} must be a multiple of the {trained_k} modules of the model",
                "error",
            )
        )
    return found


def _eager(config: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Finding]:
    found: list[Finding] = []
    if _get(config, "enforce_eager") or spec.get("enforce_eager"):
        found.append(
            Finding(
                "eager",
                "enforce_eager with speculation: each of the K draft passes pays its kernel launches",
            )
        )
    if spec.get("enable_adaptive_verification"):
        blockers = [
            name
            for name, active in (
                ("LoRA", _get(config, "enable_lora")),
                (
                    "pipeline parallel",
                    (whole(_get(config, "pipeline_parallel_size"), field="pipeline_parallel_size") or 1) > 1,
                ),
                ("enforce_eager", _get(config, "enforce_eager")),
            )
            if active
        ]
        if blockers:
            found.append(
                Finding(
                    "adaptive-refused",
                    f"adaptive verification is refused with {', '.join(blockers)}",
                    "error",
                )
            )
    return found
