"""Campaign files follow the project's format, models scale to fit, training is seeded and cached, errors are
one line."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from rooflinesim import registry  # noqa: E402
from rooflinesim.errors import InputError  # noqa: E402
from rooflinesim.measurements import read_measurements  # noqa: E402
from rooflinesim.microbench import campaign, compare, drain, env, model_bench, shapes, train  # noqa: E402
from rooflinesim.microbench.campaign_texts import campaign_texts  # noqa: E402
from rooflinesim.microbench.engine.loop import Engine  # noqa: E402
from rooflinesim.microbench.model_bench import Bencher, Cell  # noqa: E402
from rooflinesim.specs.scenario import Routing  # noqa: E402

TINY_RECIPE = train.Recipe(
    corpus_bytes=60_000, window_tokens=32, batch_size=8, target_steps=12, draft_steps=6, eagle_steps=6
)


def cell(batch, k, step, *, on=True, accepted=(1, 0)):
    return Cell(
        batch_size=batch,
        k=k,
        speculative=on,
        context_tokens=64.4,
        step_s=step,
        draft_s=0.1 * step,
        verify_s=0.8 * step,
        sample_s=0.1 * step,
        spread_frac=0.02,
        n=5,
        aside_frac=0.25,
        gated=True,
        accepted=accepted,
        distinct_experts=float("nan"),
    )


CELLS = [
    cell(1, 0, 1.0, on=False, accepted=(0,)),
    cell(1, 0, 1.1, accepted=(0,)),
    cell(1, 2, 1.5, accepted=(2, 1, 0, 2)),
    cell(4, 0, 2.0, on=False, accepted=(0,)),
    cell(4, 0, 2.2, accepted=(0,)),
    cell(4, 2, 4.0, accepted=(0, 0, 1, 2)),
]


def test_acceptance_is_pooled_over_batches():
    assert model_bench.acceptance_by_k(CELLS) == {0: 1.0, 2: 1.0 + 8 / 8}
    assert model_bench.marginal_of(CELLS, 2) == [5 / 8, 3 / 8]


def test_rows_have_the_common_columns_and_can_be_read_back(tmp_path):
    setup = campaign.Setup("c", "m", "g", "t", "d", "eagle", "bf16")
    path = tmp_path / "measurements.csv"
    campaign.write_rows(path, setup, campaign.rows_of(CELLS))
    with path.open() as handle:
        lines = list(csv.DictReader(handle))
    shared = {"campaign", "machine", "benchmark_version", "gpu", "n_gpus", "tp", "engine", "target", "draft"}
    assert not shared - set(lines[0])
    good = {
        (r["batch_size"], r["k"], r["use"]): float(r["value"])
        for r in lines
        if r["metric"] == "goodput_tokens_per_s"
    }
    assert good[("1", "0", "score")] == 1.0  # SD off: one token per second-long step
    assert good[("1", "2", "score")] == pytest.approx(2.0 / 1.5, rel=1e-5)  # AL 2 over 1.5 s
    assert good[("4", "2", "score")] == pytest.approx(4 * 2.0 / 4.0)
    assert good[("4", "0", "given")] == pytest.approx(4 / 2.2, rel=1e-5)  # SD on, K = 0
    rows = read_measurements(path)
    assert len(rows) == len(lines)
    assert {r.metric for r in rows} >= {"step_s", "verify_s", "draft_s", "acceptance_length"}


def test_k_regret_of_the_choice():
    measured = np.array([[10.0, 12.0, 9.0], [10.0, 8.0, 5.0]])
    np.testing.assert_allclose(model_bench.k_regret(measured, np.array([1, 1])), [0.0, 0.2])


def test_campaign_texts_are_valid_yaml_and_name_the_machine():
    plan = campaign.moe_plan()
    draft = model_bench.eagle_spec(plan.eagle_layer, plan.spec)
    texts = campaign_texts(
        plan,
        folder_name="cpu-x-1t",
        draft=draft,
        number="bf16",
        routing=Routing(skew=0.3, overlap=0.41),
        how="how",
        noise="quiet",
    )
    scenario = yaml.safe_load(texts["scenario.yaml"])
    assert scenario["scenario"]["gpu"] == "machines/cpu-x-1t/gpu.yaml"
    assert scenario["scenario"]["overlap"] == 0.41
    assert {s["metric"] for s in scenario["scores"]} >= {"verify_s", "step_s", "output_tokens_per_s"}
    source = yaml.safe_load(texts["source.yaml"])
    assert "CUDA: not measured" in " ".join(source["caveats"])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"])
def test_any_model_scales_to_fit_and_keeps_its_proportions(name):
    full = registry.model(name)
    small = shapes.scale_to_fit(full, max_bytes=200 * 2**20)
    assert shapes.weight_bytes(small) <= 200 * 2**20
    assert small.n_layers >= 4
    moe = full.layers[-1].moe
    if moe is not None:
        assert small.layers[0].moe.n_experts == moe.n_experts
        assert small.layers[0].moe.top_k == moe.top_k
    assert small.hidden_size % 64 == 0
    assert "widths x" in small.notes


def test_a_model_that_cannot_be_scaled_says_so():
    with pytest.raises(InputError, match="cannot be scaled into 1 MiB"):
        shapes.scale_to_fit(registry.model("llama-3.1-8b"), max_bytes=2**20)


def test_training_is_seeded_cached_and_learns(tmp_path):
    with torch.no_grad():  # runs measure without gradients; training turns them on for itself
        first = train.load_or_train(TINY_RECIPE, directory=tmp_path)
    assert first.loss_nats < np.log(train.VOCAB)  # better than guessing evenly
    files = list(tmp_path.iterdir())
    assert len(files) == 1
    again = train.load_or_train(TINY_RECIPE, directory=tmp_path)
    for a, b in zip(first.target.parameters(), again.target.parameters(), strict=True):
        assert torch.equal(a, b)
    files[0].write_bytes(b"not a checkpoint")
    anew = train.load_or_train(TINY_RECIPE, directory=tmp_path)  # a broken cache is trained again, same seed
    for a, b in zip(first.draft.parameters(), anew.draft.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert len(train.prompts(anew, n=3, width=16, seed=0)) == 3


def test_recipes_have_different_names_in_the_cache():
    assert TINY_RECIPE.key != dataclasses.replace(TINY_RECIPE, seed=2).key


def test_snapshot_brings_the_same_batch_back(make_decoder, make_drafter):
    target = make_decoder(vocab=12)
    engine = Engine(target, make_drafter("eagle", target), temperature=0.0)
    engine.begin(torch.randint(0, 12, (4, 9), generator=torch.Generator().manual_seed(1)), slots=64)
    engine.step(2)
    saved = engine.snapshot()
    once = [engine.step(3).accepted for _ in range(3)]
    after = engine.sequences.tokens.clone()
    engine.restore(saved)
    assert [engine.step(3).accepted for _ in range(3)] == once
    assert torch.equal(engine.sequences.tokens, after)


def test_a_grid_is_measured_and_the_context_stays_in_its_room(make_decoder, make_drafter):
    target = make_decoder(vocab=12)
    bench = Bencher("wall", None, n_steps=3, budget_s=0.0)
    text = torch.randint(0, 12, (4, 9), generator=torch.Generator().manual_seed(1))
    cells, recorder = model_bench.measure_grid(
        bench,
        target=target,
        drafter=make_drafter("eagle", target),
        prompts=text,
        batches=[1, 4],
        ks=[0, 2],
        room_tokens=12,
    )
    assert [(c.batch_size, c.k, c.speculative) for c in cells] == [
        (1, 0, False), (1, 0, True), (1, 2, True), (4, 0, False), (4, 0, True), (4, 2, True),
    ]  # fmt: skip
    assert max(s.context_tokens for s in recorder.steps) <= 9 + 12
    for c in cells:
        assert c.step_s >= c.verify_s > 0.0
    with pytest.raises(InputError, match="need as many prompts"):
        model_bench.measure_grid(
            bench, target=target, drafter=make_drafter("eagle", target), prompts=text, batches=[8], ks=[0]
        )


def test_a_draining_batch_runs_every_policy_to_the_same_lengths(make_decoder, make_drafter):
    target = make_decoder(vocab=12)
    lengths = drain.long_tail(6, mean_tokens=8.0, seed=0)
    assert int(lengths.min()) >= 4 and int(lengths.max()) <= 24
    found = drain.drains(
        target=target, drafter=lambda: make_drafter("eagle", target),
        prompts=torch.randint(0, 12, (6, 9)), ranges=[(1, 2, 3), (3, 8, 0)], ks=[1, 3],
        clock="wall", canary=None, mean_tokens=8.0, n_rounds=1,
    )  # fmt: skip
    assert [d.policy for d in found] == ["off", "K=1", "K=3", "dynamic"]
    assert {d.tokens for d in found} == {int(lengths.sum())}
    rows = campaign.drain_rows(found, [(1, 2, 3), (3, 8, 0)], batch=6)
    assert "1-2:3 3-8:0" in rows[-1].notes


def test_routing_is_recovered_from_counted_experts():
    """Counts made with skew 0.6 and overlap 0.4 give those two back; times play no part."""
    from rooflinesim.ops.moe import distinct_experts, effective_tokens, overlap_discount

    rho = overlap_discount(overlap=0.4, n_experts=32, top_k=2)
    made = []
    for batch in (1, 4, 16, 64):
        for k in (0, 1, 3, 7):
            tokens = effective_tokens(batch=np.array(float(batch)), query_tokens=np.array(k + 1.0), rho=rho)
            count = float(distinct_experts(n_tokens=tokens, n_experts=32, top_k=2, skew=0.6))
            made.append(dataclasses.replace(cell(batch, k, 1.0), distinct_experts=count))
    found = campaign.count_routing(made, n_experts=32, top_k=2)
    assert found.skew == pytest.approx(0.6, abs=0.05)
    assert found.overlap == pytest.approx(0.4, abs=0.03)
    assert campaign.count_routing([cell(1, 1, 1.0)], n_experts=32, top_k=2).skew == 0.0


def test_numbers_and_unknown_campaigns_are_one_clear_line(tmp_path):
    from rooflinesim.microbench.campaign_run import run_campaigns

    with pytest.raises(InputError, match="is not a list of whole numbers"):
        compare.numbers("1,x", "--bs", low=1)
    with pytest.raises(InputError, match="at least 1"):
        compare.numbers("0,4", "--bs", low=1)
    with pytest.raises(InputError, match="allowed are dense, moe"):
        run_campaigns(["sparse"], out=tmp_path, device="cpu", n_threads=1, fmt=None, clock="auto")


def test_too_little_memory_is_one_clear_line(monkeypatch, make_decoder):
    monkeypatch.setattr(campaign, "free_memory_bytes", lambda: 0.5 * 2**30)
    with pytest.raises(InputError, match=r"GiB are free; use --scale"):
        campaign.build(campaign.dense_plan(), None, fmt="bf16", device="cpu")


def test_missing_torch_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(env, "has_torch", lambda: False)
    with pytest.raises(InputError) as caught:
        env.require_torch("bench device")
    text = str(caught.value)
    assert "\n" not in text
    assert "pip install 'rooflinesim[bench]'" in text
    assert "predict" in text  # and what still works


def test_machine_limits(monkeypatch):
    monkeypatch.setattr(env, "usable_cores", lambda: 1)
    machine = env.probe(device="cpu", n_threads=8)
    assert machine.n_threads == 1
    with pytest.raises(InputError, match="not a positive number"):
        env.probe(n_threads=0)
    with pytest.raises(InputError, match="not one of auto, cpu, cuda"):
        env.probe(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="sees no CUDA device"):
            env.probe(device="cuda")


def test_plans_are_what_the_campaigns_say():
    dense, moe = campaign.dense_plan(), campaign.moe_plan()
    assert shapes.weight_bytes(dense.spec) == pytest.approx(2 * 241e6, rel=0.03)
    assert moe.spec.layers[0].moe.n_experts == 32
    assert shapes.weight_bytes(campaign.dense_plan(scale=0.25).spec) < 0.3 * shapes.weight_bytes(dense.spec)
