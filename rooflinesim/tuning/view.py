"""What ``tune`` shows in the terminal: the answer, what it brings, what was fitted, and warnings."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rooflinesim.report import notes, schedule_view
from rooflinesim.tuning.core import TuneAnswer
from rooflinesim.tuning.pages import KEPT, NAMES, estimate_text, gain_text, stderr_text


def tune_view(found: TuneAnswer) -> RenderableType:
    """Measured acceptance and overhead, the schedule, gains with bands, findings and warnings."""
    table = Table(box=box.SIMPLE_HEAD)
    for name, side in (
        ("gain over", "left"),
        ("where", "left"),
        ("mean", "right"),
        ("80 % band", "right"),
        ("P(gain > 0)", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for gain in (*found.gains, *found.gains_at_load):
        band = f"{gain_text(gain.low_frac)} to {gain_text(gain.high_frac)}"
        table.add_row(gain.over, gain.where, gain_text(gain.mean_frac), band, f"{gain.p_positive:.0%}")
    lines = Text()
    for path, finding in found.findings:
        lines.append(f"{finding.level}: {finding.message} ({path})\n", style="yellow")
    lines.rstrip()
    return Group(
        Text("\n".join(fitted_lines(found))),
        schedule_view(found.answer),
        table,
        *((lines,) if found.findings else ()),
        notes(found.assumed, found.warnings),
    )


def fitted_lines(found: TuneAnswer) -> list[str]:
    """Acceptance and overhead, a line each."""
    out = []
    if found.acceptance is not None:
        record = found.acceptance.record
        over = f" over {record.n_steps:,.0f} steps" if record.n_steps is not None else ""
        out.append(f"acceptance length {record.acceptance_length:.3f}{over} ({record.format})")
    out.append(f"acceptance curve: {found.resolved.acceptance.curve.describe()}")
    fit = found.overhead.fit
    if fit is None:
        return [*out, f"{found.overhead.refusal}. {KEPT}"]
    out += [f"{NAMES[f.name]}: {estimate_text(f)} ± {stderr_text(f)}" for f in fit.fitted]
    out += [f"not fitted: {NAMES[r.name]}: {r.reason}" for r in fit.refused]
    out.append(
        f"{fit.n} timed settings, missed by {fit.before_log_sd:.1%} before the fit "
        f"and by {fit.residual_log_sd:.1%} after it"
    )
    return out
