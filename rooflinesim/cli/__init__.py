"""The command line: thin calls into the façade. Each command's module is imported only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import os
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


#: Longer error lines are cut: what they quote came from a file or flag of any size.
LONGEST_LINE = 600


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
    args = sys.argv[1:]
    only = args[0] if args and args[0] in COMMANDS else None
    if not args or (len(args) == 1 and only is not None and COMMANDS[only][2]):
        args = [*args, "--help"]  # a group alone is a question, not a mistake
    sys.exit(_run(only, args))


def _run(only: str | None, args: list[str]) -> int:
    """The exit status of one command line; says in one line what went wrong."""
    from rooflinesim.errors import RooflinesimError

    try:
        status = build(only)(args, prog_name="rooflinesim", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except RooflinesimError as error:
        return _fail(str(error))
    except SystemExit as stop:  # both libraries turn a closed pipe into one
        if isinstance(stop.__context__, BrokenPipeError):
            return _quiet()
        return stop.code if isinstance(stop.code, int) else 2
    except (KeyboardInterrupt, typer.Abort):
        _quiet()
        return _fail("interrupted", 130)
    except BrokenPipeError:
        return _quiet()
    except OSError as error:  # standard output on a full disk; files have errors of their own
        _quiet()
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except MemoryError:
        return _fail("not enough memory for this; ask for fewer batches, contexts or K at once")
    except Exception as error:  # a wrong flag or argument; the parser's classes have no public base
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "rooflinesim"
        return _fail(f"{' '.join(error.format_message().split())} ({where} -h lists what there is)")


def _fail(line: str, status: int = 2) -> int:
    shown = "".join(char if char.isprintable() else "?" for char in line)  # a file's name can hold anything
    if len(shown) > LONGEST_LINE:
        shown = f"{shown[:LONGEST_LINE]} ... ({len(shown)} characters)"
    typer.echo(f"error: {shown}" if status == 2 else shown, err=True)
    return status


def _quiet() -> int:
    """Nobody reads standard output any more: what is still buffered goes nowhere, silently."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
