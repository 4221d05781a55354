"""Schedule: K by batch as an engine reads it; and somebody's schedule checked."""

from __future__ import annotations

import calc
import charts
import show
import state
import streamlit as st
import texts
import uploads

from rooflinesim.api.checking import CheckedSchedule, check_schedule
from rooflinesim.api.emitting import KINDS, emit
from rooflinesim.api.scheduling import ScheduleAnswer, schedule
from rooflinesim.api.tables import schedule_table
from rooflinesim.engines import EngineText
from rooflinesim.errors import RooflinesimError
from views import common

NAMES = {
    "scenario": "the scenario's engine",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "vllm-synthetic": "vLLM, synthetic acceptance (to test a server)",
    "sglang-sps": "SGLang, step-cost table",
    "sglang-sps-additive": "SGLang, additive step-cost table",
    "trtllm-sps": "TensorRT-LLM, step-cost table",
    "bench-forward": "what to measure: vllm bench forward",
    "bench-sweep": "what to measure: vllm bench sweep",
}


def draw() -> None:
    """The page."""
    asked = calc.asked()
    if not asked.speculative:
        st.info("The drafter is *none*: there is no K to choose. Pick a drafter in the sidebar.")
        common.assumptions(asked)
        return
    kind, regret, distinct, top = st.columns(4)
    kind.selectbox(
        "Write for",
        ["scenario", *KINDS],
        key="emit",
        format_func=lambda name: NAMES.get(name, name),
        help=texts.HELP["emit"],
    )
    regret.slider("Loss allowed (%)", 0.0, 20.0, step=0.5, key="regret", help=texts.HELP["regret"])
    distinct.number_input("At most this many K", 0, 32, key="distinct", help=texts.HELP["distinct"])
    top.number_input("Largest batch", 0, state.MOST_REQUESTS, key="maxbatch", help=texts.HELP["maxbatch"])
    held = state.values()
    with st.spinner("Solving every batch …", show_time=True):
        answer = calc.remembered(
            (
                "schedule",
                asked.scenario.model_copy(update={"batch_sizes": (1,)}),
                held["regret"],
                held["distinct"],
                held["maxbatch"],
            ),
            lambda: schedule(
                asked.resolved,
                max_batch=held["maxbatch"] or None,
                max_regret_frac=show.fraction(held["regret"]),
                max_distinct=held["distinct"] or None,
            ),
        )
    _answer(answer)
    common.assumptions(asked)
    chart, ranges = st.columns(2)
    checked = _check(asked, answer.max_batch)
    with chart:
        charts.show(
            show.frame(schedule_table(answer, checked)),
            charts.schedule_steps(answer.max_batch, checked=checked is not None),
            name="schedule",
            title="K by batch size",
            alt="K against batch size: the schedule and the best K at every batch",
        )
    with ranges:
        _ranges(answer)
    engine = asked.resolved.deployment.profile.engine
    _texts(answer, engine if held["emit"] == "scenario" else held["emit"])
    extra = {"--regret": f"{show.fraction(held['regret']):g}"}
    if held["distinct"]:
        extra["--distinct"] = str(held["distinct"])
    if held["maxbatch"]:
        extra["--max-batch"] = str(held["maxbatch"])
    if held["emit"] != "scenario":
        extra["--emit"] = held["emit"]
        if "engine" not in asked.scenario.model_fields_set:  # --emit alone would choose that engine's costs
            extra["--engine"] = engine
    common.to_terminal(asked, verb="schedule", extra=extra)


def _gain(fraction: float | None) -> str:
    return "–" if fraction is None else f"{show.percent(fraction)}"


def _answer(answer: ScheduleAnswer) -> None:
    solved = answer.solved
    row = st.container(horizontal=True, gap="medium")
    row.metric("Ranges", str(len(answer.schedule.ranges)), help="Contiguous batch ranges with one K each.")
    row.metric("Gain over SD off", _gain(solved.gain_over_off), help="Mean over all batches of the schedule.")
    row.metric(
        f"Gain over K = {solved.best_fixed} everywhere",
        _gain(solved.gain_over_best_fixed),
        help="Against the best single K.",
    )
    row.metric(
        "Largest loss",
        f"{solved.regret_max:.2%}",
        help="Goodput lost against the best K, at the worst batch.",
    )
    row.metric(
        "CUDA graphs",
        str(answer.capture.n_graphs),
        delta=f"about {answer.capture.capture_s:.0f} s, {show.gib(answer.capture.graph_bytes)} at start-up",
        delta_color="off",
        delta_arrow="off",
    )
    if solved.off_altogether:
        st.warning("Speculation pays at no batch here: leave it off.", icon=":material/block:")
    for note in answer.notes:
        st.info(show.plain(note))


def _ranges(answer: ScheduleAnswer) -> None:
    st.markdown("**Ranges**")
    st.dataframe(
        show.frame(
            {
                "batches": f"{part.low}–{part.high}",
                "k": part.k,
                "over_off_frac": part.gain_over_off,
                "over_fixed_frac": part.gain_over_best_fixed,
                "regret_frac": part.regret_max,
                "note": "SD off would be faster" if part.off_is_better else "",
            }
            for part in answer.solved.ranges
        ),
        hide_index=True,
        column_order=["batches", "k", "over_off_percent", "over_fixed_percent", "regret_percent", "note"],
        column_config={
            "k": "K",
            "over_off_percent": st.column_config.NumberColumn("over SD off (%)", format="%.1f"),
            "over_fixed_percent": st.column_config.NumberColumn("over best fixed K (%)", format="%.1f"),
            "regret_percent": st.column_config.NumberColumn("largest loss (%)", format="%.2f"),
        },
    )


def _texts(answer: ScheduleAnswer, kind: str) -> None:
    st.markdown("**For the engine**")
    try:
        texts_ = emit(answer, kind)
    except RooflinesimError as error:
        st.warning(state.problem(error), icon=":material/info:")
        return
    for text in texts_:
        _text(text)


def _text(text: EngineText) -> None:
    st.code(
        text.text, language="yaml" if text.file_name.endswith(("yaml", "yml")) else "json", wrap_lines=True
    )
    st.download_button(
        f"Download {text.file_name}",
        data=text.text,
        file_name=text.file_name,
        key=f"download_{text.file_name}",
        on_click="ignore",
        icon=":material/download:",
    )
    st.code(text.launch, language="bash", wrap_lines=True)
    if text.settings:
        st.caption("True only with: " + show.plain("; ".join(text.settings)))
    for warning in text.warnings:
        st.warning(show.plain(warning), icon=":material/info:")


def _check(asked: calc.Asked, top: int) -> CheckedSchedule | None:
    """An uploaded schedule, read as its engine runs it and rated by our table."""
    with st.expander("Check a schedule you have", expanded=st.session_state.get("up_schedule") is not None):
        file = st.file_uploader(
            "Schedule of vLLM, SGLang or TensorRT-LLM",
            type=["json", "yaml", "yml", "txt"],
            key="up_schedule",
            max_upload_size=uploads.SPEC_MB,
            help=texts.HELP["up_schedule"],
        )
        if file is None:
            return None
        _, path = uploads.keep(file)
        try:
            checked = check_schedule(asked.resolved, path, max_batch=top)
        except RooflinesimError as error:
            st.error(state.problem(error))
            return None
        rated = checked.rated
        row = st.container(horizontal=True, gap="medium")
        row.metric("Read as", checked.read.engine)
        row.metric("Ranges", ", ".join(f"{lo}–{hi}: {k}" for lo, hi, k in rated.schedule.ranges[:4]) or "–")
        row.metric("Largest loss", f"{rated.regret_max:.2%}")
        row.metric("Mean loss", f"{rated.regret_mean:.2%}")
        row.metric("Gain over SD off", _gain(rated.gain_over_off))
        for text in checked.graph_findings:
            st.warning(show.plain(text), icon=":material/info:")
        for finding in checked.findings:
            show_as = {"error": st.error, "warning": st.warning}.get(finding.level, st.info)
            show_as(show.plain(finding.message))
        return checked
