"""Measured acceptance and times out of an engine's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflinesim.acceptance import (
    Conversion,
    CurveChoice,
    choose_curve,
    from_acceptance_length,
    from_marginal,
)
from rooflinesim.engines import AcceptanceRecord, Times, read_acceptance, read_timing
from rooflinesim.errors import InputError


@dataclass(frozen=True)
class MeasuredAcceptance:
    """What a file says about acceptance, and the curve that follows from it."""

    record: AcceptanceRecord
    choice: CurveChoice | None
    conversion: Conversion

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything to be careful about, in words."""
        extra = self.choice.warnings if self.choice is not None else ()
        return tuple(dict.fromkeys((*self.record.warnings, *extra, *self.conversion.warnings)))


def acceptance_from_files(
    paths: Sequence[Path | str], *, format: str | None = None, k: int | None = None
) -> MeasuredAcceptance:
    """Read acceptance from one or several files of one format and fit a curve.

    Counts give a maximum-likelihood fit; rates without counts the table; a mean alone the flat curve that
    has it.
    ``k`` says how many tokens were drafted where the format does not.
    """
    record = read_acceptance([Path(p) for p in paths], format=format, k=k)
    if record.counts is not None:
        choice = choose_curve(record.counts)
        text = f"{record.format}: {choice.reason}"
        return MeasuredAcceptance(
            record, choice, Conversion(choice.curve, text, record.counts.k_max, choice.warnings)
        )
    if record.rates:
        return MeasuredAcceptance(record, None, from_marginal(list(record.rates)))
    depth = record.k if record.k is not None else k
    if depth is None:
        raise InputError(
            f"{record.source}: only a mean acceptance length ({record.acceptance_length:g}) and no draft "
            "length; "
            "say how many tokens were drafted with --k"
        )
    return MeasuredAcceptance(
        record, None, from_acceptance_length(k=depth, acceptance_length=record.acceptance_length)
    )


def times_from_files(
    paths: Sequence[Path | str], *, format: str | None = None, k: int | None = None
) -> Times:
    """Read measured step, draft, verify and decode times from one or several files of one format."""
    return read_timing([Path(p) for p in paths], format=format, k=k)


def acceptance_json(measured: MeasuredAcceptance) -> dict[str, Any]:
    """Schema 1."""
    record, choice = measured.record, measured.choice
    curve = measured.conversion.curve
    named = curve.named_params
    intervals: list[list[float]] = []
    if record.counts is not None:
        low, high = record.counts.wilson()
        intervals = [[float(a), float(b)] for a, b in zip(low, high, strict=True)]
    return {
        "schema": 1,
        "format": record.format,
        "engine": record.engine,
        "source": record.source,
        "acceptance_length": record.acceptance_length,
        "reported_acceptance_length": record.reported_acceptance_length,
        "draft_acceptance_rate": record.draft_acceptance_rate,
        "conditional": list(record.conditional),
        "conditional_95": intervals,
        "marginal": list(record.marginal),
        "n_steps": record.n_steps,
        "k": record.k,
        "biased": record.biased,
        "al_by_k": [list(item) for item in record.al_by_k],
        "fit": {
            "form": curve.form,
            "c1": named.get("c1"),
            "decay": named.get("decay"),
            "a": named.get("a"),
            "b": named.get("b"),
            "text": measured.conversion.text,
            "tried": [
                {"form": fit.form, "aic": fit.aic, "values": {n: list(v) for n, v in fit.named.items()}}
                for fit in (choice.fits if choice is not None else ())
            ],
        },
        "warnings": list(measured.warnings),
    }
