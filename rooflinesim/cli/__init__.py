"""The command line: thin calls into the façade. Each command's module is imported only when it is called."""

from __future__ import annotations

import importlib
import sys

import typer

#: command -> (module, attribute, one-line help, is a group)
COMMANDS: dict[str, tuple[str, str, bool]] = {
    "predict": ("rooflinesim.cli.predict", "predict", False),
    "sweep": ("rooflinesim.cli.sweep", "sweep", False),
    "schedule": ("rooflinesim.cli.schedule", "schedule", False),
    "acceptance": ("rooflinesim.cli.acceptance", "acceptance", False),
    "tune": ("rooflinesim.cli.tune", "tune", False),
    "calibrate": ("rooflinesim.cli.calibrate", "calibrate", False),
    "validate": ("rooflinesim.cli.validate", "validate", False),
    "bench": ("rooflinesim.cli.bench", "app", True),
    "specs": ("rooflinesim.cli.specs", "app", True),
    "app": ("rooflinesim.cli.app", "app_command", False),
}


def build(only: str | None = None) -> typer.Typer:
    """The Typer application, with one command or with all of them."""
    app = typer.Typer(
        name="rooflinesim",
        help="How fast will speculative decoding be on this GPU, for this model, at this load - and how many "
        "tokens should be drafted?",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in [only] if only is not None else COMMANDS:
        module, attribute, is_group = COMMANDS[name]
        target = getattr(importlib.import_module(module), attribute)
        if is_group:
            app.add_typer(target, name=name)
        else:
            app.command(name=name)(target)
    return app


def _version(show: bool) -> None:
    if show:
        from rooflinesim import __version__

        typer.echo(f"rooflinesim {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Entry point: errors a user can cause are one line on stderr and exit status 2."""
    from rooflinesim.errors import RooflinesimError

    first = next((arg for arg in sys.argv[1:] if not arg.startswith("-")), None)
    only = first if first in COMMANDS and sys.argv[1] == first else None
    try:
        build(only)()
    except RooflinesimError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
