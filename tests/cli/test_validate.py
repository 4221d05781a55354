"""``rooflinesim validate``: campaigns by name, one's own CSV, one-line errors."""

import json
import subprocess
import sys


def call(*args):
    return subprocess.run(
        [sys.executable, "-m", "rooflinesim", "validate", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_campaign_as_json():
    out = call("issue20780", "--json")
    assert out.returncode == 0, out.stderr
    data = json.loads(out.stdout)
    assert {c["id"] for c in data["campaigns"]} == {"2025_vllm_issue20780"}
    assert all(c["ok"] for c in data["campaigns"])


def test_own_csv(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("batch_size,k,tpot_ms,acceptance_length\n1,0,7.07,\n1,3,4.29,2.29\n")
    out = call(str(path), "--draft", "eagle", "--engine", "vllm-0.10", "--metric", "tpot")
    assert out.returncode == 0, out.stderr
    assert "measured best K = 3" in out.stdout
    data = json.loads(call(str(path), "--draft", "eagle", "--json").stdout)
    assert data["points"][0]["best_k"] == 3


def test_errors_are_one_line_and_status_2(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("batch_size,metric,value\n1,tpot,4.2\n")
    for args, text in (
        (["no_such_campaign"], "unknown campaign"),
        ([str(bad)], "a time needs a unit"),
        ([str(tmp_path / "none.csv")], "no such file"),
    ):
        out = call(*args)
        assert out.returncode == 2
        assert text in out.stderr and "Traceback" not in out.stderr
        assert out.stderr.strip().count("\n") == 0
