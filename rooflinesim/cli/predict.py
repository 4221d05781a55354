"""``rooflinesim predict``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from rooflinesim.api import Scenario, as_json, fit_memory, memory_json
from rooflinesim.api import predict as predict_verb
from rooflinesim.cli.options import with_scenario
from rooflinesim.cli.out import show, show_json, working

#: So many points take long enough to say so.
MANY_POINTS = 200


@with_scenario
def predict(
    scenario: Scenario,
    explain: Annotated[
        int | None,
        typer.Option(
            "--explain",
            help="Also show every op of the step at this K (-1: the best K).",
            min=-1,
            max=64,
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show where the memory of one rank goes.")
    ] = False,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Write a figure (.png, .svg, .pdf).", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draft, verify and step time, tokens gained and goodput for every K; the best K and how sure it is."""
    many = len(scenario.batch_sizes) * len(scenario.context_tokens) > MANY_POINTS
    with working("drawing error bars") if many else nullcontext():
        answer = predict_verb(scenario)
    explanation = None
    if explain is not None:
        from rooflinesim.api.explaining import explain as explain_verb

        point = answer.points[0]
        explanation = explain_verb(
            scenario,
            batch_size=point.batch_size,
            k=point.best_k if explain < 0 else explain,
            context_tokens=point.context_tokens,
        )
    if json_out:
        data = as_json(answer)
        if explanation is not None:
            from rooflinesim.api.explaining import explain_json

            data["explain"] = explain_json(explanation)
        if memory:
            point = answer.points[0]
            footprint = fit_memory(answer.resolved, context_tokens=point.context_tokens, k=point.best_k)
            data["memory"] = memory_json(footprint, parallel=answer.resolved.deployment.parallel)
        show_json(data)
    else:
        from rooflinesim.report import explanation_view, prediction_view

        show(prediction_view(answer))
        if explanation is not None:
            show(explanation_view(explanation))
        if memory:
            from rooflinesim.report import memory_view

            point = answer.points[0]
            footprint = fit_memory(answer.resolved, context_tokens=point.context_tokens, k=point.best_k)
            replicas = answer.resolved.deployment.parallel.dp
            show(memory_view(footprint, batch_size=point.batch_size, replicas=replicas))
    if plot is not None:
        from rooflinesim.plots import save_prediction

        written = save_prediction(answer, plot, force=force)
        typer.echo(f"wrote {written}", err=True)
