"""``rooflinesim sweep``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rooflinesim.api import Scenario, resolve
from rooflinesim.api.sweeping import Columns, n_chunks, sweep_chunks
from rooflinesim.cli.options import with_scenario
from rooflinesim.errors import InputError
from rooflinesim.output import write_bytes

FORMATS = ("csv", "parquet", "json")
#: All columns are held until they are written: about 0.25 kB a point.
MAX_POINTS = 10_000_000


@with_scenario
def sweep(
    scenario: Scenario,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="File to write: .csv, .parquet or .json. Default: CSV to stdout.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="JSON to stdout.")] = False,
) -> None:
    """A whole (batch, K, context) grid: times, tokens gained, goodput, speed-up with its band, best K."""
    kind = "json" if json_out else "csv"
    if out is not None:
        kind = Path(out).suffix.lstrip(".").lower()
        if kind not in FORMATS:
            raise InputError(f"--out: {out!r} must end in .csv, .parquet or .json")
        if Path(out).exists() and not force:
            raise InputError(f"{out}: exists already; use --force to replace it")
    points = len(scenario.batch_sizes) * len(scenario.context_tokens) * (scenario.k_max + 1)
    if points > MAX_POINTS:
        raise InputError(f"sweep: {points:,} points, at most {MAX_POINTS:,} in one file; split --bs or --ctx")
    resolved = resolve(scenario)
    total = n_chunks(scenario)
    parts: list[Columns] = []
    if total > 2 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        chunks = track(sweep_chunks(resolved), total=total, description="sweep", console=Console(stderr=True))
        parts.extend(chunks)
    else:
        parts.extend(sweep_chunks(resolved))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    data = encode(columns, kind, scenario)
    if out is None:
        sys.stdout.buffer.write(data)
        return
    write_bytes(out, data, force=force)
    typer.echo(f"wrote {columns['k'].size} points to {out}", err=True)


def encode(columns: Columns, kind: str, scenario: Scenario) -> bytes:
    """The columns as CSV, Parquet or JSON bytes; whole numbers are written as such."""
    whole = {"batch_size", "k", "context_tokens", "best_k", "in_graph"}
    typed: dict[str, Any] = {
        name: values.astype(np.int64) if name in whole else values for name, values in columns.items()
    }
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = io.BytesIO()
        pq.write_table(pa.table(typed), sink)
        return sink.getvalue()
    if kind == "csv":
        import pyarrow as pa
        from pyarrow import csv

        sink = io.BytesIO()
        csv.write_csv(pa.table(typed), sink)
        return sink.getvalue()
    document = {
        "schema": 1,
        "scenario": scenario.model_dump(mode="json"),
        "columns": {name: values.tolist() for name, values in typed.items()},
    }
    return (json.dumps(document, allow_nan=False) + "\n").encode()
