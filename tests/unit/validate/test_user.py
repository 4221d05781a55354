"""A user's own measurements: K2-01, M3-11 and P5-05 behave as the user cases state."""

import pytest

from rooflinesim.api import Scenario, resolve
from rooflinesim.errors import InputError
from rooflinesim.measurements import Measurement, read_measurements
from rooflinesim.validate.user import user_json, validate_user

EAGLE = """batch_size,k,tpot_ms,acceptance_length,speedup
1,0,7.07,,
1,2,4.37,2.10,1.618
1,3,4.29,2.29,1.648
1,4,4.48,2.39,1.568
1,5,4.71,2.43,1.610
1,6,4.94,2.45,1.544
1,7,5.20,2.47,1.360
"""
EAGLE3 = """batch_size,k,tpot_ms,acceptance_length
1,0,7.07,
1,2,4.32,2.36
1,3,4.09,2.79
1,4,4.05,3.08
1,5,4.13,3.32
1,6,4.20,3.46
1,7,4.29,3.54
"""


def report(tmp_path, text, **scenario):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return validate_user(resolve(Scenario(**scenario)), read_measurements(path), metric="tpot")


def test_k2_01_eagle_bad_cells_step_times_and_best_k(tmp_path):
    out = report(tmp_path, EAGLE, gpu="h100", draft="eagle", engine="vllm-0.10")
    point = out.points[0]
    assert point.best_k == 3
    bad = [row.k for row in point.rows if row.printed_is_consistent is False]
    assert bad == [4, 5, 6]
    assert sum("printed speed-up" in line for line in out.findings) == 3
    steps_ms = [row.step_s * 1e3 for row in point.rows[1:]]
    assert steps_ms == pytest.approx([9.18, 9.82, 10.71, 11.45, 12.10, 12.84], abs=0.01)
    row = point.rows[2]
    assert row.r == pytest.approx(9.8241 / 7.07, rel=1e-6)
    assert row.speedup == pytest.approx(7.07 / 4.29, rel=1e-6)
    c = row.break_even_c1  # 1 + c + c^2 + c^3 = R
    assert 1 + c + c**2 + c**3 == pytest.approx(row.r, rel=1e-6)
    assert 0.3 < row.efficiency_frac < 1.0


def test_k2_01_eagle3_best_k_is_4(tmp_path):
    out = report(tmp_path, EAGLE3, gpu="h100", draft="eagle3", engine="vllm-0.10")
    assert out.points[0].best_k == 4
    assert out.points[0].predicted_k == 4


def test_m3_11_a_row_faster_than_the_roofline_is_flagged_not_clipped():
    """Llama-3.1-8B in 16 bit streams 15 GB; an H100 cannot do that in 2 ms (3.35 TB/s)."""
    rows = [Measurement(batch_size=1, metric="step_s", value=2e-3, k=0)]
    out = validate_user(resolve(Scenario(gpu="h100", draft="none")), rows)
    row = out.points[0].rows[0]
    assert row.efficiency_frac > 2.0
    assert "byte model wrong" in row.flags[0]
    assert any("byte model wrong" in line for line in out.findings)


def test_p5_05_saturated_throughput_is_named():
    """6707 tokens/s at 16, 7048 to 7051 at 1024 to 4096 (SGLang 32959): the rest only queue."""
    rows = [
        Measurement(batch_size=b, metric="output_tokens_per_s", value=v)
        for b, v in ((16, 6707.0), (1024, 7048.0), (4096, 7051.0))
    ]
    out = validate_user(
        resolve(Scenario(gpu="b200", model="qwen3.5-27b", draft="none", weights="nvfp4")), rows
    )
    line = next(line for line in out.findings if "saturates" in line)
    assert "concurrency 16" in line and "4096" in line and "first token" in line


def test_a_missing_acceptance_length_is_said(tmp_path):
    text = "batch_size,k,tpot_ms\n1,0,7.0\n1,3,4.2\n"
    out = report(tmp_path, text, gpu="h100", draft="eagle3")
    assert "acceptance length assumed" in out.points[0].rows[1].flags


def test_recalibrate_names_the_draft_pass_when_k_is_dearer_than_modelled():
    rows = [Measurement(batch_size=1, metric="step_s", value=7e-3)]
    rows += [Measurement(batch_size=1, metric="step_s", value=8e-3 + 2e-3 * k, k=k) for k in (1, 3, 5)]
    out = validate_user(resolve(Scenario(gpu="h100", draft="eagle3")), rows)
    assert any("a further drafted token costs 2.00 ms" in line for line in out.recalibrate)


def test_no_step_time_and_unknown_metric():
    resolved = resolve(Scenario(gpu="h100", draft="none"))
    with pytest.raises(InputError, match="no row gives a step time"):
        validate_user(resolved, [Measurement(batch_size=1, metric="speedup", value=1.2)])
    with pytest.raises(InputError, match="--metric: no row of step_s"):
        validate_user(resolved, [Measurement(batch_size=1, metric="tpot_s", value=1e-3)], metric="step")


def test_json_keys(tmp_path):
    data = user_json(report(tmp_path, EAGLE, gpu="h100", draft="eagle"))
    assert data["schema"] == 1
    assert {"best_k", "predicted_k", "k_regret", "rows"} <= data["points"][0].keys()
    row = data["points"][0]["rows"][0]
    assert {
        "acceptance_length",
        "r",
        "speedup",
        "break_even_c1",
        "efficiency_frac",
        "roofline_s",
    } <= row.keys()


def test_drafted_rows_need_a_drafter():
    with pytest.raises(InputError, match="K = 2, but --draft is none"):
        validate_user(
            resolve(Scenario(gpu="h100", draft="none")),
            [Measurement(batch_size=1, metric="step_s", value=1e-2, k=2, line=2)],
        )
