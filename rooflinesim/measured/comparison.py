"""Side by side with aiconfigurator's own estimates of the same measured rows, coverage included."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from rooflinesim.accuracy import score
from rooflinesim.measured.scoring import ScoredRow, predict_rows
from rooflinesim.measured.serving_rows import ServingRow, read_rows
from rooflinesim.specs.files import spec_root

#: Estimates of a fixed sample, made once with the tool itself; how is said in the YAML file beside it.
ESTIMATES: Final = "comparisons/aiconfigurator_0.12.0.csv"


def estimates() -> dict[int, tuple[float, float]]:
    """Row → (TPOT, TTFT) in seconds of the other tool; ``nan`` where it gave none."""
    with (spec_root("validation") / ESTIMATES).open(newline="", encoding="utf-8") as handle:
        return {
            int(line["row"]): (_seconds(line["tpot_ms"]), _seconds(line["ttft_ms"]))
            for line in csv.DictReader(handle)
        }


def _seconds(text: str) -> float:
    return float(text) * 1e-3 if text else float("nan")


def _statistics(
    rows: Iterable[ServingRow], tpot: Callable[[ServingRow], float], ttft: Callable[[ServingRow], float]
) -> dict[str, Any]:
    known = [r for r in rows if np.isfinite(tpot(r))]
    if not known:
        return {"n": 0}
    s = score(predicted=[tpot(r) for r in known], measured=[r.tpot_s for r in known])
    first = [abs(ttft(r) / r.ttft_s - 1.0) for r in known]
    values = {"mape": s.mape, "median": s.median, "bias": s.bias, "within_10": s.within_10}
    values |= {"within_20": s.within_20, "ttft_median": float(np.median(first))}
    return {"n": s.n, **{name: round(value, 4) for name, value in values.items()}}


def side_by_side() -> list[dict[str, Any]]:
    """Errors of both tools on the sampled rows: all, by engine, by accelerator, by model.

    ``coverage`` is the share of sampled rows the other tool answered; ``here_same_rows`` are this model's
    errors on exactly those, ``here`` on all it answers.
    """
    theirs = estimates()
    rows = [r for r in read_rows() if r.row in theirs]
    ours: dict[int, ScoredRow] = {s.row.row: s for s in predict_rows(rows)}

    def line(name: str, some: list[ServingRow]) -> dict[str, Any]:
        answered = [r for r in some if np.isfinite(theirs[r.row][0])]

        def tpot(r: ServingRow) -> float:
            return ours[r.row].tpot_s

        def ttft(r: ServingRow) -> float:
            return ours[r.row].ttft_s

        return {
            "subset": name,
            "sampled": len(some),
            "coverage": round(len(answered) / len(some), 3),
            "aiconfigurator": _statistics(some, lambda r: theirs[r.row][0], lambda r: theirs[r.row][1]),
            "here_same_rows": _statistics(answered, tpot, ttft),
            "here": _statistics(some, tpot, ttft),
        }

    out = [line("all", rows)]
    for key in ("engine", "gpu", "model"):
        names = sorted({getattr(r, key) for r in rows})
        out.extend(line(f"{key} {name}", [r for r in rows if getattr(r, key) == name]) for name in names)
    return out
