"""Conversions: the right reading of each number, shown in words."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.acceptance import (
    AcceptanceCurve,
    c1_for_acceptance_length,
    from_acceptance_length,
    from_marginal,
    from_mean_acceptance,
    parse_acceptance,
)
from rooflinesim.errors import InputError


def test_al_at_k_solves_the_series():
    c = from_acceptance_length(k=3, acceptance_length=2.41).curve.params[0]
    assert 1 + c + c**2 + c**3 == pytest.approx(2.41, abs=1e-9)


@pytest.mark.parametrize("decay", [0.6, 0.95, 1.0, 1.05])
def test_inverse_is_vectorised_and_exact(decay):
    c1 = np.array([1e-6, 0.1, 0.5, 0.8, 0.95])[:, None]
    k = np.array([1, 3, 8, 40])
    tables = [AcceptanceCurve.geometric(c1=c, decay=decay).acceptance_length(k) for c in c1[:, 0]]
    back = c1_for_acceptance_length(acceptance_length=tables, k=k, decay=decay)
    np.testing.assert_allclose(back, np.broadcast_to(c1, back.shape), atol=1e-8)
    # points out of reach among them change nothing
    mixed = c1_for_acceptance_length(
        acceptance_length=np.stack([np.array(tables[2]), k + 1.5]), k=k, decay=decay
    )
    np.testing.assert_allclose(mixed[0], 0.5, atol=1e-8)
    assert np.all(np.isnan(mixed[1]))


def test_extremes_of_the_inverse():
    got = c1_for_acceptance_length(acceptance_length=[0.5, 1.0, 4.0, 4.001], k=3)
    np.testing.assert_array_equal(got[:3], [0.0, 0.0, 1.0])
    assert np.isnan(got[3])


def test_texts_say_what_was_assumed():
    assert "flat conditional assumed" in from_mean_acceptance(k=3, mean_accepted_frac=0.47).text
    assert "AL = 1 + 0.47 x 3 = 2.41" in from_mean_acceptance(k=3, mean_accepted_frac=0.47).text
    assert "least squares" in parse_acceptance(al="2:2.18,3:2.44").text
    assert from_marginal([0.09, 0.07, 0.07]).warnings[0].startswith("conditional acceptance rises")
    assert from_marginal([0.72, 0.43, 0.26]).warnings == ()


def test_two_forms_of_one_measurement_agree_at_the_measured_k():
    three = [
        parse_acceptance(al="3:2.41"),
        parse_acceptance(marginal=".72,.43,.26"),
        parse_acceptance(conditional="0.72,0.597222,0.604651"),
        parse_acceptance(mean_accepted="3:0.47"),
    ]
    for conversion in three:
        assert float(conversion.curve.acceptance_length(3)) == pytest.approx(2.41, abs=1e-4)
        assert conversion.measured_k == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one"),
        ({"al": "3:2.41", "accept": "0.7"}, "given: --accept, --al"),
        ({"al": "2.41"}, "K:NUMBER"),
        ({"al": "3:4.5"}, "outside 1..4"),
        ({"al": "3:0.41"}, "bonus token"),
        ({"al": "0:1"}, "at least 1"),
        ({"accept": "72"}, "write 0.72"),
        ({"accept": "0.7,0.9,0.8"}, "use --marginal or --conditional"),
        ({"accept": "high"}, "not a list of numbers"),
        ({"accept": ","}, "no number"),
        ({"marginal": "0.5,0.6"}, "cannot rise"),
        ({"conditional": "0.5,nan"}, "not a fraction"),
        ({"mean_accepted": "3:1.2"}, "accepted/drafted"),
        ({"mean_accepted": "3:0.4,4:0.3"}, "one K:FRACTION"),
    ],
)
def test_bad_text_is_refused_in_one_line(given, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_acceptance(**given)
    assert "\n" not in str(caught.value)
