"""What-if: the best K at one batch and context, what it brings, and where the time goes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import calc
import charts
import show
import streamlit as st

from rooflinesim.api import Point
from rooflinesim.api.tables import best_single_k, chart_batches, policy_table, request_table
from views import common

PARTS = ("draft", "verify", "sample", "host")


def draw() -> None:
    """The page."""
    asked = calc.asked()
    point = calc.prediction(asked.scenario).points[0]
    common.does_not_fit(point)
    answer(point)
    common.assumptions(asked)
    left, right = st.columns(2)
    with left:
        _speedup(point)
        _goodput(point)
    with right:
        _stack(point)
        _over_batches(asked)
    section = common.opened("All numbers of this step", "numbers")
    if section is not None:
        with section:
            _numbers(point)
    section = common.opened("Memory", "memory")
    if section is not None:
        with section:
            common.memory(asked, point.best_k)
    common.to_terminal(asked)


def answer(point: Point) -> None:
    """The answer in one line of figures."""
    best = point.best_row
    request = request_table([best])[0]
    low, high = point.tie_band
    off = point.choice == "off"
    row = st.container(horizontal=True, gap="medium")
    band = f"as good: {low}–{high}" if high > low else "no other within 1 %"
    row.metric(
        "Best choice",
        "SD off" if off else f"K = {point.best_k}",
        delta=f"best K would be {point.best_k}" if off else band,
        delta_color="off",
        delta_arrow="off",
        help="K: drafted tokens per step. SD off: plain decoding without a drafter. As good: within 1 %.",
    )
    row.metric(
        f"Speed-up at K = {point.best_k}",
        f"{best.speedup:.2f}×",
        delta=f"{best.speedup_low:.2f} to {best.speedup_high:.2f}",
        delta_color="off",
        delta_arrow="off",
        help="Against SD off at the same batch. The range holds 80 % of draws of calibration and acceptance "
        "errors.",
    )
    row.metric(
        "Goodput",
        f"{show.count(best.goodput_tokens_per_s)} tok/s",
        delta=f"off: {show.count(point.off_goodput_tokens_per_s)}",
        delta_color="off",
        delta_arrow="off",
        help="Accepted tokens per second over the whole batch, N·AL/step.",
    )
    row.metric(
        "One request",
        f"{request['request_tokens_per_s']:.0f} tok/s",
        delta=f"{show.ms(request['tpot_s'])} per token",
        delta_color="off",
        delta_arrow="off",
    )
    row.metric(
        "Break-even c₁",
        "–" if point.break_even_c1 is None else f"{point.break_even_c1:.2f}",
        delta=f"AL {best.acceptance_length:.2f} at K = {point.best_k}",
        delta_color="off",
        delta_arrow="off",
        help="Acceptance of the first draft at which this K starts to pay. –: none is enough, or K = 0.",
    )
    row.metric(
        "Largest batch",
        f"{point.largest_batch:,}",
        delta=f"at {show.tokens(point.context_tokens)} tokens",
        delta_color="off",
        delta_arrow="off",
        help="Sequences that fit in memory at this context, weights, drafter and graphs included.",
    )


def _mark(point: Point, k: int) -> str:
    low, high = point.tie_band
    if k == point.best_k:
        return "best"
    return "as good (within 1 %)" if low <= k <= high else "other"


def _rows(point: Point) -> list[dict[str, Any]]:
    requests = {row["k"]: row for row in request_table(point.rows)}
    rows = []
    for row in point.rows:
        data = asdict(row)
        data.update(requests[row.k])
        data.update(
            mark=_mark(point, row.k),
            label=str(row.k),
            note="; ".join(row.flags) or "–",
            p_best_frac=data.pop("p_best"),
        )
        data.pop("flags")
        rows.append(data)
    return rows


def _speedup(point: Point) -> None:
    table = show.frame(_rows(point))
    charts.show(
        table,
        charts.speedup_by_k(max(row.k for row in point.rows)),
        name="speedup_by_k",
        title=f"Speed-up by K, batch {point.batch_size:,}",
        alt="Speed-up over SD off against K, with its error band and the best K marked",
        note="Band: 80 % of draws. K = 0 is SD on with nothing drafted, which is not SD off.",
    )


def _goodput(point: Point) -> None:
    rows = [
        {
            "label": "off",
            "goodput_tokens_per_s": point.off_goodput_tokens_per_s,
            "mark": "SD off",
            **{key: value for key, value in request_table([_Off(point)])[0].items() if key != "k"},
        },
        *(
            {
                key: row[key]
                for key in ("label", "goodput_tokens_per_s", "mark", "request_tokens_per_s", "tpot_s")
            }
            for row in _rows(point)
        ),
    ]
    charts.show(
        show.frame(rows),
        charts.goodput_by_k(),
        name="goodput_by_k",
        title="Goodput by K",
        alt="Goodput of the whole batch for SD off and each K",
    )


class _Off:
    """SD off as a row: one token per step."""

    def __init__(self, point: Point) -> None:
        self.k, self.acceptance_length, self.step_s = 0, 1.0, point.off_step_s


def _stack(point: Point) -> None:
    rows = [
        {"label": "off", "part": "verify", "part_s": point.off_step_s, "step_s": point.off_step_s, "order": 1}
    ]
    for row in point.rows:
        data = asdict(row)
        rows += [
            {"label": str(row.k), "part": part, "part_s": data[f"{part}_s"], "step_s": row.step_s, "order": i}
            for i, part in enumerate(PARTS)
        ]
    charts.show(
        show.frame(rows),
        charts.step_stack(),
        name="step_parts",
        title="Where the time of one step goes",
        alt="Draft, verify, sampling and host time stacked, for SD off and each K",
        note="off: the whole plain decode step.",
    )


def _over_batches(asked: calc.Asked) -> None:
    result = calc.over_batches(asked.resolved, context=asked.context, include=asked.batch)
    single = best_single_k(result)
    fixed = sorted({1, 3, 5, single} & {int(k) for k in result.grid.k.ravel() if k > 0})
    table = show.frame(policy_table(result, fixed_k=fixed))
    table["chosen"] = table["batch_size"] == asked.batch
    charts.show(
        table,
        charts.speedup_by_batch(list(dict.fromkeys(table["policy"])), max(chart_batches(asked.batch))),
        name="speedup_by_batch",
        title="Speed-up by batch",
        alt="Speed-up against batch size for SD off, fixed K and the best K at every batch",
        note="Dynamic K takes the best choice at every batch, SD off included. "
        f"Best single K over these batches: {single}.",
    )


def _numbers(point: Point) -> None:
    table = show.frame(_rows(point))
    st.dataframe(
        table,
        hide_index=True,
        column_order=[
            "k",
            "speedup",
            "speedup_low",
            "speedup_high",
            "p_best_percent",
            "goodput_tokens_per_s",
            "request_tokens_per_s",
            "tpot_ms",
            "acceptance_length",
            "step_ms",
            "draft_ms",
            "verify_ms",
            "sample_ms",
            "host_ms",
            "break_even_c1",
            "bound",
            "note",
        ],
        column_config={
            "k": "K",
            "speedup": st.column_config.NumberColumn("speed-up", format="%.3f"),
            "speedup_low": st.column_config.NumberColumn("low", format="%.2f"),
            "speedup_high": st.column_config.NumberColumn("high", format="%.2f"),
            "p_best_percent": st.column_config.NumberColumn("best in (% of draws)", format="%.0f"),
            "goodput_tokens_per_s": st.column_config.NumberColumn("goodput (tok/s)", format="%.0f"),
            "request_tokens_per_s": st.column_config.NumberColumn("request (tok/s)", format="%.1f"),
            "tpot_ms": st.column_config.NumberColumn("per token (ms)", format="%.2f"),
            "acceptance_length": st.column_config.NumberColumn("AL", format="%.3f"),
            "step_ms": st.column_config.NumberColumn("step (ms)", format="%.2f"),
            "draft_ms": st.column_config.NumberColumn("draft (ms)", format="%.2f"),
            "verify_ms": st.column_config.NumberColumn("verify (ms)", format="%.2f"),
            "sample_ms": st.column_config.NumberColumn("sample (ms)", format="%.2f"),
            "host_ms": st.column_config.NumberColumn("host (ms)", format="%.2f"),
            "break_even_c1": st.column_config.NumberColumn("break-even c₁", format="%.3f"),
            "bound": "bound by",
        },
    )
