"""``rooflinesim calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from rooflinesim.api import Scenario, resolve
from rooflinesim.cli.options import with_scenario
from rooflinesim.cli.out import show, show_json, working
from rooflinesim.errors import InputError
from rooflinesim.output import write_text

PANEL = "Calibration"


@with_scenario
def calibrate(
    scenario: Scenario,
    source: Annotated[
        str,
        typer.Argument(
            help="Your measurements (CSV), or the word 'kernels' to refit the measured kernel tables."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="File (or folder, for kernels) to write.", rich_help_panel=PANEL, show_default=False
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of your calibration.", rich_help_panel=PANEL)
    ] = "mine",
    jobs: Annotated[
        int, typer.Option("--jobs", help="Parallel fits (kernels; joblib).", min=1, rich_help_panel=PANEL)
    ] = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files.", rich_help_panel=PANEL)
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit overhead and efficiencies to your own timings; or refit the kernel tables (extra: validation).

    Use the result with --calibration FILE. What your rows do not determine is refused, with the points to
    measure.
    """
    if source == "kernels":
        _kernels(scenario, out, jobs, force, json_out)
        return
    from rooflinesim.calibrate.user import fit_json, fit_user, write_calibration
    from rooflinesim.measurements import read_measurements

    resolved = resolve(scenario)
    with working("fitting"):
        fit = fit_user(resolved, read_measurements(Path(source)), calibration_id=name)
    if out is not None:
        write_calibration(fit, out, of=Path(source).name, force=force)
        typer.echo(f"wrote {out}; use it with --calibration {out}", err=True)
    if json_out:
        show_json(fit_json(fit))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("parameter", "value", "stderr", "unit"):
        table.add_column(column, justify="left" if column in {"parameter", "unit"} else "right")
    for item in fit.fitted:
        scale, unit = (1e3, "ms") if item.unit == "s" else (1.0, item.unit)
        table.add_row(item.name, f"{item.value * scale:.4g}", f"{item.stderr * scale:.2g}", unit)
    show(table)
    show(Text(f"{fit.n} rows; spread {fit.before_log_sd:.1%} before, {fit.residual_log_sd:.1%} after"))
    for refused in fit.refused:
        points = ", ".join(f"batch {b} K {k} context {c}" for b, k, c in refused.measure)
        show(Text(f"not determined: {refused.name} ({refused.reason}); measure {points}", style="yellow"))


def _kernels(scenario: Scenario, out: str | None, jobs: int, force: bool, json_out: bool) -> None:
    try:
        import aiconfigurator_core  # noqa: F401
    except ImportError:
        raise InputError(
            "calibrate kernels: needs the measured kernel tables; pip install 'rooflinesim[validation]'"
        ) from None
    from rich.console import Console
    from rich.progress import Progress

    from rooflinesim import registry
    from rooflinesim.calibrate.kernels import fit_all, pairs, to_yaml

    wanted = pairs()
    if "gpu" in scenario.model_fields_set:
        gpu = registry.gpu(scenario.gpu).id
        wanted = [pair for pair in wanted if pair[0] == gpu]
    if "engine" in scenario.model_fields_set:
        engine = registry.engine(scenario.engine).engine
        wanted = [pair for pair in wanted if pair[1] == engine]
    if not wanted:
        raise InputError(f"--gpu: no kernel was measured on {scenario.gpu} under {scenario.engine}")
    folder = Path(out) if out is not None else None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fitting kernels", total=len(wanted))
        fitted = fit_all(wanted, n_jobs=jobs, on_done=lambda _: progress.advance(task))
    rows: list[dict[str, Any]] = []
    for calibration in fitted:
        if folder is not None:
            write_text(folder / f"{calibration.id}.yaml", to_yaml(calibration), force=force)
        for family in ("gemm", "attention", "moe"):
            for key, fit in getattr(calibration, family).items():
                for score in fit.score:
                    rows.append(
                        {"calibration": calibration.id, "family": family, "format": key, **score.model_dump()}
                    )
    if json_out:
        show_json({"schema": 1, "scores": rows})
        return
    table = Table(box=box.SIMPLE_HEAD, title="held-out rows", title_justify="left", title_style="")
    for column in ("calibration", "family", "format", "rows", "n", "MAPE", "median", "bias"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["calibration"], row["family"], row["format"], row["domain"], str(row["n"]),
            f"{row['mape']:.1%}", f"{row['median']:.1%}", f"{row['bias']:+.1%}",
        )  # fmt: skip
    show(table)
