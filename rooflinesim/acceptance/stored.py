"""Stored acceptance by name: defaults per drafter method and workload, and published measurements."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from rooflinesim.acceptance.convert import (
    Conversion,
    from_acceptance_lengths,
    from_conditional,
    from_marginal,
)
from rooflinesim.acceptance.curve import AcceptanceCurve
from rooflinesim.errors import unknown_name
from rooflinesim.specs.acceptance import AcceptanceSpec
from rooflinesim.specs.files import load_yaml_spec, spec_root

#: What people call a workload, and the name that the default files use.
WORKLOADS: Final = {
    "mixed": ("mixed", "general", "average", "default", "speed-bench"),
    "coding": ("coding", "code", "humaneval", "mbpp"),
    "math": ("math", "gsm8k", "math500", "reasoning"),
    "chat": ("chat", "mt-bench", "mtbench", "conversation", "sharegpt", "writing"),
    "qa": ("qa", "question", "questions"),
    "rag": ("rag", "summarization", "summarisation", "summary", "cnn-dailymail"),
    "editing": ("editing", "code-editing", "edit", "instructcoder"),
    "long-context": ("long-context", "long"),
}

#: Methods without a published default take that of a relative, and say so.
_RELATIVES: Final = {"suffix": "ngram", "medusa": "eagle"}
_METHOD_ALIASES: Final = {
    "eagle-3": "eagle3",
    "eagle2": "eagle",
    "eagle-2": "eagle",
    "p-eagle": "peagle",
    "n-gram": "ngram",
    "draft": "draft_model",
    "self-sparse": "self_sparse",
}


def _folder() -> Path:
    return spec_root("model_specs") / "acceptance"


def _key(name: str) -> str:
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


@cache
def _defaults_of(method: str) -> tuple[AcceptanceSpec, ...]:
    paths = sorted((_folder() / "defaults").glob(f"{method}--*.yaml"))
    return tuple(load_yaml_spec(path, AcceptanceSpec) for path in paths)


def default_methods() -> list[str]:
    """Drafter methods with stored defaults (relatives included).

    >>> "eagle3" in default_methods() and "suffix" in default_methods()
    True
    """
    stems = {path.stem.split("--")[0] for path in (_folder() / "defaults").glob("*--*.yaml")}
    return sorted(stems | set(_RELATIVES))


def workload_name(text: str) -> str:
    """The stored name of a workload.

    >>> workload_name("HumanEval"), workload_name("summarisation")
    ('coding', 'rag')
    """
    key = _key(text)
    for name, words in WORKLOADS.items():
        if key in words:
            return name
    raise unknown_name("workload", text, [word for words in WORKLOADS.values() for word in words])


def curve_of(spec: AcceptanceSpec) -> Conversion:
    """The stored numbers as a curve; the text says what they are and where they come from."""
    if spec.acceptance_length is not None:
        base = from_acceptance_lengths(spec.acceptance_length)
    elif spec.marginal is not None:
        base = from_marginal(spec.marginal)
    elif spec.conditional is not None:
        base = from_conditional(spec.conditional)
    else:
        curve = AcceptanceCurve.from_params(spec.form or "geometric", spec.params or {})
        base = Conversion(curve, curve.describe())
    measured = base.measured_k if spec.kind in ("measured", "paper") else 0
    return Conversion(base.curve, f"{spec.id}: {base.text} [{spec.kind}]", measured, base.warnings)


def default_curve(method: str, workload: str = "mixed") -> Conversion:
    """The default acceptance of a drafter method on a workload, or the nearest that is stored, with a
    warning.

    Nothing here was measured on the user's pair of models: ``measured_k`` is 0. "mixed" without a row of its
    own is an equal mixture, by steps, of the method's rows.

    >>> default_curve("eagle3", "coding").curve.acceptance_length([1, 3, 5, 7]).round(2).tolist()
    [1.8, 2.89, 3.47, 3.75]
    >>> default_curve("suffix", "code-editing").warnings
    ('acceptance: no published default for suffix; that of ngram is used',)
    """
    key = _key(method).replace("-model", "_model")
    key = _METHOD_ALIASES.get(key, key)
    if key == "self-sparse":
        key = "self_sparse"
    warnings: list[str] = []
    stored = _RELATIVES.get(key, key)
    rows = _defaults_of(stored)
    if not rows:
        raise unknown_name("drafter method", method, default_methods())
    if stored != key:
        warnings.append(f"acceptance: no published default for {key}; that of {stored} is used")
    wanted = workload_name(workload)
    hit = next((row for row in rows if wanted in row.workloads), None)
    if hit is None and wanted == "mixed" and len(rows) > 1:
        curve = AcceptanceCurve.mixture(
            weights=[1.0] * len(rows), curves=[curve_of(row).curve for row in rows]
        )
        text = f"equal mixture of {', '.join(row.id for row in rows)}: {curve.describe()}"
        return Conversion(curve, text, 0, tuple(warnings))
    if hit is None:
        # the row for mixed traffic, else the most cautious one
        hit = next((row for row in rows if "mixed" in row.workloads), None) or min(
            rows, key=lambda row: float(curve_of(row).curve.acceptance_length(4))
        )
        warnings.append(
            f"acceptance: no default of {stored} for {wanted}, that for {'/'.join(hit.workloads)} is used; "
            "give your own"
        )
    found = curve_of(hit)
    return Conversion(found.curve, found.text, 0, (*warnings, *found.warnings))


@cache
def _measured_names() -> dict[str, str]:
    """Comparison form of every measured curve's file name -> stem."""
    return {_key(path.stem): path.stem for path in _folder().glob("*--*--*.yaml")}


def measured_names() -> list[str]:
    """Names of all published acceptance curves, ``<target>--<draft>--<dataset>``.

    >>> "qwen3-4b--eagle3--chat" in measured_names()
    True
    """
    return sorted(_measured_names().values())


def measured_spec(name: str) -> AcceptanceSpec:
    """The stored numbers of a published curve, by name."""
    stem = _measured_names().get(_key(name))
    if stem is None:
        raise unknown_name("acceptance curve", name, measured_names())
    return load_yaml_spec(_folder() / f"{stem}.yaml", AcceptanceSpec)


def measured_curve(name: str) -> Conversion:
    """A published acceptance curve ``<target>--<draft>--<dataset>``.

    >>> measured_curve("qwen3-4b--eagle3--chat").curve.conditional(3).tolist()
    [0.535, 0.591, 0.643]
    """
    return curve_of(measured_spec(name))
