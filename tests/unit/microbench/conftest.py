"""Tiny random models shared by the microbench tests. Without torch these tests are skipped, in one place."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_decoder():
    """Build a random decoder in fp64: exact arithmetic up to 1e-12, so that greedy outputs can be
    compared."""
    from rooflinesim.microbench.nn import Decoder, init_weights
    from rooflinesim.microbench.shapes import decoder_spec

    def make(
        *, vocab: int = 40, seed: int = 0, n_layers: int = 2, n_experts: int = 0, sharpness: float = 10.0
    ):
        spec = decoder_spec(
            id="tiny",
            hidden=32,
            n_layers=n_layers,
            n_heads=4,
            n_kv_heads=2,
            head_dim=8,
            inner=48,
            vocab=vocab,
            n_experts=n_experts,
            top_k=2 if n_experts else 0,
        )
        model = Decoder(spec)
        init_weights(model, seed=seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(sharpness)
        return model.double().eval()

    return make


@pytest.fixture
def make_drafter(make_decoder):
    """A drafter of each kind for a target: partly right, partly wrong."""
    from rooflinesim.microbench.engine.drafters import DraftModel, Eagle, Ngram
    from rooflinesim.microbench.nn import EagleHead, init_weights

    def make(kind: str, target):
        if kind == "draft_model":
            draft = make_decoder(vocab=target.spec.vocab_size, seed=7, n_layers=1)
            with torch.no_grad():
                draft.embed.weight.copy_(target.embed.weight)
                draft.head.weight.copy_(target.head.weight)
            return DraftModel(draft)
        if kind == "eagle":
            layer = target.spec.layers[0].model_copy(update={"count": 1})
            head = EagleHead((layer,), target.spec.hidden_size)
            init_weights(head, seed=3)
            return Eagle(head.double().eval(), target)
        return Ngram(longest=2, shortest=1)

    return make
