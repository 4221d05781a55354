"""Acceptance by context from a CSV, through the façade (vllm#47602: it falls as the context grows)."""

import numpy as np
import pytest

from rooflinesim.api import Scenario, evaluate, resolve
from rooflinesim.errors import InputError

TABLE = "context_tokens,c1,decay\n100,0.85,1\n34000,0.53,1\n86000,0.45,1\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "acc.csv"
    path.write_text(TABLE)
    return str(path)


def test_each_context_has_its_own_lengths(table):
    scenario = Scenario(accept_by_ctx=table, context_tokens=(100, 34_000, 86_000), batch_sizes=(1,), k_max=4)
    result = evaluate(scenario, n_draws=200)
    # AL(4) of a flat rate c: (1 - c^5)/(1 - c), by hand
    by_hand = [(1 - c**5) / (1 - c) for c in (0.85, 0.53, 0.45)]
    assert result.acceptance_length[4].tolist() == pytest.approx(by_hand, rel=1e-9)
    gain = result.speedup[0, 4]
    assert gain[0] > gain[1] > gain[2]
    # the band of every context surrounds its own gain
    assert result.speedup_low is not None and result.speedup_high is not None
    assert np.all(result.speedup_low[0, 1:] < result.speedup[0, 1:])
    assert np.all(result.speedup_high[0, 1:] > result.speedup[0, 1:])


def test_it_counts_as_measured_and_is_not_mixed_with_another_form(table):
    assert resolve(Scenario(accept_by_ctx=table)).acceptance.measured_k == 1
    with pytest.raises(InputError, match="give one form, not --accept-by-ctx"):
        resolve(Scenario(accept_by_ctx=table, al="3:2.41"))


def test_a_bad_table_is_one_line(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("context_tokens,c1\n100,1.4\n")
    with pytest.raises(InputError, match=r"bad\.csv: row 2: .*1\.4") as error:
        resolve(Scenario(accept_by_ctx=str(path)))
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="No such file"):
        resolve(Scenario(accept_by_ctx=str(tmp_path / "none.csv")))
