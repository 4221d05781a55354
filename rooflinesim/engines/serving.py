"""Step times out of serving benchmarks, whose files hold TPOT and ITL but no step time.

Two identities: TPOT·AL = step time, always; ITL = step time where one streamed chunk is one engine step
(vLLM's bench with stream interval 1). SGLang's bench divides ITL by the chunk's tokens on its OpenAI back
ends, so there ITL = TPOT; engines that gather several steps into a chunk have ITL/TPOT > K+1. Which of them
holds is told from ITL/TPOT against AL.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rooflinesim.engines.reading import number
from rooflinesim.engines.records import TimingRecord, What
from rooflinesim.errors import InputError

#: Relative tolerance of "ITL/TPOT is AL" and "ITL/TPOT is 1": means over requests of unlike length differ a
#: little.
TOLERANCE: Final = 0.15
_MS: Final = 1e-3


@dataclass
class Times:
    """Records and warnings while they are gathered."""

    records: list[TimingRecord] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning once; a file of a thousand alike runs does not print a thousand lines."""
        if text not in self.warnings and len(self.warnings) < 50:
            self.warnings.append(text)


def step_from_latencies(
    *,
    tpot_s: float,
    itl_s: float | None,
    acceptance_length: float | None,
    k: int | None,
    where: str,
    times: Times,
) -> tuple[float, str] | None:
    """(step time, identity used) from TPOT, ITL and AL; None when they cannot give one.

    >>> given = {"acceptance_length": 2.41, "k": 3, "where": "", "times": Times()}
    >>> step_from_latencies(tpot_s=0.00398, itl_s=0.0096, **given)
    (0.0096, 'ITL')
    """
    ratio = itl_s / tpot_s if itl_s is not None else None
    if acceptance_length is None:
        return _without_acceptance(tpot_s, itl_s, ratio, k=k, where=where, times=times)
    product = tpot_s * acceptance_length
    if ratio is None or itl_s is None:
        return product, "TPOT x AL"
    if abs(ratio / acceptance_length - 1.0) <= TOLERANCE:
        return itl_s, "ITL"
    if k is not None and ratio > (k + 1) * (1 + TOLERANCE):
        times.warn(
            f"{where}: ITL/TPOT = {ratio:.3g} is above K+1 = {k + 1}: ITL is a "
            "stream interval of several steps, "
            "not a step; TPOT x AL is used"
        )
    elif abs(ratio - 1.0) > TOLERANCE:
        times.warn(
            f"{where}: ITL/TPOT = {ratio:.3g} is neither AL = {acceptance_length:.3g} "
            "nor 1; TPOT x AL is used"
        )
    return product, "TPOT x AL"


def _without_acceptance(
    tpot_s: float, itl_s: float | None, ratio: float | None, *, k: int | None, where: str, times: Times
) -> tuple[float, str] | None:
    if ratio is None or itl_s is None or abs(ratio - 1.0) <= TOLERANCE:
        if not k:
            return tpot_s, "TPOT"
        times.warn(f"{where}: K = {k} without an acceptance length: TPOT gives no step time; skipped")
        return None
    if k and ratio <= (k + 1) * (1 + TOLERANCE):
        times.warn(f"{where}: no acceptance length in the file; ITL is taken as the step time")
        return itl_s, "ITL"
    times.warn(
        f"{where}: ITL/TPOT = {ratio:.3g} without an acceptance length: "
        "speculation without counters, or a stream "
        "interval; skipped"
    )
    return None


def add_run(
    run: Mapping[str, Any],
    *,
    acceptance_length: float | None,
    k: int | None,
    where: str,
    times: Times,
) -> None:
    """One serving run (vLLM's and SGLang's key names are alike) as a record."""
    tpot, itl = _typical(run, "tpot", where), _typical(run, "itl", where)
    if tpot is None:
        times.warn(f"{where}: no tpot_ms; skipped")
        return
    found = step_from_latencies(
        tpot_s=tpot, itl_s=itl, acceptance_length=acceptance_length, k=k, where=where, times=times
    )
    if found is None:
        return
    depth = k if k is not None else 0 if acceptance_length is None else None
    if depth is None:
        times.warn(f"{where}: speculative run of unknown K; state K; skipped")
        return
    step_s, identity = found
    batch = _batch(run, tpot=tpot, where=where, times=times)
    if batch is None:
        return
    completed = number(run.get("completed"), field=f"{where}: completed")
    what: What = "step" if depth > 0 or acceptance_length is not None else "decode"
    times.records.append(
        TimingRecord(
            batch_size=batch,
            n_tokens=batch * (depth + 1),
            k=depth,
            context_tokens=_context(run, where=where),
            seconds=step_s,
            what=what,
            source=f"{where}: {identity}",
            n_samples=max(int(completed or 1), 1),
        )
    )


def _typical(run: Mapping[str, Any], name: str, where: str) -> float | None:
    """The median if it is there, else the mean (a prefill in between stretches the mean), in seconds."""
    for statistic in ("median", "mean"):
        key = f"{statistic}_{name}_ms"
        value = number(run.get(key), field=f"{where}: {key}", maximum=1e9)
        if value:
            return value * _MS
    return None


def _batch(run: Mapping[str, Any], *, tpot: float, where: str, times: Times) -> int | None:
    """Requests decoding at once: output rate x TPOT (Little's law); the concurrency where the two agree."""
    limit = number(run.get("max_concurrency"), field=f"{where}: max_concurrency", maximum=1e7)
    rate = number(run.get("output_throughput"), field=f"{where}: output_throughput", maximum=1e12)
    busy = rate * tpot if rate else None
    if busy is None and limit is None:
        times.warn(f"{where}: neither max_concurrency nor output_throughput; skipped")
        return None
    if limit is not None and (busy is None or busy >= 0.75 * limit):
        return max(round(limit), 1)
    assert busy is not None
    if limit is not None:
        times.warn(f"{where}: about {busy:.3g} requests decode at once, not max_concurrency = {limit:g}")
    if busy > 1e7:
        raise InputError(f"{where}: output_throughput x TPOT = {busy:.3g} requests is not a batch size")
    return max(round(busy), 1)


def _context(run: Mapping[str, Any], *, where: str) -> float | None:
    """Mean KV length over a request's decode: input + half of the output."""
    completed = number(run.get("completed"), field=f"{where}: completed")
    given = number(run.get("total_input_tokens"), field=f"{where}: total_input_tokens")
    made = number(run.get("total_output_tokens"), field=f"{where}: total_output_tokens")
    if not completed or given is None or made is None:
        return None
    return (given + made / 2) / completed


def medians(
    groups: Mapping[tuple[int, int, int, What], list[float]],
    *,
    source: str,
    contexts: Mapping[tuple[int, int, int, What], float] | None = None,
) -> list[TimingRecord]:
    """One record per (batch, tokens, K, what): the median of its times."""
    return [
        TimingRecord(
            batch_size=batch,
            n_tokens=n_tokens,
            k=k,
            context_tokens=(contexts or {}).get((batch, n_tokens, k, what)),
            seconds=statistics.median(values),
            what=what,
            source=source,
            n_samples=len(values),
        )
        for (batch, n_tokens, k, what), values in sorted(groups.items())
    ]


def ask_k(source: str, what: Iterable[str] = ()) -> InputError:
    """The question where a format does not hold K."""
    return InputError(f"{source}: K is not in the file{''.join(what)}; state it")
