"""Why: the step taken apart, and what the next drafted token costs and brings."""

from __future__ import annotations

import calc
import charts
import pandas as pd
import show
import streamlit as st
import texts

from rooflinesim.api.explaining import Explanation, explain
from rooflinesim.api.predict import Point
from rooflinesim.api.tables import acceptance_table, experts_table, next_token_table, roof_table
from views import common


def draw() -> None:
    """The page."""
    asked = calc.asked()
    point = calc.prediction(asked.scenario).points[0]
    common.does_not_fit(point)
    ks = [row.k for row in point.rows]
    if st.session_state["k"] not in [-1, *ks]:
        ks.append(st.session_state["k"])
    st.select_slider(
        "K of the step taken apart",
        [-1, *ks],
        key="k",
        format_func=lambda k: f"best ({point.best_k})" if k < 0 else str(k),
        help=texts.HELP["k"],
    )
    chosen = st.session_state["k"]
    k = point.best_k if chosen is None or chosen < 0 else chosen
    answer = calc.remembered(
        ("explain", asked.scenario, k),
        lambda: explain(asked.scenario, batch_size=asked.batch, k=k, context_tokens=asked.context),
    )
    _sentences(answer, point)
    common.assumptions(asked)
    left, right = st.columns(2)
    with left:
        _shares(answer)
        _next(point)
    with right:
        _roofline(asked, answer)
        _break_even(asked, point)
    _experts(asked, point)
    section = common.opened("Every op", "ops")
    if section is not None:
        with section:
            _ops(answer)
    common.to_terminal(asked, extra={"--explain": str(k)})


def _sentences(answer: Explanation, point: Point) -> None:
    with st.container(border=True):
        st.markdown(
            f"**One step of {point.batch_size:,} sequences at K = {answer.k}: {show.ms(answer.step_s)}** "
            f"(SD off: {show.ms(answer.off_step_s)})"
        )
        for text in answer.sentences:
            st.markdown(f"- {text}")


def _op_frame(answer: Explanation) -> pd.DataFrame:
    table = show.frame(
        [
            {
                "op": f"{row.part}: {row.name}" if row.part != row.name else row.name,
                "part": row.part,
                "family": row.family,
                "count": row.count,
                "seconds_s": row.seconds,
                "share_frac": row.share,
                "bound": row.bound,
                "flops": row.flops,
                "moved": row.moved_bytes,
                "intensity_flops_per_byte": row.intensity_flops_per_byte,
                "tflops_per_s": show.tera(row.achieved_flops_per_s),
                "experts_read": row.experts_read,
            }
            for row in answer.rows
        ]
    )
    return table.sort_values("share_percent", ascending=False)


def _shares(answer: Explanation) -> None:
    table = _op_frame(answer)
    top = table.groupby(["op", "bound"], as_index=False, sort=False)[
        ["share_percent", "seconds_ms", "count"]
    ].sum()
    top = top.sort_values("share_percent", ascending=False).head(14)
    charts.show(
        top,
        charts.share_bars(list(top["op"])),
        name="op_shares",
        title="Share of the step, by op",
        alt="Bars of the share of the step by op, coloured by what bounds it",
        note=f"The {len(top)} largest of {table['op'].nunique()} ops.",
    )


def _roofline(asked: calc.Asked, answer: Explanation) -> None:
    ops = _op_frame(answer)
    ops = ops[(ops["tflops_per_s"] > 0) & (ops["intensity_flops_per_byte"] > 0)].assign(row="op")
    roofs = pd.DataFrame(
        {
            "row": "roof",
            "op": row["roof"],
            "ridge": row["ridge_flops_per_byte"],
            "intensity_flops_per_byte": row["intensity_flops_per_byte"],
            "tflops_per_s": show.tera(row["flops_per_s"]),
        }
        for row in roof_table(asked.resolved)
    )
    charts.show(
        pd.concat([roofs, ops], ignore_index=True),
        charts.roofline(),
        name="roofline",
        title="Roofline: every op of the step",
        alt="Log-log plot of reached TFLOP/s against FLOP per byte for every op, under the data-sheet roof",
        note="Size: share of the step. Grey: the data-sheet roof. Colour and shape: what bounds the op.",
    )


def _next(point: Point) -> None:
    rows = next_token_table(point)
    if not rows:
        st.info("Without a drafter there is no next token to price.")
        return
    table = show.frame(
        entry
        for row in rows
        for entry in (
            {
                "k": row["k"],
                "what": "tokens gained",
                "change_frac": row["gain_frac"],
                "detail": f"+{row['gain_tokens']:.3f} tokens",
                "pays": row["pays"],
            },
            {
                "k": row["k"],
                "what": "time paid",
                "change_frac": row["cost_frac"],
                "detail": f"{show.ms(row['cost_s'])}, of it verify {show.ms(row['verify_cost_s'])}",
                "pays": row["pays"],
            },
        )
    ).rename(columns={"change_percent": "percent"})
    charts.show(
        table,
        charts.next_token(),
        name="next_token",
        title="The next drafted token: gain and cost",
        alt="Relative gain in tokens and relative cost in time of going from each K to the next",
        note="K = 1 is compared with SD off. A further token pays while its gain is above its cost.",
    )


def _break_even(asked: calc.Asked, point: Point) -> None:
    curve = asked.resolved.acceptance.curve
    have = acceptance_table(curve, k_max=1, context_tokens=asked.context)[0]["conditional"]
    rows = [
        entry
        for row in point.rows
        if row.k > 0
        for entry in (
            {"k": row.k, "what": "needed to break even", "c1": row.break_even_c1},
            {"k": row.k, "what": "in this scenario", "c1": have},
        )
    ]
    if not rows:
        return
    charts.show(
        pd.DataFrame(rows),
        charts.break_even(),
        name="break_even",
        title="Acceptance at which each K starts to pay",
        alt="First-draft acceptance needed to break even at each K, beside that of the scenario",
        note="Gaps: no acceptance is enough. The decay of the scenario's curve is kept.",
    )


def _experts(asked: calc.Asked, point: Point) -> None:
    rows = experts_table(asked.resolved, batch_size=asked.batch, k_max=max(row.k for row in point.rows))
    if not rows:
        return
    table = pd.DataFrame(rows)
    table["label"] = ["" if k is None or pd.isna(k) else f"K={int(k)}" for k in table["k"]]
    charts.show(
        table,
        charts.experts(),
        name="experts",
        title="Experts read against tokens in the step",
        alt="Distinct experts read per layer against tokens in the step; points are the verify passes",
        note="Where the curve is steep, each drafted token drags in more expert weights; "
        "where it is flat, they are loaded anyway.",
    )


def _ops(answer: Explanation) -> None:
    st.dataframe(
        _op_frame(answer)
        .drop(columns=["op"])
        .assign(op=[row.name for row in sorted(answer.rows, key=lambda r: -r.share)]),
        hide_index=True,
        column_order=[
            "part",
            "op",
            "share_percent",
            "seconds_ms",
            "bound",
            "count",
            "flops",
            "moved",
            "intensity_flops_per_byte",
            "tflops_per_s",
            "experts_read",
        ],
        column_config={
            "share_percent": st.column_config.NumberColumn("share (%)", format="%.1f"),
            "seconds_ms": st.column_config.NumberColumn("time (ms)", format="%.3f"),
            "bound": "bound by",
            "flops": st.column_config.NumberColumn("FLOP", format="scientific"),
            "moved": st.column_config.NumberColumn("bytes moved", format="scientific"),
            "intensity_flops_per_byte": st.column_config.NumberColumn("FLOP/byte", format="%.2f"),
            "tflops_per_s": st.column_config.NumberColumn("TFLOP/s", format="%.2f"),
            "experts_read": st.column_config.NumberColumn("experts read", format="%.1f"),
        },
    )
