"""Any bytes for a CSV: rows, or one clear line. Never another exception."""

import csv
import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflinesim.errors import InputError
from rooflinesim.measurements import METRICS, read_measurements

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CELL = st.one_of(
    st.sampled_from(
        ["1", "0", "-1", "2.5", "nan", "inf", "1e309", "", " ", "fit", "given", "ms", "tok/s", "x", "1e40"]
    ),
    st.sampled_from(sorted(METRICS)),
    st.text(max_size=12),
)
HEAD = st.sampled_from(
    [
        "batch_size",
        "k",
        "metric",
        "value",
        "unit",
        "use",
        "tpot_ms",
        "acceptance_length",
        "n",
        "ctx",
        "q",
        "junk",
    ]
)


def _read(path):
    try:
        return read_measurements(path)
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 400
        return ()


@SETTINGS
@given(data=st.binary(max_size=400))
def test_any_bytes(tmp_path, data):
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    _read(path)


@SETTINGS
@given(head=st.lists(HEAD, min_size=1, max_size=6), rows=st.lists(st.lists(CELL, max_size=7), max_size=5))
def test_any_table(tmp_path, head, rows):
    text = io.StringIO()
    csv.writer(text).writerows([head, *rows])
    path = tmp_path / "x.csv"
    path.write_text(text.getvalue())
    for row in _read(path):
        assert row.metric in METRICS
        assert 1 <= row.batch_size <= 1e6 and 0 <= row.k <= 1024
        assert 0 <= row.value < 1e13
