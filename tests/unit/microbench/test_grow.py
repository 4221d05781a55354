"""Growing a model changes its cost and not what it computes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rooflinesim.errors import InputError  # noqa: E402
from rooflinesim.microbench.grow import grow_decoder, grow_eagle  # noqa: E402
from rooflinesim.microbench.nn import EagleHead, init_weights  # noqa: E402
from rooflinesim.microbench.shapes import decoder_spec, weight_bytes  # noqa: E402
from rooflinesim.specs.model import Attention, DenseFfn, Layer  # noqa: E402


def big_spec(*, n_experts: int = 0, vocab: int = 40):
    return decoder_spec(
        id="big",
        hidden=80,
        n_layers=4,
        n_heads=12,
        n_kv_heads=3,
        head_dim=8,
        inner=64,
        vocab=vocab,
        n_experts=n_experts,
        top_k=2 if n_experts else 0,
    )


@pytest.mark.parametrize("n_experts", [0, 6])
def test_logits_survive_width_depth_heads_and_experts(make_decoder, n_experts):
    small = make_decoder(vocab=40)
    big = grow_decoder(small.float(), big_spec(n_experts=n_experts)).double()
    small = small.double()
    tokens = torch.randint(0, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(11).expand(3, 11)
    with torch.no_grad():
        expected = small.logits(small(tokens, positions))
        got = big.logits(big(tokens, positions))
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_grown_weights_are_really_there(make_decoder):
    small = make_decoder(vocab=40)
    big = grow_decoder(small.float(), big_spec())
    matrices = sum(p.numel() for p in big.parameters() if p.dim() > 1)
    assert weight_bytes(big_spec(), fmt="fp32") == 4.0 * matrices
    last = big.stack.blocks[-1]
    assert float(last.mlp.w_in.weight.std()) == pytest.approx(0.02, rel=0.1)


def test_different_tokens_choose_different_experts(make_decoder):
    big = grow_decoder(make_decoder(vocab=40).float(), big_spec(n_experts=6))
    tokens = torch.randint(0, 40, (8, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        big(tokens, torch.arange(6).expand(8, 6))
        assert big.stack.blocks[0].mlp.last_distinct >= 5
        big(tokens[:1, :1], torch.zeros((1, 1), dtype=torch.long))
        assert big.stack.blocks[0].mlp.last_distinct == 2


def test_eagle_head_drafts_the_same_after_growing(make_decoder):
    small = make_decoder(vocab=40).float()
    layer = small.spec.layers[0].model_copy(update={"count": 1})
    head = EagleHead((layer,), 32)
    init_weights(head, seed=4)
    wide = Layer(
        count=1,
        attention=Attention(n_heads=12, n_kv_heads=3, head_dim=8),
        dense=DenseFfn(intermediate_size=64),
    )
    target, grown = grow_decoder(small, big_spec()), grow_eagle(head, wide, 80)
    tokens = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(8).expand(2, 8)
    with torch.no_grad():
        full = torch.arange(9).expand(2, 9)
        a = head(small.embed(tokens[:, 1:]), small(tokens, full)[:, :-1], positions)
        b = grown(target.embed(tokens[:, 1:]), target(tokens, full)[:, :-1], positions)
        torch.testing.assert_close(target.logits(b), small.logits(a), atol=1e-4, rtol=1e-4)


def test_shrinking_is_refused_with_the_reason(make_decoder):
    with pytest.raises(InputError, match="cannot shrink"):
        grow_decoder(
            make_decoder(vocab=40).float(),
            decoder_spec(
                id="s", hidden=16, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, inner=48, vocab=40
            ),
        )
