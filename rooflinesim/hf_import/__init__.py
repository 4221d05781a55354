"""Reads Hugging Face ``config.json`` files into model and draft specs.

Files differ by family and age: other names for the same key, keys left to class defaults, nested text models,
widths that mean something else. What was read from a default is listed in ``defaulted``; what was not
understood is listed in ``unrecognised`` and used nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from rooflinesim.errors import SpecError
from rooflinesim.hf_import.drafts import build_draft, is_draft
from rooflinesim.hf_import.models import build_model
from rooflinesim.hf_import.reader import Config
from rooflinesim.specs.files import first_problem, read_json
from rooflinesim.specs.model import DraftSpec, ModelSpec

__all__ = ["import_config"]

#: lists of unquantised modules make some files large
_MAX_BYTES: Final = 8_000_000


def _read(path: Path) -> dict[str, Any]:
    """A ``config.json``, with the quantisation that some checkpoints keep in a file beside it."""
    data = read_json(path, max_bytes=_MAX_BYTES)
    beside = path.parent / "hf_quant_config.json"
    if path.name == "config.json" and "quantization_config" not in data and beside.is_file():
        section = read_json(beside, max_bytes=_MAX_BYTES).get("quantization")
        if isinstance(section, Mapping):
            data["quantization_config"] = {"quant_method": "modelopt", **section}
    return data


def import_config(
    source: Mapping[str, Any] | str | Path,
    *,
    name: str | None = None,
    role: Literal["auto", "model", "draft"] = "auto",
) -> ModelSpec | DraftSpec:
    """The spec of a Hugging Face configuration: a mapping, or the path of a ``config.json``.

    ``role`` decides whether the file is read as a model or as a draft head; ``auto`` looks at its keys.
    Refused by name: encoder-decoders, encoders, and models without a softmax-attention layer.

    >>> keys = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256}
    >>> keys |= {"num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 131072}
    >>> spec = import_config(keys, name="mine")
    >>> spec.n_layers, spec.layers[0].attention.head_dim
    (32, 128)
    """
    if isinstance(source, Mapping):
        data, where, fallback = dict(source), name or "config", "imported"
    else:
        path = Path(source)
        if path.is_dir():
            path = path / "config.json"
        data, where = _read(path), str(path)
        stem = path.stem if path.stem != "config" else path.resolve().parent.name
        fallback = stem.replace("--", "/", 1)
    given = data.get("_name_or_path")
    spec_id = name or (given if isinstance(given, str) and given and "/" in given.strip("./") else fallback)
    if not data:
        raise SpecError(f"{where}: empty configuration")
    config = Config(data, where=where)
    as_draft = role == "draft" or (role == "auto" and is_draft(config))
    try:
        return build_draft(config, spec_id=spec_id) if as_draft else build_model(config, spec_id=spec_id)
    except ValidationError as error:  # a value that no reader above objected to
        raise SpecError(f"{where}: {first_problem(error, DraftSpec if as_draft else ModelSpec)}") from None
