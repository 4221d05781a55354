"""The engine is lossless: greedy output is equal, sampled output has the target's distribution, caches
agree."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from rooflinesim.errors import InputError  # noqa: E402
from rooflinesim.microbench.engine.drafters import Ngram  # noqa: E402
from rooflinesim.microbench.engine.loop import Engine, fixed, scheduled  # noqa: E402
from rooflinesim.microbench.engine.sampling import accept  # noqa: E402
from rooflinesim.microbench.engine.state import Sequences  # noqa: E402

KINDS = ("draft_model", "eagle", "ngram")


def greedy_reference(model, prompts, lengths, n_new):
    """Argmax decoding without any cache: the whole sequence is read again for every token."""
    out = []
    for row, length in zip(prompts, lengths, strict=True):
        tokens = row[:length].unsqueeze(0)
        for _ in range(n_new):
            positions = torch.arange(tokens.shape[1]).unsqueeze(0)
            with torch.no_grad():
                logits = model.logits(model(tokens, positions))[0, -1]
            tokens = torch.cat((tokens, logits.argmax().view(1, 1)), dim=1)
        out.append(tokens[0, length:].tolist())
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_experts", [0, 4])
def test_greedy_output_equals_decoding_without_cache_or_drafts(make_decoder, make_drafter, kind, n_experts):
    target = make_decoder(vocab=12, n_experts=n_experts)
    prompts = torch.randint(0, 12, (4, 9), generator=torch.Generator().manual_seed(5))
    lengths = torch.tensor([9, 8, 9, 8])
    engine = Engine(target, make_drafter(kind, target), temperature=0.0)
    engine.begin(prompts, slots=64, lengths=lengths)
    ks = iter([3, 1, 0, 4, 2, 0, 0, 5, 3, 3, 3, 3, 2, 1, 5] + [3] * 30)  # dynamic K, with K = 0 in between
    out = engine.generate(targets=torch.tensor([16, 9, 14, 12]), policy=lambda batch: next(ks))
    expected = greedy_reference(target, prompts, lengths.tolist(), 16)
    assert out == [row[:n] for row, n in zip(expected, [16, 9, 14, 12], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_some_drafts_are_accepted_and_some_rejected(make_decoder, make_drafter, kind):
    """Else the greedy test above would not exercise the rollback."""
    target = make_decoder(vocab=12)
    prompts = torch.randint(0, 12, (16, 9), generator=torch.Generator().manual_seed(5))
    engine = Engine(target, make_drafter(kind, target), temperature=0.0)
    engine.begin(prompts, slots=80)
    recorder = engine.run(n_steps=12, policy=fixed(3))
    assert 0.0 < recorder.marginal()[0] < 1.0


def exact_joint(model, prompt, depth):
    """P(x1..x_depth | prompt) of plain sampling at T = 1, by enumeration, flat in lexicographic order."""
    vocab = model.spec.vocab_size
    grid = torch.cartesian_prod(*[torch.arange(vocab)] * depth).view(-1, depth)
    tokens = torch.cat((prompt.expand(len(grid), -1), grid), dim=1)
    with torch.no_grad():
        logits = model.logits(model(tokens, torch.arange(tokens.shape[1]).expand(tokens.shape)))
    logp = logits.log_softmax(-1)[:, prompt.shape[0] - 1 : -1]
    return logp.gather(2, grid.unsqueeze(-1)).sum(dim=(1, 2)).exp().numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 3])
def test_sampled_output_has_the_targets_distribution(make_decoder, make_drafter, kind, k):
    """Chi-square of the joint law of three tokens against exact enumeration, many independent sequences."""
    vocab, depth, n = 5, 3, 10_000
    target = make_decoder(vocab=vocab, seed=2, sharpness=11.0)
    prompt = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    engine = Engine(target, make_drafter(kind, target), temperature=1.0, seed=11)
    engine.begin(prompt.expand(n, -1), slots=24)
    out = np.array(engine.generate(targets=torch.full((n,), depth), policy=fixed(k)))
    code = (out * vocab ** np.arange(depth - 1, -1, -1)).sum(axis=1)
    seen = np.bincount(code, minlength=vocab**depth).astype(float)
    expected = exact_joint(target, prompt, depth) * n
    assert expected.sum() == pytest.approx(n, rel=1e-9)
    common = expected >= 5.0
    seen = np.append(seen[common], seen[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if expected[-1] < 5.0:
        seen, expected = seen[:-1], expected[:-1] * seen[:-1].sum() / expected[:-1].sum()
    assert len(seen) > 20
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_the_chi_square_can_fail(make_decoder):
    """The same test rejects a biased rule (accept whatever is drafted uniformly) by a wide margin."""
    vocab, n = 5, 24_000
    target = make_decoder(vocab=vocab, seed=2, sharpness=11.0)
    prompt = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    expected = exact_joint(target, prompt, 1) * n
    biased = np.bincount(np.random.default_rng(0).integers(0, vocab, n), minlength=vocab)
    assert stats.chisquare(biased, expected).pvalue < 1e-6


def test_acceptance_rate_is_the_overlap_of_the_two_distributions():
    """Leviathan et al. 2023, theorem 3.5: P(accept) = Σ min(p, q); and the emitted token is distributed as
    p."""
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    q = torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64)
    n = 200_000
    generator = torch.Generator().manual_seed(3)
    drafts = torch.multinomial(q, n, replacement=True, generator=generator).view(n, 1)
    accepted, following = accept(p=p.expand(n, 2, 4), drafts=drafts, q=q.expand(n, 1, 4), generator=generator)
    assert float(accepted.double().mean()) == pytest.approx(0.1 + 0.3 + 0.2, abs=0.005)
    first = torch.where(accepted == 1, drafts[:, 0], following)
    seen = np.bincount(first.numpy(), minlength=4)
    assert seen[3] == 0
    assert stats.chisquare(seen[:3], np.array([0.5, 0.3, 0.2]) * n).pvalue > 1e-3


def test_nothing_proposed_means_plain_sampling():
    """A look-up that found nothing must not distort the next token by a residual."""
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    n = 60_000
    accepted, following = accept(
        p=p.expand(n, 3, 3),
        drafts=torch.zeros((n, 2), dtype=torch.long),
        q=None,
        generator=torch.Generator().manual_seed(1),
        n_drafted=torch.zeros(n, dtype=torch.long),
    )
    assert int(accepted.sum()) == 0
    assert stats.chisquare(np.bincount(following.numpy()), p.numpy() * n).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["draft_model", "eagle"])
def test_caches_after_rejections_equal_caches_built_from_the_committed_text(make_decoder, make_drafter, kind):
    target = make_decoder(vocab=12)
    engine = Engine(target, make_drafter(kind, target), temperature=0.0)
    prompts = torch.randint(0, 12, (6, 9), generator=torch.Generator().manual_seed(5))
    engine.begin(prompts, slots=64)
    for k in (3, 2, 0, 4, 1, 3):
        engine.step(k)
    tokens, length = engine.sequences.tokens, engine.sequences.length
    assert len(set(length.tolist())) > 1  # sequences advanced differently
    fresh = target.new_cache(batch=6, slots=64)
    width = int(length.max())
    positions = torch.arange(width).expand(6, width)
    with torch.no_grad():
        target(tokens[:, :width], positions, fresh, width)
        if kind == "draft_model":
            draft = engine.drafter.model
            engine.drafter.propose(engine.sequences, k=0, temperature=0.0, generator=engine.generator)
            fresh_draft = draft.new_cache(batch=6, slots=64)
            draft(tokens[:, :width], positions, fresh_draft, width)
    for row in range(6):
        end = int(length[row]) - 1  # the last committed token is in no cache yet
        torch.testing.assert_close(
            engine.cache.keys[:, row, :end], fresh.keys[:, row, :end], atol=1e-10, rtol=0
        )
        torch.testing.assert_close(
            engine.cache.values[:, row, :end], fresh.values[:, row, :end], atol=1e-10, rtol=0
        )
        if kind == "draft_model":
            mine = engine.drafter.cache.keys[:, row, : end + 1]
            torch.testing.assert_close(mine, fresh_draft.keys[:, row, : end + 1], atol=1e-10, rtol=0)


def test_eagle_head_sees_true_states_after_rejections(make_decoder, make_drafter):
    """Its cache over committed positions equals a fresh run on the target's true hidden states."""
    target = make_decoder(vocab=12)
    engine = Engine(target, make_drafter("eagle", target), temperature=0.0)
    prompts = torch.randint(0, 12, (5, 9), generator=torch.Generator().manual_seed(5))
    engine.begin(prompts, slots=64)
    for k in (3, 2, 0, 4, 1, 3):
        engine.step(k)
    with torch.no_grad():
        engine.drafter.propose(engine.sequences, k=0, temperature=0.0, generator=engine.generator)
        tokens, length = engine.sequences.tokens, engine.sequences.length
        for row in range(5):
            n = int(length[row])
            positions = torch.arange(n).unsqueeze(0)
            hidden = target(tokens[row : row + 1, :n], positions)[:, : n - 1]
            from rooflinesim.microbench.nn import KvCache

            fresh = KvCache.empty(n_layers=1, batch=1, slots=64, n_kv_heads=2, head_dim=8, like=hidden)
            embedded = target.embed(tokens[row : row + 1, 1:n])
            engine.drafter.head(embedded, hidden, positions[:, : n - 1], fresh, n - 1)
            mine = engine.drafter.cache.keys[:, row, : n - 1]
            torch.testing.assert_close(mine, fresh.keys[:, 0, : n - 1], atol=1e-10, rtol=0)


def test_the_same_model_as_drafter_is_always_accepted(make_decoder):
    from rooflinesim.microbench.engine.drafters import DraftModel

    target = make_decoder(vocab=12)
    for temperature in (0.0, 1.0):
        engine = Engine(target, DraftModel(target), temperature=temperature)
        engine.begin(torch.randint(0, 12, (4, 9)), slots=96)
        recorder = engine.run(n_steps=6, policy=fixed(4))
        assert recorder.acceptance_length() == 5.0
        assert recorder.marginal() == [1.0] * 4


def test_records_follow_from_their_steps(make_decoder, make_drafter):
    target = make_decoder(vocab=12)
    engine = Engine(target, make_drafter("draft_model", target))
    engine.begin(torch.randint(0, 12, (8, 9)), slots=96)
    recorder = engine.run(n_steps=10, policy=fixed(3))
    assert recorder.acceptance_length() == pytest.approx(1.0 + sum(recorder.marginal()))
    assert recorder.marginal() == sorted(recorder.marginal(), reverse=True)
    product = np.cumprod(recorder.conditional())
    np.testing.assert_allclose(product, recorder.marginal())
    emitted = int(engine.sequences.length.sum()) - 8 * 9
    assert emitted == sum(step.emitted for step in recorder.steps)
    assert recorder.goodput_tokens_per_s() == pytest.approx(emitted / sum(s.step_s for s in recorder.steps))


def test_ngram_continues_a_repeated_phrase():
    text = torch.tensor([[1, 2, 3, 4, 5, 9, 9, 1, 2, 3], [7, 8, 6, 5, 4, 3, 2, 1, 0, 9]])
    sequences = Sequences.of_prompts(text, slots=32)
    proposal = Ngram(longest=3, shortest=2).propose(
        sequences, k=4, temperature=0.0, generator=torch.Generator()
    )
    assert proposal.tokens[0].tolist() == [4, 5, 9, 9]
    assert proposal.n_drafted.tolist() == [4, 0]


def test_schedule_looks_up_the_current_batch():
    policy = scheduled([(1, 2, 4), (3, 8, 1), (9, 64, 0)])
    assert [policy(b) for b in (1, 2, 3, 8, 9, 1000)] == [4, 4, 1, 1, 0, 0]


def test_drafting_without_a_drafter_is_one_clear_line(make_decoder):
    engine = Engine(make_decoder(vocab=12))
    engine.begin(torch.zeros((1, 4), dtype=torch.long), slots=16)
    with pytest.raises(InputError, match="need a drafter"):
        engine.step(2)
    with pytest.raises(InputError, match="exceed the 16 slots"):
        for _ in range(20):
            engine.step(0)
