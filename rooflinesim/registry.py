"""Finds spec files by name: accelerators, nodes, engines, models, drafters and calibrations.

Only the file that is asked for is parsed. One generated index per folder maps every name to a file; a file
that somebody dropped into the folder and that the index does not list yet is found as well, only more slowly.
``python -m rooflinesim.registry`` writes the indexes anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from rooflinesim.errors import InputError, SpecError, near_misses, unknown_name
from rooflinesim.specs.achievable import Achievable, first_defaults, lent
from rooflinesim.specs.calibration import Calibration, rule_classes
from rooflinesim.specs.engine import EngineProfile
from rooflinesim.specs.files import load_yaml_spec, read_yaml, spec_root
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.heads import as_draft_model, generic_head, mtp_head
from rooflinesim.specs.index import (
    INDEX,
    device_key,
    devices,
    heads_table,
    index_text,
    indexed_folders,
    model_key,
    model_names,
    names_by_stem,
    tail,
)
from rooflinesim.specs.model import DraftSpec, ModelSpec
from rooflinesim.specs.node import NodeSpec, default_node

__all__ = [
    "calibration",
    "draft",
    "drafts",
    "engine",
    "engines",
    "gpu",
    "gpus",
    "load_yaml_spec",
    "methods",
    "model",
    "models",
    "node",
    "nodes",
]

SpecT = TypeVar("SpecT", bound=BaseModel)

#: methods a user may name in place of a head; the registry looks up the target's own head
_METHODS: Final = ("eagle", "eagle3", "mtp", "peagle", "dflash", "dspark", "medusa")
_METHOD_ALIASES: Final = {
    "eagle-3": "eagle3",
    "eagle2": "eagle",
    "eagle-2": "eagle",
    "p-eagle": "peagle",
    "nextn": "mtp",
}


def _gpu_folder() -> Path:
    return spec_root("hw_specs") / "gpus"


@cache
def _cached(path: Path, cls: type[BaseModel]) -> BaseModel:
    return load_yaml_spec(path, cls)


def _load(path: Path, cls: type[SpecT]) -> SpecT:
    spec = _cached(path, cls)
    assert isinstance(spec, cls)
    return spec


def _as_path(text: str, suffixes: tuple[str, ...]) -> Path | None:
    """``text`` as a file, when it looks like one: a spec suffix, or an existing file or folder with a
    separator."""
    if text.lower().endswith(suffixes):
        path = Path(text).expanduser()
        if not path.is_file():
            raise InputError(f"{text}: no such file")
        return path
    return None


# -- accelerators, nodes, engines, calibrations ---------------------------------------------------------


def gpu(name_or_path: str) -> GpuSpec:
    """The accelerator of that name, driver string or YAML file.

    >>> gpu("NVIDIA H100 80GB HBM3").id, gpu("mi300").id
    ('h100-sxm', 'mi300x')
    """
    path = _as_path(name_or_path, (".yaml", ".yml"))
    if path is not None:
        return load_yaml_spec(path, GpuSpec)
    stem = devices(_gpu_folder()).get(device_key(name_or_path))
    if stem is None:
        raise _unknown_device("GPU", name_or_path, names_by_stem(_gpu_folder()))
    return _load(_gpu_folder() / f"{stem}.yaml", GpuSpec)


def _unknown_device(kind: str, given: str, index: dict[str, list[str]]) -> InputError:
    """Near misses by spelling, and names that the given text starts with (``H100 80GB HBM3 PCIe v2``)."""
    key = device_key(given)
    starts = sorted(
        {
            names[0]
            for names in index.values()
            for n in names
            if len(device_key(n)) > 1 and key.startswith(device_key(n))
        },
        key=len,
        reverse=True,
    )
    every = [name for names in index.values() for name in names]
    if starts and not near_misses(given, every):
        return InputError(f"unknown {kind} {given!r}; did you mean {', '.join(starts[:3])}?")
    return unknown_name(
        kind, given, every if near_misses(given, every) else [names[0] for names in index.values()]
    )


def source_names(keys: str) -> str:
    """The works behind the source keys of an accelerator's file; what is not a key stays as it is.

    >>> source_names("flashmla75")
    'deepseek-ai/FlashMLA#75 (989 dense / 1979 sparse)'
    """
    file = spec_root("hw_specs") / "sources.yaml"
    known = read_yaml(file) if file.is_file() else {}
    parts = [part.strip() for part in keys.split(";") if part.strip()]
    return "; ".join(str(known.get(part, part)) for part in parts)


def gpus() -> list[str]:
    """Ids of all accelerators in the registry."""
    return sorted(names[0] for names in names_by_stem(_gpu_folder()).values())


def node(name_or_path: str) -> NodeSpec:
    """The node of that name or YAML file; an accelerator's name gives its usual node.

    >>> node("hgx-h100").n_gpus, node("mi300x").topology
    (8, 'mesh')
    """
    path = _as_path(name_or_path, (".yaml", ".yml"))
    if path is not None:
        return load_yaml_spec(path, NodeSpec)
    folder = spec_root("hw_specs") / "nodes"
    stem = devices(folder).get(device_key(name_or_path))
    if stem is not None:
        return _load(folder / f"{stem}.yaml", NodeSpec)
    if device_key(name_or_path) in devices(_gpu_folder()):
        spec = gpu(name_or_path)
        for stem in sorted(names_by_stem(folder)):
            found = _load(folder / f"{stem}.yaml", NodeSpec)
            if found.gpu == spec.id:
                return found
        return default_node(spec)
    raise _unknown_device("node", name_or_path, names_by_stem(folder))


def nodes() -> list[str]:
    """Ids of all nodes in the registry."""
    return sorted(names[0] for names in names_by_stem(spec_root("hw_specs") / "nodes").values())


def engine(name_or_path: str) -> EngineProfile:
    """The serving engine's profile: by id, by alias, by bare engine name (its newest version) or by YAML
    file."""
    path = _as_path(name_or_path, (".yaml", ".yml"))
    if path is not None:
        return load_yaml_spec(path, EngineProfile)
    folder = spec_root("hw_specs") / "engines"
    table = devices(folder)
    key = device_key(name_or_path)
    stem = table.get(key)
    if stem is None:
        versions = [s for k, s in table.items() if k.startswith(key) and k[len(key) :][:1].isdigit()]
        stem = max(versions, key=_version, default=None) if key else None
    if stem is None:
        raise _unknown_device("engine", name_or_path, names_by_stem(folder))
    return _load(folder / f"{stem}.yaml", EngineProfile)


def _version(stem: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", stem))


def engines() -> list[str]:
    """Ids of all engine profiles in the registry."""
    return sorted(names[0] for names in names_by_stem(spec_root("hw_specs") / "engines").values())


def calibration(gpu_id: str, *, engine: str | None = None) -> Calibration | None:
    """The stored efficiencies of an accelerator, or ``None``.

    Tried in order: the fit for that engine, the fit for any engine, the fits of an accelerator with the same
    silicon, and the rule of its class (architecture and memory, then memory), with published achievable
    ceilings put in where there are any (``calibrations/achievable``).
    """
    fitted = _fitted(gpu_id, engine)
    path = spec_root("hw_specs") / "calibrations" / "achievable" / f"{gpu_id}.yaml"
    if fitted is not None:
        return fitted
    if not path.is_file():
        return _rule(gpu_id, engine, general=False)
    ceilings = _load(path, Achievable)
    lender = _fitted(ceilings.like, engine) if ceilings.like else None
    if lender is not None:
        return lent(ceilings, lender)
    rule = _rule(gpu_id, engine)
    return None if rule is None else first_defaults(ceilings, rule)


def _rule(gpu_id: str, engine: str | None, *, general: bool = True) -> Calibration | None:
    """The rule of the accelerator's class under this engine, the closest first; else the general one."""
    stem = devices(_gpu_folder()).get(device_key(gpu_id))
    if stem is not None and engine is not None:
        spec = _load(_gpu_folder() / f"{stem}.yaml", GpuSpec)
        for name in rule_classes(architecture=spec.architecture, memory_type=spec.memory_type):
            found = _fitted(f"rule--{name}", engine)
            if found is not None:
                return found
    return _fitted("rule", None) if general else None


def _fitted(gpu_id: str, engine: str | None) -> Calibration | None:
    folder = spec_root("hw_specs") / "calibrations"
    for name in [f"{gpu_id}--{engine}.yaml", f"{gpu_id}.yaml"] if engine else [f"{gpu_id}.yaml"]:
        if (folder / name).is_file():
            return _load(folder / name, Calibration)
    return None


# -- models and drafters --------------------------------------------------------------------------------


def _config(text: str) -> Path | None:
    """A Hugging Face ``config.json`` named by itself or by the folder that holds it."""
    path = _as_path(text, (".json",))
    if path is None and ("/" in text or text.startswith(".")):
        folder = Path(text).expanduser()
        path = folder / "config.json" if (folder / "config.json").is_file() else None
    return path


def _target_folder() -> Path:
    return spec_root("model_specs") / "targets"


def _draft_folder() -> Path:
    return spec_root("model_specs") / "drafts"


def model(name_or_path: str) -> ModelSpec:
    """The model of that name (id, part after the slash, alias), YAML file, or Hugging Face ``config.json``.

    >>> model("llama-3.1-8b").id, model("Qwen3-235B-A22B").n_layers
    ('meta-llama/Llama-3.1-8B', 94)
    """
    path = _as_path(name_or_path, (".yaml", ".yml"))
    if path is not None:
        return load_yaml_spec(path, ModelSpec)
    path = _config(name_or_path)
    if path is not None:
        spec = _import(path)
        if isinstance(spec, DraftSpec):
            raise SpecError(f"{path}: the configuration of a {spec.method} draft head; use it as the draft")
        return spec
    stem = model_names(_target_folder()).get(model_key(name_or_path))
    if stem is None:
        if model_key(name_or_path) in model_names(_draft_folder()):
            raise InputError(f"{name_or_path!r} is a draft head, not a model; use it as the draft")
        raise _unknown_model("model", name_or_path, names_by_stem(_target_folder()).values())
    return _load(_target_folder() / f"{stem}.yaml", ModelSpec)


def _import(path: Path) -> ModelSpec | DraftSpec:
    from rooflinesim.hf_import import import_config  # only when a configuration is read: start-up time

    return import_config(path)


def _unknown_model(kind: str, given: str, names: Iterable[list[str]]) -> InputError:
    groups = list(names)
    short = [tail(name).lower() for group in groups for name in group]
    return unknown_name(kind, tail(given), dict.fromkeys(short))


def models() -> list[str]:
    """Ids of all models in the registry, draft LMs included."""
    return sorted(names[0] for names in names_by_stem(_target_folder()).values())


def drafts(*, target: str | None = None) -> list[str]:
    """Ids of all draft heads in the registry, or of those made for one target."""
    table = names_by_stem(_draft_folder())
    if target is None:
        return sorted(names[0] for names in table.values())
    methods = heads_table().get(model(target).id, {})
    return [table[stem][0] for stems in methods.values() for stem in stems]


def methods() -> list[str]:
    """Methods that may be named in place of a head."""
    return list(_METHODS)


def draft(name_or_path: str, *, target: ModelSpec | str | None = None) -> DraftSpec:
    """The drafter of that name, method, file, or model.

    A method (``eagle3``, ``mtp``, ...) gives the registry's head for ``target``; without one, the head is
    built from the target's shape and its ``defaulted`` says so. A model's name gives that model as a draft
    LM.

    >>> draft("eagle3", target="llama-3.1-8b").id, draft("llama-3.2-1b").method
    ('yuhuili/EAGLE3-LLaMA3.1-Instruct-8B', 'draft_model')
    """
    path = _as_path(name_or_path, (".yaml", ".yml"))
    if path is not None:
        data = read_yaml(path)
        return (
            load_yaml_spec(path, DraftSpec)
            if "method" in data
            else as_draft_model(load_yaml_spec(path, ModelSpec))
        )
    path = _config(name_or_path)
    if path is not None:
        spec = _import(path)
        return spec if isinstance(spec, DraftSpec) else as_draft_model(spec)
    lowered = name_or_path.strip().lower().replace("_", "-")
    method = _METHOD_ALIASES.get(lowered, lowered)
    if method in _METHODS:
        return _head_of(method, model(target) if isinstance(target, str) else target)
    key = model_key(name_or_path)
    stem = model_names(_draft_folder()).get(key)
    if stem is not None:
        return _load(_draft_folder() / f"{stem}.yaml", DraftSpec)
    if key in model_names(_target_folder()):
        return as_draft_model(model(name_or_path))
    known = [*names_by_stem(_draft_folder()).values(), *names_by_stem(_target_folder()).values()]
    raise _unknown_model("draft", name_or_path, [*known, list(_METHODS)])


def _head_of(method: str, target: ModelSpec | None) -> DraftSpec:
    if target is None:
        raise InputError(f"draft {method!r}: a target model is needed to find its head")
    stems = heads_table().get(target.id, {}).get(method, [])
    if stems:
        return _load(_draft_folder() / f"{stems[0]}.yaml", DraftSpec)
    return mtp_head(target) if method == "mtp" else generic_head(target, method)


if __name__ == "__main__":
    for place in indexed_folders():
        (place / INDEX).write_text(index_text(place), encoding="utf-8")
