"""Times in CSV: a sweep's ``summary.csv``, or a plain table of step times with units in its column names."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from rooflinesim.engines.reading import TextFile, number, shown, whole
from rooflinesim.engines.records import TimingRecord, What
from rooflinesim.engines.serving import Times
from rooflinesim.errors import InputError, near_misses

MAX_ROWS: Final = 1_000_000
_SECONDS: Final = {"seconds": 1.0, "step_s": 1.0, "step_ms": 1e-3, "step_us": 1e-6, "ms": 1e-3, "us": 1e-6}
_BATCH: Final = ("batch_size", "batch", "bs", "n")
_CONTEXT: Final = ("context_tokens", "context", "ctx")
_K: Final = ("k", "num_speculative_tokens", "spec_k")


def rows(file: TextFile) -> Iterator[dict[str, str]]:
    """The rows of a CSV with a header; names in lower case."""
    reader = csv.reader(line for line in file.lines() if line.strip() and not line.lstrip().startswith("#"))
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if len(header) < 2 or len(set(header)) != len(header):
            raise InputError(f"{file.name}: a header of at least two different column names is expected")
        for count, row in enumerate(reader, start=1):
            if count > MAX_ROWS:
                raise InputError(f"{file.name}: more than {MAX_ROWS} rows")
            if len(row) != len(header):
                raise InputError(f"{file.name}: row {count} has {len(row)} cells, the header {len(header)}")
            yield dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise InputError(f"{file.name}: not CSV ({error})") from None


def typed(row: Mapping[str, str]) -> dict[str, Any]:
    """Cells as numbers where they are; empty cells left out."""
    result: dict[str, Any] = {}
    for key, cell in row.items():
        text = cell.strip()
        if not text or text.lower() in ("nan", "none", "null"):
            continue
        try:
            result[key] = float(text)
        except ValueError:
            result[key] = text
    return {
        key: value for key, value in result.items() if not (isinstance(value, float) and math.isinf(value))
    }


def read_times(file: TextFile, *, k: int | None = None) -> Times:
    """Columns ``batch_size``, one of ``step_s | step_ms | step_us``, and optionally ``k``,
    ``context_tokens``, ``n_tokens``, ``what``."""
    times = Times()
    for count, row in enumerate(rows(file), start=1):
        where = f"{file.name}: row {count}"
        cells = typed(row)
        time_key = next((key for key in _SECONDS if key in row), None)
        batch_key = next((key for key in _BATCH if key in row), None)
        if time_key is None or batch_key is None:
            wanted = [*_BATCH[:1], "step_s", "step_ms", "step_us"]
            hints = sorted({hit for name in row for hit in near_misses(name, wanted)})
            raise InputError(
                f"{file.name}: columns batch_size and one of step_s, step_ms, step_us are needed, got "
                f"{', '.join(list(row)[:8])}" + (f"; did you mean {', '.join(hints)}?" if hints else "")
            )
        batch = whole(cells.get(batch_key), field=f"{where}: {batch_key}", minimum=1, maximum=10**7)
        value = number(cells.get(time_key), field=f"{where}: {time_key}", maximum=1e12)
        if batch is None or not value:
            times.warn(f"{where}: no batch size or no time; skipped")
            continue
        k_key = next((key for key in _K if key in cells), None)
        depth = whole(cells.get(k_key) if k_key else k, field=f"{where}: k", maximum=1024) or 0
        context_key = next((key for key in _CONTEXT if key in cells), None)
        context = (
            number(cells.get(context_key), field=f"{where}: {context_key}", maximum=1e9)
            if context_key
            else None
        )
        n_tokens = whole(cells.get("n_tokens"), field=f"{where}: n_tokens", minimum=1) or batch * (depth + 1)
        times.records.append(
            TimingRecord(
                batch_size=batch,
                n_tokens=n_tokens,
                k=depth,
                context_tokens=context,
                seconds=value * _SECONDS[time_key],
                what=_what(cells.get("what"), depth, where=where),
                source=where,
            )
        )
    if not times.records:
        raise InputError(f"{file.name}: no row with a time")
    return times


def _what(value: Any, k: int, *, where: str) -> What:
    if value is None:
        return "step" if k > 0 else "decode"
    for known in get_args(What):
        if value == known:
            result: What = known
            return result
    raise InputError(f"{where}: what = {shown(value)} is not one of {', '.join(get_args(What))}")
