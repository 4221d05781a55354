"""``app/`` holds widgets and views: no formula, no list of accelerators or models, nothing that fetches."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rooflinesim import registry

APP = Path(__file__).resolve().parents[2] / "app"
FILES = sorted(APP.rglob("*.py"))
#: Rounding and prefixes live here.
UNITS = "show.py"
ARITHMETIC = (ast.Mult, ast.Div, ast.Sub, ast.Pow, ast.FloorDiv, ast.MatMult)


def arithmetic(source: str) -> list[str]:
    """Every product, quotient, difference or power in the source."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ARITHMETIC)
        and not (isinstance(node.op, ast.Div) and _is_path(node))
    ]


def _is_path(node: ast.BinOp) -> bool:
    named = isinstance(node.right, ast.Constant) and isinstance(node.right.value, str)
    return named or ast.unparse(node) in {"folder() / _ODD.sub('_', file.file_id)", "place / name"}


def test_the_check_sees_arithmetic():
    assert arithmetic("speedup = al / ratio") and arithmetic("x = n * k") and not arithmetic("a = 'x' + 'y'")


@pytest.mark.parametrize("path", [p for p in FILES if p.name != UNITS], ids=lambda p: p.name)
def test_no_arithmetic(path):
    assert arithmetic(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_numerics_and_no_network(path):
    names = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import)
        for name in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    }
    assert not names & {"numpy", "scipy", "math", "requests", "httpx", "socket", "pickle", "subprocess"}


def test_no_list_of_names_but_the_examples():
    """Models and accelerators come from the registry; examples and the two default models are named."""
    allowed = {"presets.py", "best_k.py", "state.py"}
    names = {*registry.gpus(), *registry.models()}
    for path in FILES:
        if path.name in allowed:
            continue
        texts = {
            node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not texts & names, path.name
