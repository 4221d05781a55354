"""What the README shows is what the commands print."""

import pytest
from readme_blocks import BLOCK, DOCUMENTS, ROOT, commands, run, workspace

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
