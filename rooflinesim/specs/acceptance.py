"""Stored acceptance: one drafter on one workload, as published numbers or as a stated default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinesim.specs.base import Frozen, Kind

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]

#: The names of a parametric form's numbers.
FORM_PARAMS = {"geometric": ("c1", "decay"), "beta": ("a", "b"), "split": ("a1", "b", "rho")}


class AcceptanceSpec(Frozen):
    """Acceptance of one drafter on one workload; exactly one of the four number fields is given.

    ``params`` belongs to the parametric ``form``; ``conditional`` and ``marginal`` are by position;
    ``acceptance_length`` maps K to AL, each K measured on its own (bonus token included).
    """

    id: str
    aliases: tuple[str, ...] = ()
    method: str
    target: str | None = None
    draft: str | None = None
    dataset: str | None = None
    workloads: tuple[str, ...] = ()
    temperature: float | None = Field(None, ge=0.0)
    form: Literal["geometric", "beta", "split"] | None = None
    params: dict[str, float] | None = None
    conditional: tuple[Fraction, ...] | None = None
    marginal: tuple[Fraction, ...] | None = None
    acceptance_length: dict[int, float] | None = None
    kind: Kind
    source: str
    notes: str = ""

    @model_validator(mode="after")
    def _one_form(self) -> AcceptanceSpec:
        given = [
            name
            for name in ("params", "conditional", "marginal", "acceptance_length")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of params, conditional, marginal, acceptance_length "
                f"(given: {', '.join(given) or 'none'})"
            )
        if (self.form is None) != (self.params is None):
            raise ValueError("form and params belong together")
        if self.form is not None and self.params is not None:
            wanted = FORM_PARAMS[self.form]
            if set(self.params) != set(wanted):
                raise ValueError(f"params of form {self.form} are {', '.join(wanted)}")
        for k, al in (self.acceptance_length or {}).items():
            if k < 1 or not 1.0 <= al <= k + 1:
                raise ValueError(f"acceptance_length at K = {k} is {al:g}, outside 1..{k + 1}")
        return self
