"""A server whose truth is known: other host times, noise on every step, counts from a known curve."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from rooflinesim.acceptance import AcceptanceCurve, Conversion
from rooflinesim.api import Scenario, evaluate, resolve
from rooflinesim.efficiency import Ceilings
from rooflinesim.specs.base import Estimate
from rooflinesim.tuning import tune

OFF_HOST_S, SD_HOST_S, NOISE = 2.0e-3, 4.5e-3, 0.015
CURVE = AcceptanceCurve.geometric(c1=0.78, decay=0.93)
SCENARIO = Scenario(k_max=6, context_tokens=(1024,))
K, STEPS, TOP = 6, 4000, 192


@pytest.fixture(scope="module")
def truth():
    resolved = resolve(SCENARIO)
    d = resolved.deployment
    own = d.ceilings.calibration.model_copy(
        update={"off_host_s": Estimate(value=OFF_HOST_S), "sd_host_s": Estimate(value=SD_HOST_S)}
    )
    deployment = replace(d, ceilings=Ceilings(gpu=d.ceilings.gpu, calibration=own))
    return replace(resolved, deployment=deployment, acceptance=Conversion(CURVE, "the truth", K))


@pytest.fixture(scope="module")
def files(truth, tmp_path_factory):
    """Times of static servers (one K each, as benchmarks are run) and the histogram of one at K = 6."""
    rng = np.random.default_rng(20)
    folder = tmp_path_factory.mktemp("server")
    lines = ["batch_size,k,context_tokens,step_ms"]
    for k in (0, 1, 3, 6):
        for context in (512, 8192):
            out = evaluate(
                truth, batch_sizes=[1, 8, 32, 128], k_values=[k], context_tokens=[context], n_draws=0
            )
            step = out.step.off_step_s if k == 0 else out.step.step_s
            for batch, seconds in zip((1, 8, 32, 128), step[:, 0, 0], strict=True):
                lines.append(f"{batch},{k},{context},{seconds * 1e3 * rng.lognormal(0.0, NOISE):.5f}")
    (folder / "steps.csv").write_text("\n".join(lines) + "\n")
    survive = np.concatenate([[1.0], CURVE.marginal(K), [0.0]])
    counts = rng.multinomial(STEPS, survive[:-1] - survive[1:]).tolist()
    accepted = sum(i * n for i, n in enumerate(counts))
    stats = {
        "mean_acceptance_length": 1 + accepted / STEPS,
        "acceptance_histogram": counts,
        "num_spec_steps": STEPS,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": STEPS * K,
        "num_spec_tokens": K,
    }
    (folder / "answers.json").write_text(json.dumps({"metrics": {"speculative_decoding": stats}}))
    return [folder / "steps.csv", folder / "answers.json"]


@pytest.fixture(scope="module")
def found(files):
    return tune(SCENARIO, files, max_batch=TOP)


@pytest.fixture(scope="module")
def untimed(files):
    return tune(SCENARIO, files[1:], max_batch=TOP)


@pytest.fixture(scope="module")
def true_table(truth):
    return evaluate(truth, batch_sizes=range(1, TOP + 1), n_draws=0)


def test_overhead_is_recovered_within_its_stated_errors(found):
    fitted = {item.name: item for item in found.overhead.fit.fitted}
    for name, value in (("off_host_s", OFF_HOST_S), ("sd_host_s", SD_HOST_S)):
        assert abs(fitted[name].value - value) < 2.5 * fitted[name].stderr
        assert fitted[name].stderr < 0.25 * value  # errors that say something
    assert found.overhead.fit.before_log_sd > 0.15
    assert found.overhead.fit.residual_log_sd < 2 * NOISE


def test_acceptance_is_recovered_within_its_intervals(found):
    low, high = found.acceptance.record.counts.wilson()
    true = CURVE.conditional(K)
    assert np.sum((true < low) | (true > high)) <= 1  # six 95 % intervals
    lengths = found.resolved.acceptance.curve.acceptance_length(range(K + 1))
    assert lengths == pytest.approx(CURVE.acceptance_length(range(K + 1)), rel=0.03)


def regret_of(answer, true_table):
    table = true_table.goodput[:, :, 0]
    return 1 - table[np.arange(TOP), answer.schedule.expand(TOP)] / table.max(axis=1)


def test_regret_of_the_recommended_k_on_the_truth(found, untimed, true_table):
    regret = regret_of(found.answer, true_table).max()
    assert regret <= 0.03
    assert regret < regret_of(untimed.answer, true_table).max()  # the times are of use


def test_the_band_holds_the_true_gain(found, untimed, true_table):
    table = true_table.goodput[:, :, 0]
    mine = table[np.arange(TOP), found.answer.schedule.expand(TOP)]
    true_gain = float(np.mean(mine / true_table.off_goodput[:, 0]) - 1)
    gain = found.gains[0]
    assert gain.over == "SD off"
    assert gain.low_frac < true_gain < gain.high_frac
    prior = untimed.gains[0]  # measured times narrow it
    assert gain.high_frac - gain.low_frac < 0.6 * (prior.high_frac - prior.low_frac)


def test_measured_points_are_not_asked_for_again(found):
    have = {(c.batch_size, c.k, round(c.context_tokens)) for c in found.overhead.compared}
    asked = {(p.batch_size, p.k, p.context_tokens) for p in found.measure_next}
    assert asked and not have & asked
