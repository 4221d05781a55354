"""``rooflinesim schedule``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rooflinesim.api import Scenario, resolve
from rooflinesim.api.checking import CheckedSchedule, check_schedule, rate_json
from rooflinesim.api.emitting import emit as emit_texts
from rooflinesim.api.emitting import engine_of
from rooflinesim.api.scheduling import schedule as schedule_verb
from rooflinesim.api.scheduling import schedule_json
from rooflinesim.cli.options import with_scenario
from rooflinesim.cli.out import show, show_json, working
from rooflinesim.errors import InputError
from rooflinesim.output import write_text

PANEL = "Schedule"


@with_scenario
def schedule(
    scenario: Scenario,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            help="vllm, sglang, trtllm; or vllm-synthetic, sglang-sps[-additive], trtllm-sps, "
            "bench-forward, bench-sweep.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            help="Read a schedule of any engine and rate it.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            "--max-batch",
            help="Largest batch. Default: what the engine admits and the memory holds.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    max_k: Annotated[
        int | None,
        typer.Option(
            "--max-k",
            help="K the server was started with (num_speculative_tokens), for --check.",
            min=0,
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    regret: Annotated[
        float,
        typer.Option("--regret", help="Largest loss allowed anywhere, as a fraction.", rich_help_panel=PANEL),
    ] = 0.01,
    distinct: Annotated[
        int | None,
        typer.Option(
            "--distinct",
            help="At most so many different K >= 1 (each costs graph captures).",
            min=1,
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    hysteresis: Annotated[
        int,
        typer.Option(
            "--hysteresis",
            help="No range shorter than this many batches, unless it pays.",
            min=1,
            rich_help_panel=PANEL,
        ),
    ] = 1,
    mix: Annotated[
        str | None,
        typer.Option(
            "--mix",
            help="Shares of the contexts in --ctx, as 0.7,0.3. Default: equal.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="Write the engine's text to this file.", rich_help_panel=PANEL, show_default=False
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file.", rich_help_panel=PANEL)
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """K by batch size: solve it, write it as the engine reads it, or check one that exists."""
    if check is not None:
        _check(scenario, check, emit, max_batch, max_k, json_out)
        return
    if emit is not None and "engine" not in scenario.model_fields_set:
        engine = engine_of(emit)
        if engine is not None:  # solve for the engine that will run it
            scenario = scenario.model_copy(update={"engine": engine})
    weights = _shares(mix, scenario)
    with working("solving K at every batch"):
        answer = schedule_verb(
            resolve(scenario),
            max_batch=max_batch,
            max_regret_frac=regret,
            max_distinct=distinct,
            min_range_batches=hysteresis,
            context_weights=weights,
        )
    texts = emit_texts(answer, emit or answer.resolved.deployment.profile.engine)
    if out is not None:
        for text in texts:
            target = Path(out) if len(texts) == 1 else Path(out) / text.file_name
            write_text(target, text.text, force=force)
            typer.echo(f"wrote {target}", err=True)
    if json_out:
        data = schedule_json(answer, texts[0].text)
        data |= {
            "texts": {text.file_name: text.text for text in texts},
            "launch": texts[0].launch,
            "settings": list(texts[0].settings),
            "warnings": list(texts[0].warnings),
        }
        show_json(data)
        return
    from rooflinesim.report import notes, schedule_view

    show(schedule_view(answer))
    for text in texts:
        show(Text(f"{text.engine}: {text.file_name}", style="bold"))
        typer.echo(text.text.rstrip())
    text = texts[0]
    typer.echo(f"launch: {text.launch}")
    for setting in text.settings:
        show(Text(f"needs {setting}", style="dim"))
    for warning in text.warnings:
        show(Text(f"warning: {warning}", style="yellow"))
    show(notes(answer.resolved.assumed, answer.resolved.warnings))


def _shares(mix: str | None, scenario: Scenario) -> list[float] | None:
    if mix is None:
        return None
    try:
        shares = [float(part) for part in mix.split(",")]
    except ValueError:
        raise InputError(f"--mix: {mix!r} is not a list of numbers with commas between them") from None
    total = sum(shares)
    usable = min(shares) >= 0 and 0 < total < math.inf
    if len(shares) != len(scenario.context_tokens) or not usable:
        raise InputError(
            f"--mix: {mix!r} needs one share >= 0 for each of the {len(scenario.context_tokens)} contexts"
        )
    return shares


def _check(
    scenario: Scenario,
    file: str,
    engine: str | None,
    max_batch: int | None,
    max_k: int | None,
    json_out: bool,
) -> None:
    checked: CheckedSchedule = check_schedule(
        scenario, Path(file), engine=engine, max_batch=max_batch, num_speculative_tokens=max_k
    )
    if json_out:
        show_json(rate_json(checked))
        return
    from rooflinesim.report import checked_view

    show(checked_view(checked))
