"""Writing files: atomically, and never over somebody's file unless told to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rooflinesim.errors import InputError


def write_bytes(path: str | Path, data: bytes, *, force: bool = False) -> Path:
    """Write ``data`` to ``path``: a temporary file in the same folder, then one rename.

    Errors: InputError when the file exists and ``force`` is false, or the folder cannot be written.
    """
    target = Path(path).expanduser()
    if target.exists():
        if not target.is_file():  # a device or folder: a rename would replace the thing itself
            what = "a folder" if target.is_dir() else "not a regular file"
            raise InputError(f"{target}: {what}; give the name of a file to write")
        if not force:
            raise InputError(f"{target}: exists already; use --force to replace it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{target}: cannot be written ({error.strerror})") from None
    return target


def write_text(path: str | Path, text: str, *, force: bool = False) -> Path:
    """Write ``text`` as UTF-8; see :func:`write_bytes`."""
    return write_bytes(path, text.encode("utf-8"), force=force)
