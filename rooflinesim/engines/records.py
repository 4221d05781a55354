"""What the importers hand over: measured times, measured acceptance, step-cost tables, findings. SI units."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rooflinesim.acceptance import PositionCounts
from rooflinesim.acceptance.formulas import conditional_from_marginal
from rooflinesim.errors import InputError

What = Literal["step", "draft", "verify", "decode"]


@dataclass(frozen=True, kw_only=True)
class TimingRecord:
    """One measured time.

    batch_size
        sequences in the step (N).
    n_tokens
        tokens the target processed: N·(K+1) of a pure decode or verify step.
    k
        drafted tokens per sequence; 0 for plain decode.
    context_tokens
        KV length per sequence; None where the format does not say.
    seconds
        the time.
    what
        ``step`` a whole draft+verify step with speculation on, ``draft`` / ``verify`` its parts, ``decode``
        a plain step with speculation off.
    source
        file and identity used ("run.json: TPOT x AL").
    clock
        ``wall`` includes host, sampling and scheduling; ``gpu`` is the graph alone.
    n_samples
        how many measurements the value is the median (or mean) of; 1 where unknown.
    """

    batch_size: int
    n_tokens: int
    k: int
    context_tokens: float | None
    seconds: float
    what: What
    source: str
    clock: Literal["wall", "gpu"] = "wall"
    n_samples: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.n_tokens < 1 or self.k < 0 or not 0.0 < self.seconds < float("inf"):
            raise InputError(
                f"{self.source}: not a measurement (batch {self.batch_size}, tokens "
                f"{self.n_tokens}, K {self.k}, "
                f"{self.seconds:g} s)"
            )


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecord:
    """Measured acceptance of one import.

    counts
        per-position counts; None when the format holds no more than means.
    k
        drafted tokens per step; the largest, when steps differ; None when the format does not say.
    acceptance_length
        tokens per step including the bonus token, from the counts where there are any.
    reported_acceptance_length
        what the engine printed.
    draft_acceptance_rate
        accepted / drafted (a fraction; falls with K by arithmetic, so it never compares two K).
    rates
        marginal rates by position, for formats that give rates but no counts.
    al_by_k
        (K, acceptance length, steps) where the data hold several K.
    """

    format: str
    engine: str
    source: str
    acceptance_length: float
    counts: PositionCounts | None = None
    k: int | None = None
    n_steps: float | None = None
    reported_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    rates: tuple[float, ...] | None = None
    al_by_k: tuple[tuple[int, float, float], ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def has_positions(self) -> bool:
        """Whether acceptance is known by position."""
        return self.counts is not None or self.rates is not None

    @property
    def biased(self) -> bool:
        """Whether steps with too few drafts stand in the denominators of later positions."""
        return self.counts is not None and self.counts.biased

    @property
    def marginal(self) -> tuple[float, ...]:
        """p_i = P(position i accepted); empty without per-position data."""
        if self.counts is not None:
            return tuple(float(rate) for rate in self.counts.marginal)
        return self.rates or ()

    @property
    def conditional(self) -> tuple[float, ...]:
        """c_i = P(position i accepted | all before it were); empty without per-position data."""
        if self.counts is not None:
            return tuple(float(rate) for rate in self.counts.conditional)
        return (
            tuple(float(rate) for rate in conditional_from_marginal(list(self.rates))) if self.rates else ()
        )


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """A step-cost table of an engine, as (tokens, seconds) and, when additive, (requests, seconds) points.

    ``flat`` (SGLang): the step time of M tokens is that of the largest sampled size that is not larger (a
    staircase). ``additive``: bias + alpha(requests) + theta(tokens), each linear between points, clamped
    outside. Sources: SGLang 0.5.23 ``speculative/dspark_components/dspark_sps.py``; TensorRT-LLM's
    speculative-decoding page (confidence scheduling).
    """

    form: Literal["flat", "additive"]
    token_counts: tuple[float, ...]
    token_s: tuple[float, ...]
    batch_sizes: tuple[float, ...] = ()
    batch_s: tuple[float, ...] = ()
    bias_s: float = 0.0
    engine: str = ""
    source: str = ""

    def seconds(self, *, batch_size: float, n_tokens: float) -> float:
        """The step time the engine's own lookup gives.

        >>> flat = StepTable(form="flat", token_counts=(8, 64), token_s=(1 / 180, 1 / 165))
        >>> round(1 / flat.seconds(batch_size=4, n_tokens=63))
        180
        """
        if self.form == "flat":
            index = max(bisect_right(self.token_counts, n_tokens) - 1, 0)
            return self.token_s[index]
        theta = interpolate(x=n_tokens, points=self.token_counts, values=self.token_s)
        return self.bias_s + interpolate(x=batch_size, points=self.batch_sizes, values=self.batch_s) + theta


def interpolate(*, x: float, points: Sequence[float], values: Sequence[float]) -> float:
    """Linear between ``points``, clamped to the end values outside.

    >>> interpolate(x=5, points=(0, 10), values=(1.0, 3.0))
    2.0
    """
    if x <= points[0]:
        return values[0]
    if x >= points[-1]:
        return values[-1]
    hi = bisect_right(points, x)
    lo = hi - 1
    share = (x - points[lo]) / (points[hi] - points[lo])
    return values[lo] + share * (values[hi] - values[lo])


@dataclass(frozen=True)
class Finding:
    """Something the user should know of a configuration: ``code`` is stable, ``message`` is one line."""

    code: str
    message: str
    level: Literal["error", "warning", "note"] = "warning"


@dataclass(frozen=True, kw_only=True)
class EngineText:
    """What an emitter wrote: the configuration file's text, the launch line, what makes it true, and
    warnings."""

    engine: str
    file_name: str
    text: str
    launch: str
    settings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
