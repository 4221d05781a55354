"""Everything an engine can be given: schedules, synthetic acceptance, step-cost tables, what to measure
next; lints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rooflinesim.api.evaluate import evaluate
from rooflinesim.api.resolve import Resolved
from rooflinesim.api.scheduling import ScheduleAnswer, engine_text, graph_limit
from rooflinesim.engines import EngineText, Finding, sniff_engine
from rooflinesim.engines.sglang import lint as sglang_lint
from rooflinesim.engines.steptables import write_sglang_additive, write_sglang_flat, write_trtllm
from rooflinesim.engines.trtllm import lint as trtllm_lint
from rooflinesim.engines.vllm import lint as vllm_lint
from rooflinesim.engines.vllm.plan import forward_cases, sweep_params, synthetic_acceptance
from rooflinesim.errors import RooflinesimError, unknown_name
from rooflinesim.grid import FloatArray

#: Token counts at which a step-cost table is sampled, and requests.
_PROBES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)


def emit(answer: ScheduleAnswer, kind: str) -> tuple[EngineText, ...]:
    """The text(s) of one kind; :data:`KINDS` lists them."""
    if kind not in KINDS:
        raise unknown_name("kind of output", kind, KINDS)
    return KINDS[kind](answer)


def _names(answer: ScheduleAnswer) -> tuple[str, str, str | None]:
    d = answer.resolved.deployment
    draft = d.draft.id if d.draft is not None and "#" not in d.draft.id else None
    return d.target.id, d.method.removesuffix("_multi"), draft


def plan_points(answer: ScheduleAnswer) -> list[tuple[int, int, int]]:
    """The few (batch, K, context) whose times decide the schedule: both sides of every switch, and plain
    decoding."""
    contexts = answer.resolved.scenario.context_tokens
    ranges = answer.schedule.ranges
    points: dict[tuple[int, int, int], None] = {}
    for i, (low, high, k) in enumerate(ranges):
        for batch in {low, high}:
            neighbours = [ranges[j][2] for j in (i - 1, i + 1) if 0 <= j < len(ranges)]
            for depth in {0, k, *neighbours}:
                for context in {min(contexts), max(contexts)}:
                    points[(batch, depth, context)] = None
    return sorted(points)


def _forward(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    model, method, _ = _names(answer)
    return (forward_cases(plan_points(answer), model=model, method=method),)


def _sweep(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    model, method, draft = _names(answer)
    return sweep_params(plan_points(answer), method=method, model=model, draft_model=draft)


def _synthetic(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    model, method, draft = _names(answer)
    top = max(answer.schedule.k_max, 1)
    curve = answer.resolved.acceptance.curve
    at = answer.resolved.scenario.context_tokens[0] if curve.depends_on_context else None
    marginal = curve.marginal(top, context_tokens=at).tolist()
    return (synthetic_acceptance(marginal, method=method, draft_model=draft, model=model),)


def step_parts(resolved: Resolved) -> tuple[float, list[int], FloatArray, list[int], FloatArray]:
    """The step as bias + α(requests) + θ(tokens), seconds.

    θ(M) is what a pass over M tokens costs beyond one token with an empty cache; α(N) the rest at N
    requests (cache reads at the scenario's context, drafting, what the host does per request).
    """
    tokens = [m for m in _PROBES if m <= max(512, 2 * max(resolved.scenario.batch_sizes))]
    rows = evaluate(resolved, batch_sizes=tokens, k_values=[0], context_tokens=[1], n_draws=0)
    theta = rows.step.verify_s[:, 0, 0] - rows.step.verify_s[0, 0, 0]
    requests = [n for n in _PROBES if n <= 256]
    whole = evaluate(
        resolved,
        batch_sizes=requests,
        k_values=[0, 1],
        context_tokens=[resolved.scenario.context_tokens[0]],
        n_draws=0,
    )
    rest = whole.step.step_s[:, 1, 0] - np.interp(2.0 * np.asarray(requests), tokens, theta)
    bias = float(np.min(rest))
    return bias, requests, np.maximum.accumulate(rest - bias), tokens, np.maximum.accumulate(theta)


def _sglang_sps(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    bias, _, alpha, tokens, theta = step_parts(answer.resolved)
    text = write_sglang_flat(token_counts=tokens, step_s=(bias + float(alpha[0]) + theta).tolist())
    return (_table("sglang", "dspark_sps.json", text, "--speculative-dspark-sps-table-path"),)


def _sglang_additive(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    bias, requests, alpha, tokens, theta = step_parts(answer.resolved)
    text = write_sglang_additive(
        bias_s=bias,
        batch_sizes=requests,
        batch_s=alpha.tolist(),
        token_counts=tokens,
        token_s=theta.tolist(),
    )
    return (_table("sglang", "dspark_sps.json", text, "--speculative-dspark-sps-table-path"),)


def _trtllm_sps(answer: ScheduleAnswer) -> tuple[EngineText, ...]:
    bias, requests, alpha, tokens, theta = step_parts(answer.resolved)
    text = write_trtllm(
        token_counts=tokens,
        token_s=theta.tolist(),
        batch_sizes=requests,
        batch_s=alpha.tolist(),
        fixed_s=bias,
    )
    return (_table("trtllm", "confidence_sps.json", text, "speculative_config.confidence_sps_table_path"),)


def _table(engine: str, name: str, text: str, flag: str) -> EngineText:
    return EngineText(
        engine=engine,
        file_name=name,
        text=text,
        launch=f"{flag} {name}",
        warnings=("modelled step costs, not measured ones: replace them by a profile when you have one",),
    )


def _for(engine: str) -> Callable[[ScheduleAnswer], tuple[EngineText, ...]]:
    return lambda answer: (engine_text(answer, engine=engine),)


#: kind -> writer
KINDS: dict[str, Callable[[ScheduleAnswer], tuple[EngineText, ...]]] = {
    "vllm": _for("vllm"),
    "sglang": _for("sglang"),
    "trtllm": _for("trtllm"),
    "vllm-synthetic": _synthetic,
    "sglang-sps": _sglang_sps,
    "sglang-sps-additive": _sglang_additive,
    "trtllm-sps": _trtllm_sps,
    "bench-forward": _forward,
    "bench-sweep": _sweep,
}


def engine_of(kind: str) -> str | None:
    """The engine whose rules a kind of output follows."""
    head = kind.split("-", 1)[0]
    return {"bench": "vllm"}.get(head, head if head in {"vllm", "sglang", "trtllm"} else None)


def lint_config(
    resolved: Resolved, config: Mapping[str, Any], *, batch_size: int | None = None
) -> tuple[Finding, ...]:
    """What an engine's configuration will do that its author may not expect, at this deployment.

    Errors: InputError when the configuration is of no known engine.
    """
    d = resolved.deployment
    trained = d.draft.max_trained_k if d.draft is not None else None
    engine = sniff_lintable(config)
    if engine == "vllm":
        spec = config.get("speculative_config") or config.get("speculative-config") or {}
        k = spec.get("num_speculative_tokens") if isinstance(spec, Mapping) else None
        limit = graph_limit(resolved, k) if isinstance(k, int) and 0 <= k <= 64 else None
        return vllm_lint.lint(
            config,
            batch_size=batch_size,
            max_graph_batch=limit,
            trained_k=trained,
            default_max_num_seqs=d.profile.max_num_seqs["default"],
            default_max_num_batched_tokens=d.profile.max_num_batched_tokens,
        )
    if engine == "sglang":
        return sglang_lint.lint(config, batch_size=batch_size, trained_k=trained)
    return trtllm_lint.lint(config, batch_size=batch_size, trained_k=trained)


def sniff_lintable(config: Mapping[str, Any]) -> str:
    """Whose server arguments a mapping holds."""
    keys = {str(key).replace("-", "_") for key in config}
    if "speculative_algorithm" in keys:
        return "sglang"
    try:
        return sniff_engine(config)
    except RooflinesimError:
        if "speculative_config" in keys:
            return "vllm"
        raise
