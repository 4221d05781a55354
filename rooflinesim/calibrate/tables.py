"""Reads the measured kernel tables of the optional ``aiconfigurator-core`` package (Apache-2.0, NVIDIA).

Nothing of it is stored here: only parameters fitted to it are, with attribution. Times become seconds.
"""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rooflinesim.errors import SpecError

PACKAGE: Final = "aiconfigurator_core"
PACKAGE_VERSION: Final = "aiconfigurator-core 0.12.0"
ATTRIBUTION: Final = (
    "Parameters fitted to measured kernel latencies of aiconfigurator-core 0.12.0, copyright NVIDIA "
    "CORPORATION & AFFILIATES, Apache-2.0. No row of the tables is reproduced; every value is a fit."
)

#: accelerator id here → folder there
FOLDERS: Final[dict[str, str]] = {
    "a100-80gb-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
    "arc-pro-b60": "b60",
}
ENGINES: Final = ("vllm", "sglang", "trtllm")
#: the version each engine's tables are read at; older ones serve where this one lacks a table
_VERSIONS: Final[dict[str, str]] = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
_VERSIONS_OF: Final[dict[str, dict[str, str]]] = {
    "a100-80gb-sxm": {"vllm": "0.14.0", "sglang": "0.5.10", "trtllm": "1.0.0"},
    "arc-pro-b60": {"vllm": "0.26.0"},
}

Column = NDArray[np.generic]


def installed() -> bool:
    """Whether the measured tables are there."""
    return importlib.util.find_spec(PACKAGE) is not None


@cache
def data_root() -> Path:
    """The folder of the tables."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SpecError(f"{PACKAGE_VERSION} is not installed; pip install 'rooflinesim[validation]'")
    return Path(spec.origin).parent / "systems" / "data"


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and which version of the engine they were measured with."""

    columns: dict[str, Column]
    version: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def number(self, name: str) -> NDArray[np.float64]:
        """A column as float64."""
        return self.columns[name].astype(np.float64)

    def text(self, name: str) -> NDArray[np.str_]:
        """A column as text."""
        return self.columns[name].astype(np.str_)

    def where(self, mask: NDArray[np.bool_]) -> Table:
        """The rows where ``mask`` holds."""
        return Table({name: column[mask] for name, column in self.columns.items()}, self.version)

    def median_by(self, keys: Sequence[str], value: str = "latency") -> Table:
        """One row per distinct key: the median of ``value`` (repeated measurements)."""
        used = [name for name in keys if name in self.columns]
        codes = np.zeros(len(self), dtype=np.int64)
        for name in used:
            _, code = np.unique(self.columns[name].astype(np.str_), return_inverse=True)
            codes = codes * (int(code.max(initial=0)) + 1) + code
        order = np.lexsort((self.number(value), codes))
        sorted_codes = codes[order]
        start = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        count = np.diff(np.r_[start, len(order)])
        low, high = order[start + (count - 1) // 2], order[start + count // 2]
        values = self.number(value)
        columns = {name: self.columns[name][low] for name in used}
        columns[value] = np.asarray(0.5 * (values[low] + values[high]))
        return Table(columns, self.version)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def versions(gpu: str, engine: str, family: str, table: str) -> list[str]:
    """Versions that have this table, oldest first."""
    folder = data_root() / FOLDERS[gpu] / family / engine
    if not folder.is_dir():
        return []
    found = [p.name for p in folder.iterdir() if (p / f"{table}_perf.parquet").is_file()]
    return sorted(found, key=_order)


@lru_cache(maxsize=6)
def load(gpu: str, engine: str, family: str, table: str) -> Table | None:
    """A table at the engine's version, else the nearest older one, else the oldest; ``None`` if absent."""
    found = versions(gpu, engine, family, table)
    if not found:
        return None
    want = _VERSIONS_OF.get(gpu, _VERSIONS).get(engine, _VERSIONS.get(engine, found[-1]))
    older = [v for v in found if _order(v) <= _order(want)]
    version = want if want in found else (older or found)[-1 if older else 0]
    import pyarrow.parquet as pq  # only when a table is read: start-up time

    path = data_root() / FOLDERS[gpu] / family / engine / version / f"{table}_perf.parquet"
    data = pq.read_table(path)
    columns = {
        name: np.asarray(data.column(name).to_numpy(zero_copy_only=False))
        for name in data.column_names
        if name not in {"framework", "version", "device", "model", "model_name", "architecture"}
    }
    return Table(columns, version)


def halves(*columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 (fit) or 1 (score) for every row: each distinct shape falls whole into one half.

    Columns are the shape. The shapes are shuffled by a hash of their numbers and dealt out in turn, so that
    the halves are equally large, the same at each run, and share no shape.

    >>> halves(np.array([1.0, 2.0, 1.0, 3.0]), np.array([5.0, 5.0, 5.0, 5.0])).tolist()
    [0, 0, 0, 1]
    """
    unique, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    hashes = np.array([zlib.crc32(",".join(f"{value:.0f}" for value in row).encode()) for row in unique])
    side = np.empty(len(unique), dtype=np.int64)
    side[np.argsort(hashes, kind="stable")] = np.arange(len(unique)) % 2
    return np.asarray(side[inverse.ravel()])
