"""Acceptance by context from a CSV, and the context at which speculation stops to pay."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.acceptance import parse_context_table
from rooflinesim.errors import InputError
from rooflinesim.solver import break_even_context


def test_s1_11_acceptance_by_context_gives_a_crossover_context():
    # Radeon 780M, K = 4: accepted/drafted 85, 53 and 47 % at 100, 34K and 86K tokens (AL = 1 + 4 x rate);
    # +150 %, +44 % and parity were measured, so R = 1.77, 2.17 and 2.9; one more percent makes it a loss
    table = "context_tokens,k,al\n100,4,4.42\n34000,4,3.12\n86000,4,2.90\n"
    contexts = np.array([100, 34_000, 86_000])
    lengths = parse_context_table(table).curve.acceptance_length(4, context_tokens=contexts)
    np.testing.assert_allclose(lengths, [4.42, 3.12, 2.90])
    gain = lengths / np.array([1.77, 2.17, 2.93])
    crossing = float(break_even_context(context_tokens=contexts, speedup=gain))
    assert 80_000 < crossing < 86_000
    several = break_even_context(context_tokens=contexts, speedup=np.stack([gain, gain * 9, gain * 0.1]))
    np.testing.assert_allclose(several, [crossing, np.inf, 0.0])


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("context_tokens,c1,decay\n10,0.8,0.5\n", 1 + 0.8 + 0.8 * 0.4),
        ("# measured\ncontext_tokens, c1, c2\n10, 0.8, 0.6\n", 1 + 0.8 + 0.48),
        ("context_tokens,p1,p2\n10,0.8,0.3\n", 1 + 0.8 + 0.3),
        ("k,al,context_tokens\n2,2.1,10\n", 2.1),
    ],
)
def test_every_form_of_row(table, expected):
    curve = parse_context_table(table).curve
    assert float(curve.acceptance_length(2, context_tokens=10)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "no column context_tokens"),
        ("ctx,c1\n1,0.5\n", "columns: ctx, c1"),
        ("context_tokens,c1\n", "no row"),
        ("context_tokens,c1\nten,0.5\n", "row 2: context_tokens: 'ten'"),
        ("context_tokens,c1\n10,50\n", "row 2: .*write 0.5"),
        ("context_tokens,rate\n10,0.5\n", "no acceptance"),
        ("context_tokens,k,al\n10,nan,2\n", "not a finite"),
        ("context_tokens,k,al\n10,1.5,2\n", "whole number"),
        ("context_tokens,al\n10,2\n", "needs a column k"),
        ("context_tokens,c1\n10,0.5\n10,0.6\n", "row 3: .*twice"),
        ("context_tokens,c1\n-5,0.5\n", "not be negative"),
        ("x" * 1_000_001, "longer than"),
    ],
)
def test_bad_tables_are_one_line(table, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_context_table(table)
    assert "\n" not in str(caught.value)
