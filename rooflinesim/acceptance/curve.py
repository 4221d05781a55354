"""``AcceptanceCurve``: how likely the target accepts each drafted position; six forms, one interface."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.acceptance.formulas import (
    FloatArray,
    acceptance_length_table,
    beta_conditional,
    conditional_from_marginal,
    geometric_conditional,
    marginal_from_conditional,
    split_conditional,
)
from rooflinesim.errors import InputError

Form = Literal["geometric", "beta", "split", "table", "mixture", "by_context"]

#: Names of the numbers in ``params`` for each form that is made of named numbers.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "geometric": ("c1", "decay"),
    "beta": ("a", "b"),
    "split": ("a1", "b", "rho"),
}


def check_fraction(value: float, field: str) -> float:
    """``value`` if it is in [0, 1]; else the one-line error (percents are named as such)."""
    if not math.isfinite(value) or value < 0.0 or value > 1.0:
        hint = f"; write {value / 100:g} if it is a percentage" if 1.0 < value <= 100.0 else ""
        raise InputError(f"{field}: {value:g} is not a fraction between 0 and 1{hint}")
    return float(value)


def _check_positive(value: float, field: str) -> float:
    if not math.isfinite(value) or value <= 0.0:
        raise InputError(f"{field}: {value:g} must be a finite number above 0")
    return float(value)


@dataclass(frozen=True)
class AcceptanceCurve:
    """Acceptance by draft position; make one with the class methods, not with the constructor.

    Forms: ``geometric`` (c1, decay) · ``beta`` (a, b) · ``split`` (a1, b, rho) · ``table`` (conditionals,
    then ``beyond`` for every deeper position) · ``mixture`` (shares of *steps* x curves) · ``by_context``
    (context_tokens -> curve: marginals linear in the context between the given points, held outside them).

    >>> AcceptanceCurve.geometric(c1=0.8, decay=0.97).acceptance_length([1, 3, 5]).round(2).tolist()
    [1.8, 2.89, 3.47]
    """

    form: Form
    params: tuple[float, ...] = ()
    parts: tuple[AcceptanceCurve, ...] = ()
    beyond: float = 0.0  # table only: the conditional of every position after the last given one
    note: str = ""

    # ---- constructors -------------------------------------------------------------------------------------

    @classmethod
    def geometric(cls, *, c1: float, decay: float = 1.0, note: str = "") -> AcceptanceCurve:
        """c_i = clip(c1 · decay^(i-1)); decay = 1 gives AL = (1 - c^(K+1))/(1 - c).

        >>> float(AcceptanceCurve.geometric(c1=1.0).acceptance_length(7))
        8.0
        """
        return cls("geometric", (check_fraction(c1, "c1"), _check_positive(decay, "decay")), note=note)

    @classmethod
    def beta(cls, *, a: float, b: float, note: str = "") -> AcceptanceCurve:
        """Requests differ: flat rate c ~ Beta(a, b) per request, p_i = B(a+i, b)/B(a, b).

        >>> AcceptanceCurve.beta(a=2.9, b=2.0).conditional(3).round(3).tolist()
        [0.592, 0.661, 0.71]
        """
        return cls("beta", (_check_positive(a, "a"), _check_positive(b, "b")), note=note)

    @classmethod
    def split(cls, *, a1: float, b: float, rho: float = 1.0, note: str = "") -> AcceptanceCurve:
        """First position a1, then b · rho^(i-2): n-gram and suffix lookup.

        >>> AcceptanceCurve.split(a1=0.7, b=0.95).acceptance_length(3).round(3).item()
        2.997
        """
        params = (check_fraction(a1, "a1"), check_fraction(b, "b"), _check_positive(rho, "rho"))
        return cls("split", params, note=note)

    @classmethod
    def table(
        cls,
        *,
        conditional: Sequence[float],
        beyond: float | Literal["hold", "zero"] = "hold",
        note: str = "",
    ) -> AcceptanceCurve:
        """Measured conditionals; position n+1 and deeper use ``beyond``.

        ``"hold"`` repeats the last value (measured conditionals of chain drafters are flat or rise),
        ``"zero"`` accepts nothing there (the drafter cannot draft deeper), a number is used as it is.

        >>> AcceptanceCurve.table(conditional=[0.72, 0.6], beyond="zero").conditional(3).tolist()
        [0.72, 0.6, 0.0]
        """
        values = tuple(check_fraction(float(c), f"conditional[{i + 1}]") for i, c in enumerate(conditional))
        if not values:
            raise InputError("conditional: the list is empty; give at least one fraction")
        if isinstance(beyond, str):
            if beyond not in ("hold", "zero"):
                raise InputError(f"beyond: {beyond!r} is not one of hold, zero or a fraction")
            tail = values[-1] if beyond == "hold" else 0.0
        else:
            tail = check_fraction(beyond, "beyond")
        return cls("table", values, beyond=tail, note=note)

    @classmethod
    def mixture(
        cls, *, weights: Sequence[float], curves: Sequence[AcceptanceCurve], note: str = ""
    ) -> AcceptanceCurve:
        """Request classes mixed by their share of *steps*: p_i = Σ w_j p_ij, so AL is the weighted mean AL.

        Engines count steps; use ``step_shares`` when the shares known are of tokens.

        >>> easy, hard = AcceptanceCurve.geometric(c1=0.9), AcceptanceCurve.geometric(c1=0.5)
        >>> mix = AcceptanceCurve.mixture(weights=[1, 1], curves=[easy, hard])
        >>> mix.conditional(2).round(3).tolist()
        [0.7, 0.757]
        """
        if len(weights) != len(curves) or not curves:
            raise InputError(f"mixture: {len(weights)} weights for {len(curves)} curves; give one for each")
        total = float(sum(weights))
        if min(weights) < 0 or not math.isfinite(total) or total <= 0:
            raise InputError("mixture: weights must be finite, not negative and not all zero")
        _no_context(curves, "mixture")
        return cls("mixture", tuple(float(w) / total for w in weights), tuple(curves), note=note)

    @classmethod
    def by_context(
        cls, *, context_tokens: Sequence[float], curves: Sequence[AcceptanceCurve], note: str = ""
    ) -> AcceptanceCurve:
        """A curve per context length; marginals are linear in context_tokens between the points.

        >>> near, far = AcceptanceCurve.geometric(c1=0.9), AcceptanceCurve.geometric(c1=0.5)
        >>> curve = AcceptanceCurve.by_context(context_tokens=[0, 1000], curves=[near, far])
        >>> curve.acceptance_length(1, context_tokens=[0, 500, 9000]).round(2).tolist()
        [1.9, 1.7, 1.5]
        """
        points = tuple(float(c) for c in context_tokens)
        if len(points) != len(curves) or not curves:
            raise InputError(
                f"by_context: {len(points)} contexts for {len(curves)} curves; give one for each"
            )
        if points[0] < 0 or any(b <= a for a, b in pairwise(points)):
            raise InputError("by_context: context_tokens must rise strictly and not be negative")
        _no_context(curves, "by_context")
        return cls("by_context", points, tuple(curves), note=note)

    @classmethod
    def from_params(cls, form: str, params: Mapping[str, float], *, note: str = "") -> AcceptanceCurve:
        """A geometric, beta or split curve from its numbers by name.

        >>> AcceptanceCurve.from_params("geometric", {"c1": 0.7, "decay": 0.9}).describe()
        'geometric (c1 = 0.7, decay = 0.9)'
        """
        if form == "geometric":
            return cls.geometric(c1=params["c1"], decay=params.get("decay", 1.0), note=note)
        if form == "beta":
            return cls.beta(a=params["a"], b=params["b"], note=note)
        if form == "split":
            return cls.split(a1=params["a1"], b=params["b"], rho=params.get("rho", 1.0), note=note)
        raise InputError(f"acceptance form {form!r} is not one of {', '.join(PARAMETERS)}")

    # ---- what it is ---------------------------------------------------------------------------------------

    @property
    def depends_on_context(self) -> bool:
        """Whether ``context_tokens`` must be given."""
        return self.form == "by_context"

    @property
    def named_params(self) -> dict[str, float]:
        """The parameters by name: ``{"c1": .., "decay": ..}``; empty for tables, mixtures and contexts.

        >>> AcceptanceCurve.geometric(c1=0.7).named_params
        {'c1': 0.7, 'decay': 1.0}
        """
        names = PARAMETERS.get(self.form, ())
        return dict(zip(names, self.params[: len(names)], strict=True)) if names else {}

    def describe(self) -> str:
        """One line for people.

        >>> AcceptanceCurve.split(a1=0.3, b=0.81).describe()
        'split (a1 = 0.3, b = 0.81, rho = 1)'
        """
        if self.form == "table":
            listed = ", ".join(f"{c:.3g}" for c in self.params)
            return f"table of conditionals ({listed}; then {self.beyond:.3g})"
        if self.form == "mixture":
            return " + ".join(
                f"{w:.3g} x {c.describe()}" for w, c in zip(self.params, self.parts, strict=True)
            )
        if self.form == "by_context":
            return f"curve by context ({', '.join(f'{c:g}' for c in self.params)} tokens)"
        inner = ", ".join(f"{name} = {value:.4g}" for name, value in self.named_params.items())
        return f"{self.form} ({inner})"

    # ---- numbers ------------------------------------------------------------------------------------------

    def conditional(self, k_max: int, *, context_tokens: ArrayLike | None = None) -> FloatArray:
        """c_1..c_k_max, fractions; shape (k_max,), or context_tokens.shape + (k_max,) by context."""
        if k_max < 0:
            raise InputError(f"k_max: {k_max} must not be negative")
        if self.form == "geometric":
            return geometric_conditional(c1=self.params[0], decay=self.params[1], k_max=k_max)
        if self.form == "beta":
            return beta_conditional(a=self.params[0], b=self.params[1], k_max=k_max)
        if self.form == "split":
            return split_conditional(a1=self.params[0], b=self.params[1], rho=self.params[2], k_max=k_max)
        if self.form == "table":
            return np.array([*self.params[:k_max], *[self.beyond] * (k_max - len(self.params))])
        return conditional_from_marginal(self.marginal(k_max, context_tokens=context_tokens))

    def marginal(self, k_max: int, *, context_tokens: ArrayLike | None = None) -> FloatArray:
        """p_1..p_k_max, fractions that never rise; shape as ``conditional``."""
        if self.form == "mixture":
            each = np.stack([part.marginal(k_max) for part in self.parts])
            mixed: FloatArray = np.asarray(self.params) @ each
            return mixed
        if self.form == "by_context":
            if context_tokens is None:
                raise InputError("context_tokens: this acceptance curve depends on the context; give it")
            each = np.stack([part.marginal(k_max) for part in self.parts])
            at = np.asarray(context_tokens, dtype=np.float64)
            index = np.interp(at, np.asarray(self.params), np.arange(len(self.params), dtype=np.float64))
            low = np.minimum(index.astype(np.intp), len(self.params) - 1)
            high = np.minimum(low + 1, len(self.params) - 1)
            part = (index - low)[..., None]
            mixed = (1.0 - part) * each[low] + part * each[high]
            return mixed
        return marginal_from_conditional(self.conditional(k_max))

    def acceptance_length(self, k: ArrayLike, *, context_tokens: ArrayLike | None = None) -> FloatArray:
        """AL(K) in tokens per step, bonus token included: 1 <= AL <= K+1, AL(0) = 1.

        k: drafted tokens, integers >= 0, any shape. Returns the shape of k; by context, the broadcast of k
        and ``context_tokens`` (so k of shape (K, 1) and contexts of shape (C,) give (K, C)).

        >>> AcceptanceCurve.beta(a=2.0, b=1.0).acceptance_length([0, 1, 2]).round(4).tolist()
        [1.0, 1.6667, 2.1667]
        """
        given = np.asarray(k)
        index = given.astype(np.intp)
        if np.any(index != given) or np.any(index < 0):
            raise InputError(f"k: {k!r} must be whole numbers that are not negative")
        k_max = int(index.max()) if index.size else 0
        if not self.depends_on_context:
            out: FloatArray = acceptance_length_table(self.conditional(k_max))[index]
            return out
        if context_tokens is None:
            raise InputError("context_tokens: this acceptance curve depends on the context; give it")
        contexts, inverse = np.unique(np.asarray(context_tokens, dtype=np.float64), return_inverse=True)
        table = acceptance_length_table(self.conditional(k_max, context_tokens=contexts))
        out = table[inverse.reshape(np.shape(context_tokens)), index]
        return out


def _no_context(curves: Sequence[AcceptanceCurve], where: str) -> None:
    if any(curve.depends_on_context for curve in curves):
        raise InputError(f"{where}: a curve by context cannot be a part; put the {where} inside it")


def step_shares(*, token_shares: ArrayLike, acceptance_length: ArrayLike) -> FloatArray:
    """Shares of steps from shares of output tokens: a class that emits AL tokens a step takes 1/AL steps.

    w_j ∝ t_j / AL_j. token_shares, acceptance_length: shape (classes,). Returns fractions that sum to 1.

    >>> step_shares(token_shares=[0.5, 0.5], acceptance_length=[1.0, 3.0]).tolist()
    [0.75, 0.25]
    """
    steps = np.asarray(token_shares, dtype=np.float64) / np.asarray(acceptance_length, dtype=np.float64)
    out: FloatArray = steps / steps.sum()
    return out
