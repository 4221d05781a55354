"""Accuracy: the validation table, and which campaigns stand behind the scenario on the screen."""

from __future__ import annotations

import calc
import charts
import show
import streamlit as st

from rooflinesim.errors import RooflinesimError
from rooflinesim.validate import Result, run
from rooflinesim.validate.evidence import evidence
from views import common


@st.cache_resource(show_spinner="Recomputing every campaign from its published measurements …")
def results() -> tuple[list[Result], list[str]]:
    """Every quick score, recomputed once per server; the same for all sessions, nothing of theirs is in it."""
    from rooflinesim.validate import campaign_names

    scores: list[Result] = []
    problems: list[str] = []
    for name in campaign_names():
        try:
            found = run([name], fast_only=True)
            scores += found
            if not found:
                problems.append(f"{name} takes minutes: rooflinesim validate {name}")
        except RooflinesimError as error:
            problems.append(str(error))
    return scores, problems


def draw() -> None:
    """The page."""
    scores, problems = results()
    _evidence()
    rows = [
        {
            "campaign": result.id,
            "metric": result.metric or result.kind,
            "n": result.n,
            "mape_frac": result.mape,
            "median_frac": result.median,
            "bias_frac": result.bias,
            "k_regret_frac": result.k_regret,
            "sign_correct_frac": result.sign_correct,
            "coverage_frac": result.coverage,
            "bound_frac": result.bound.get("mape"),
            "bound": ", ".join(f"{name} {limit:g}" for name, limit in result.bound.items()),
            "verdict": "within its bound" if result.ok else "beyond its bound",
        }
        for result in scores
    ]
    table = show.frame(rows)
    errors = table.dropna(subset=["mape_percent"]) if len(table) else table
    if len(errors):
        names = errors["campaign"] + " · " + errors["metric"]
        charts.show(
            errors.assign(campaign=names),
            charts.scores(list(names)),
            name="accuracy",
            title="Mean absolute error against published measurements",
            alt="Bars of the mean absolute error of every campaign, with the bound each has to keep",
            note="Tick: the committed bound. No row was used to fit anything, unless its campaign says so.",
        )
    st.markdown("**Every score**")
    st.dataframe(
        table,
        hide_index=True,
        column_order=[
            "campaign",
            "metric",
            "n",
            "mape_percent",
            "median_percent",
            "bias_percent",
            "k_regret_percent",
            "sign_correct_percent",
            "coverage_percent",
            "bound",
            "verdict",
        ],
        column_config={
            "n": "rows",
            "mape_percent": st.column_config.NumberColumn("mean error (%)", format="%.1f"),
            "median_percent": st.column_config.NumberColumn("median (%)", format="%.1f"),
            "bias_percent": st.column_config.NumberColumn("bias (%)", format="%.1f"),
            "k_regret_percent": st.column_config.NumberColumn("K-regret (%)", format="%.2f"),
            "sign_correct_percent": st.column_config.NumberColumn("sign right (%)", format="%.0f"),
            "coverage_percent": st.column_config.NumberColumn("in the 80 % band (%)", format="%.0f"),
        },
    )
    for text in problems:
        st.caption("Not recomputed here: " + common.plain(text))


def _evidence() -> None:
    """Campaigns by what they share with the scenario."""
    asked = calc.asked()
    try:
        found = calc.remembered(("evidence", asked.scenario), lambda: evidence(asked.resolved))
    except RooflinesimError as error:
        st.warning(common.plain(str(error)))
        found = []
    behind = [item for item in found if item.strength != "none"]
    d = asked.resolved.deployment
    name = f"{d.target.id} on {d.ceilings.gpu.id}, {d.profile.engine}, {d.method}"
    with st.container(border=True):
        st.markdown(f"**Behind the scenario on the screen** ({common.plain(name)})")
        if not behind:
            st.markdown(
                "No campaign was measured on this GPU or with this model: take the error bars seriously."
            )
        for item in behind:
            st.markdown(
                f"- `{item.campaign}` shares {', '.join(item.shared)}"
                + (f"; differs in {', '.join(item.differs)}" if item.differs else "")
            )
        others = [f"`{item.campaign}`" for item in found if item.strength == "none"]
        if others:
            st.caption("Nothing in common with: " + ", ".join(others))
    common.assumptions(asked)
