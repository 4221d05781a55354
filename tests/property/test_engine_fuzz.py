"""Fuzz of every importer: whatever the file holds, either a result or one clear line. 10,000 inputs in a
default run."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflinesim.engines import (
    FORMATS,
    parse_schedule,
    read_acceptance,
    read_schedule,
    read_step_table,
    read_timing,
)
from rooflinesim.errors import RooflinesimError

SAMPLES = sorted((Path(__file__).parents[1] / "fixtures" / "engine_samples").iterdir())
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    10**40,
    "",
    "x",
    "3",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    [1e308] * 3,
    "\ud800",
    1.5,
    2**31,
)
TOKENS = (
    b"NaN",
    b"-1",
    b"99999999999999999999",
    b"Infinity",
    b"1e999",
    b"null",
    b"{",
    b"]",
    b'"',
    b"\\",
    b"\n",
    b"\x00",
    b"\xff",
    b",",
    b"0.000",
    b"-",
    b"Accepted: 9 tokens, ",
    b"Drafted: 0 tokens",
    b'position="7"',
    b"&a *a",
    b"\r\n",
    b"%s",
)


def _survives(call: Callable[[], object]) -> bool:
    """True for a result, False for one clear line; anything else fails."""
    try:
        call()
    except RooflinesimError as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 2000
        return False
    return True


def _mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        at = rng.randrange(len(result) + 1)
        action = rng.randrange(6)
        if action == 0:
            result[at:] = b""
        elif action == 1:
            result[at:at] = rng.choice(TOKENS)
        elif action == 2:
            result[at : at + rng.randrange(1, 30)] = b""
        elif action == 3 and result:
            result[at % len(result)] = rng.randrange(256)
        elif action == 4:
            end = min(at + rng.randrange(1, 200), len(result))
            result[at:at] = result[at:end]
        else:
            digits = [index for index, byte in enumerate(result) if 48 <= byte <= 57]
            if digits:
                index = rng.choice(digits)
                result[index : index + 1] = rng.choice((b"", b"-", b"9999", b"0", b".", b"e9"))
    return bytes(result)


def _mutated_json(rng: random.Random, value: Any) -> Any:
    """One node of a document replaced, dropped, renamed or doubled."""
    parents: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in list(items)[:60]:
            parents.append((node, key))
            stack.append(child)
    if not parents:
        return copy.deepcopy(rng.choice(HOSTILE))
    node, key = rng.choice(parents)
    action = rng.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[rng.choice(("", "1", "-1", "99999999", "k"))] = node.pop(key)
    elif action == 2 and isinstance(node, list):
        node.append(copy.deepcopy(node[key]))
    else:
        node[key] = copy.deepcopy(rng.choice(HOSTILE))
    return value


@pytest.mark.parametrize("part", range(4))
def test_mutated_samples(part: int, tmp_path: Path) -> None:
    """6,000 files: bytes of a sample changed, cut, doubled; both importers, sniffed, and with the sample's
    format."""
    rng = random.Random(20261129 + part)
    path = tmp_path / "f"
    results = 0
    for index in range(1500):
        sample = SAMPLES[index % len(SAMPLES)]
        path = tmp_path / f"f{sample.suffix}"
        path.write_bytes(_mutated_bytes(rng, sample.read_bytes()))
        reader = rng.choice((read_acceptance, read_timing, read_schedule, read_step_table))
        if reader in (read_acceptance, read_timing) and rng.random() < 0.3:
            name = rng.choice(list(FORMATS))
            results += _survives(lambda reader=reader, name=name, path=path: reader(path, format=name))  # type: ignore[misc]
        else:
            results += _survives(lambda reader=reader, path=path: reader(path))  # type: ignore[misc]
    assert 50 < results < 1400  # neither all refused nor nothing changed


@pytest.mark.parametrize("part", range(2))
def test_mutated_documents(part: int, tmp_path: Path) -> None:
    """3,000 files: JSON samples with nodes of a hostile kind."""
    rng = random.Random(4 + part)
    documents = [sample for sample in SAMPLES if sample.suffix in (".json", ".jsonl")]
    results = 0
    for index in range(1500):
        sample = documents[index % len(documents)]
        text = sample.read_text()
        values = (
            [json.loads(line) for line in text.splitlines()]
            if sample.suffix == ".jsonl"
            else [json.loads(text)]
        )
        for _ in range(rng.choice((1, 1, 2, 3))):
            values = [_mutated_json(rng, value) for value in values]
        path = tmp_path / sample.name
        path.write_text("\n".join(json.dumps(value) for value in values))
        reader = rng.choice((read_acceptance, read_timing, read_schedule, read_step_table))
        results += _survives(lambda reader=reader, path=path: reader(path))  # type: ignore[misc]
    assert 100 < results < 1400


@settings(max_examples=700, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), name=st.sampled_from([*FORMATS, None]), timing=st.booleans())
def test_random_bytes(data: bytes, name: str | None, timing: bool, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    reader = read_timing if timing else read_acceptance
    _survives(lambda: reader(path, format=name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4)
            | st.sampled_from(
                [
                    "num_speculative_tokens",
                    "num_speculative_tokens_per_batch_size",
                    "candidate_steps",
                    "1",
                    "8",
                    "1-16",
                    "draft_len_schedule",
                    "max_draft_len",
                    "max_concurrency",
                    "speculative_config",
                    "method",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=700, deadline=None)
@given(
    config=JSON,
    engine=st.sampled_from(["vllm", "sglang", "trtllm", None]),
    max_batch=st.none() | st.integers(1, 2000),
)
def test_random_schedules(config: Any, engine: str | None, max_batch: int | None) -> None:
    def call() -> None:
        schedule = parse_schedule(config, engine=engine, max_batch=max_batch)
        if schedule.ranges:
            assert all(0 <= k <= 1_000_000_000 for k in schedule.expand(min(schedule.max_batch, 500)))

    _survives(call)
