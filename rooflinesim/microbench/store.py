"""What ``bench`` writes and reads: a machine's hw_spec, calibration and engine profile as YAML, its
primitives as CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rooflinesim.errors import InputError
from rooflinesim.specs.base import Frozen
from rooflinesim.specs.calibration import Calibration
from rooflinesim.specs.engine import EngineProfile
from rooflinesim.specs.files import load_yaml_spec
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.model import DraftSpec, ModelSpec

if TYPE_CHECKING:
    from rooflinesim.microbench.device import DeviceResult

#: File names inside a machine's folder.
GPU, CALIBRATION, ENGINE, PRIMITIVES = "gpu.yaml", "calibration.yaml", "engine.yaml", "primitives.csv"


@dataclass(frozen=True)
class StoredMachine:
    """A measured machine, read back."""

    gpu: GpuSpec
    calibration: Calibration
    profile: EngineProfile


def _rounded(value: Any) -> Any:
    """Floats to five significant digits: more would claim a precision that no measurement here has."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def yaml_text(spec: Frozen, *, comment: str) -> str:
    """A spec as YAML with a comment on top; defaults are left out."""
    data = _rounded(spec.model_dump(mode="json", exclude_defaults=True))
    return f"# {comment}\n" + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def write_machine(folder: Path, result: DeviceResult) -> list[Path]:
    """Write the machine's folder: facts, fits and engine apart, and every primitive that was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        GPU: yaml_text(
            result.gpu, comment="Ceilings of one machine: the best rates that rooflinesim bench measured."
        ),
        CALIBRATION: yaml_text(
            result.calibration, comment="Fits to primitives of one machine; no model's step time entered."
        ),
        ENGINE: yaml_text(
            result.profile, comment="The torch engine of rooflinesim.microbench on one machine."
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    with (folder / PRIMITIVES).open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(
            [
                "family",
                "label",
                "dims",
                "median_s",
                "spread_frac",
                "n",
                "disturbed_frac",
                "noisy",
                "cold",
                "flops",
                "bytes",
            ]
        )
        for row in result.primitives:
            flops = float(row.op.flops) if row.op is not None else 0.0
            moved = float(row.op.moved_bytes) if row.op is not None else row.moved_bytes
            writer.writerow(
                [
                    row.family,
                    row.label,
                    " ".join(f"{key}={value:g}" for key, value in row.dims.items()),
                    f"{row.timing.median_s:.5g}",
                    f"{row.timing.spread_frac:.3f}",
                    row.timing.n,
                    f"{row.timing.disturbed_frac:.2f}",
                    int(row.timing.noisy),
                    int(row.cold),
                    f"{flops:.6g}",
                    f"{moved:.6g}",
                ]
            )
    return [folder / name for name in (*texts, PRIMITIVES)]


def read_machine(folder: Path) -> StoredMachine:
    """The machine that ``bench device`` wrote to ``folder``."""
    missing = [name for name in (GPU, CALIBRATION, ENGINE) if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder}: no {', '.join(missing)} there; run 'rooflinesim bench device --out {folder}' first"
        )
    return StoredMachine(
        gpu=load_yaml_spec(folder / GPU, GpuSpec),
        calibration=load_yaml_spec(folder / CALIBRATION, Calibration),
        profile=load_yaml_spec(folder / ENGINE, EngineProfile),
    )


def write_shapes(folder: Path, target: ModelSpec, draft: DraftSpec) -> None:
    """The measured target's and drafter's shapes beside the machine that ran them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{target.id}.yaml").write_text(
        yaml_text(target, comment="A shape built for measuring; see rooflinesim.microbench.grow."),
        encoding="utf-8",
    )
    (folder / f"{draft.id}.yaml").write_text(
        yaml_text(draft, comment="The EAGLE head that was trained for it."), encoding="utf-8"
    )
