"""The schedule's online form: it starts at the schedule, follows load and acceptance, and beats a fixed K."""

import random

import numpy as np
import pytest

from rooflinesim.api import Scenario, resolve
from rooflinesim.api.control import controller
from rooflinesim.api.scheduling import schedule
from rooflinesim.errors import InputError

KS = [0, 1, 2, 3, 5]


@pytest.fixture(scope="module")
def answer():
    return schedule(resolve(Scenario(accept="0.75", k_max=5)), max_batch=256)


def serve(choose, learn, *, world_s, batches, conditional, seed=3):
    """Tokens per second over steps; the K answered while one step runs is used in the next."""
    rng = random.Random(seed)
    k, tokens, seconds, ks = choose(batches[0]), 0.0, 0.0, []
    for batch, c in zip(batches, conditional, strict=True):
        planned = choose(batch)
        accepted = []
        for _ in range(batch):
            n = 0
            while n < k and rng.random() < c[n]:
                n += 1
            accepted.append(n)
        step = world_s[(batch, k)] * rng.uniform(0.98, 1.02)
        learn(batch, k, accepted, step)
        tokens += batch + sum(accepted)
        seconds += step
        ks.append(k)
        k = planned
    return tokens / seconds, ks


@pytest.fixture(scope="module")
def world_s(answer):
    """The server: 15 % slower than the table, and its rounds cost 0.8 ms more."""
    step = np.broadcast_to(answer.evaluation.step.step_s, answer.evaluation.goodput.shape)
    return {(n, k): 1.15 * float(step[n - 1, k, 0]) + 0.8e-3 for n in (4, 192) for k in range(6)}


def test_starts_at_the_schedule_and_holds_captured_k_only(answer):
    online = controller(answer)
    for low, high, k in answer.schedule.ranges:
        # one ratio-spaced row serves many batches; at its own start a range gets its own K, or a tie
        row = answer.evaluation.goodput[low - 1, :, 0]
        assert row[online.next_k(low)] >= 0.985 * row[k], (low, high)
    assert len(answer.schedule.distinct_k) >= 2
    seen = {online.next_k(n) for n in range(1, 300)}
    assert seen <= set(answer.schedule.distinct_k)


def test_follows_a_swing_of_load(answer, world_s):
    online = controller(answer, captured_k=KS)
    batches = ([4] * 150 + [192] * 150) * 2
    flat = [[0.75] * 5] * len(batches)
    _, ks = serve(online.next_k, online.observe, world_s=world_s, batches=batches, conditional=flat)
    assert set(ks) <= set(KS)
    low, high = np.mean(ks[50:150]), np.mean(ks[200:300])
    assert low > high + 1  # drafts less under load, and more again after it
    assert np.mean(ks[350:450]) > high + 1


def test_beats_every_fixed_k_when_acceptance_changes(answer, world_s):
    batches = [4] * 600 + [192] * 600
    changing = ([[0.9] * 5] * 300 + [[0.15] * 5] * 300) * 2
    online = controller(answer, captured_k=KS, half_life_steps=60.0)
    dynamic, ks = serve(online.next_k, online.observe, world_s=world_s, batches=batches, conditional=changing)
    assert set(ks) <= set(KS) and len(set(ks)) >= 3
    fixed = {
        k: serve(lambda _, k=k: k, lambda *_: None, world_s=world_s, batches=batches, conditional=changing)[0]
        for k in KS
    }
    assert dynamic > max(fixed.values()), fixed


def test_refuses_a_k_that_is_not_in_the_table(answer):
    with pytest.raises(InputError, match=r"captured_k: \[9\]; the table holds K = 0\.\.5"):
        controller(answer, captured_k=[3, 9])


def test_acceptance_by_context_is_averaged(tmp_path):
    path = tmp_path / "acc.csv"
    path.write_text("context_tokens,c1\n100,0.9\n1000,0.5\n")
    scenario = Scenario(accept_by_ctx=str(path), context_tokens=(100, 1000), k_max=2)
    online = controller(schedule(resolve(scenario), max_batch=8), captured_k=[0, 1, 2])
    assert online.conditional()[0] == pytest.approx(0.7)
