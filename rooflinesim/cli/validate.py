"""``rooflinesim validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflinesim.api import Scenario, resolve
from rooflinesim.cli.options import with_scenario
from rooflinesim.cli.out import show, show_json, working


@with_scenario
def validate(
    scenario: Scenario,
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Campaigns (part of a name is enough), or one CSV of your own. Default: all."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="Which column of your CSV gives the step time.", show_default=False),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out the slow campaigns.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write validation/README.md.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score the model on published measurements, or on a CSV of your own (scenario flags describe its
    setup)."""
    if what and len(what) == 1 and what[0].lower().endswith(".csv"):
        from rooflinesim.measurements import read_measurements
        from rooflinesim.validate.report import user_view
        from rooflinesim.validate.user import user_json, validate_user

        report = validate_user(resolve(scenario), read_measurements(Path(what[0])), metric=metric)
        if json_out:
            show_json(user_json(report))
        else:
            show(user_view(report))
        return
    from rooflinesim.output import write_text
    from rooflinesim.specs.files import spec_root
    from rooflinesim.validate import as_json, campaigns, run
    from rooflinesim.validate.report import markdown, table_view

    with working("recomputing the campaigns"):
        results = run(what, fast_only=fast)
    if json_out:
        show_json(as_json(results))
    else:
        show(table_view(results))
    if write:
        there = [c for c in campaigns(what) if any(r.id == c.id for r in results)]
        written = write_text(spec_root("validation") / "README.md", markdown(results, there), force=True)
        typer.echo(f"wrote {written}", err=True)
    if not all(r.ok for r in results):
        raise typer.Exit(1)
