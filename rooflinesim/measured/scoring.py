"""Predictions for measured serving rows, deployment by deployment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from rooflinesim.accuracy import score
from rooflinesim.api import Scenario, resolve
from rooflinesim.errors import RooflinesimError
from rooflinesim.grid import FloatArray
from rooflinesim.measured.serving_rows import ServingRow, read_rows, split
from rooflinesim.serving import Serving, serve
from rooflinesim.step import Deployment
from rooflinesim.uncertainty import family_log_sd

STATISTICS: Final = ("mape", "median", "bias", "within_10", "within_20")


@dataclass(frozen=True)
class ScoredRow:
    """One row with its prediction and the spread σ of its logarithm, or with the reason why there is none."""

    row: ServingRow
    tpot_s: float = float("nan")
    ttft_s: float = float("nan")
    families: dict[str, float] = field(default_factory=dict)
    spread: float = float("nan")
    prefill_share_frac: float = float("nan")
    running: float = float("nan")
    why_not: str = ""

    @property
    def answered(self) -> bool:
        """Whether there is a prediction."""
        return not self.why_not

    @property
    def error(self) -> float:
        """predicted / measured − 1 of TPOT."""
        return self.tpot_s / self.row.tpot_s - 1.0


def predict_rows(rows: Iterable[ServingRow], **override: Any) -> list[ScoredRow]:
    """Predict every row; rows of one deployment are one vectorised call. ``override`` replaces scenario
    fields."""
    groups: dict[tuple[Scenario, int | None, int, bool, float | None], list[ServingRow]] = defaultdict(list)
    out: list[ScoredRow] = []
    for row in rows:
        if row.scenario is None:
            out.append(ScoredRow(row, why_not=row.note or "no scenario"))
        elif not np.isfinite([row.concurrency, row.tpot_s]).all() or row.concurrency < 1:
            out.append(ScoredRow(row, why_not="no concurrency or no TPOT in the row"))
        else:
            key = (
                row.scenario,
                row.max_num_batched_tokens,
                row.stream_interval,
                row.in_phase,
                row.waves,
            )
            groups[key].append(row)
    for (scenario, budget, interval, in_phase, waves), members in groups.items():
        try:
            deployment = resolve(scenario.model_copy(update=override) if override else scenario).deployment
            result = serve(
                streamed(deployment, interval),
                concurrency=_column(members, "concurrency"),
                isl_tokens=_column(members, "isl_tokens"),
                osl_tokens=_column(members, "osl_tokens"),
                max_num_batched_tokens=budget,
                in_phase=in_phase,
                waves=waves,
            )
        except RooflinesimError as error:
            out.extend(ScoredRow(row, why_not=str(error)) for row in members)
            continue
        out.extend(_scored(row, result, i) for i, row in enumerate(members))
    return sorted(out, key=lambda s: s.row.row)


def streamed(deployment: Deployment, interval: int) -> Deployment:
    """Host work per request (one piece of a streamed answer) done every ``interval`` steps."""
    host = deployment.profile.host
    host = host.model_copy(update={"per_request_s": host.per_request_s / interval})
    return replace(deployment, profile=deployment.profile.model_copy(update={"host": host}))


def _column(rows: list[ServingRow], name: str) -> FloatArray:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _scored(row: ServingRow, result: Serving, i: int) -> ScoredRow:
    return ScoredRow(
        row=row,
        tpot_s=float(result.tpot_s[i]),
        ttft_s=float(result.ttft_s[i]),
        families={k: float(v[i]) for k, v in result.families.items()},
        spread=float(family_log_sd(result.families, result.log_sd)[i]),
        prefill_share_frac=float(result.prefill_share_frac[i]),
        running=float(result.running[i]),
    )


def score_serving_rows(*, held_out: bool = True) -> list[tuple[float, float, dict[str, Any]]]:
    """(predicted TPOT, measured TPOT, keys) of every answered row; ``held_out``: only the pairs nothing was
    fitted on."""
    fitted, scored = split(read_rows())
    rows = scored if held_out else [*fitted, *scored]
    return [(s.tpot_s, s.row.tpot_s, s.row.keys) for s in predict_rows(rows) if s.answered]


def scores_by(scored: Iterable[ScoredRow], *keys: str) -> list[dict[str, Any]]:
    """Errors of TPOT (and the median error of TTFT) for each combination of ``ServingRow.keys`` named.

    ``coverage`` is the share of rows with a prediction. Fractions, rounded to four places.
    """
    groups: dict[tuple[Any, ...], list[ScoredRow]] = defaultdict(list)
    for row in scored:
        groups[tuple(row.row.keys[key] for key in keys)].append(row)
    out = []
    for values, members in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        line: dict[str, Any] = {**dict(zip(keys, values, strict=True)), "n": len(members)}
        known = [m for m in members if m.answered]
        line["coverage"] = round(len(known) / len(members), 4)
        if known:
            s = score(predicted=[m.tpot_s for m in known], measured=[m.row.tpot_s for m in known])
            first = np.median([abs(m.ttft_s / m.row.ttft_s - 1.0) for m in known])
            line |= {name: round(float(getattr(s, name)), 4) for name in STATISTICS}
            line["ttft_median"] = round(float(first), 4)
        out.append(line)
    return out
