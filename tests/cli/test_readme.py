"""What the README shows is what the commands print."""

import re
import subprocess
import sys

import pytest
from readme_blocks import ACCURACY, BLOCK, DOCUMENTS, ROOT, accuracy_block, commands, run, workspace

CASES = [
    (name, command, shown)
    for name in DOCUMENTS
    for block in BLOCK.findall((ROOT / name).read_text())
    for command, shown in commands(block)
]


def test_there_are_blocks():
    assert len(CASES) >= 2


@pytest.mark.parametrize(("name", "command", "shown"), CASES, ids=[c[1][:60] for c in CASES])
def test_block(name, command, shown):
    assert run(command, workspace()) == shown


def test_accuracy_is_that_of_the_generated_validation_page():
    (block,) = ACCURACY.findall((ROOT / "README.md").read_text())
    text = (ROOT / "README.md").read_text()
    assert block[0] + accuracy_block() + block[1] in text


def test_the_python_block_runs():
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    result = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.split("\n")
    assert [line.split()[0] for line in lines[:3]] == ["1", "32", "256"]
    assert lines[3].startswith("((1, ")
