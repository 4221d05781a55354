"""The inputs: deployment and acceptance in the sidebar, load above every view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import show
import state
import streamlit as st
import texts
import uploads
from presets import PRESETS

from rooflinesim import registry
from rooflinesim.errors import RooflinesimError
from rooflinesim.units import KV_BYTES, WEIGHT_BYTES

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
SIZES = (1, 2, 4, 8, 16, 32, 64)


def _with(options: Iterable[Any], key: str, *, ordered: bool = False) -> list[Any]:
    """The options with the value that is held, so that no widget ever changes an input by itself."""
    out = list(options)
    held = st.session_state.get(key)
    if held is not None and held not in out:
        out = sorted([*out, held]) if ordered else [*out, held]
    return out


def _name(text: str) -> str:
    return f"{text.removeprefix(state.UPLOADED)} (uploaded)" if text.startswith(state.UPLOADED) else text


def _select(label: str, key: str, options: Iterable[Any], **more: Any) -> None:
    options = list(options)
    ordered = all(isinstance(option, int) for option in options)
    st.selectbox(
        label,
        _with(options, key, ordered=ordered),
        key=key,
        help=texts.HELP[key],
        **{"format_func": (lambda value: _name(str(value))), **more},
    )


def draw() -> None:
    """The sidebar."""
    with st.sidebar:
        st.markdown("**rooflinesim** :gray[· what-if]")
        st.selectbox(
            "Start from an example",
            list(PRESETS),
            index=None,
            key="preset",
            placeholder="Choose an example",
            on_change=_preset,
            help=texts.HELP["preset"],
        )
        st.subheader("Deployment")
        _select("GPU", "gpu", [*registry.gpus(), *uploads.labels(["yaml", "yml"])])
        _select("Model", "model", [*registry.models(), *uploads.labels(["json"])])
        _select("Drafter", "draft", _draft_options(), format_func=_draft_name)
        _select("Engine", "engine", [state.SCENARIO_FIELDS[3].default, *registry.engines()])
        left, right = st.columns(2)
        with left:
            _select("TP", "tp", SIZES)
        with right:
            _select("EP", "ep", SIZES)
        st.subheader("Acceptance")
        _acceptance()
        section = st.expander("Formats, layout and engine settings", key="open_settings", on_change="rerun")
        if section.open:
            with section:
                _settings()
        else:
            changed = state.pairs_of(state.values(), state.SETTINGS)
            if changed:
                st.caption("Set there: " + " · ".join(show.plain(f"{key} {text}") for key, text in changed))
        section = st.expander("Your own data", key="open_own", on_change="rerun")
        if not section.open:
            return
        with section:
            st.caption("Files stay in this session, on this machine, and are gone when it ends.")
            uploads.spec_uploaders()


def load_bar() -> None:
    """Batch, context and largest K: what is moved most."""
    batch, context, k_max = st.columns([2, 2, 1])
    with batch:
        st.select_slider(
            "Batch size (sequences)", _with(BATCHES, "bs", ordered=True), key="bs", help=texts.HELP["bs"]
        )
    with context:
        st.select_slider(
            "Context (tokens per sequence)",
            _with(CONTEXTS, "ctx", ordered=True),
            key="ctx",
            format_func=lambda value: f"{value:,}",
            help=texts.HELP["ctx"],
        )
    with k_max:
        st.slider("Largest K", 1, max(16, st.session_state["kmax"]), key="kmax", help=texts.HELP["kmax"])


def _preset() -> None:
    chosen = st.session_state["preset"]
    if chosen is not None:
        state.reset_to(PRESETS[chosen])
        st.session_state["preset"] = None


def _draft_options() -> list[str]:
    methods: list[str] = []
    heads: list[str] = []
    try:
        profile = registry.engine(state.safe_name("engine", st.session_state["engine"]))
        methods = [name for name in profile.draft_laws if name in registry.methods()]
        heads = registry.drafts(target=state.safe_name("model", st.session_state["model"]))
    except RooflinesimError:
        pass  # the view says what is wrong; the lists that need no model stay
    fixed = ["auto", "none", "ngram", "suffix"]
    return list(dict.fromkeys([*fixed, *heads, *methods, *uploads.labels(["json"]), *registry.models()]))


def _draft_name(text: str) -> str:
    names = {
        "auto": "auto (this model's own head)",
        "none": "none (no speculation)",
        "ngram": "ngram (prompt lookup)",
        "suffix": "suffix (lookup)",
    }
    return names.get(text, _name(text))


def _acceptance() -> None:
    if st.session_state["view"] == "Acceptance":
        st.caption("Set on this page.")
    else:
        acceptance_inputs()


def acceptance_inputs() -> None:
    """How the acceptance is known, and its numbers."""
    _select("Known as", "form", state.FORMS, format_func=lambda form: texts.FORM_NAMES[form])
    form = st.session_state["form"]
    if form == "default":
        from rooflinesim.acceptance.stored import WORKLOADS

        _select("Workload", "workload", WORKLOADS)
    elif form == "c1":
        st.slider("c₁ (first draft accepted)", 0.0, 1.0, step=0.01, key="c1", help=texts.HELP["c1"])
        st.slider("δ (decay per position)", 0.5, 1.2, step=0.01, key="decay", help=texts.HELP["decay"])
    elif form == "beta":
        for key in ("a", "b"):
            top = max(12.0, st.session_state[key])
            st.slider(key, 0.05, top, step=0.05, key=key, help=texts.HELP[key])
    elif form == "al":
        left, right = st.columns(2)
        left.number_input("at K", 1, 64, key="alk", help=texts.HELP["alk"])
        right.number_input("AL", 1.0, 65.0, step=0.05, key="al", help=texts.HELP["al"])
    elif form == "mean":
        left, right = st.columns(2)
        left.number_input("at K", 1, 64, key="meank", help=texts.HELP["meank"])
        right.number_input("accepted / drafted", 0.0, 1.0, step=0.01, key="mean", help=texts.HELP["mean"])
    elif form in {"marginal", "conditional"}:
        st.text_input(f"{form.capitalize()} rates", key=form, max_chars=400, help=texts.HELP[form])
    elif st.session_state.get("logs") is None:
        st.info("Upload a log on the Acceptance page.")
    else:
        st.caption(
            "From " + ", ".join(show.plain(_name(label)) for label in st.session_state["logs"]["labels"])
        )


def _settings() -> None:
    _select("Weights", "weights", ["as released", *WEIGHT_BYTES])
    _select("KV cache", "kv", ["auto", *KV_BYTES])
    left, right = st.columns(2)
    with left:
        _select("PP", "pp", SIZES)
    with right:
        _select("DP", "dp", SIZES)
    st.number_input("Engine's request limit", 0, state.MOST_REQUESTS, key="seqs", help=texts.HELP["seqs"])
    st.toggle("CUDA graphs", key="graphs", help=texts.HELP["graphs"])
    st.toggle("Bare roofline (ideal)", key="ideal", help=texts.HELP["ideal"])
    st.slider("Expert popularity skew", 0.0, 3.0, step=0.05, key="skew", help=texts.HELP["skew"])
    st.slider("Expert overlap of neighbours", -1.0, 1.0, step=0.05, key="overlap", help=texts.HELP["overlap"])
