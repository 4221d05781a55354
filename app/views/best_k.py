"""Best K map: speed-up on (batch, K), two models side by side."""

from __future__ import annotations

from dataclasses import replace

import calc
import charts
import show
import state
import streamlit as st
import texts

from rooflinesim import registry
from rooflinesim.api import Resolved, resolve
from rooflinesim.api.tables import chart_batches, map_table
from views import common

BESIDE = {"auto": "auto (MoE beside dense, dense beside MoE)", "none": "nothing"}
DENSE, MOE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"


def draw() -> None:
    """The page."""
    asked = calc.asked()
    held = state.values()
    options = ["auto", "none", *registry.models()]
    st.selectbox(
        "Beside it",
        options if held["model2"] in options else [*options, held["model2"]],
        key="model2",
        format_func=lambda name: BESIDE.get(name, name),
        help=texts.HELP["model2"],
    )
    second = held["model2"]
    if second == "auto":
        second = DENSE if asked.resolved.deployment.target.is_moe else MOE
    places = st.columns(2) if second != "none" else [st.container()]
    with places[0]:
        _map(asked.resolved, context=asked.context, batch=asked.batch, name="map")
    if second != "none":
        with places[1]:
            other = {**held, "model": second, "draft": "auto", "weights": "as released", "ep": 1}
            scenario = state.scenario_of(other)
            _map(
                calc.remembered(("resolve", scenario), lambda: resolve(scenario)),
                context=asked.context,
                batch=asked.batch,
                name="map2",
            )
    st.caption(
        "Colour: speed-up over SD off (blue gains, brown loses). Line: best K. White square: SD off is as "
        "good. Dashes: the chosen batch. Dot: past the largest captured CUDA graph (the step runs eagerly). "
        "Cross: does not fit."
    )
    common.assumptions(asked)
    batches = {"batch_sizes": tuple(chart_batches(asked.batch))}
    common.to_terminal(replace(asked, shown=asked.shown.model_copy(update=batches)), verb="sweep")


def _map(resolved: Resolved, *, context: int, batch: int, name: str) -> None:
    result = calc.over_batches(resolved, context=context, include=batch)
    cells, best = map_table(result)
    for row in best:
        row["kind"] = "SD off" if row["choice"] == "off" else "best K"
        row["k"] = row["best_k"]
        row["chosen"] = row["batch_size"] == batch
    table = show.frame(
        [*({**row, "row": "cell"} for row in cells), *({**row, "row": "best"} for row in best)]
    )
    target = resolved.deployment.target
    charts.show(
        table,
        charts.best_k_map(max(row["k"] for row in cells)),
        name=name,
        title=f"{target.id.rsplit('/', 1)[-1]} ({'MoE' if target.is_moe else 'dense'}), {context:,} tokens",
        alt=f"Heat map of speed-up by batch and K for {target.id}",
    )
