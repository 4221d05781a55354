"""Accuracy: which campaigns stand behind the scenario, one's own measurements, and the validation table."""

from __future__ import annotations

import calc
import charts
import show
import state
import streamlit as st
import texts
import uploads

from rooflinesim.errors import RooflinesimError
from rooflinesim.measurements import read_measurements
from rooflinesim.specs.files import read_text, spec_root
from rooflinesim.validate import Result, run
from rooflinesim.validate.evidence import evidence
from rooflinesim.validate.user import UserReport, validate_user
from views import common


@st.cache_resource(show_spinner="Recomputing the quick campaigns from their published measurements …")
def results() -> tuple[list[Result], list[str]]:
    """Every quick score, recomputed once per server: shipped data only, the same for all sessions."""
    from rooflinesim.validate import campaign_names

    scores: list[Result] = []
    problems: list[str] = []
    for name in campaign_names():
        try:
            found = run([name], fast_only=True)
        except RooflinesimError as error:
            problems.append(str(error))
            continue
        scores += found
        if not found:
            problems.append(f"{name} takes minutes: rooflinesim validate {name}")
    return scores, problems


def draw() -> None:
    """The page."""
    asked = calc.asked()
    _evidence(asked)
    common.assumptions(asked)
    _own(asked)
    _committed()
    scores, problems = results()
    _chart(scores)
    _table(scores)
    for text in problems:
        st.caption("Not recomputed here: " + show.plain(text))
    common.to_terminal(asked)


def _evidence(asked: calc.Asked) -> None:
    """Campaigns by what they share with the scenario."""
    found = calc.remembered(("evidence", asked.scenario), lambda: evidence(asked.resolved))
    behind = [item for item in found if item.strength != "none"]
    d = asked.resolved.deployment
    name = f"{d.target.id} on {d.ceilings.gpu.id}, {d.profile.engine}, {d.method}"
    with st.container(border=True):
        st.markdown(f"**Behind the scenario on the screen** ({show.plain(name)})")
        if not behind:
            st.markdown("No campaign was measured on this GPU or with this model: mind the error bars.")
        lines = [
            f"- `{item.campaign}`: same {', '.join(item.shared)}"
            + (f"; other {', '.join(item.differs)}" if item.differs else "")
            for item in behind
        ]
        st.markdown("\n".join(lines))
        others = [f"`{item.campaign}`" for item in found if item.strength == "none"]
        if others:
            st.caption("Another GPU and another model: " + ", ".join(others))


def _committed() -> None:
    """The table that continuous integration holds the model to."""
    try:
        text = read_text(spec_root("validation") / "README.md")
    except RooflinesimError as error:
        st.caption(show.plain(str(error)))
        return
    head = text.split("\n|", 1)[0]
    st.markdown("\n".join(line for line in head.splitlines() if line.startswith("- ")))
    section = common.opened("The committed table, every campaign with its source and its doubts", "committed")
    if section is not None:
        with section:
            st.markdown(text.split("\n", 1)[1])


def _chart(scores: list[Result]) -> None:
    rows = [
        {
            "campaign": f"{result.id} · {result.metric or result.kind}",
            "statistic": name,
            "n": result.n,
            "error_frac": getattr(result, name),
            "bias_frac": result.bias,
            "limit_frac": result.bound[name],
            "verdict": "within its bound" if result.ok else "beyond its bound",
        }
        for result in scores
        for name in ("mape", "median")
        if name in result.bound and getattr(result, name) is not None
    ]
    if not rows:
        return
    table = show.frame(rows)
    charts.show(
        table,
        charts.scores(list(dict.fromkeys(table["campaign"]))),
        name="accuracy",
        title="Error against published measurements",
        alt="Bars of the error of every campaign, with the bound each has to keep",
        note="Mean or median absolute error, whichever is bounded; tick: the bound. "
        "Rows that gave a constant are never scored.",
    )


def _table(scores: list[Result]) -> None:
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
            "bound": ", ".join(f"{name} {limit:g}" for name, limit in result.bound.items()),
            "verdict": "within its bound" if result.ok else "beyond its bound",
        }
        for result in scores
    ]
    number = st.column_config.NumberColumn
    section = common.opened("Every score, recomputed now", "scores")
    if section is None:
        return
    with section:
        st.dataframe(
            show.frame(rows),
            hide_index=True,
            placeholder="",
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
                "mape_percent": number("mean error (%)", format="%.1f"),
                "median_percent": number("median (%)", format="%.1f"),
                "bias_percent": number("bias (%)", format="%.1f"),
                "k_regret_percent": number("K-regret (%)", format="%.2f"),
                "sign_correct_percent": number("sign right (%)", format="%.0f"),
                "coverage_percent": number("in the 80 % band (%)", format="%.0f"),
            },
        )


def _own(asked: calc.Asked) -> None:
    """A user's own table against the scenario on the screen."""
    with st.expander("Score your own measurements", expanded=st.session_state.get("up_measured") is not None):
        file = st.file_uploader(
            "Measurements (CSV: batch_size, k, metric, value, unit; or one column per metric)",
            type=["csv"],
            key="up_measured",
            max_upload_size=uploads.MEASURED_MB,
            help=texts.HELP["up_measured"],
        )
        if file is None:
            return
        _, path = uploads.keep(file)
        try:
            report = validate_user(asked.resolved, read_measurements(path))
        except RooflinesimError as error:
            st.error(state.problem(error))
            return
        _report(report)


def _report(report: UserReport) -> None:
    row = st.container(horizontal=True, gap="medium")
    row.metric("Rows", f"{report.score.n:,}")
    row.metric("Mean absolute error", show.percent(report.score.mape))
    row.metric(
        "Bias", show.percent(report.score.bias), help="Above 0: the model is slower than the measurement."
    )
    number = st.column_config.NumberColumn
    st.dataframe(
        show.frame(
            {
                "group": point.group,
                "batch": point.batch_size,
                "context": point.context_tokens,
                "k": item.k,
                "best": "best" if item.k == point.best_k else "",
                "predicted": "best" if item.k == point.predicted_k else "",
                "step_s": item.step_s,
                "predicted_step_s": item.predicted_step_s,
                "error_frac": item.error,
                "speedup": item.speedup,
                "acceptance_length": item.acceptance_length,
                "flags": "; ".join(item.flags),
            }
            for point in report.points
            for item in point.rows
        ),
        hide_index=True,
        placeholder="",
        column_order=[
            "group",
            "batch",
            "context",
            "k",
            "step_ms",
            "predicted_step_ms",
            "error_percent",
            "speedup",
            "acceptance_length",
            "best",
            "predicted",
            "flags",
        ],
        column_config={
            "k": "K",
            "best": "as measured",
            "predicted": "as predicted",
            "step_ms": number("measured step (ms)", format="%.2f"),
            "predicted_step_ms": number("predicted (ms)", format="%.2f"),
            "error_percent": number("error (%)", format="%.1f"),
            "speedup": number("measured speed-up", format="%.2f"),
            "acceptance_length": number("AL", format="%.2f"),
        },
    )
    for text in report.findings:
        st.info(show.plain(text))
    for text in report.recalibrate:
        st.info("Worth calibrating: " + show.plain(text))
