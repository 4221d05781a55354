"""What the README shows is what the commands print."""

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
