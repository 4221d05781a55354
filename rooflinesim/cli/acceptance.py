"""``rooflinesim acceptance``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from rooflinesim.cli.out import show, show_json
from rooflinesim.errors import InputError


def acceptance(
    files: Annotated[
        list[str] | None, typer.Argument(help="Logs, metrics scrapes, benchmark results: any engine's.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="The files' format (default: told by content).", show_default=False),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k", help="Drafted tokens per step, where the format does not say.", show_default=False
        ),
    ] = None,
    accept: Annotated[
        str | None, typer.Option("--accept", help="Convert C1[,DECAY].", show_default=False)
    ] = None,
    al: Annotated[str | None, typer.Option("--al", help="Convert K:AL.", show_default=False)] = None,
    marginal: Annotated[
        str | None, typer.Option("--marginal", help="Convert p1,p2,...", show_default=False)
    ] = None,
    conditional: Annotated[
        str | None, typer.Option("--conditional", help="Convert c1,c2,...", show_default=False)
    ] = None,
    mean_accepted: Annotated[
        str | None,
        typer.Option("--mean-accepted", help="Convert K:FRACTION (accepted / drafted).", show_default=False),
    ] = None,
    list_formats: Annotated[bool, typer.Option("--list-formats", help="Name every readable format.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measured acceptance out of an engine's files, fitted; or a conversion between the ways to state it."""
    if list_formats:
        from rooflinesim.engines import FORMATS

        for item in FORMATS.values():
            typer.echo(f"{item.name:28s}{item.what}")
        return
    stated = {
        "--accept": accept,
        "--al": al,
        "--marginal": marginal,
        "--conditional": conditional,
        "--mean-accepted": mean_accepted,
    }
    given = [flag for flag, value in stated.items() if value is not None]
    if files and given:
        raise InputError(f"acceptance: give files or {given[0]}, not both")
    if files:
        _measured(files, format, k, json_out)
        return
    from rooflinesim.acceptance import parse_acceptance

    conversion = parse_acceptance(
        accept=accept, al=al, marginal=marginal, conditional=conditional, mean_accepted=mean_accepted
    )
    curve = conversion.curve
    depth = range(1, 9)
    lengths = [float(curve.acceptance_length(n)) for n in depth]
    if json_out:
        named = curve.named_params
        show_json(
            {
                "schema": 1,
                "format": "conversion",
                "acceptance_length": lengths[max(conversion.measured_k, 1) - 1]
                if conversion.measured_k <= 8
                else None,
                "conditional": curve.conditional(8).tolist(),
                "marginal": curve.marginal(8).tolist(),
                "n_steps": None,
                "fit": {
                    "form": curve.form,
                    "c1": named.get("c1"),
                    "decay": named.get("decay"),
                    "a": named.get("a"),
                    "b": named.get("b"),
                    "text": conversion.text,
                },
                "warnings": list(conversion.warnings),
            }
        )
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("K", "conditional", "marginal", "AL"):
        table.add_column(name, justify="right")
    for n, c, p, length in zip(depth, curve.conditional(8), curve.marginal(8), lengths, strict=True):
        table.add_row(str(n), f"{c:.4f}", f"{p:.4f}", f"{length:.3f}")
    show(Text(conversion.text))
    show(table)
    for warning in conversion.warnings:
        show(Text(f"warning: {warning}", style="yellow"))


def _measured(files: list[str], format: str | None, k: int | None, json_out: bool) -> None:
    from rooflinesim.api.logs import acceptance_from_files, acceptance_json

    measured = acceptance_from_files(files, format=format, k=k)
    if json_out:
        show_json(acceptance_json(measured))
        return
    record = measured.record
    steps = "" if record.n_steps is None else f" over {record.n_steps:,.0f} steps"
    rate = (
        ""
        if record.draft_acceptance_rate is None
        else f", {record.draft_acceptance_rate:.1%} of drafts accepted"
    )
    show(
        Text(f"{record.format}: acceptance length {record.acceptance_length:.3f}{steps}{rate}", style="bold")
    )
    if record.has_positions:
        table = Table(box=box.SIMPLE_HEAD)
        for name in ("position", "conditional", "95 % interval", "marginal", "fitted"):
            table.add_column(name, justify="right")
        fitted = measured.conversion.curve.conditional(len(record.conditional))
        low, high = record.counts.wilson() if record.counts is not None else (None, None)
        for i, (c, p) in enumerate(zip(record.conditional, record.marginal, strict=True)):
            band = "" if low is None or high is None else f"{low[i]:.3f}-{high[i]:.3f}"
            table.add_row(str(i + 1), f"{c:.4f}", band, f"{p:.4f}", f"{fitted[i]:.4f}")
        show(table)
    show(Text(f"curve: {measured.conversion.curve.describe()} ({measured.conversion.text})"))
    for warning in measured.warnings:
        show(Text(f"warning: {warning}", style="yellow"))
