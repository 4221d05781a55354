"""Reading CSVs: documented columns, long and wide, SI units, one clear line for every refusal."""

import pytest

from rooflinesim.errors import InputError
from rooflinesim.measurements import MAX_BYTES, metric_of, read_measurements


def write(tmp_path, text):
    path = tmp_path / "m.csv"
    path.write_text(text)
    return path


def test_long_table_in_si(tmp_path):
    rows = read_measurements(
        write(
            tmp_path,
            "batch_size,k,context_tokens,metric,value,unit,spread_frac,n,notes,my_column\n"
            "8,3,1024,tpot,4.05,ms,0.02,5,mt-bench,x\n"
            "8,3,1024,acceptance_length,2.79,tokens,,,,\n"
            "# a comment\n"
            "8,0,,throughput,1200,tok/s,,,,\n",
        )
    )
    assert [r.metric for r in rows] == ["tpot_s", "acceptance_length", "output_tokens_per_s"]
    assert rows[0].value == pytest.approx(4.05e-3)
    assert (rows[0].k, rows[0].context_tokens, rows[0].spread_frac, rows[0].n) == (3, 1024, 0.02, 5)
    assert rows[2].context_tokens is None and rows[2].k == 0


def test_wide_table_one_column_per_metric(tmp_path):
    rows = read_measurements(
        write(tmp_path, "bs,K,tpot_ms,AL,speedup,gpu_name\n1,2,4.37,2.10,1.618,x\n1,0,7.07,,,y\n")
    )
    assert [(r.metric, r.k) for r in rows] == [
        ("tpot_s", 2),
        ("acceptance_length", 2),
        ("speedup", 2),
        ("tpot_s", 0),
    ]
    assert rows[3].value == pytest.approx(7.07e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("TPOT_ms", ("tpot_s", "ms")), ("tok/s", ("output_tokens_per_s", None)), ("itl_us", ("step_s", "us"))],
)
def test_metric_names(name, expected):
    assert metric_of(name) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("batch_size,metric,value\n", "a header but no rows"),
        ("concurency,metric,value\n1,tpot_ms,2\n", "needs the column batch_size"),
        ("batch_size,k\n1,2\n", "needs the column metric and value"),
        ("batch_size,metric,value\n1,tpot,4.2\n", "line 2: tpot_s: a time needs a unit"),
        ("batch_size,metric,value,unit\n1,tpot,4.2,minutes\n", "unit 'minutes' is not one of"),
        ("batch_size,metric,value\n1,tpott_ms,4.2\n", "unknown metric 'tpott_ms'; did you mean"),
        ("batch_size,metric,value\n1,tpot_ms,fast\n", "line 2: value: 'fast' is not a number"),
        ("batch_size,metric,value\n0,tpot_ms,1\n", "line 2: batch_size: '0' must be finite and at least 1"),
        ("batch_size,k,metric,value\n1,2.5,tpot_ms,1\n", "line 2: k: '2.5' is not a whole number"),
        ("batch_size,metric,value\n1,tpot_ms,nan\n", "must be finite"),
        ("batch_size,metric,value,use\n1,tpot_ms,1,train\n", "use: 'train' is not one of score, given, fit"),
        ("batch_size,metric,value\n1,tpot_ms,1,2,3\n", "5 cells under 3 column names"),
        ("batch_size,bs,metric,value\n1,1,tpot_ms,1\n", "two columns for batch_size"),
        ("batch_size,metric,value,notes\n1,tpot_ms,1," + "x" * 3000 + "\n", "a cell longer than"),
    ],
)
def test_refusals_are_one_line(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        read_measurements(write(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_binary_and_large_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_measurements(tmp_path / "nothing.csv")
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(InputError, match="not UTF-8"):
        read_measurements(binary)
    big = tmp_path / "big.csv"
    with big.open("wb") as handle:
        handle.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 8 MB"):
        read_measurements(big)


def test_an_unquoted_comma_in_trailing_notes_is_notes(tmp_path):
    rows = read_measurements(write(tmp_path, "batch_size,metric,value,notes\n1,tpot_ms,4,warm, then cold\n"))
    assert rows[0].notes == "warm, then cold"
