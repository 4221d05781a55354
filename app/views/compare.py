"""Compare: two to four scenarios side by side, differences marked."""

from __future__ import annotations

from dataclasses import dataclass

import calc
import charts
import pandas as pd
import show
import state
import streamlit as st

from rooflinesim.api import Point, Resolved, resolve
from rooflinesim.api.tables import choice_table, facts, request_table
from rooflinesim.errors import RooflinesimError
from views import common

LETTERS = "ABCD"
MARKED = "font-weight: bold; background-color: rgba(230, 159, 0, 0.18)"


@dataclass(frozen=True)
class Entry:
    """One column."""

    name: str
    resolved: Resolved
    point: Point


def draw() -> None:
    """The page."""
    compared: list[str] = st.session_state["compared"]
    here = state.encode(state.values())
    bar = st.container(horizontal=True)
    bar.button(
        "Keep the scenario on the screen",
        on_click=_keep,
        disabled=len(compared) >= state.MAX_KEPT or here in compared,
        icon=":material/add:",
        help="Keeps a copy; then change the inputs and the copy stays beside them. At most three copies.",
    )
    for i, query in enumerate(compared):
        name = state.title_of(state.decode(query)[0])
        bar.button(
            f"Remove {LETTERS[i + 1]}: {show.plain(name)}",
            key=f"drop_{i}",
            on_click=_drop,
            args=(i,),
            icon=":material/close:",
        )
    entries = [_entry("A (on the screen)", state.values())]
    for i, query in enumerate(compared):
        held, problems = state.decode(query)
        for text in problems:
            st.warning(f"{LETTERS[i + 1]}: {show.plain(text)}.", icon=":material/link_off:")
        try:
            entries.append(_entry(f"{LETTERS[i + 1]}", held))
        except RooflinesimError as error:
            st.error(f"{LETTERS[i + 1]}: {state.problem(error)}")
    if len(entries) < 2:
        st.info("Keep this scenario, then change something in the sidebar or the sliders: both stand here.")
    _table(entries)
    _charts(entries)
    asked = calc.asked()
    common.assumptions(asked)
    common.to_terminal(asked)


def _keep() -> None:
    st.session_state["compared"] = [*st.session_state["compared"], state.encode(state.values())]


def _drop(index: int) -> None:
    st.session_state["compared"] = [q for i, q in enumerate(st.session_state["compared"]) if i != index]


def _entry(name: str, held: state.Values) -> Entry:
    scenario = state.scenario_of(held)
    resolved = calc.remembered(("resolve", scenario), lambda: resolve(scenario))
    return Entry(f"{name}: {state.title_of(held)}", resolved, calc.prediction(scenario).points[0])


def _results(point: Point) -> dict[str, str]:
    best = point.best_row
    request = request_table([best])[0]
    return {
        "batch": f"{point.batch_size:,}",
        "context": f"{point.context_tokens:,}",
        "best choice": "SD off" if point.choice == "off" else f"K = {point.best_k}",
        "speed-up at the best K": f"{best.speedup:.2f}× ({best.speedup_low:.2f} to {best.speedup_high:.2f})",
        "goodput at the best K": f"{best.goodput_tokens_per_s:,.0f} tok/s",
        "goodput, SD off": f"{point.off_goodput_tokens_per_s:,.0f} tok/s",
        "one request": f"{request['request_tokens_per_s']:.0f} tok/s, {show.ms(request['tpot_s'])} per token",
        "step at the best K": show.ms(best.step_s),
        "bound by": best.bound,
        "memory": "fits" if point.fits else f"short by {show.gib(point.short_bytes)} per GPU",
        "largest batch": f"{point.largest_batch:,}",
    }


def _table(entries: list[Entry]) -> None:
    columns = {entry.name: {**facts(entry.resolved), **_results(entry.point)} for entry in entries}
    table = pd.DataFrame(columns).rename_axis("what").reset_index()
    differs = table.drop(columns="what").nunique(axis=1) > 1
    table.insert(1, "differs", differs.map({True: "≠", False: ""}))
    styled = table.style.apply(
        lambda row: [MARKED if row["differs"] else "" for _ in row],
        axis=1,
    )
    st.dataframe(
        styled,
        hide_index=True,
        height="content",
        column_config={
            "what": st.column_config.TextColumn("", width=170, pinned=True),
            "differs": st.column_config.TextColumn("", width=30, help="≠: the scenarios differ here"),
        },
    )


def _charts(entries: list[Entry]) -> None:
    rows = []
    for entry in entries:
        result = calc.over_batches(entry.resolved, context=entry.point.context_tokens)
        rows += [{**row, "scenario": entry.name} for row in choice_table(result)]
    table = show.frame(rows)
    names = [entry.name for entry in entries]
    top = int(table["batch_size"].max())
    left, right = st.columns(2)
    with left:
        charts.show(
            table,
            charts.compared(names, field="speedup", title="speed-up over SD off (×)", top=top),
            name="compare_speedup",
            title="Speed-up of the best choice, by batch",
            alt="Speed-up of the best choice against batch size for each scenario",
        )
    with right:
        charts.show(
            table,
            charts.compared(names, field="goodput_tokens_per_s", title="goodput (tokens/s)", top=top),
            name="compare_goodput",
            title="Goodput of the best choice, by batch",
            alt="Goodput of the best choice against batch size for each scenario",
        )
