"""Errors that name what was wrong, what was given and what is allowed.

Every error a user can cause is one of these classes; its text is one line. The command line prints that
line and exits with status 2. Anything else that escapes is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RooflinesimError(ValueError):
    """Base of every error a user can cause; ``str(error)`` is one line."""


class SpecError(RooflinesimError):
    """A spec file, configuration or spec value is wrong."""


class InputError(RooflinesimError):
    """An argument, flag or uploaded file is wrong."""


class DoesNotFitError(RooflinesimError):
    """The model does not fit into the accelerator's memory.

    ``short_bytes`` is the memory that is missing per rank, in bytes.
    """

    def __init__(self, message: str, *, short_bytes: float) -> None:
        super().__init__(message)
        self.short_bytes = short_bytes


def near_misses(given: str, allowed: Iterable[str], *, n: int = 3) -> list[str]:
    """Names in ``allowed`` that look like ``given``, best first.

    >>> near_misses("h10", ["h100-sxm", "h20", "b200-sxm", "a10"])
    ['h20', 'a10']
    """
    names = list(allowed)
    lowered = {name.lower(): name for name in names}
    hits = difflib.get_close_matches(given.lower(), list(lowered), n=n, cutoff=0.6)
    return [lowered[hit] for hit in hits]


def unknown_name(kind: str, given: str, allowed: Iterable[str]) -> InputError:
    """The error for a name that resolves to nothing, with near misses.

    >>> str(unknown_name("GPU", "h1000", ["h100", "h200", "l4"]))
    "unknown GPU 'h1000'; did you mean h100, h200?"
    """
    names = list(allowed)
    hits = near_misses(given, names)
    if hits:
        return InputError(f"unknown {kind} {given!r}; did you mean {', '.join(hits)}?")
    shown = ", ".join(sorted(names)[:8])
    return InputError(f"unknown {kind} {given!r}; known are {shown}{', ...' if len(names) > 8 else ''}")
