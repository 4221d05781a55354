"""Published measurements, recomputed: each fast campaign keeps the bound it is committed to."""

import re

import pytest
import yaml

from rooflinesim.specs.files import spec_root
from rooflinesim.validate import (
    as_json,
    campaign_names,
    load_campaign,
    mean_k_regret,
    pooled_coverage,
    score_campaign,
    sign_correct,
)
from rooflinesim.validate.campaign import FILES
from rooflinesim.validate.report import markdown

ROOT = spec_root("validation")
NAMES = campaign_names()
FAST = [name for name in NAMES if load_campaign(ROOT / name).spec.fast]


class _Lazy(dict):
    """Scores a campaign when it is first asked for, so that one broken folder fails its own tests only."""

    def __missing__(self, name):
        self[name] = score_campaign(load_campaign(ROOT / name))
        return self[name]


@pytest.fixture(scope="module")
def results():
    return _Lazy()


def published(results):
    """Every score of every published campaign."""
    names = [name for name in FAST if load_campaign(ROOT / name).source.published]
    return [r for name in names for r in results[name]]


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_is_exactly_three_files(name):
    assert sorted(p.name for p in (ROOT / name).iterdir()) == sorted(FILES)
    assert re.fullmatch(r"20\d\d_[a-z0-9_]+", name)
    campaign = load_campaign(ROOT / name)
    assert campaign.source.published or campaign.source.url.startswith("rooflinesim bench")
    assert all(spec.bound for spec in campaign.spec.scores)


@pytest.mark.parametrize("name", FAST)
def test_committed_bound(name, results):
    for result in results[name]:
        assert result.ok, f"{name} {result.metric}: {result.bound} broken: {result}"[:600]
        assert not result.faster_than_roofline, result.faster_than_roofline[:3]


@pytest.mark.parametrize("name", FAST)
def test_rows_that_gave_a_constant_are_never_scored(name, results):
    """Disjoint by construction: ``use`` is one word, and no scored row repeats a fitted one."""
    campaign = load_campaign(ROOT / name)
    spent = {(r.metric, r.point, r.draft_steps, r.draft_topk) for r in campaign.rows if r.use == "fit"}
    for result in results[name]:
        for p in result.rows:
            assert p.row.use == "score"
            key = (p.row.metric, p.row.point, p.row.draft_steps, p.row.draft_topk)
            assert key not in spent


def test_engine_hosts_fitted_here_say_on_what():
    """An engine profile that names a campaign names one whose ``fit`` rows it used; kernel fits name none."""
    for path in (spec_root("hw_specs") / "engines").glob("*.yaml"):
        text = path.read_text()
        for name in re.findall(r"validation/(20\d\d_\w+)", text):
            campaign = load_campaign(ROOT / name)
            assert "fit" in {row.use for row in campaign.rows} or campaign.spec.fitted, (path.name, name)
            assert campaign.spec.fitted
    for path in (spec_root("hw_specs") / "calibrations").rglob("*.yaml"):
        assert not re.search(r"validation/20\d\d_(?!serving)", path.read_text()), path


def test_vllm_0_10_host_is_what_the_source_prints():
    """arXiv 2601.11580: 1.207 ms overhead, 2.135 ms of drafting for K = 3."""
    data = yaml.safe_load((spec_root("hw_specs") / "engines" / "vllm-0.10.yaml").read_text())
    assert data["host"]["sd_round_s"] == pytest.approx(1.20683946e-3, rel=1e-3)
    assert data["host"]["draft_pass_s"] == pytest.approx(2.13526175e-3 / 3, rel=1e-3)


def test_k2_01_choice_and_time(results):
    """vllm#20780: measured best K = 3 (EAGLE) and 4 (EAGLE-3), given the acceptance; times within 15 %
    unfitted."""
    by_metric = {(r.kind, r.metric): r for r in results["2025_vllm_issue20780"]}
    timing = by_metric[("timing", "tpot_s")]
    assert timing.mape <= 0.15
    eagle = [p for p in timing.rows if p.row.group == "eagle" and p.row.k > 0]
    assert min(eagle, key=lambda p: p.value).row.k == 3
    best = {d.group: d for d in by_metric[("choice", "tpot_s")].decisions}
    assert best["eagle"].best_k == 3 and best["eagle3"].best_k == 4
    assert best["eagle3"].predicted_k == 4
    assert all(d.regret <= 0.03 for d in best.values())


def test_headline(results):
    flat = published(results)
    mean, worst, n = mean_k_regret(flat)
    assert n >= 25 and mean <= 0.03 and worst <= 0.15
    share, cells = sign_correct(flat)
    assert cells >= 150 and share >= 0.90
    cover, rows = pooled_coverage(flat)
    assert rows >= 300 and 0.70 <= cover <= 0.90


def test_json_and_readme_hold_every_score(results):
    flat = published(results)
    data = as_json(flat)
    assert data["schema"] == 1 and len(data["campaigns"]) == len(flat)
    keys = "id metric n n_skipped mape median bias within_10 within_20 k_regret sign_correct bound ok"
    assert set(keys.split()) <= data["campaigns"][0].keys()
    text = markdown(flat, [load_campaign(ROOT / name) for name in FAST])
    for name in {r.id for r in flat}:
        assert f"## {name}" in text and f"| {name} |" in text


def test_the_committed_readme_lists_every_campaign():
    text = (ROOT / "README.md").read_text()
    for name in NAMES:
        assert f"## {name}" in text


def test_a_speculative_round_never_needs_less_host_than_a_plain_step():
    """Else "SD on, K = 0" would beat "SD off", against every report (vllm#49548: +6.6 to +21.6 %)."""
    for path in (spec_root("hw_specs") / "engines").glob("*-*.yaml"):
        host = yaml.safe_load(path.read_text())["host"]
        assert host["sd_round_s"] >= host["off_step_s"], path.name
