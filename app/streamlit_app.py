"""rooflinesim what-if: the page. Widgets and views only; every number comes from ``rooflinesim.api``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import show  # noqa: E402
import sidebar  # noqa: E402
import state  # noqa: E402
import streamlit as st  # noqa: E402
import texts  # noqa: E402
from views import VIEWS  # noqa: E402

from rooflinesim.errors import RooflinesimError  # noqa: E402

st.set_page_config(
    page_title="rooflinesim: what-if",
    page_icon=str(HERE / "icon.svg"),
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={
        "About": "rooflinesim: an analytical model of speculative decoding. Runs on this machine alone."
    },
)


@st.fragment
def body() -> None:
    """Load sliders and the chosen view: a moved slider reruns this part alone."""
    view = st.session_state["view"] or state.VIEWS[0]
    try:
        if view != "Accuracy":
            sidebar.load_bar()
        VIEWS[view]()
    except RooflinesimError as error:
        st.error(state.problem(error), icon=":material/error:")
        st.caption("Change the input that is named; nothing was changed for you.")
    state.write()


st.html(
    "<style>.stMainBlockContainer{padding-top:4.2rem;padding-bottom:2rem}"
    "[data-testid=stMetricValue]{font-size:1.7rem}</style>"
)
state.start()
sidebar.draw()
st.segmented_control(
    "View",
    state.VIEWS,
    key="view",
    required=True,
    label_visibility="collapsed",
)
for line in st.session_state["problems"]:
    st.warning(f"Link: {show.plain(line)}.", icon=":material/link_off:")
st.caption(texts.VIEW_INTRO[st.session_state["view"] or state.VIEWS[0]])
body()
