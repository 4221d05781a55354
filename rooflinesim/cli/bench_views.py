"""How ``rooflinesim bench`` prints: tables in ms and GB/s, and the same as JSON in SI units."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rooflinesim.microbench.compare import Compared, EngineRun
    from rooflinesim.microbench.device import DeviceResult


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _lines(lines: Sequence[str]) -> list[RenderableType]:
    return [Text(line) for line in lines]


def device_view(result: DeviceResult, written: Sequence[Path]) -> RenderableType:
    """Ceilings, fits with their standard errors, warnings."""
    from rooflinesim.microbench.device import errors_by_family

    gpu = result.gpu
    parts = _lines([result.machine.describe, result.noise.line])
    peaks = ", ".join(f"{fmt} {q.value:.3g} {q.unit}" for fmt, q in gpu.peaks.items())
    parts.append(Text(f"memory {gpu.memory_bandwidth.value:.3g} GB/s, {peaks}; {result.seconds:.0f} s"))
    table = _table(
        "Fits to primitives",
        "family",
        "rows",
        "median error",
        "worst",
        "fixed us",
        "memory eff",
        "compute eff",
    )
    fits: dict[str, Any] = {
        "gemm": result.calibration.gemm["*"],
        "attention": result.calibration.attention["*"],
        "moe": result.calibration.moe["*"],
        "elementwise": result.calibration.elementwise,
    }
    for family, (n, median, worst) in errors_by_family(result).items():
        fit = fits[family]
        compute = getattr(fit, "compute_eff", None)
        table.add_row(
            family,
            str(n),
            f"{100 * median:.0f} %",
            f"{100 * worst:.0f} %",
            _with_error(fit.t_fixed_s.value * 1e6, fit.t_fixed_s.stderr, 1e6),
            _with_error(fit.mem_eff.value, fit.mem_eff.stderr, 1.0),
            _with_error(compute.value, compute.stderr, 1.0) if compute is not None else "",
        )
    parts.append(table)
    parts += _lines([f"warning: {w}" for w in result.warnings])
    parts += _lines([f"wrote {path}" for path in written])
    return Group(*parts)


def _with_error(value: float, stderr: float | None, scale: float) -> str:
    return f"{value:.3g}" if stderr is None else f"{value:.3g} ± {stderr * scale:.2g}"


def device_json(result: DeviceResult, written: Sequence[Path]) -> dict[str, Any]:
    """The whole result in SI units."""
    from rooflinesim.microbench.device import errors_by_family

    return {
        "schema": 1,
        "gpu": result.gpu.model_dump(mode="json", exclude_defaults=True),
        "calibration": result.calibration.model_dump(mode="json", exclude_defaults=True),
        "engine": result.profile.model_dump(mode="json", exclude_defaults=True),
        "fit_errors": {
            family: {"n": n, "median_frac": median, "worst_frac": worst}
            for family, (n, median, worst) in errors_by_family(result).items()
        },
        "noise": {
            "noisy": result.noise.noisy,
            "spread_frac": result.noise.spread_frac,
            "slow_frac": result.noise.slow_frac,
        },
        "warnings": result.warnings,
        "seconds_s": result.seconds,
        "written": [str(path) for path in written],
        "n_primitives": len(result.primitives),
    }


def _error_line(result: Compared, metric: str, what: str) -> str:
    errors = result.errors(metric)
    mape, bias = 100 * np.abs(errors).mean(), 100 * errors.mean()
    return f"{what}: MAPE {mape:.1f} %, bias {bias:+.1f} %, {len(errors)} cells"


def _cells(result: Compared) -> Table:
    table = _table(
        "Measured and predicted (from primitives only)",
        "batch",
        "K",
        "verify ms",
        "model",
        "draft ms",
        "model",
        "step ms",
        "model",
        "spread",
    )
    for cell in result.cells:
        p = result.predicted
        verify = f"{1e3 * result._at(p.verify_s, cell):.1f}" if cell.speculative else ""
        table.add_row(
            str(cell.batch_size),
            str(cell.k) if cell.speculative else "off",
            f"{1e3 * cell.verify_s:.1f}",
            verify,
            f"{1e3 * cell.draft_s:.1f}" if cell.speculative else "",
            f"{1e3 * result._at(p.draft_s, cell):.1f}" if cell.speculative else "",
            f"{1e3 * cell.step_s:.1f}",
            f"{1e3 * result.predicted_step_s(cell):.1f}",
            f"{100 * cell.spread_frac:.0f} %" + (" noisy" if cell.noisy else ""),
        )
    return table


def model_view(result: Compared) -> RenderableType:
    """The measured grid beside the prediction."""
    parts = _lines([result.name, result.noise.line])
    parts.append(_cells(result))
    parts += _lines(
        [
            _error_line(result, "verify_s", "verify"),
            _error_line(result, "draft_s", "draft"),
            _error_line(result, "step_s", "step"),
        ]
    )
    return Group(*parts)


def model_json(result: Compared) -> dict[str, Any]:
    """Cells with both times, in seconds, and the errors."""
    rows = [
        {
            "batch_size": c.batch_size,
            "k": c.k,
            "speculative": c.speculative,
            "context_tokens": c.context_tokens,
            "verify_s": c.verify_s,
            "draft_s": c.draft_s,
            "step_s": c.step_s,
            "predicted_step_s": result.predicted_step_s(c),
            "spread_frac": c.spread_frac,
            "noisy": c.noisy,
        }
        for c in result.cells
    ]
    return {
        "schema": 1,
        "model": result.target.id,
        "notes": result.name,
        "rows": rows,
        "verify": [
            {"batch_size": b, "query_tokens": q, "measured_s": m, "predicted_s": p}
            for b, q, m, p in result.seconds_verify
        ],
        "mape": {
            metric: float(np.abs(result.errors(metric)).mean())
            for metric in ("verify_s", "draft_s", "step_s")
        },
    }


def campaign_view(result: Compared) -> RenderableType:
    """One campaign: the grid, the choice of K, the draining job."""
    parts = _lines([result.name, result.noise.line])
    parts.append(_cells(result))
    parts += _lines(
        [
            _error_line(result, "verify_s", "verify"),
            _error_line(result, "draft_s", "draft"),
            _error_line(result, "step_s", "step"),
        ]
    )
    best, chosen, regret = result.choices()
    table = _table("Choice of K (0: SD off)", "batch", "measured best", "predicted best", "K-regret")
    for batch, b, c, r in zip(result.batches, best, chosen, regret, strict=True):
        table.add_row(str(batch), str(b), str(c), f"{100 * r:.1f} %")
    parts.append(table)
    drained = _table("A draining batch", "policy", "tokens/s", "spread", "disturbed")
    for d in result.drained:
        drained.add_row(
            d.policy, f"{d.tokens_per_s:.0f}", f"{100 * d.spread_frac:.0f} %", f"{100 * d.slow_frac:.0f} %"
        )
    parts.append(drained)
    return Group(*parts)


def engine_view(run: EngineRun) -> RenderableType:
    """Acceptance by position and the rate."""
    recorder = run.recorder
    table = _table(
        f"{run.method}, K = {run.k}, batch {run.batch}, temperature {run.temperature:g}",
        "position",
        "conditional",
        "marginal",
    )
    for i, (c, m) in enumerate(zip(recorder.conditional(), recorder.marginal(), strict=True), start=1):
        table.add_row(str(i), f"{c:.3f}", f"{m:.3f}")
    lines = [
        f"acceptance length {recorder.acceptance_length():.3f}",
        f"{recorder.goodput_tokens_per_s():.0f} tokens/s over {len(recorder.steps)} steps",
    ]
    return Group(table, *_lines(lines))


def engine_json(run: EngineRun) -> dict[str, Any]:
    """The same, in SI units."""
    recorder = run.recorder
    return {
        "schema": 1,
        "method": run.method,
        "k": run.k,
        "batch_size": run.batch,
        "acceptance_length": recorder.acceptance_length(),
        "marginal": recorder.marginal(),
        "conditional": recorder.conditional(),
        "goodput_tokens_per_s": recorder.goodput_tokens_per_s(),
        "n_steps": len(recorder.steps),
    }
