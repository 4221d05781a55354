"""``calibrate my.csv``: what was put in comes back; what rows cannot determine is refused, with points."""

from dataclasses import replace

import numpy as np
import pytest

from rooflinesim.api import Scenario, resolve
from rooflinesim.calibrate.user import fit_json, fit_user, scaled_calibration, write_calibration
from rooflinesim.efficiency import Ceilings
from rooflinesim.errors import InputError
from rooflinesim.measurements import Measurement
from rooflinesim.validate.observe import predict_rows

TRUTH = {"off_host_s": 2.0e-3, "sd_host_s": 3.5e-3, "mem_eff": 0.8, "compute_eff": 0.7}


@pytest.fixture(scope="module")
def resolved():
    return resolve(Scenario(gpu="h100", draft="eagle3", engine="vllm"))


@pytest.fixture(scope="module")
def rows(resolved):
    """Steps of a machine with known constants, 1 % noise."""
    deployment = resolved.deployment
    made = scaled_calibration(deployment.ceilings.calibration, **TRUTH)
    machine = replace(
        resolved,
        deployment=replace(deployment, ceilings=Ceilings(gpu=deployment.ceilings.gpu, calibration=made)),
    )
    points = [
        Measurement(batch_size=b, metric="step_s", value=1.0, k=k, context_tokens=c)
        for b in (1, 8, 256)
        for k in (0, 3)
        for c in (512, 4096)
    ]
    noise = np.random.default_rng(0).standard_normal(len(points))
    return [
        replace(p.row, value=p.value * float(np.exp(0.01 * z)))
        for p, z in zip(predict_rows(machine, points, {}), noise, strict=True)
    ]


@pytest.fixture(scope="module")
def full(resolved, rows):
    return fit_user(resolved, rows, calibration_id="my-h100")


def test_recovers_what_was_put_in(full):
    fit = full
    assert {f.name for f in fit.fitted} == set(TRUTH)
    for f in fit.fitted:
        assert abs(f.value - TRUTH[f.name]) < max(4 * f.stderr, 0.03 * TRUTH[f.name]), f
        assert f.stderr > 0
    assert fit.n == 12
    assert fit.residual_log_sd < 0.02 < fit.before_log_sd
    assert fit.refused == ()


def test_one_batch_without_speculation_refuses_the_rest_and_names_points(resolved, rows):
    fit = fit_user(resolved, [r for r in rows if r.batch_size == 1 and r.k == 0])
    refused = {r.name: r for r in fit.refused}
    assert {"off_host_s", "sd_host_s", "compute_eff"} == set(refused)
    assert "no row with speculation" in refused["sd_host_s"].reason
    assert any(k > 0 for _, k, _ in refused["sd_host_s"].measure)
    assert any(batch >= 32 for batch, _, _ in refused["compute_eff"].measure)
    assert all(1 <= len(r.measure) <= 3 for r in refused.values())


def test_the_named_points_do_settle_it(resolved, rows):
    """With rows at large batch compute_eff is determined: the refusal was about the rows."""
    few = [r for r in rows if r.batch_size <= 8]
    assert "compute_eff" in {r.name for r in fit_user(resolved, few).refused}
    more = few + [r for r in rows if r.batch_size == 256]
    assert "compute_eff" in {f.name for f in fit_user(resolved, more).fitted}


def test_a_single_row_determines_nothing(resolved, rows):
    with pytest.raises(InputError, match="determine nothing; measure batch"):
        fit_user(resolved, rows[:1])


def test_throughput_with_drafts_needs_its_acceptance_length(resolved):
    with pytest.raises(InputError, match="needs the measured acceptance_length"):
        fit_user(resolved, [Measurement(batch_size=4, metric="tpot_s", value=4e-3, k=2, line=3)])


def test_written_calibration_is_read_back_and_predicts_the_machine(full, rows, tmp_path):
    fit = full
    path = write_calibration(fit, tmp_path / "mine.yaml")
    again = resolve(Scenario(gpu="h100", draft="eagle3", engine="vllm", calibration=str(path)))
    predicted = predict_rows(again, rows, {})
    error = [abs(p.value / p.row.value - 1) for p in predicted]
    assert np.median(error) < 0.02
    assert again.deployment.ceilings.calibration.kind == "machine"
    assert "12 rows" in again.deployment.ceilings.calibration.source
    with pytest.raises(InputError, match="exists already"):
        write_calibration(fit, path)
    assert fit_json(fit)["fitted"][0].keys() == {"name", "value", "stderr", "unit"}
