"""The frozen pydantic base, and values that carry their unit, source and kind."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

#: How a stored number came to be. Facts, fits and guesses never share a file.
Kind = Literal["datasheet", "paper", "measured", "derived", "guess"]


class Frozen(BaseModel):
    """Immutable, strict about unknown keys, compared by value."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quantity(Frozen):
    """One stored number: ``value`` in ``unit``, with where it came from."""

    value: float
    unit: str
    kind: Kind
    source: str


class Estimate(Frozen):
    """One fitted number with its standard error (same unit as the field's name says)."""

    value: float
    stderr: float | None = None
