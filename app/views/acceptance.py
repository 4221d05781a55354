"""Acceptance: from what is known to a curve; an uploaded log against its fit; every form side by side."""

from __future__ import annotations

from typing import Any

import calc
import charts
import show
import sidebar
import streamlit as st
import uploads

from rooflinesim.api.logs import MeasuredAcceptance
from rooflinesim.api.tables import acceptance_table, measured_table
from views import common


def draw() -> None:
    """The page."""
    left, right = st.columns([1, 2])
    with left:
        sidebar.acceptance_inputs()
    with right:
        uploads.log_uploader()
    logs = st.session_state.get("logs")
    measured = logs["measured"] if logs else None
    if measured is not None:
        _record(measured)
    asked = calc.asked()
    common.assumptions(asked)
    st.markdown(f"Curve in use: {show.plain(asked.resolved.acceptance.text)}")
    k_max = asked.scenario.k_max
    rows = [
        {**row, "series": "in use"}
        for row in acceptance_table(
            asked.resolved.acceptance.curve, k_max=k_max, context_tokens=asked.context
        )
    ]
    fits = _fit_rows(measured, k_max) if measured is not None else []
    points = measured_table(measured) if measured is not None else []
    table = show.frame([*rows, *fits, *points])
    series = list(dict.fromkeys(table["series"]))
    left, right = st.columns(2)
    with left:
        charts.show(
            table,
            charts.acceptance(series),
            name="conditional",
            title="Conditional acceptance by position",
            alt="Conditional acceptance by draft position: curve in use, fits and measured points",
            note="Squares: measured, with 95 % intervals. Lines: curves." if points else "",
        )
    with right:
        lengths = table[table["series"] != "measured"] if points else table
        charts.show(
            lengths,
            charts.acceptance_length([name for name in series if name != "measured"]),
            name="acceptance_length",
            title="Acceptance length by K",
            alt="Tokens per step against K",
            note="AL counts the bonus token: between 1 and K+1.",
        )
    st.markdown("**The same curve in every form**")
    st.dataframe(
        show.frame(rows),
        hide_index=True,
        column_order=["k", "conditional", "marginal", "acceptance_length", "mean_accepted_percent"],
        column_config={
            "k": "K",
            "conditional": st.column_config.NumberColumn("conditional of position K", format="%.4f"),
            "marginal": st.column_config.NumberColumn("marginal of position K", format="%.4f"),
            "acceptance_length": st.column_config.NumberColumn("AL at K (bonus included)", format="%.4f"),
            "mean_accepted_percent": st.column_config.NumberColumn(
                "accepted / drafted at K (%)", format="%.2f"
            ),
        },
    )
    extra = None
    common.to_terminal(asked, extra=extra)


def _record(measured: MeasuredAcceptance) -> None:
    record = measured.record
    with st.container(border=True):
        head = st.container(horizontal=True, gap="medium")
        head.metric("Format", record.format)
        head.metric("AL", f"{record.acceptance_length:.3f}", help="Tokens per step, bonus included.")
        head.metric("K", "–" if record.k is None else str(record.k))
        head.metric("Steps", "–" if record.n_steps is None else show.count(record.n_steps))
        st.markdown(show.plain(measured.conversion.text))
        for text in measured.warnings:
            st.warning(show.plain(text), icon=":material/info:")


def _fit_rows(measured: MeasuredAcceptance, k_max: int) -> list[dict[str, Any]]:
    """The fits that were tried and are not in use already (at most two)."""
    if measured.choice is None:
        return []
    others = [fit for fit in measured.choice.fits if fit.form != measured.choice.form and fit.form != "table"]
    return [
        {**row, "series": f"{fit.form} fit"}
        for fit in others[:2]
        for row in acceptance_table(fit.curve, k_max=k_max)
    ]
