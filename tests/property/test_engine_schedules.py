"""Any schedule survives the way through each engine's text: schedule -> text -> expanded table."""

from __future__ import annotations

import itertools
import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflinesim.engines import emit_schedule, parse_schedule
from rooflinesim.engines.sglang import schedule as sglang
from rooflinesim.engines.tables import Ranges


@st.composite
def tables(draw: st.DrawFn) -> Ranges:
    """(lo, hi, k) ranges from 1, contiguous, with at least one K above 0."""
    widths = draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    ks = draw(st.lists(st.integers(0, 8), min_size=len(widths), max_size=len(widths)).filter(any))
    rows, lo = [], 1
    for width, k in zip(widths, ks, strict=True):
        rows.append((lo, lo + width - 1, k))
        lo += width
    return tuple(rows)


def _expanded(ranges: Ranges) -> tuple[int, ...]:
    return tuple(k for lo, hi, k in ranges for _ in range(lo, hi + 1))


def _load(engine: str, text: str) -> Any:
    return yaml.safe_load(text) if engine == "trtllm" else json.loads(text)


@settings(max_examples=300, deadline=None)
@given(ranges=tables())
def test_vllm_round_trip(ranges: Ranges) -> None:
    max_batch = ranges[-1][1]
    text = emit_schedule(ranges, engine="vllm", method="eagle3", max_batch=max_batch)
    read = parse_schedule(json.loads(text.text), max_batch=max_batch)
    assert read.expand(max_batch) == _expanded(ranges)
    assert read.max_k == max(k for _, _, k in ranges)


@settings(max_examples=300, deadline=None)
@given(ranges=tables())
def test_sglang_round_trip(ranges: Ranges) -> None:
    max_batch = ranges[-1][1]
    text = emit_schedule(ranges, engine="sglang", method="eagle3", max_batch=max_batch)
    config = json.loads(text.text)
    assert parse_schedule(config, max_batch=max_batch).expand(max_batch) == _expanded(ranges)


@settings(max_examples=200, deadline=None)
@given(ranges=tables(), sizes=st.sets(st.integers(1, 600), min_size=1, max_size=30))
def test_sglang_padding_is_a_lookup_at_the_padded_batch(ranges: Ranges, sizes: set[int]) -> None:
    """The reader's spans equal the rule applied batch by batch: pad, then take the closest lower slot."""
    max_batch, ordered = ranges[-1][1], sorted(sizes)
    text = sglang.emit(ranges, method="eagle", max_running_requests=max_batch, graph_sizes=ordered)
    slots = {int(key): value["candidate_steps"][0] for key, value in json.loads(text.text).items()}
    read = sglang.read(json.loads(text.text), max_running_requests=max_batch, graph_sizes=ordered)
    for batch, k in enumerate(read.expand(max_batch), start=1):
        padded = next((size for size in ordered if size >= batch), batch)
        assert k == slots[max(low for low in slots if low <= padded)]


@settings(max_examples=300, deadline=None)
@given(ranges=tables())
def test_trtllm_round_trip(ranges: Ranges) -> None:
    """Exact, except that batch 1 drafts the largest K where the first K is smaller (said in a warning)."""
    max_batch = ranges[-1][1]
    text = emit_schedule(ranges, engine="trtllm", method="eagle3", max_batch=max_batch)
    read = parse_schedule(yaml.safe_load(text.text), max_batch=max_batch)
    expected = list(_expanded(ranges))
    top = max(expected)
    raised = expected[0] != top
    assert raised == any("cannot express" in warning for warning in text.warnings)
    expected[0] = top
    assert read.expand(max_batch) == tuple(expected)


@settings(max_examples=100, deadline=None)
@given(ranges=tables(), engine=st.sampled_from(["vllm", "sglang", "trtllm"]), extra=st.integers(1, 500))
def test_the_last_k_holds_up_to_the_limit(ranges: Ranges, engine: str, extra: int) -> None:
    max_batch = ranges[-1][1] + extra
    text = emit_schedule(ranges, engine=engine, method="eagle3", max_batch=max_batch)
    read = parse_schedule(_load(engine, text.text), max_batch=max_batch)
    assert read.lookup(max_batch) == ranges[-1][2] or (engine == "trtllm" and max_batch == 1)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=5
    ),
    top=st.integers(1, 6),
    max_seqs=st.integers(1, 64),
)
def test_vllm_lookup_equals_the_rule_row_by_row(
    rows: list[tuple[int, int, int]], top: int, max_seqs: int
) -> None:
    """The rule stated independently: the row that starts last at or below the batch gives K, clamped."""
    from rooflinesim.errors import InputError

    ordered = sorted(rows)
    valid = (
        all(lo <= hi for lo, hi, _ in rows)
        and ordered[0][0] == 1
        and all(a[1] < b[0] for a, b in itertools.pairwise(ordered))
    )
    config = {
        "num_speculative_tokens": top,
        "num_speculative_tokens_per_batch_size": [list(row) for row in rows],
    }
    if not valid:
        try:
            parse_schedule(config, engine="vllm", max_batch=max_seqs)
        except InputError:
            return
        raise AssertionError("an invalid table was read")
    read = parse_schedule(config, engine="vllm", max_batch=max_seqs)
    for batch, k in enumerate(read.expand(max_seqs), start=1):
        started = [row for row in ordered if row[0] <= batch]
        assert k == min(started[-1][2], top)
