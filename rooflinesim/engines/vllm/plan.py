"""What to give vLLM to measure or to imitate: bench cases for a few points, and synthetic acceptance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rooflinesim.engines.records import EngineText
from rooflinesim.errors import InputError

Point = tuple[int, int, int]

_DRAFTERS_OF_FORWARD: Final = ("mtp", "eagle", "eagle3", "dspark", "dflash")


def _points(points: Iterable[Sequence[int]]) -> list[Point]:
    """(batch, K, context) without repetition, in the order given."""
    result: dict[Point, None] = {}
    for point in points:
        if len(point) != 3:
            raise InputError(f"measurement plan: (batch, K, context) is expected, got {len(point)} numbers")
        batch, k, context = (int(value) for value in point)
        if batch < 1 or k < 0 or context < 1:
            raise InputError(
                f"measurement plan: ({batch}, {k}, {context}) needs batch >= 1, K >= 0, context >= 1"
            )
        result[batch, k, context] = None
    if not result:
        raise InputError("measurement plan: no point to measure")
    return list(result)


def forward_cases(
    points: Iterable[Sequence[int]], *, model: str = "MODEL", method: str | None = None
) -> EngineText:
    """``--shapes`` file of ``vllm bench forward``: one case per (batch, K, context); K = 0 is plain decode.

    >>> json.loads(forward_cases([(16, 3, 4096)]).text)["cases"][0]["requests"]
    [{'query_len': 4, 'kv_len': 4096, 'num_draft_tokens': 3, 'count': 16}]
    """
    cases: list[dict[str, Any]] = []
    for batch, k, context in _points(points):
        request: dict[str, int] = {"query_len": k + 1, "kv_len": context}
        if k > 0:
            request["num_draft_tokens"] = k
        request["count"] = batch
        kind = f"verify_b{batch}_k{k}" if k else f"decode_b{batch}"
        cases.append({"name": f"{kind}_c{context}", "requests": [request]})
    warnings = ["sampling, rejection, host time and graph padding are outside these times"]
    if method is not None and method not in _DRAFTERS_OF_FORWARD:
        warnings.append(
            f"bench forward runs no {method} drafter: use --exclude-drafter and measure the draft by a sweep"
        )
    return EngineText(
        engine="vllm",
        file_name="forward_cases.json",
        text=json.dumps({"cases": cases}) + "\n",
        launch=f"vllm bench forward --model {model} --shapes forward_cases.json "
        "--kv-len-jitter 0 --output-json forward.json",
        settings=("kv-len-jitter=0 (the default 0.5 spreads the context lengths)",),
        warnings=tuple(warnings),
    )


def sweep_params(
    points: Iterable[Sequence[int]],
    *,
    method: str,
    model: str = "MODEL",
    draft_model: str | None = None,
    output_tokens: int = 256,
    prompts_per_request: int = 8,
) -> tuple[EngineText, EngineText]:
    """(serve, bench) parameter files of ``vllm bench sweep serve``: each K against each batch and context.

    The sweep runs every combination of the two files. K = 0 is a server without speculation.

    >>> serve, bench = sweep_params([(8, 0, 1024), (8, 3, 1024)], method="eagle3")
    >>> len(__import__("json").loads(serve.text)), len(__import__("json").loads(bench.text))
    (2, 1)
    """
    plan = _points(points)
    if output_tokens < 1 or prompts_per_request < 1:
        raise InputError("measurement plan: output_tokens and prompts_per_request must be at least 1")
    serve: list[dict[str, Any]] = []
    for k in sorted({k for _, k, _ in plan}):
        row: dict[str, Any] = {"_benchmark_name": f"k{k}"}
        if k > 0:
            row["speculative_config.method"] = method
            if draft_model is not None:
                row["speculative_config.model"] = draft_model
            row["speculative_config.num_speculative_tokens"] = k
        serve.append(row)
    bench = [
        {
            "_benchmark_name": f"c{batch}-ctx{context}",
            "max_concurrency": batch,
            "num_prompts": batch * prompts_per_request,
            "random_input_len": max(context - output_tokens // 2, 1),
            "random_output_len": output_tokens,
        }
        for batch, context in sorted({(batch, context) for batch, _, context in plan})
    ]
    launch = (
        f"vllm bench sweep serve --serve-cmd 'vllm serve {model}' --bench-cmd "
        f"'vllm bench serve --model {model} "
        "--dataset-name random' --serve-params serve_params.json --bench-params bench_params.json -o results"
    )
    combos = len(serve) * len(bench)
    warnings: tuple[str, ...] = (
        "random prompts have their own acceptance: take step times from the "
        "sweep, acceptance from your own prompts",
    )
    if combos > len(plan):
        warnings = (*warnings, f"the sweep runs all {combos} combinations, the plan needs {len(plan)}")
    common = {"engine": "vllm", "launch": launch, "warnings": warnings}
    return (
        EngineText(file_name="serve_params.json", text=json.dumps(serve) + "\n", **common),  # type: ignore[arg-type]
        EngineText(file_name="bench_params.json", text=json.dumps(bench) + "\n", **common),  # type: ignore[arg-type]
    )


def synthetic_acceptance(
    marginal: Sequence[float], *, method: str, draft_model: str | None = None, model: str = "MODEL"
) -> EngineText:
    """``synthetic_acceptance_rates``: a server that accepts with the given marginals p_1..p_K, whatever it
    drafts.

    vLLM wants marginal (unconditional) rates, one per position, not rising; AL = 1 + Σ p_i. Output text is
    meaningless; step times and load are real.

    >>> json.loads(synthetic_acceptance([0.72, 0.43], method="eagle3").text)["synthetic_acceptance_rates"]
    [0.72, 0.43]
    """
    rates = [float(rate) for rate in marginal]
    if not rates:
        raise InputError("synthetic acceptance: at least one marginal rate is needed")
    for index, rate in enumerate(rates):
        if not 0.0 <= rate <= 1.0:
            raise InputError(f"synthetic acceptance: rate {index + 1}, {rate:g}, is not in [0, 1]")
        if index and rate > rates[index - 1] + 1e-12:
            raise InputError(
                f"synthetic acceptance: rate {index + 1} rises; marginal rates cannot "
                "(are these conditional rates?)"
            )
    config: dict[str, Any] = {"method": method}
    if draft_model is not None:
        config["model"] = draft_model
    config["num_speculative_tokens"] = len(rates)
    config["rejection_sample_method"] = "synthetic"
    config["synthetic_acceptance_rates"] = [round(rate, 9) for rate in rates]
    text = json.dumps(config)
    return EngineText(
        engine="vllm",
        file_name="speculative_config.json",
        text=text + "\n",
        launch=f"vllm serve {model} --speculative-config '{text}'",
        warnings=("output text is meaningless under synthetic acceptance",),
    )
