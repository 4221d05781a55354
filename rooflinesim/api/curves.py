"""A measured verify curve (rows in the step → seconds) in place of the modelled one."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray, Grid
from rooflinesim.step import Deployment, StepTime, replica_batch

MAX_BYTES = 4_000_000


@dataclass(frozen=True)
class VerifyCurve:
    """Seconds of one target pass by the number of rows (tokens) in it; rows ascending."""

    rows: FloatArray
    seconds: FloatArray

    def at(self, rows: FloatArray) -> FloatArray:
        """Linear between points; beyond the last, along the last slope (never falling: noise at the end of a
        curve must not become a negative time); below the first, the first value."""
        inside = np.interp(rows, self.rows, self.seconds)
        if self.rows.size < 2:
            return np.asarray(inside)
        slope = max(0.0, (self.seconds[-1] - self.seconds[-2]) / (self.rows[-1] - self.rows[-2]))
        return np.where(rows > self.rows[-1], self.seconds[-1] + slope * (rows - self.rows[-1]), inside)


def read_verify_curve(path: str) -> VerifyCurve:
    """Read a CSV with a header ``rows,ms`` (or ``rows,seconds``)."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"--verify-curve: {path}: no such file")
    if file.stat().st_size > MAX_BYTES:
        raise InputError(f"--verify-curve: {path}: larger than {MAX_BYTES // 1_000_000} MB")
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(line for line in handle if not line.startswith("#"))
            header = [name.strip() for name in reader.fieldnames or []]
            unit = next((u for u in ("ms", "seconds") if u in header), None)
            if "rows" not in header or unit is None:
                raise InputError(
                    f"--verify-curve: {path}: needs the columns rows and ms (or seconds), "
                    f"has {', '.join(header)}"
                )
            points = {
                float(row["rows"]): float(row[unit]) * (1e-3 if unit == "ms" else 1.0) for row in reader
            }
    except (UnicodeDecodeError, ValueError, TypeError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--verify-curve: {path}: not a CSV of numbers ({error})") from None
    pairs = np.asarray(sorted(points.items()), dtype=np.float64).reshape(-1, 2)
    rows, seconds = pairs[:, 0], pairs[:, 1]
    finite = np.isfinite(rows).all() and np.isfinite(seconds).all()
    if rows.size == 0 or not finite or rows[0] <= 0 or seconds.min() <= 0:
        raise InputError(f"--verify-curve: {path}: needs at least one row count >= 1 with a time above 0")
    return VerifyCurve(rows=rows, seconds=seconds)


def with_verify_curve(step: StepTime, grid: Grid, curve: VerifyCurve, deployment: Deployment) -> StepTime:
    """The step with its verify part, and the plain step's pass, taken from the curve. Draft and host stay
    modelled."""
    n = replica_batch(grid.batch, deployment.parallel)
    shape = step.step_s.shape
    verify = np.broadcast_to(curve.at(n * (grid.k + 1.0)), shape)
    plain = np.broadcast_to(curve.at(n), step.off_step_s.shape)
    draft_host = step.step_s - step.verify_s - step.sample_s
    off_host = step.off_families["host"]
    new_step = draft_host + verify
    other = {f: s for f, s in step.families.items() if f == "host"}
    return replace(
        step,
        verify_s=verify,
        sample_s=np.zeros_like(verify),
        step_s=new_step,
        off_step_s=plain + off_host,
        families={**other, "measured": verify + (draft_host - other["host"])},
        off_families={"host": off_host, "measured": plain},
        log_sd={**step.log_sd, "measured": 0.05},
    )
