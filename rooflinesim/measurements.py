"""Reading measurements: the table of a validation campaign, or a user's own CSV.

Required columns: ``batch_size``, ``metric``, ``value``. Instead of the last two a table may have one column
per metric, such as ``tpot_ms`` or ``acceptance_length``. Optional columns:

* ``k``: drafted tokens, 0 = no speculation; ``context_tokens``; ``unit``
* ``query_tokens``: tokens per sequence in the timed pass (default k + 1)
* ``spread_frac``: relative standard deviation of the value; ``n``: runs behind it; ``notes``
* ``group``: which setup of a campaign
* ``use``: ``score``, ``given`` (an input of the prediction) or ``fit`` (a constant was fitted on it: never
  scored)
* ``draft_steps``, ``draft_topk``: tree drafts, passes of the drafter and branches; k is then the nodes
* ``prompt_tokens``, ``output_tokens``: for end-to-end latencies

Files are untrusted: size, rows and cells are bounded; every refusal is one line with the line number.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rooflinesim.errors import InputError, near_misses, unknown_name

MAX_BYTES: Final = 8_000_000
MAX_ROWS: Final = 50_000
MAX_COLUMNS: Final = 500
MAX_CELL_CHARS: Final = 2_000

MAX_VALUE: Final = 1e12
#: Larger numbers are a slip of the pen, not a deployment.
LARGEST: Final = {
    "batch_size": 1e6,
    "k": 1024,
    "query_tokens": 1e6,
    "context_tokens": 1e8,
    "spread_frac": 10.0,
    "n": 1e9,
    "draft_steps": 1024,
    "draft_topk": 1024,
    "prompt_tokens": 1e8,
    "output_tokens": 1e8,
}

#: Quantity → the names people give it. Seconds, tokens per second, tokens, ratios inside.
METRICS: Final[dict[str, tuple[str, ...]]] = {
    "step_s": ("step", "step_time", "itl", "iteration_time", "sd_step"),
    "off_step_s": ("off_step", "ar_step", "baseline_step"),
    "verify_s": ("verify", "verify_time", "target_pass", "target_forward"),
    "draft_s": ("draft", "draft_time", "drafting"),
    "tpot_s": ("tpot", "time_per_output_token"),
    "output_tokens_per_s": (
        "throughput",
        "output_throughput",
        "goodput_tokens_per_s",
        "tokens_per_s",
        "tok/s",
        "tps",
    ),
    "request_tokens_per_s": ("tokens_per_s_per_user", "tok/s/user", "per_request_throughput"),
    "acceptance_length": ("al", "mean_acceptance_length", "accept_length", "tau"),
    "verify_ratio": ("verify_over_ar",),
    "speedup": ("speed_up", "speedup_vs_no_sd"),
    "peak_speedup": (),
    "e2e_speedup": (),
    "sample_s": ("sample", "sample_time"),
    "marginal_frac": ("survival",),
    # share of drafts accepted up to each position: recorded, an input of predictions
    **{f"accept_marginal_pos{i}": () for i in range(1, 33)},
    "gain_over_fixed_frac": (),
    "gain_over_off_frac": (),
    "best_k": (),
    "pass_ratio": (),
    "speedup_drop_frac": (),
    "draft_ratio": (),
    "experts_ratio": (),
}
_TIMES: Final = frozenset(name for name in METRICS if name.endswith("_s") and not name.endswith("per_s"))
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "seconds": 1.0}
_RATES: Final = {"tok/s": 1.0, "tokens/s": 1.0, "tok/s/user": 1.0}
_PLAIN: Final = {"x": 1.0, "ratio": 1.0, "tokens": 1.0, "tokens/step": 1.0, "frac": 1.0, "%": 1e-2}
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "batch_size": ("bs", "batch", "concurrency", "max_concurrency", "n_seqs"),
    "k": ("num_speculative_tokens", "draft_tokens"),
    "query_tokens": ("q",),
    "context_tokens": ("context", "ctx", "context_len", "kv_tokens"),
    "metric": (),
    "value": (),
    "unit": (),
    "spread_frac": ("spread",),
    "n": ("runs", "repeats"),
    "notes": ("note", "comment"),
    "group": ("case", "setup"),
    "use": (),
    "draft_steps": ("num_steps",),
    "draft_topk": ("topk",),
    "prompt_tokens": ("isl",),
    "output_tokens": ("osl",),
}
USES: Final = ("score", "given", "fit")


@dataclass(frozen=True)
class Measurement:
    """One measured number in SI units, with the point it was measured at."""

    batch_size: float
    metric: str
    value: float
    k: int = 0
    query_tokens: float | None = None
    context_tokens: float | None = None
    spread_frac: float | None = None
    n: int | None = None
    notes: str = ""
    group: str = ""
    use: str = "score"
    draft_steps: int | None = None
    draft_topk: int = 1
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    line: int = 0

    @property
    def point(self) -> tuple[str, float, int, float | None]:
        """What identifies the setting: group, batch, K, context."""
        return self.group, self.batch_size, self.k, self.context_tokens


def _canonical(name: str, table: dict[str, tuple[str, ...]]) -> str | None:
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    for canon, aliases in table.items():
        if key == canon or key in aliases:
            return canon
    return None


def metric_of(name: str) -> tuple[str, str | None]:
    """Canonical metric of a printed name, and the unit in the name (``tpot_ms`` → ``tpot_s``, ``ms``).

    >>> metric_of("tpot_ms"), metric_of("AL"), metric_of("tok/s")
    (('tpot_s', 'ms'), ('acceptance_length', None), ('output_tokens_per_s', None))
    """
    found = _canonical(name, METRICS)
    if found is not None:
        return found, "s" if found in _TIMES and found == name.strip().lower() else None
    stem, _, unit = name.strip().rpartition("_")
    found = _canonical(stem, METRICS) if stem else None
    if found is None and stem:
        found = _canonical(f"{stem}_s", METRICS)
    if found is not None and unit.lower() in _SECONDS and found in _TIMES:
        return found, unit.lower()
    every = [n for canon, aliases in METRICS.items() for n in (canon, *aliases)]
    raise unknown_name("metric", name.strip(), every)


def to_si(value: float, *, metric: str, unit: str | None, where: str) -> float:
    """``value`` in the SI unit of ``metric``. Times need a unit: a bare 7.07 could be s or ms.

    >>> round(to_si(7.07, metric="tpot_s", unit="ms", where="x"), 6)
    0.00707
    """
    known = _SECONDS if metric in _TIMES else _RATES if metric.endswith("per_s") else _PLAIN
    if unit is None or not unit.strip():
        if metric in _TIMES:
            raise InputError(f"{where}: {metric}: a time needs a unit, one of {', '.join(_SECONDS)}")
        return value
    scale = known.get(unit.strip().lower())
    if scale is None:
        raise InputError(f"{where}: {metric}: unit {unit.strip()!r} is not one of {', '.join(known)}")
    return value * scale


def _number(text: str, *, field: str, where: str, low: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {field}: {text[:40]!r} is not a number") from None
    high = LARGEST.get(field, MAX_VALUE)
    if not math.isfinite(value) or value < low:
        raise InputError(f"{where}: {field}: {text[:40]!r} must be finite and at least {low:g}")
    if value > high:
        raise InputError(f"{where}: {field}: {text[:40]!r} is above {high:g}")
    return value


def _whole(text: str, *, field: str, where: str, low: int = 0) -> int:
    value = _number(text, field=field, where=where, low=low)
    if value != int(value):
        raise InputError(f"{where}: {field}: {text[:40]!r} is not a whole number")
    return int(value)


def _header(names: Sequence[str], name: str) -> tuple[dict[str, int], dict[int, tuple[str, str | None]]]:
    """Known columns by index, and, in a wide table, the metric columns."""
    if len(names) > MAX_COLUMNS:
        raise InputError(f"{name}: line 1: {len(names)} columns, at most {MAX_COLUMNS} are read")
    columns: dict[str, int] = {}
    wide: dict[int, tuple[str, str | None]] = {}
    for index, text in enumerate(names):
        canon = _canonical(text, _COLUMNS)
        if canon is not None:
            if canon in columns:
                raise InputError(f"{name}: line 1: two columns for {canon}")
            columns[canon] = index
    if "metric" not in columns:
        for index, text in enumerate(names):
            if index in columns.values() or not text.strip():
                continue
            try:
                wide[index] = metric_of(text)
            except InputError:
                continue  # columns of the user's own are not ours to judge
        columns.pop("value", None)
    missing = [c for c in ("batch_size",) if c not in columns]
    if "metric" in columns and "value" not in columns:
        missing.append("value")
    if "metric" not in columns and not wide:
        missing.append("metric and value (or one column per metric, such as tpot_ms)")
    if missing:
        shown = ", ".join(n.strip()[:30] for n in names[:12]) or "none"
        hints = near_misses(missing[0], [n.strip() for n in names])
        hint = f"; did you mean {hints[0]} to be it?" if hints else ""
        raise InputError(f"{name}: line 1: needs the column {' and '.join(missing)}, has {shown}{hint}")
    return columns, wide


def read_measurements(path: Path | str) -> tuple[Measurement, ...]:
    """Every row of the CSV, in order. Lines that start with ``#`` are comments."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{path}: no such file")
    if file.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 1_000_000} MB")
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            return tuple(_rows(handle, str(path)))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file ({error})") from None


def _rows(lines: Iterable[str], name: str) -> Iterable[Measurement]:
    reader = csv.reader(line for line in lines if not line.startswith("#"))
    header = next(reader, None)
    if header is None:
        raise InputError(f"{name}: empty")
    columns, wide = _header(header, name)
    count = 0
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        count += 1
        where = f"{name}: line {reader.line_num}"
        if count > MAX_ROWS:
            raise InputError(f"{where}: more than {MAX_ROWS} rows")
        if any(len(cell) > MAX_CELL_CHARS for cell in row):
            raise InputError(f"{where}: a cell longer than {MAX_CELL_CHARS} characters")
        if len(row) > len(header) and columns.get("notes") == len(header) - 1:
            row = [
                *row[: len(header) - 1],
                ",".join(row[len(header) - 1 :]),
            ]  # a comma in the notes, unquoted
        if len(row) > len(header):
            raise InputError(f"{where}: {len(row)} cells under {len(header)} column names")
        yield from _measurements(row, columns, wide, where, reader.line_num)
    if count == 0:
        raise InputError(f"{name}: a header but no rows")


def _measurements(
    row: list[str],
    columns: dict[str, int],
    wide: dict[int, tuple[str, str | None]],
    where: str,
    line: int,
) -> Iterable[Measurement]:
    def cell(column: str) -> str:
        index = columns.get(column, len(row))
        return row[index].strip() if index < len(row) else ""

    def optional(column: str, low: float = 0.0) -> float | None:
        text = cell(column)
        return _number(text, field=column, where=where, low=low) if text else None

    use = cell("use").lower() or "score"
    if use not in USES:
        raise InputError(f"{where}: use: {use[:40]!r} is not one of {', '.join(USES)}")
    steps, topk, runs = cell("draft_steps"), cell("draft_topk"), cell("n")
    base = Measurement(
        batch_size=_number(cell("batch_size"), field="batch_size", where=where, low=1.0),
        metric="",
        value=0.0,
        k=_whole(cell("k") or "0", field="k", where=where),
        query_tokens=optional("query_tokens", 1.0),
        context_tokens=optional("context_tokens"),
        spread_frac=optional("spread_frac"),
        n=_whole(runs, field="n", where=where, low=1) if runs else None,
        notes=cell("notes"),
        group=cell("group"),
        use=use,
        draft_steps=_whole(steps, field="draft_steps", where=where) if steps else None,
        draft_topk=_whole(topk, field="draft_topk", where=where, low=1) if topk else 1,
        prompt_tokens=optional("prompt_tokens", 1.0),
        output_tokens=optional("output_tokens", 1.0),
        line=line,
    )
    if wide:
        for index, (metric, unit) in wide.items():
            text = row[index].strip() if index < len(row) else ""
            if text:
                value = _number(text, field=metric, where=where, low=0.0)
                yield replace(
                    base,
                    metric=metric,
                    value=to_si(value, metric=metric, unit=unit or cell("unit"), where=where),
                )
        return
    metric, unit = metric_of(cell("metric"))
    value = _number(cell("value"), field="value", where=where, low=0.0)
    yield replace(
        base,
        metric=metric,
        value=to_si(value, metric=metric, unit=cell("unit") or unit, where=where),
    )
