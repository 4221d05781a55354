"""The report: one Markdown page, two plots, the engine's file, the next cases and the JSON, in one folder."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from rooflinesim.calibrate.user import Fitted
from rooflinesim.errors import InputError
from rooflinesim.output import write_bytes
from rooflinesim.tuning.core import TuneAnswer
from rooflinesim.tuning.document import tune_json
from rooflinesim.tuning.figures import goodput_figure, step_figure

PAGE: Final = "report.md"
#: Timed settings that the page lists; the rest are in the JSON.
MAX_LISTED: Final = 24
#: Fitted numbers in words.
NAMES: Final = {
    "off_host_s": "host time of a plain step",
    "sd_host_s": "host time of a speculative round",
    "mem_eff": "memory efficiency, relative to the calibration's",
    "compute_eff": "compute efficiency, relative to the calibration's",
}
KEPT: Final = (
    "Host times of a plain step and of a speculative round, memory and compute efficiency keep their priors."
)
_MARKUP: Final = re.compile(r"([|<>\[\]`*_\\])")


def cell(text: object) -> str:
    """Text of a file or a path as one line that no Markdown reader takes for markup.

    >>> cell("a|b<c")
    'a\\\\|b\\\\<c'
    """
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def gain_text(value: float | None) -> str:
    """A fraction as a signed percentage."""
    return "" if value is None else f"{100 * value:+.1f} %"


def estimate_text(item: Fitted) -> str:
    """A fitted number in the unit people read."""
    return f"{item.value * 1e3:.3f} ms" if item.unit == "s" else f"{item.value:.3f}"


def stderr_text(item: Fitted) -> str:
    """Its standard error."""
    return f"{item.stderr * 1e3:.3f} ms" if item.unit == "s" else f"{item.stderr:.3f}"


def headline(found: TuneAnswer) -> str:
    """The answer in one or two sentences."""
    solved, off = found.answer.solved, found.gains[0]
    ranges = ", ".join(f"{lo}-{hi}: {k}" for lo, hi, k in solved.schedule.ranges)
    if solved.off_altogether:
        return f"Leave speculation off: it loses at every batch size up to {found.answer.max_batch}."
    text = (
        f"K by batch size: {ranges}. Over SD off {gain_text(off.mean_frac)} on average "
        f"({gain_text(off.low_frac)} to {gain_text(off.high_frac)}, 80 % band)"
    )
    if found.gains_at_load:
        load = found.gains_at_load[0]
        text += f", {gain_text(load.mean_frac)} at the {load.where}"
    return f"{text}."


def render(found: TuneAnswer) -> str:
    """The Markdown page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only when a report is written

    # a Markdown page, not HTML: text out of files goes through ``cell``
    environment = Environment(
        loader=PackageLoader("rooflinesim.tuning", "."), undefined=StrictUndefined, autoescape=False
    )
    environment.filters |= {
        "cell": cell,
        "gain": gain_text,
        "estimate": estimate_text,
        "stderr": stderr_text,
        "ms": lambda seconds: f"{seconds * 1e3:.3f}",
    }
    compared = found.overhead.compared
    page = environment.get_template("report.md.j2").render(
        found=found,
        d=found.resolved.deployment,
        solved=found.answer.solved,
        headline=headline(found),
        gains=(*found.gains, *found.gains_at_load),
        measured=found.acceptance,
        positions=_positions(found),
        curve=found.resolved.acceptance.curve,
        fit=found.overhead.fit,
        names=NAMES,
        kept=KEPT if not found.overhead.fit else "",
        compared=compared[:MAX_LISTED],
        more_compared=max(len(compared) - MAX_LISTED, 0),
    )
    return re.sub(r"\n{3,}", "\n\n", page).rstrip() + "\n"


def _positions(found: TuneAnswer) -> list[dict[str, Any]]:
    measured = found.acceptance
    if measured is None or not measured.record.has_positions:
        return []
    record = measured.record
    fitted = measured.conversion.curve.conditional(len(record.conditional))
    bounds = [""] * len(record.conditional)
    if record.counts is not None:
        low, high = record.counts.wilson()
        bounds = [f"{a:.3f}-{b:.3f}" for a, b in zip(low, high, strict=True)]
    return [
        {"position": i + 1, "conditional": c, "marginal": p, "fitted": float(f), "interval": text}
        for i, (c, p, f, text) in enumerate(
            zip(record.conditional, record.marginal, fitted, bounds, strict=True)
        )
    ]


def contents(found: TuneAnswer) -> dict[str, bytes]:
    """Every file of the report by its path in the folder."""
    files = {
        PAGE: render(found).encode(),
        "goodput.png": goodput_figure(found),
        "step_time.png": step_figure(found),
        "tune.json": (json.dumps(tune_json(found), indent=1, allow_nan=False) + "\n").encode(),
    }
    for text in found.texts:
        files[text.file_name] = text.text.encode()
    for text in found.next_texts:
        files[f"next/{text.file_name}"] = text.text.encode()
    return files


def check_folder(folder: str | Path, *, force: bool = False) -> Path:
    """The folder as a path; an error when a report is there already and ``force`` is false."""
    target = Path(folder).expanduser()
    if target.exists() and not target.is_dir():
        raise InputError(f"--out: {target}: not a folder")
    if not force and target.is_dir() and any(target.iterdir()):
        raise InputError(f"--out: {target}: not empty; use --force to replace the report in it")
    return target


def write_report(found: TuneAnswer, folder: str | Path, *, force: bool = False) -> Path:
    """Write the report; a new folder appears whole or not at all. Returns the page's path.

    Errors: InputError when the folder holds something and ``force`` is false, or cannot be written.
    """
    target = check_folder(folder, force=force)
    files = contents(found)
    if target.is_dir():
        for name, data in files.items():
            write_bytes(target / name, data, force=True)
        return target / PAGE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise InputError(f"--out: {target}: cannot be written ({error.strerror})") from None
    try:
        for name, data in files.items():
            write_bytes(temporary / name, data)
        temporary.chmod(0o755)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"--out: {target}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target / PAGE
