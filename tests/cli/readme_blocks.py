"""The console blocks of the documents: run, compared with what the page shows, or written anew.

``python tests/cli/readme_blocks.py`` rewrites every block's output in place.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/tune.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, shown output) pairs of one block; a command may go on over lines that end in a backslash."""
    out: list[tuple[str, str]] = []
    lines = block.splitlines()
    i = 0
    while i < len(lines):
        assert lines[i].startswith("$ "), f"a console block starts with '$ ': {lines[i]!r}"
        command = lines[i][2:]
        while command.endswith("\\"):
            i += 1
            command = command[:-1].rstrip() + " " + lines[i].strip()
        i += 1
        shown = []
        while i < len(lines) and not lines[i].startswith("$ "):
            shown.append(lines[i])
            i += 1
        out.append((command, "\n".join(shown)))
    return out


def run(command: str, folder: Path) -> str:
    """Output of one rooflinesim command in ``folder`` (docs/samples is linked into it), trailing blanks cut."""
    words = shlex.split(command)
    assert words[0] == "rooflinesim", command
    result = subprocess.run(
        [sys.executable, "-m", "rooflinesim", *words[1:]],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "130", "NO_COLOR": "1", "TERM": "dumb"},
    )
    text = result.stdout + result.stderr
    assert "Traceback" not in text, text
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def workspace() -> Path:
    """A folder as a reader would have it: the samples beside them, nothing of the checkout."""
    folder = Path(tempfile.mkdtemp())
    (folder / "samples").symlink_to(ROOT / "docs" / "samples")
    return folder


def rewrite(path: Path) -> None:
    folder = workspace()

    def renew(match: re.Match[str]) -> str:
        parts = []
        for command, _ in commands(match.group(1)):
            parts.append(f"$ {command}\n{run(command, folder)}\n")
        return "```console\n" + "".join(parts) + "```"

    path.write_text(BLOCK.sub(renew, path.read_text()))


if __name__ == "__main__":
    for name in DOCUMENTS:
        rewrite(ROOT / name)
