"""What several pages show: assumptions, memory, and the way back to the terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager

import show
import streamlit as st
from calc import Asked

from rooflinesim.api import Point
from rooflinesim.api.evaluate import fit_memory
from rooflinesim.api.express import as_command, as_python
from rooflinesim.api.predict import provenance
from rooflinesim.api.tables import memory_table


def assumptions(asked: Asked) -> None:
    """Everything that was taken by default, and every warning; always on the page."""
    resolved = asked.resolved
    if resolved.assumed:
        st.markdown(":gray[**Assumed:** " + " · ".join(show.plain(text) for text in resolved.assumed) + "]")
    for text in resolved.warnings:
        st.warning(show.plain(text), icon=":material/info:")


def does_not_fit(point: Point) -> None:
    """A state, not an error: how much is missing, and what would fit."""
    if point.fits:
        return
    largest = (
        f"the largest batch that fits at {point.context_tokens:,} tokens is {point.largest_batch:,}"
        if point.largest_batch
        else "not even one sequence fits"
    )
    st.warning(
        f"Does not fit: short by **{show.gib(point.short_bytes)}** per GPU; {largest}. "
        "Times below are what it would take if memory were larger.",
        icon=":material/memory:",
    )


def memory(asked: Asked, k: int) -> None:
    """Memory of one GPU, line by line, and the largest batch by context."""
    foot = fit_memory(asked.resolved, context_tokens=asked.context, k=k)
    left, right = st.columns(2)
    lines = [
        {"on one GPU": line.name, "size_bytes": line.size_bytes, "note": line.note} for line in foot.fixed
    ]
    lines.append(
        {
            "on one GPU": "left for caches",
            "size_bytes": foot.free_bytes,
            "note": "" if foot.free_bytes > 0 else "below 0: the weights alone do not fit",
        }
    )
    lines.append(
        {
            "on one GPU": "one sequence",
            "size_bytes": foot.bytes_per_seq,
            "note": f"at {asked.context:,} tokens, K = {k}",
        }
    )
    left.dataframe(
        show.frame(lines),
        hide_index=True,
        column_order=["on one GPU", "size_gib", "note"],
        column_config={"size_gib": st.column_config.NumberColumn("GiB", format="%.3f")},
    )
    right.dataframe(
        show.frame(memory_table(asked.resolved, k=k)),
        hide_index=True,
        column_config={
            "context_tokens": st.column_config.NumberColumn("context (tokens)", format="localized"),
            "largest_batch": st.column_config.NumberColumn("largest batch", format="localized"),
            "seq_gib": st.column_config.NumberColumn("one sequence (GiB)", format="%.3f"),
        },
    )


def opened(label: str, key: str) -> AbstractContextManager[object] | None:
    """A folded section, filled only once it is opened: None while it is shut."""
    section = st.expander(label, key=f"open_{key}", on_change="rerun")
    return section if section.open else None


def to_terminal(asked: Asked, *, verb: str = "predict", extra: dict[str, str] | None = None) -> None:
    """The command and the Python for what is on the screen, and where its numbers come from."""
    section = opened("Copy as a command or as Python; where the numbers come from", "terminal")
    if section is None:
        return
    with section:
        st.code(as_command(asked.shown, verb=verb, extra=extra), language="bash", wrap_lines=True)
        st.code(as_python(asked.shown), language="python", wrap_lines=True)
        st.table(
            {name: show.plain(text) for name, text in provenance(asked.resolved).items()}, border="horizontal"
        )
