"""``rooflinesim tune``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from rooflinesim.api import Scenario
from rooflinesim.cli.options import with_scenario
from rooflinesim.cli.out import show, show_json
from rooflinesim.errors import unknown_name

PANEL = "Tune"
ENGINES = ("vllm", "sglang", "trtllm")


@with_scenario
def tune(
    scenario: Scenario,
    files: Annotated[
        list[str],
        typer.Argument(
            help="Logs, metrics (two scrapes: their difference), benchmark results, configuration, schedule.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", help="Folder for the report.", rich_help_panel=PANEL)
    ] = "tuning-report",
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            help="vllm, sglang or trtllm. Default: the engine.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            help="Drafted tokens, where a file does not say.",
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
    regret: Annotated[
        float,
        typer.Option("--regret", help="Largest loss allowed anywhere, as a fraction.", rich_help_panel=PANEL),
    ] = 0.01,
    distinct: Annotated[
        int | None,
        typer.Option(
            "--distinct", help="At most so many different K >= 1.", rich_help_panel=PANEL, show_default=False
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the report in --out.", rich_help_panel=PANEL)
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """From a server's own files to its K by batch size: what to set, why, and what it brings."""
    from rooflinesim.tuning import tune as tune_verb
    from rooflinesim.tuning import tune_json, write_report
    from rooflinesim.tuning.pages import check_folder

    if emit is not None and emit not in ENGINES:
        raise unknown_name("engine", emit, ENGINES)
    check_folder(out, force=force)  # before the work, not after it
    found = tune_verb(
        scenario,
        files,
        k=k,
        emit_as=emit,
        max_batch=max_batch,
        max_regret_frac=regret,
        max_distinct=distinct,
    )
    page = write_report(found, out, force=force)
    if json_out:
        show_json({**tune_json(found), "report": str(page)})
        return
    from rooflinesim.tuning.view import tune_view

    show(tune_view(found))
    for text in found.texts:
        show(Text(f"{text.engine}: {text.file_name}", style="bold"))
        typer.echo(text.text.rstrip())
    typer.echo(f"launch: {found.texts[0].launch}")
    for setting in found.texts[0].settings:
        show(Text(f"needs {setting}", style="dim"))
    typer.echo(f"report: {page}")
