"""Reading untrusted logs, metrics and benchmark files: bounded memory, and one clear line for every refusal.

A file is refused by its size before a byte of it is read. Logs and JSON lines are streamed; a JSON document
that spans lines is read whole, with a tighter limit on size and one on nesting.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rooflinesim.errors import InputError

#: Larger files are refused unread.
MAX_FILE_BYTES: Final = 256 * 1024**2
#: Larger JSON documents (those that span lines, so that they cannot be streamed) are refused unread.
MAX_DOCUMENT_BYTES: Final = 64 * 1024**2
#: A longer line is refused: a benchmark result with per-token arrays is one line, and stays below it.
MAX_LINE_CHARS: Final = 64 * 1024**2
#: No engine nests deeper than 8; a limit keeps the parser's stack out of reach.
MAX_DEPTH: Final = 64
#: More draft positions than any engine allows.
MAX_POSITIONS: Final = 1024
#: Counts above this are not counts of tokens (2^53: the largest exact integer of a double).
MAX_COUNT: Final = 2.0**53

_HEAD_BYTES: Final = 64 * 1024
_MAGIC: Final = (
    (b"\x1f\x8b", "gzip-compressed; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it first"),
    (b"\xfd7zXZ\x00", "xz-compressed; unpack it first"),
    (b"BZh", "bzip2-compressed; unpack it first"),
    (b"PAR1", "a Parquet file; export it as JSON or CSV"),
    (b"\x7fELF", "a program, not a log"),
)
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PAIR = re.compile(rb"\[\]|\{\}")
_STRING = re.compile(rb'"[^"]*+"?')
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class TextFile:
    """A file that was found to be text of a bearable size; its content is read only when asked for."""

    path: Path
    encoding: str
    size_bytes: int

    @property
    def name(self) -> str:
        """The name that errors show."""
        return str(self.path)

    def lines(self) -> Iterator[str]:
        """The lines without line ends and terminal colours; one at a time in memory."""
        number = 0
        total = 0
        try:
            with self.path.open(encoding=self.encoding, errors="replace") as handle:
                while line := handle.readline(MAX_LINE_CHARS + 1):
                    number += 1
                    total += len(line)
                    if len(line) > MAX_LINE_CHARS:
                        raise InputError(
                            f"{self.name}: line {number} is longer than {MAX_LINE_CHARS} characters"
                        )
                    if total > MAX_FILE_BYTES:
                        raise InputError(f"{self.name}: grew past {MAX_FILE_BYTES} bytes while it was read")
                    line = line.rstrip("\r\n")
                    yield _ANSI.sub("", line) if "\x1b" in line else line
        except (OSError, UnicodeError) as error:
            raise InputError(f"{self.name}: {_reason(error)}") from None

    def text(self, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> str:
        """The whole text, if it is no larger than ``max_bytes``."""
        if self.size_bytes > max_bytes:
            raise InputError(
                f"{self.name}: {self.size_bytes} bytes in one document, at most {max_bytes} are read"
            )
        try:
            with self.path.open(encoding=self.encoding, errors="replace") as handle:
                text = handle.read(max_bytes + 1)
        except (OSError, UnicodeError) as error:
            raise InputError(f"{self.name}: {_reason(error)}") from None
        if len(text) > max_bytes:
            raise InputError(f"{self.name}: grew past {max_bytes} bytes while it was read")
        return text


def _reason(error: OSError | UnicodeError | ValueError) -> str:
    return getattr(error, "strerror", None) or "cannot be read as text"


def open_text(path: Path | str, *, max_bytes: int = MAX_FILE_BYTES) -> TextFile:
    """``path`` as a :class:`TextFile`; a one-line :class:`InputError` if it is no text of a bearable size."""
    file = Path(path)
    try:
        info = file.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r}: {_reason(error)}") from None
    if stat.S_ISDIR(info.st_mode):
        raise InputError(f"{file}: a directory; give a file in it")
    if not stat.S_ISREG(info.st_mode):
        raise InputError(f"{file}: not a regular file")
    if info.st_size > max_bytes:
        raise InputError(
            f"{file}: {info.st_size} bytes, at most {max_bytes} are read; cut out the part that matters"
        )
    try:
        with file.open("rb") as handle:
            head = handle.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{file}: {_reason(error)}") from None
    return TextFile(path=file, encoding=_encoding(head, str(file)), size_bytes=info.st_size)


def _encoding(head: bytes, name: str) -> str:
    """The encoding of a file that starts with ``head``; refuses what is empty, compressed or binary."""
    if not head.strip():
        raise InputError(f"{name}: empty")
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise InputError(f"{name}: {what}")
    encoding = next((name_ for bom, name_ in _BOMS if head.startswith(bom)), "utf-8")
    shown = head.decode(encoding, errors="replace")
    odd = sum(1 for char in shown if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\x1b"))
    if "\0" in shown or odd > 0.1 * len(shown):
        raise InputError(f"{name}: binary, a text file is expected")
    return encoding


def nesting_depth(text: str, *, stop: int = MAX_DEPTH) -> int:
    """Deepest nesting of brackets outside strings (strings of a benchmark file hold generated code).

    Innermost pairs are removed level by level: the cost is that of a few passes over the brackets. Counting
    ends above ``stop``. Brackets without a partner each count as a level.

    >>> nesting_depth('{"a": ["[[[[", [2]]}')
    3
    """
    raw = text.encode("utf-8", errors="replace")
    if raw.count(b"[") + raw.count(b"{") <= 1:
        return raw.count(b"[") + raw.count(b"{")
    if b'"' in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, delete=_NOT_STRUCTURE)
        raw = _STRING.sub(b"", raw)
    brackets = raw.translate(None, delete=_NOT_BRACKETS)
    depth = 0
    while brackets and depth <= stop:
        inner = _PAIR.sub(b"", brackets)
        if len(inner) == len(brackets):
            return depth + inner.count(b"[") + inner.count(b"{")
        brackets = inner
        depth += 1
    return depth


def parse_json(text: str, *, name: str, start: int = 0, line: int | None = None) -> tuple[Any, int]:
    """One JSON value of ``text`` at ``start``, and where it ends; ``line`` is named in errors of JSON
    lines."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError as error:
        at = line if line is not None else error.lineno
        cut = "; the file seems cut off" if error.pos >= len(text.rstrip()) - 1 else ""
        raise InputError(f"{name}: line {at}: not JSON ({error.msg}){cut}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{name}: not readable as JSON") from None


def _one_line(line: str) -> str:
    """A line of a JSON-lines file or of a server-sent event stream."""
    line = line.strip()
    return line[5:].lstrip() if line.startswith("data:") else line


def _whole_line(line: str) -> tuple[Any] | None:
    """The JSON value a line holds, in a tuple; None if it holds no whole one."""
    if nesting_depth(line) > MAX_DEPTH:
        return None
    try:
        return (json.loads(line),)
    except (ValueError, RecursionError):
        return None


def json_documents(file: TextFile) -> Iterator[Any]:
    """Every JSON value of a file: one document, JSON lines, or objects one after the other.

    JSON lines (and server-sent events) are streamed; anything else is read whole, up to
    :data:`MAX_DOCUMENT_BYTES`.
    """
    lines = ((at, line) for at, raw in enumerate(file.lines(), start=1) if (line := _one_line(raw)))
    values: list[Any] = []
    for _, line in islice(lines, 2):
        value = _whole_line(line) if line != "[DONE]" else ()
        if value is None:
            yield from _whole_documents(file)
            return
        values.extend(value)
    yield from values
    values.clear()
    for at, line in lines:
        if line == "[DONE]":
            continue
        _check_depth(line, file.name)
        value, end = parse_json(line, name=file.name, line=at)
        if line[end:].strip():
            raise InputError(f"{file.name}: line {at}: text after the JSON value")
        yield value


def _whole_documents(file: TextFile) -> Iterator[Any]:
    head = "\n".join(islice(file.lines(), 200))[:_HEAD_BYTES]
    _check_plausible(head.lstrip(), file.name)
    text = file.text()
    _check_depth(text, file.name)
    position = _SPACE.match(text).end()  # type: ignore[union-attr]
    while position < len(text):
        value, position = parse_json(text, name=file.name, start=position)
        yield value
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]


def _check_plausible(head: str, name: str) -> None:
    """Refuse early what is no JSON in its first lines (a log that begins with a bracket)."""
    if nesting_depth(head) > MAX_DEPTH:
        return  # the check of the whole text words it
    try:
        json.JSONDecoder().raw_decode(head)
    except json.JSONDecodeError as error:
        if error.pos < len(head) - 100 and not error.msg.startswith("Unterminated string"):
            raise InputError(f"{name}: line {error.lineno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError):
        return


def _check_depth(text: str, name: str) -> None:
    if nesting_depth(text) > MAX_DEPTH:
        raise InputError(f"{name}: nested deeper than {MAX_DEPTH} levels")


def json_document(path: Path | str) -> Any:
    """The one JSON value of a small configuration file (a schedule, an engine configuration)."""
    file = open_text(path, max_bytes=MAX_DOCUMENT_BYTES)
    documents = list(json_documents(file))
    if len(documents) != 1:
        raise InputError(f"{file.name}: one JSON value is expected, it holds {len(documents)}")
    return documents[0]


def number(
    value: Any,
    *,
    field: str,
    minimum: float = 0.0,
    maximum: float = MAX_COUNT,
) -> float | None:
    """``value`` as a finite number in [minimum, maximum]; None if absent; one clear line otherwise.

    >>> number(3, field="num_drafts")
    3.0
    >>> number(float("nan"), field="num_drafts")
    Traceback (most recent call last):
    rooflinesim.errors.InputError: num_drafts: nan is not a number in [0, 9.0072e+15]
    """
    if value is None:
        return None
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    if ok and not isinstance(value, float):
        ok = abs(value) <= MAX_COUNT  # an integer of a thousand digits does not fit into a float
    if not ok or not math.isfinite(value) or not minimum <= value <= maximum:
        raise InputError(f"{field}: {shown(value)} is not a number in [{minimum:.5g}, {maximum:.5g}]")
    return float(value)


def required(value: float | None, *, field: str) -> float:
    """``value``, or one line that says which field is missing."""
    if value is None:
        raise InputError(f"{field}: missing")
    return value


def whole(value: Any, *, field: str, minimum: int = 0, maximum: int = 2**31) -> int | None:
    """``value`` as a whole number (3 and 3.0 alike); None if absent."""
    result = number(value, field=field, minimum=minimum, maximum=maximum)
    if result is None:
        return None
    if result != round(result):
        raise InputError(f"{field}: {result:g} is not a whole number")
    return round(result)


def numbers(
    value: Any, *, field: str, minimum: float = 0.0, maximum: float = MAX_COUNT, max_len: int = 10_000_000
) -> tuple[float, ...] | None:
    """A list of finite numbers; None if absent."""
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(f"{field}: a list of numbers is expected, got {shown(value)}")
    if len(value) > max_len:
        raise InputError(f"{field}: {len(value)} entries, at most {max_len} are read")
    return tuple(
        required(
            number(item, field=f"{field}[{index}]", minimum=minimum, maximum=maximum),
            field=f"{field}[{index}]",
        )
        for index, item in enumerate(value)
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is a JSON object, else an empty one: for optional parts of a document."""
    return value if isinstance(value, Mapping) else {}


def shown(value: Any, *, limit: int = 60) -> str:
    """A short repr for errors: never the whole of a hostile value."""
    if isinstance(value, Mapping | list | tuple):
        return f"a {'mapping' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "an integer of more than 30 digits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
