"""Files a user brings: kept for this session in a private folder, read by the package's own readers alone."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import show
import streamlit as st
import texts
from state import UPLOADED, problem

from rooflinesim import registry
from rooflinesim.errors import RooflinesimError

#: MB that a widget takes; specs are refused beyond 1 MB by their reader.
SPEC_MB, CSV_MB, MEASURED_MB, LOG_MB = 1, 4, 8, 64
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def folder() -> Path:
    """This session's private folder; it goes when the session does."""
    if "_folder" not in st.session_state:
        st.session_state["_folder"] = tempfile.TemporaryDirectory(prefix="rooflinesim-")
    return Path(st.session_state["_folder"].name)


def keep(file: Any) -> tuple[str, Path]:
    """Write an upload into the folder, once; its label and its path."""
    name = _ODD.sub("_", Path(file.name).name)[-80:].lstrip(".") or "upload"
    place = folder() / _ODD.sub("_", file.file_id)
    path = place / name
    if not path.exists():
        place.mkdir(exist_ok=True)
        path.write_bytes(file.getbuffer())
    label = UPLOADED + name
    st.session_state.setdefault("uploads", {})[label] = path
    return label, path


def _take(key: str, check: Callable[[str], object], then: Callable[[str], None]) -> None:
    """On upload: check the file with its reader; then use it, or say in one line why not."""
    file = st.session_state.get(key)
    notes = st.session_state.setdefault("upload_notes", {})
    notes.pop(key, None)
    if file is None:
        return
    label, path = keep(file)
    try:
        check(str(path))
    except RooflinesimError as error:
        notes[key] = ("error", problem(error))
        del st.session_state["uploads"][label]
        path.unlink()
        return
    then(label)
    notes[key] = ("success", f"{show.plain(label.removeprefix(UPLOADED))} is in use, in this session only")


def _setter(field: str) -> Callable[[str], None]:
    def then(label: str) -> None:
        st.session_state[field] = label

    return then


def uploader(
    label: str,
    key: str,
    *,
    types: Sequence[str],
    size_mb: int,
    check: Callable[[str], object],
    then: Callable[[str], None],
) -> None:
    """One uploader with its note."""
    st.file_uploader(
        label,
        type=list(types),
        key=key,
        max_upload_size=size_mb,
        on_change=_take,
        args=(key, check, then),
        help=texts.HELP[key],
    )
    note = st.session_state.get("upload_notes", {}).get(key)
    if note is not None:
        (st.error if note[0] == "error" else st.success)(note[1])


def spec_uploaders() -> None:
    """Model, drafter, GPU and measured step times."""
    from rooflinesim.api.curves import read_verify_curve

    uploader(
        "Model (config.json)",
        "up_model",
        types=["json"],
        size_mb=SPEC_MB,
        check=registry.model,
        then=_setter("model"),
    )
    uploader(
        "Drafter (config.json)",
        "up_draft",
        types=["json"],
        size_mb=SPEC_MB,
        check=registry.draft,
        then=_setter("draft"),
    )
    uploader(
        "GPU (YAML)",
        "up_gpu",
        types=["yaml", "yml"],
        size_mb=SPEC_MB,
        check=registry.gpu,
        then=_setter("gpu"),
    )
    uploader(
        "Measured step times (CSV: rows, ms)",
        "up_curve",
        types=["csv"],
        size_mb=CSV_MB,
        check=read_verify_curve,
        then=_setter("verify_curve"),
    )
    if st.session_state.get("verify_curve"):
        st.button("Back to modelled step times", on_click=_forget, args=("verify_curve",))


def _forget(key: str) -> None:
    st.session_state.pop(key, None)


def labels(prefix_types: Sequence[str]) -> list[str]:
    """Uploads of this session whose names end like one of these."""
    return [
        label for label in st.session_state.get("uploads", {}) if label.rsplit(".", 1)[-1] in prefix_types
    ]


def _take_logs(key: str) -> None:
    """Read one or several files of one engine; on success they become the acceptance of the scenario."""
    from rooflinesim.api.logs import acceptance_from_files

    files = st.session_state.get(key) or []
    notes = st.session_state.setdefault("upload_notes", {})
    notes.pop(key, None)
    if not files:
        return
    kept = [keep(file) for file in files]
    k = st.session_state.get("log_k") or None
    try:
        measured = acceptance_from_files([path for _, path in kept], k=k)
    except RooflinesimError as error:
        notes[key] = ("error", problem(error))
        return
    st.session_state["logs"] = {"labels": [label for label, _ in kept], "k": k, "measured": measured}
    st.session_state["form"] = "file"


def log_uploader() -> None:
    """Logs and metrics, and the K that some formats do not say."""
    left, right = st.columns([3, 1])
    with left:
        st.file_uploader(
            "Engine log, metrics, benchmark result or statistics (several files of one run together)",
            key="up_log",
            accept_multiple_files=True,
            max_upload_size=LOG_MB,
            on_change=_take_logs,
            args=("up_log",),
            help=texts.HELP["up_log"],
        )
    with right:
        st.number_input(
            "K, if the file does not say",
            0,
            64,
            key="log_k",
            on_change=_take_logs,
            args=("up_log",),
            help="Drafted tokens per step. 0: read it from the file.",
        )
    note = st.session_state.get("upload_notes", {}).get("up_log")
    if note is not None:
        st.error(note[1])
