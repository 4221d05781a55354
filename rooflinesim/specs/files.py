"""Reading spec files: where the folders lie, safe YAML, and errors that name file and field.

The folders ``hw_specs`` and ``model_specs`` are inside the installed wheel (``rooflinesim/_data``) or
beside the package in a checkout. Every file is read with the safe loader, with limits on size and nesting,
because a user's own file takes the same road.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rooflinesim.errors import SpecError, near_misses

#: Larger files are refused unread: the largest shipped spec has about 20 kB.
MAX_FILE_BYTES: Final = 1_000_000
#: Deeper nesting is refused: no spec or configuration needs it, and it can exhaust the parser's stack.
MAX_DEPTH: Final = 40

ModelT = TypeVar("ModelT", bound=BaseModel)
_BaseLoader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ANCHOR = re.compile(r"(?:^|[\s\[{,:-])[&*][A-Za-z0-9_]")
_DASHES = re.compile(r"^\s*((?:[-?:]\s+)+)", re.MULTILINE)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """The safe loader, which also refuses a key given twice (YAML would keep the last one silently)."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.value in seen and isinstance(key_node.value, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            if isinstance(key_node.value, str):
                seen.add(key_node.value)
        result: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return result

    def plain_number(self, node: Any) -> Any:
        """A number; with colons (YAML 1.1: base 60) the text, so that ``bs: 1:32`` is not 92."""
        if ":" in node.value:
            return node.value
        whole = node.tag.endswith("int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.plain_number)


@cache
def spec_root(name: str) -> Path:
    """The folder ``hw_specs``, ``model_specs`` or ``validation``: in the wheel, else beside the package.

    >>> spec_root("hw_specs").name
    'hw_specs'
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise SpecError(f"{name}: folder not found; it belongs in {package / '_data'} or {package.parent}")


def read_text(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Text of a file no larger than ``max_bytes``; a one-line :class:`SpecError` otherwise."""
    try:
        with path.open("rb") as file:  # bounded: the size of a pipe or device says nothing
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            size = max(path.stat().st_size, len(data))
            raise SpecError(f"{path}: {size} bytes, at most {max_bytes} are read")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror or 'cannot be read'}") from None


def bracket_depth(text: str) -> int:
    """Deepest nesting of ``[`` and ``{`` (brackets inside strings count too: a safe over-estimate).

    >>> bracket_depth('{"a": [1, [2]]}')
    3
    """
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", text):
        depth += 1 if mark in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _refuse_anchors(path: Path, text: str) -> None:
    """A few anchors can stand for billions of values; no spec needs them."""
    if _ANCHOR.search(text):
        for event in yaml.parse(text, Loader=_BaseLoader):
            if getattr(event, "anchor", None) is not None:
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise SpecError(f"{path}: line {line}: anchors and aliases are not read")


def read_yaml(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """A YAML mapping from a file: safe loader, no anchors, no duplicate keys, limits on size and nesting."""
    text = read_text(path, max_bytes=max_bytes)
    compact = max((len(dashes.split()) for dashes in _DASHES.findall(text)), default=0)
    indent = max((len(spaces) for spaces in re.findall(r"^ *(?=\S)", text, re.MULTILINE)), default=0)
    if max(bracket_depth(text), compact, indent // 4) > MAX_DEPTH:
        raise SpecError(f"{path}: nested deeper than {MAX_DEPTH} levels")
    try:
        _refuse_anchors(path, text)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise SpecError(f"{path}: {where}{getattr(error, 'problem', None) or 'not YAML'}") from None
    except SpecError:
        raise
    except (RecursionError, ValueError, TypeError) as error:  # TypeError: a list or mapping as a key
        raise SpecError(f"{path}: not readable as YAML ({type(error).__name__})") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: a mapping 'key: value' is expected, got {type(data).__name__}")
    return data


def read_json(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """A JSON object from a file, with the same limits as :func:`read_yaml`."""
    text = read_text(path, max_bytes=max_bytes)
    if bracket_depth(text) > MAX_DEPTH:
        raise SpecError(f"{path}: nested deeper than {MAX_DEPTH} levels")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: line {error.lineno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError):
        raise SpecError(f"{path}: not readable as JSON") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: a JSON object is expected, got {type(data).__name__}")
    return data


def first_problem(error: ValidationError, cls: type[BaseModel]) -> str:
    """The first problem of a pydantic error as ``field: what``, with near misses for an unknown key.

    >>> from rooflinesim.specs.base import Quantity
    >>> try:
    ...     Quantity.model_validate({"value": 1, "unit": "GB", "kind": "guess", "sauce": "x"})
    ... except ValidationError as error:
    ...     print(first_problem(error, Quantity))
    sauce: not a known field; did you mean source, value?
    """
    problems = sorted(error.errors(include_url=False), key=lambda p: p["type"] != "extra_forbidden")
    problem = problems[0]
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        owner = _owner(cls, problem["loc"][:-1])
        hits = near_misses(str(problem["loc"][-1]), list(owner.model_fields) if owner else [])
        return f"{field}: not a known field" + (f"; did you mean {', '.join(hits)}?" if hits else "")
    if problem["type"] == "missing":
        return f"{field}: required, not given"
    message = problem["msg"].removeprefix("Value error, ")
    if not field:  # a check over several fields names them itself
        return message
    given = problem.get("input")
    if isinstance(given, str | int | float | bool) or given is None:
        return (
            f"{field}: {message} (given {given!r})"
            if problem["type"] != "value_error"
            else f"{field}: {message}"
        )
    return f"{field}: {message}"


def _owner(cls: type[BaseModel], path: tuple[Any, ...]) -> type[BaseModel] | None:
    """The model class that holds the field at ``path``, when annotations lead to exactly one."""
    owner: type[BaseModel] | None = cls
    for part in path:
        if owner is None or isinstance(part, int):
            continue
        field = owner.model_fields.get(str(part))
        owner = None if field is None else _first_model(field.annotation)
    return owner


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _first_model(inner)
        if found is not None:
            return found
    return None


def validate(data: dict[str, Any], cls: type[ModelT], *, where: str) -> ModelT:
    """``data`` as a ``cls``; a one-line :class:`SpecError` naming ``where`` and the field otherwise."""
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise SpecError(f"{where}: {first_problem(error, cls)}") from None


def load_yaml_spec(path: Path | str, cls: type[ModelT]) -> ModelT:
    """One spec file as a ``cls``: safe, size-limited, errors in one line with file and field."""
    file = Path(path)
    return validate(read_yaml(file), cls, where=str(file))
