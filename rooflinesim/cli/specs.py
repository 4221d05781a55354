"""``rooflinesim specs``: list, show, import, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich import box
from rich.table import Table

from rooflinesim import registry
from rooflinesim.cli.out import show, show_json
from rooflinesim.errors import InputError, unknown_name
from rooflinesim.output import write_text

app = typer.Typer(
    help="Accelerators, models, drafters and engines: list, show, import, check.", no_args_is_help=True
)
KINDS = ("gpus", "models", "drafts", "engines", "nodes")


@app.command("list")
def list_command(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")] = "gpus",
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Every known name of one kind."""
    if kind not in KINDS:
        raise unknown_name("kind of spec", kind, KINDS)
    names: list[str] = getattr(registry, kind)()
    if json_out:
        show_json({"schema": 1, "kind": kind, "names": names})
        return
    typer.echo("\n".join(names))


def _find(name: str) -> tuple[str, Any]:
    finders = (
        ("gpu", registry.gpu),
        ("model", registry.model),
        ("draft", registry.draft),
        ("engine", registry.engine),
        ("node", registry.node),
    )
    problems: list[str] = []
    for kind, find in finders:
        try:
            return kind, find(name)
        except (InputError, ValueError) as error:
            problems.append(str(error))
    if name.lower().endswith((".yaml", ".yml", ".json")):  # a file: say what is wrong with it
        kinds = [p for p in dict.fromkeys(problems) if not p.startswith("unknown ")]
        one = kinds[0] if len(kinds) == 1 or name.lower().endswith(".json") else None
        raise InputError(one or f"{name}: no accelerator, model, drafter, engine or node ({kinds[0]}; ...)")
    everything = [n for kind in KINDS for n in getattr(registry, kind)()]
    raise unknown_name("spec", name, everything)


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="A name, alias or file of any kind of spec.")],
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """One spec with every value, its unit and its source; parameters are counted from the shape."""
    kind, spec = _find(name)
    data = spec.model_dump(mode="json", exclude_defaults=True)
    extra: dict[str, Any] = {}
    if kind in {"model", "draft"}:
        from rooflinesim.specs.counting import count, count_draft

        extra = (count(spec) if kind == "model" else count_draft(spec)).model_dump()
    if json_out:
        show_json({"schema": 1, "kind": kind, "spec": data, "counted": extra})
        return
    typer.echo(yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True).rstrip())
    if extra:
        typer.echo("\ncounted from the shape")
        for key, value in extra.items():
            typer.echo(f"  {key}: {value:,}")


@app.command("import")
def import_command(
    config: Annotated[str, typer.Argument(help="A Hugging Face config.json, or the folder that holds it.")],
    out: Annotated[
        str | None,
        typer.Option("--out", help="Write the YAML here instead of printing it.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read a Hugging Face config.json into a model (or draft) spec."""
    from rooflinesim.hf_import import import_config
    from rooflinesim.specs.counting import count, count_draft
    from rooflinesim.specs.model import ModelSpec

    path = Path(config).expanduser()
    spec = import_config(path / "config.json" if path.is_dir() else path)
    counted = count(spec) if isinstance(spec, ModelSpec) else count_draft(spec)
    data = spec.model_dump(mode="json", exclude_defaults=True)
    if json_out:
        show_json({"schema": 1, "spec": data, "counted": counted.model_dump()})
        return
    text = yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True)
    if out is not None:
        write_text(out, text, force=force)
        typer.echo(f"wrote {out}", err=True)
    else:
        typer.echo(text.rstrip())
    typer.echo(
        f"{counted.total_params / 1e9:.3f} B parameters, {counted.active_params / 1e9:.3f} B active, "
        f"{counted.kv_elems_per_token_full + counted.kv_elems_per_token_windowed:,} KV elements per token",
        err=True,
    )
    if spec.defaulted:
        typer.echo(f"filled from family defaults: {', '.join(spec.defaulted)}", err=True)
    if spec.unrecognised:
        typer.echo(f"keys not used: {', '.join(spec.unrecognised)}", err=True)


@app.command("check")
def check_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="GPU names or YAML files. Default: every accelerator.")
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cross-check data sheets: peak against SMs x clock, format ratios, link directions."""
    from rooflinesim.specs.checks import check_gpu

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("accelerator", "finding"):
        table.add_column(column)
    found = []
    chosen = names or registry.gpus()
    for name in chosen:
        spec = registry.gpu(name)
        for finding in check_gpu(spec):
            found.append({"gpu": spec.id, "finding": str(finding)})
            table.add_row(spec.id, str(finding))
    if json_out:
        show_json({"schema": 1, "checked": len(chosen), "findings": found})
    else:
        if found:
            show(table)
        typer.echo(f"{len(chosen)} checked, {len(found)} findings")
    if found:
        raise typer.Exit(1)
