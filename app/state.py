"""The page's whole state: widgets ⇄ URL ⇄ Scenario. The URL holds what differs from the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import show
import streamlit as st

from rooflinesim import registry
from rooflinesim.acceptance import AcceptanceCurve, parse_acceptance
from rooflinesim.api import Scenario
from rooflinesim.api.emitting import KINDS
from rooflinesim.api.tables import conditional_text
from rooflinesim.errors import InputError, RooflinesimError, unknown_name
from rooflinesim.specs.files import validate

VIEWS: Final = ("What-if", "Best K map", "Why", "Acceptance", "Schedule", "Compare", "Accuracy")
FORMS: Final = ("default", "c1", "beta", "al", "mean", "marginal", "conditional", "file")
UPLOADED: Final = "upload:"
#: A schedule is solved for every batch up to here: more would keep the server busy for long.
MOST_REQUESTS: Final = 2048
#: Copies beside the scenario on the screen.
MAX_KEPT: Final = 3
_DEFAULT: Final = Scenario()


@dataclass(frozen=True)
class Field:
    """One widget: its key (also the URL's), its default, and the limits of a number."""

    key: str
    default: Any
    kind: type = str
    low: float | None = None
    high: float | None = None
    allowed: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """The value of a URL's text; InputError with one line otherwise."""
        if self.kind is bool:
            if text not in {"0", "1"}:
                raise InputError(f"{self.key}: {text!r} is not 0 or 1")
            return text == "1"
        if self.kind is str:
            if self.allowed and text not in self.allowed:
                raise unknown_name(self.key, text, self.allowed)
            if len(text) > 400:
                raise InputError(f"{self.key}: longer than 400 characters")
            return text
        try:
            value = self.kind(text)
        except ValueError:
            raise InputError(f"{self.key}: {text[:40]!r} is not a number") from None
        if not (self.low <= value <= self.high):
            raise InputError(f"{self.key}: {text[:40]} is not in {self.low:g}..{self.high:g}")
        return value

    def show(self, value: Any) -> str:
        """The value as the URL writes it."""
        if self.kind is bool:
            return "1" if value else "0"
        return f"{value:g}" if self.kind is float else str(value)


#: What describes the scenario: compared, shared, turned into commands.
SCENARIO_FIELDS: Final = (
    Field("gpu", _DEFAULT.gpu),
    Field("model", "meta-llama/Llama-3.1-8B"),
    Field("draft", _DEFAULT.draft),
    Field("engine", "vllm"),
    Field("tp", 1, int, 1, 1024),
    Field("ep", 1, int, 1, 1024),
    Field("pp", 1, int, 1, 64),
    Field("dp", 1, int, 1, 1024),
    Field("weights", "as released"),
    Field("kv", _DEFAULT.kv),
    Field("bs", _DEFAULT.batch_sizes[0], int, 1, 100_000),
    Field("ctx", _DEFAULT.context_tokens[0], int, 1, 10_000_000),
    Field("kmax", _DEFAULT.k_max, int, 1, 32),
    Field("form", "default", allowed=FORMS),
    Field("c1", 0.75, float, 0.0, 1.0),
    Field("decay", 1.0, float, 0.5, 1.2),
    Field("alk", 3, int, 1, 64),
    Field("al", 2.4, float, 1.0, 65.0),
    Field("meank", 3, int, 1, 64),
    Field("mean", 0.47, float, 0.0, 1.0),
    Field("a", 2.9, float, 0.05, 50.0),
    Field("b", 2.0, float, 0.05, 50.0),
    Field("marginal", ".72,.43,.26"),
    Field("conditional", ".72,.60,.60"),
    Field("workload", _DEFAULT.workload),
    Field("skew", 0.0, float, 0.0, 3.0),
    Field("overlap", -1.0, float, -1.0, 1.0),
    Field("graphs", True, bool),
    Field("ideal", False, bool),
    Field("seqs", 0, int, 0, MOST_REQUESTS),
)
#: What describes the view alone.
VIEW_FIELDS: Final = (
    Field("view", VIEWS[0], allowed=VIEWS),
    Field("k", -1, int, -1, 32),
    Field("model2", "auto"),
    Field("regret", 1.0, float, 0.0, 20.0),
    Field("distinct", 0, int, 0, 32),
    Field("maxbatch", 0, int, 0, MOST_REQUESTS),
    Field("emit", "scenario", allowed=("scenario", *KINDS)),
)
FIELDS: Final = (*SCENARIO_FIELDS, *VIEW_FIELDS)
#: Scenario fields that are folded away in the sidebar.
SETTINGS: Final = tuple(
    field
    for field in SCENARIO_FIELDS
    if field.key in {"weights", "kv", "pp", "dp", "seqs", "graphs", "ideal", "skew", "overlap"}
)
_BY_KEY: Final = {field.key: field for field in FIELDS}
_COMPARED: Final = "vs"

Values = dict[str, Any]


# -- URL ----------------------------------------------------------------------------------------------------


def start() -> None:
    """Fill the session from the URL: at the session's start, and when the browser goes back or forward."""
    params = {key: st.query_params.get_all(key) for key in st.query_params}
    if params == st.session_state.get("_url"):
        for field in FIELDS:  # a widget that is not drawn would lose its value
            st.session_state[field.key] = st.session_state.get(field.key, field.default)
        return
    flat = [(key, text) for key, texts in params.items() for text in texts]
    values, problems = read_pairs([pair for pair in flat if pair[0] != _COMPARED])
    first = "_url" not in st.session_state
    for field in FIELDS:
        if first or st.session_state.get(field.key) != values[field.key]:
            st.session_state[field.key] = values[field.key]
    st.session_state["compared"] = [text for key, text in flat if key == _COMPARED][:MAX_KEPT]
    st.session_state["problems"] = problems
    st.session_state["_url"] = params


def read_pairs(pairs: list[tuple[str, str]]) -> tuple[Values, list[str]]:
    """Values of all fields from the pairs of a URL, and one line for each pair that was not used."""
    values = {field.key: field.default for field in FIELDS}
    problems: list[str] = []
    for key, text in pairs:
        field = _BY_KEY.get(key)
        try:
            if field is None:
                raise unknown_name("link parameter", key[:40], _BY_KEY)
            values[key] = field.read(text)
        except InputError as error:
            problems.append(f"{error}; the default is shown instead" if field else f"{error}; it is not used")
    return values, problems


def values() -> Values:
    """The session's values; the default where a widget holds nothing."""
    held = {field.key: st.session_state.get(field.key) for field in FIELDS}
    return {key: _BY_KEY[key].default if value is None else value for key, value in held.items()}


def pairs_of(held: Values, fields: tuple[Field, ...] = FIELDS) -> list[tuple[str, str]]:
    """What differs from the defaults, as URL pairs."""
    return [(f.key, f.show(held[f.key])) for f in fields if held[f.key] != f.default]


def write() -> None:
    """Put the state into the URL."""
    held = values()
    params: dict[str, list[str]] = {key: [text] for key, text in pairs_of(held)}
    if st.session_state.get("compared"):
        params[_COMPARED] = list(st.session_state["compared"])
    if params != st.session_state.get("_url"):
        st.query_params.from_dict(params)
        st.session_state["_url"] = params


def encode(held: Values) -> str:
    """One scenario as a query string, with GPU and model always in it."""
    head = [(key, str(held[key])) for key in ("gpu", "model")]
    rest = [pair for pair in pairs_of(held, SCENARIO_FIELDS) if pair[0] not in {"gpu", "model"}]
    return urlencode([*head, *rest])


def decode(text: str) -> tuple[Values, list[str]]:
    """The values of a query string that :func:`encode` wrote."""
    return read_pairs(parse_qsl(text, keep_blank_values=True, max_num_fields=64))


def apply(new: Mapping[str, Any]) -> None:
    """Set fields (in a callback, before widgets are drawn)."""
    for key, value in new.items():
        st.session_state[key] = value


def reset_to(query: str) -> None:
    """A preset: every scenario field takes the preset's value or its default."""
    new, _ = decode(query)
    apply({field.key: new[field.key] for field in SCENARIO_FIELDS})


# -- Scenario -----------------------------------------------------------------------------------------------


def safe_name(kind: str, text: str) -> str:
    """A registry name, or an upload of this session as a path. Other paths are refused."""
    if text.startswith(UPLOADED):
        path = st.session_state.get("uploads", {}).get(text)
        if path is None:
            name = text.removeprefix(UPLOADED)
            raise InputError(
                f"{kind}: the uploaded file {name!r} is not kept; upload it again (Your own data)"
            )
        return str(path)
    listed = {"gpu": registry.gpus, "engine": registry.engines}.get(kind)
    names = listed() if listed else [*registry.models(), *registry.drafts()]
    looks_like_path = text.startswith((".", "~", "/", "\\")) or text.lower().endswith(
        (".yaml", ".yml", ".json")
    )
    if looks_like_path or ("/" in text and text not in names):
        raise unknown_name(kind, text[:60], names)
    return text


def scenario_of(held: Values, *, shown: bool = False) -> Scenario:
    """The Scenario of these values; only what differs from the defaults is set (the rest is assumed).

    ``shown``: uploads by their own file name, for commands to copy.
    """

    def name(kind: str) -> str:
        text = str(held[kind])
        if shown and text.startswith(UPLOADED):
            return text.removeprefix(UPLOADED)
        return safe_name(kind, text)

    fields: dict[str, Any] = {
        "gpu": name("gpu"),
        "model": name("model"),
        "batch_sizes": (held["bs"],),
        "context_tokens": (held["ctx"],),
    }
    if held["engine"] != _BY_KEY["engine"].default:
        fields["engine"] = name("engine")
    if held["draft"] != "auto":
        fields["draft"] = name("draft")
    for key in ("tp", "ep", "pp", "dp", "kv", "skew", "graphs", "ideal"):
        if held[key] != _BY_KEY[key].default:
            fields[key] = held[key]
    if held["weights"] != _BY_KEY["weights"].default:
        fields["weights"] = held["weights"]
    if held["kmax"] != _BY_KEY["kmax"].default:
        fields["k_max"] = held["kmax"]
    if held["overlap"] >= 0:
        fields["overlap"] = held["overlap"]
    if held["seqs"] > 0:
        fields["max_num_seqs"] = held["seqs"]
    fields.update(acceptance_fields(held, shown=shown))
    curve = st.session_state.get("verify_curve")
    if curve:
        fields["verify_curve"] = curve.removeprefix(UPLOADED) if shown else safe_name("step times", curve)
    return validate(fields, Scenario, where="scenario")


def acceptance_fields(held: Values, *, shown: bool = False) -> dict[str, Any]:
    """The acceptance form that is chosen; forms a Scenario does not know become a list of conditionals."""
    form = held["form"]
    if form == "c1":
        decay = held["decay"]
        return {"accept": f"{held['c1']:g}" if decay == 1.0 else f"{held['c1']:g},{decay:g}"}
    if form == "al":
        return {"al": f"{held['alk']}:{held['al']:g}"}
    if form in {"marginal", "conditional"}:
        return {form: held[form]}
    if form == "file":
        return _file_fields(held, shown=shown)
    if form in {"beta", "mean"}:
        curve = (
            AcceptanceCurve.beta(a=held["a"], b=held["b"])
            if form == "beta"
            else parse_acceptance(mean_accepted=f"{held['meank']}:{held['mean']:g}").curve
        )
        return {"conditional": conditional_text(curve, k_max=held["kmax"])}
    return {} if held["workload"] == _DEFAULT.workload else {"workload": held["workload"]}


def _file_fields(held: Values, *, shown: bool) -> dict[str, Any]:
    logs = st.session_state.get("logs")
    if logs is None:
        raise InputError("acceptance: no log is uploaded in this session; upload one on the Acceptance page")
    if len(logs["labels"]) == 1 and logs["k"] is None:
        label = logs["labels"][0]
        return {"accept_file": label.removeprefix(UPLOADED) if shown else safe_name("acceptance", label)}
    return {"conditional": conditional_text(logs["measured"].conversion.curve, k_max=held["kmax"])}


def title_of(held: Values) -> str:
    """A short name for one scenario."""
    model = str(held["model"]).removeprefix(UPLOADED).rsplit("/", 1)[-1]
    gpu = str(held["gpu"]).removeprefix(UPLOADED)
    size = "" if held["tp"] == 1 else f" TP {held['tp']}"
    return f"{model} on {gpu}{size}"


def problem(error: RooflinesimError) -> str:
    """The error's line as Markdown shows it plainly, without the temporary folder of an upload."""
    text = str(error)
    for label, path in st.session_state.get("uploads", {}).items():
        text = text.replace(str(path), label.removeprefix(UPLOADED))
    return show.plain(text)
