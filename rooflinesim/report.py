"""Tables for people: the only place, with plots and the command line, that rounds and prints human units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rooflinesim.units import GIB

if TYPE_CHECKING:  # only the types: a report must not import what its command does not use
    from rooflinesim.api.checking import CheckedSchedule
    from rooflinesim.api.explaining import Explanation
    from rooflinesim.api.predict import Point, Prediction
    from rooflinesim.api.scheduling import ScheduleAnswer
    from rooflinesim.memory import Footprint

MS = 1e3
US = 1e6


def prediction_view(prediction: Prediction) -> RenderableType:
    """The K table of each point when there are few, else one line per point; what was assumed at the end."""
    d = prediction.resolved.deployment
    many = len(prediction.points) > 3
    draft = d.draft.id if d.draft is not None else d.method
    head = Text(
        f"{d.target.id} on {d.parallel.n_gpus} x {d.ceilings.gpu.id}, {d.profile.id}, "
        f"draft {draft}, {d.formats.weights} weights, {d.formats.kv} KV",
        style="bold",
    )
    if d.ideal:
        head.append("  (ideal roofline: no fixed costs, efficiency 1)", style="yellow")
    body: list[RenderableType] = [head]
    if many:
        body.append(summary_table(prediction.points))
        body.extend(Text(line) for line in crossover_lines(prediction))
    else:
        for point in prediction.points:
            body.extend(point_view(point, speculative=d.speculative))
        if len(prediction.points) > 1:
            body.extend(Text(line) for line in crossover_lines(prediction))
    body.append(notes(prediction.resolved.assumed, prediction.resolved.warnings))
    return Group(*body)


def notes(assumed: tuple[str, ...], warnings: tuple[str, ...]) -> RenderableType:
    """What was taken by default, and what to be careful about."""
    text = Text()
    if assumed:
        text.append("assumed: ", style="dim bold")
        text.append("; ".join(assumed), style="dim")
    for warning in warnings:
        text.append(f"\nwarning: {warning}", style="yellow")
    return text


def point_view(point: Point, *, speculative: bool = True) -> list[RenderableType]:
    """One batch and context: a row per K, then the verdict in words."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title_style="")
    table.title = f"batch {point.batch_size}, context {point.context_tokens}"
    for name in (
        "K",
        "draft ms",
        "verify ms",
        "sample ms",
        "host ms",
        "ITL ms",
        "AL",
        "tok/s",
        "speed-up",
        "80 % band",
    ):
        table.add_column(name, justify="right")
    table.add_column("P(best)", justify="right")
    table.add_column("bound")
    table.add_row(
        "off",
        "",
        "",
        "",
        "",
        f"{point.off_step_s * MS:.2f}",
        "1.00",
        f"{point.off_goodput_tokens_per_s:,.0f}",
        "1.00",
        "",
        f"{point.p_off_best:.0%}" if speculative else "",
        "",
        style="dim",
    )
    for row in point.rows if speculative else ():
        best = row.k == point.best_k
        table.add_row(
            f"{row.k}{' *' if best else ''}",
            f"{row.draft_s * MS:.2f}",
            f"{row.verify_s * MS:.2f}",
            f"{row.sample_s * MS:.2f}",
            f"{row.host_s * MS:.2f}",
            f"{row.step_s * MS:.2f}",
            f"{row.acceptance_length:.2f}",
            f"{row.goodput_tokens_per_s:,.0f}",
            f"{row.speedup:.2f}",
            f"{row.speedup_low:.2f}-{row.speedup_high:.2f}",
            f"{row.p_best:.0%}",
            row.bound + (" (eager)" if any(flag.startswith("eager") for flag in row.flags) else ""),
            style="bold green" if best else "",
        )
    return [table, verdict(point, speculative=speculative)]


def verdict(point: Point, *, speculative: bool = True) -> Text:
    """Best K, its band, when it pays; or why not."""
    text = Text()
    low, high = point.tie_band
    if not point.fits:
        text.append(
            f"batch {point.batch_size} does not fit, short by {point.short_bytes / GIB:.1f} GiB per rank "
            f"(largest batch that fits: {point.largest_batch}); times below ignore that\n",
            style="bold red",
        )
    if not speculative:
        text.append("no drafter: plain decoding")
        return text
    if point.choice == "off":
        text.append("speculation does not pay here: leave it off", style="bold")
        text.append(f" (best K with it on: {point.best_k}, {point.best_row.speedup:.2f}x)")
        return text
    text.append(f"best K = {point.best_k}", style="bold green")
    band = f"K = {low} to {high} within 1 %; " if high > low else ""
    text.append(f" ({band}{point.best_row.speedup:.2f}x SD off")
    if point.break_even_c1 is not None:
        text.append(
            f"; pays while the first drafted token is accepted more than {point.break_even_c1:.0%} "
            "of the time"
        )
    text.append(")")
    return text


def crossover_lines(prediction: Prediction) -> list[str]:
    """From which batch on speculation no longer pays, per context; and from which context on, per batch."""
    out = []
    for context, batch in prediction.break_even_batches().items():
        if batch == math.inf:
            out.append(f"context {context}: speculation pays at every batch shown")
        elif batch == 0.0:
            out.append(f"context {context}: speculation pays at no batch shown")
        else:
            out.append(f"context {context}: speculation stops paying at a batch of about {batch:.0f}")
    for n, tokens in prediction.break_even_contexts().items():
        if 0.0 < tokens < math.inf:  # never and always are said above, or seen in the table
            out.append(f"batch {n}: speculation stops paying at a context of about {tokens:,.0f} tokens")
    return out


def summary_table(points: tuple[Point, ...]) -> Table:
    """One line per (batch, context)."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in (
        "batch",
        "context",
        "best K",
        "within 1 %",
        "ITL ms",
        "AL",
        "tok/s",
        "off tok/s",
        "speed-up",
        "80 % band",
    ):
        table.add_column(name, justify="right")
    table.add_column("remark")
    for point in points:
        row = point.best_row
        low, high = point.tie_band
        remark = []
        if not point.fits:
            remark.append(f"does not fit, short by {point.short_bytes / GIB:.1f} GiB")
        if any(flag.startswith("eager") for flag in row.flags):
            remark.append("eager")
        table.add_row(
            str(point.batch_size),
            str(point.context_tokens),
            "off" if point.choice == "off" else str(point.best_k),
            f"{low}-{high}" if high > low else str(low),
            f"{row.step_s * MS:.2f}",
            f"{row.acceptance_length:.2f}",
            f"{row.goodput_tokens_per_s:,.0f}",
            f"{point.off_goodput_tokens_per_s:,.0f}",
            f"{row.speedup:.2f}",
            f"{row.speedup_low:.2f}-{row.speedup_high:.2f}",
            "; ".join(remark),
        )
    return table


def memory_view(memory: Footprint, *, batch_size: int, replicas: int) -> RenderableType:
    """Memory of one rank, line by line, and how many sequences fit."""
    table = Table(box=box.SIMPLE_HEAD, title="memory of one rank", title_justify="left", title_style="")
    table.add_column("what")
    table.add_column("GiB", justify="right")
    table.add_column("remark")
    table.add_row("device", f"{memory.capacity_bytes / GIB:.2f}", "as the driver reports it")
    table.add_row("the engine may use", f"{memory.usable_bytes / GIB:.2f}")
    for line in memory.fixed:
        table.add_row(line.name, f"{line.size_bytes / GIB:.2f}", line.note)
    table.add_row(
        "left for caches", f"{memory.free_bytes / GIB:.2f}", f"{memory.kv_bytes_per_token:,.0f} B per token"
    )
    table.add_row("cache of one sequence", f"{memory.kv_bytes_per_seq / GIB:.3f}")
    if memory.state_bytes_per_seq:
        table.add_row("recurrent state of one sequence", f"{memory.state_bytes_per_seq / GIB:.3f}")
    if memory.lookahead_bytes_per_seq:
        table.add_row(
            "slots for drafted tokens", f"{memory.lookahead_bytes_per_seq / GIB:.4f}", "per sequence"
        )
    fits = math.floor(max(memory.free_bytes, 0.0) / max(memory.bytes_per_seq, 1.0)) * replicas
    return Group(table, Text(f"{fits} sequences fit (asked: {batch_size})"))


def explanation_view(answer: Explanation) -> RenderableType:
    """Per-op table with bound and share, the marginal token, and plain sentences."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title_style="")
    where = f"batch {answer.batch_size}, K {answer.k}, context {answer.context_tokens}"
    table.title = f"{where}: {answer.step_s * MS:.3f} ms"
    for name, side in (
        ("part", "left"),
        ("op", "left"),
        ("x", "right"),
        ("us", "right"),
        ("share", "right"),
        ("bound", "left"),
        ("TFLOP/s", "right"),
        ("GB moved", "right"),
        ("FLOP/B", "right"),
        ("experts", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for row in answer.rows:
        table.add_row(
            row.part,
            row.name,
            f"{row.count:.0f}",
            f"{row.seconds * US:.1f}",
            f"{row.share:.1%}",
            row.bound,
            f"{row.achieved_flops_per_s / 1e12:.1f}" if row.flops else "",
            f"{row.moved_bytes / 1e9:.3f}" if row.moved_bytes else "",
            f"{row.intensity_flops_per_byte:.0f}" if row.flops else "",
            f"{row.experts_read:.1f}" if row.experts_read is not None else "",
        )
    steps = Table(box=box.SIMPLE_HEAD, title="the next drafted token", title_justify="left", title_style="")
    for name in ("K", "gains tokens", "costs ms"):
        steps.add_column(name, justify="right")
    for m in answer.marginal:
        steps.add_row(f"{m.k - 1} -> {m.k}", f"{m.gain_tokens:.3f}", f"{m.cost_s * MS:.3f}")
    return Group(table, steps, Text("\n".join(answer.sentences)))


def schedule_view(answer: ScheduleAnswer) -> RenderableType:
    """Ranges with gains, the cost of their graphs, and whether speculation should be on at all."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("batch", "K", "regret", "over SD off", "over best fixed K"):
        table.add_column(name, justify="right")
    for part in answer.solved.ranges:
        table.add_row(
            f"{part.low}-{part.high}",
            str(part.k),
            f"{part.regret_max:.1%}",
            "" if part.gain_over_off is None else f"{part.gain_over_off:+.1%}",
            f"{part.gain_over_best_fixed:+.1%}",
            style="yellow" if part.off_is_better else "",
        )
    solved = answer.solved
    lines = [
        f"largest regret {solved.regret_max:.1%}; best fixed K is {solved.best_fixed}; "
        f"mean gain {(solved.gain_over_off or 0.0):+.1%} over SD off, "
        f"{solved.gain_over_best_fixed:+.1%} over fixed",
        f"CUDA graphs to capture: {answer.capture.n_graphs} (about {answer.capture.capture_s:.0f} s, "
        f"{answer.capture.graph_bytes / GIB:.1f} GiB)",
    ]
    if solved.off_altogether:
        lines.append("speculation pays in no range: leave it off altogether")
    elif any(part.off_is_better for part in solved.ranges):
        lines.append(
            "yellow ranges lose to a server without speculation (the K = 0 tax); "
            "the table cannot switch it off"
        )
    if answer.by_context is not None:
        lines.append(
            f"one table for several contexts loses up to {answer.by_context.regret_mix:.1%} "
            "against K by context"
        )
    lines.extend(answer.notes)
    return Group(table, Text("\n".join(lines)))


def checked_view(checked: CheckedSchedule) -> RenderableType:
    """What the file makes the engine do, what is odd about it, and what it loses against ours."""
    table = Table(
        box=box.SIMPLE_HEAD, title=f"{checked.read.engine} runs this as", title_justify="left", title_style=""
    )
    for name in ("batch", "K", "regret", "over SD off"):
        table.add_column(name, justify="right")
    for part in checked.rated.ranges:
        table.add_row(
            f"{part.low}-{part.high}",
            str(part.k),
            f"{part.regret_max:.1%}",
            "" if part.gain_over_off is None else f"{part.gain_over_off:+.1%}",
            style="yellow" if part.off_is_better else "",
        )
    lines = Text()
    for finding in checked.findings:
        lines.append(
            f"{finding.level}: {finding.message}\n",
            style="red" if finding.level == "error" else "yellow",
        )
    for remark in checked.graph_findings:
        lines.append(f"warning: {remark}\n", style="yellow")
    lines.append(
        f"it loses up to {checked.rated.regret_max:.1%} ({checked.rated.regret_mean:.1%} on average); "
        "ours is " + ", ".join(f"{lo}-{hi}: {k}" for lo, hi, k in checked.ours.schedule.ranges)
    )
    return Group(table, lines)
