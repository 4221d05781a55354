"""Names of spec files: comparison forms, and one generated index per folder so that a look-up parses one
file.

A file that somebody dropped into a folder and that the index does not list yet is found as well, only more
slowly.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from rooflinesim.specs.files import read_yaml, spec_root

INDEX: Final = "index.yaml"
_VENDOR = re.compile(r"^(?:nvidia|amd|intel|aws|google|apple|huawei|geforce|radeon)-(?=.)")


# -- names ------------------------------------------------------------------------------------------------


def device_key(name: str) -> str:
    """The comparison form of an accelerator's name: case, ``_``, space and ``-`` do not count, nor the
    vendor.

    >>> device_key("NVIDIA GeForce RTX 4090"), device_key("H100_SXM5_80GB")
    ('rtx4090', 'h100sxm580gb')
    """
    text = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    while True:
        shorter = _VENDOR.sub("", text)
        if shorter == text:
            return text.replace("-", "")
        text = shorter


def model_key(name: str) -> str:
    """The comparison form of a model's name: case, ``_``, space and ``-`` do not count.

    >>> model_key("meta-llama/Llama-3.1-8B"), model_key("llama3.1_8b")
    ('metallama/llama3.1-8b', 'llama3.1-8b')
    """
    text = re.sub(r"[\s_-]+", "-", name.strip().lower())
    return re.sub(r"(?<!\d)-|-(?!\d)", "", text)  # a hyphen means something only between two digits


def tail(name: str) -> str:
    """The part after the slash."""
    return name.rsplit("/", 1)[-1]


def slug(name: str) -> str:
    """The file name of a spec id.

    >>> slug("Qwen/Qwen3.5-27B#mtp")
    'qwen--qwen3.5-27b--mtp'
    """
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower().replace("/", "--").replace("#", "--"))


# -- folders and indexes --------------------------------------------------------------------------------


def _names_of(data: dict[str, Any]) -> list[str]:
    return [str(data.get("id", "")), *map(str, data.get("aliases", ()))]


def build_index(folder: Path) -> dict[str, list[str]]:
    """File stem -> every name of that spec, for one folder (what the folder's index file holds)."""
    paths = (path for path in sorted(folder.glob("*.yaml")) if path.name != INDEX)
    return {path.stem: _names_of(read_yaml(path)) for path in paths}


def build_heads(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Target id -> method -> stems of the heads made for it; better documented heads first."""
    heads: dict[str, dict[str, list[tuple[tuple[bool, str, int], str]]]] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.name == INDEX:
            continue
        data = read_yaml(path)
        # a released head before a training recipe, then the better documented one, then the longer block
        recipe = str(data["id"]).startswith("SpecForge/")
        rank = (recipe, str(data.get("confidence") or "Z"), -int(data.get("block_size") or 0))
        for target in [data.get("target_id"), *data.get("target_ids", ())]:
            if target:
                entry = heads.setdefault(str(target), {}).setdefault(str(data["method"]), [])
                if (rank, path.stem) not in entry:
                    entry.append((rank, path.stem))
    return {t: {m: [s for _, s in sorted(v)] for m, v in methods.items()} for t, methods in heads.items()}


@cache
def names_by_stem(folder: Path) -> dict[str, list[str]]:
    """Stem -> names: the folder's index file, plus files that it does not list, less files that are gone."""
    file = folder / INDEX
    listed: dict[str, list[str]] = {}
    if file.is_file():
        for stem, names in read_yaml(file).get("files", {}).items():
            listed[str(stem)] = [str(name) for name in names]
    stems = {path.stem for path in folder.glob("*.yaml")} - {Path(INDEX).stem}
    found = {stem: names for stem, names in listed.items() if stem in stems}
    for stem in sorted(stems - set(listed)):
        found[stem] = _names_of(read_yaml(folder / f"{stem}.yaml"))
    return found


@cache
def devices(folder: Path) -> dict[str, str]:
    """Comparison form of every name -> stem."""
    return {device_key(name): stem for stem, names in names_by_stem(folder).items() for name in names}


@cache
def model_names(folder: Path) -> dict[str, str]:
    """Comparison form -> stem. An id wins over an alias, a full name over its part after the slash."""
    table: dict[str, str] = {}
    ranked: list[list[tuple[str, str]]] = [[], [], [], []]
    for stem, names in names_by_stem(folder).items():
        ranked[0].append((names[0], stem))
        ranked[1].append((tail(names[0]), stem))
        ranked[2] += [(name, stem) for name in names[1:]]
        ranked[3] += [(tail(name), stem) for name in names[1:]]
    for level in ranked:
        for name, stem in level:
            table.setdefault(model_key(name), stem)
    return table


@cache
def heads_table() -> dict[str, dict[str, list[str]]]:
    """Target id -> method -> stems, from the index when it is up to date."""
    folder = spec_root("model_specs") / "drafts"
    file = folder / INDEX
    if file.is_file():
        data = read_yaml(file)
        if set(data.get("files", {})) == {path.stem for path in folder.glob("*.yaml")} - {Path(INDEX).stem}:
            return {str(t): dict(methods) for t, methods in data.get("heads", {}).items()}
    return build_heads(folder)


# -- writing the indexes --------------------------------------------------------------------------------


def index_text(folder: Path) -> str:
    """The text of a folder's index file."""
    lines = ["# Generated by `python -m rooflinesim.registry`: file -> names. Do not edit.", "files:"]
    lines += [f"  {json.dumps(stem)}: {json.dumps(names)}" for stem, names in build_index(folder).items()]
    if folder.name == "drafts":
        lines.append("heads:")
        for target, methods in sorted(build_heads(folder).items()):
            lines.append(f"  {json.dumps(target)}: {json.dumps(methods)}")
    return "\n".join(lines) + "\n"


def indexed_folders() -> list[Path]:
    """The folders that carry an index."""
    hardware, shapes = spec_root("hw_specs"), spec_root("model_specs")
    return [
        hardware / "gpus",
        hardware / "nodes",
        hardware / "engines",
        shapes / "targets",
        shapes / "drafts",
    ]
