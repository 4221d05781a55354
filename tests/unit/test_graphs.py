"""Captured graph sizes: the published cliff table and padding examples of vLLM 0.33."""

import numpy as np
import pytest

from rooflinesim import registry
from rooflinesim.graphs import captured_requests, max_graph_batch, pad

VLLM = registry.engine("vllm")
H100, B200 = registry.gpu("h100"), registry.gpu("b200")


@pytest.mark.parametrize(
    ("k", "hopper", "blackwell"),
    [(0, 512, 1024), (1, 256, 512), (2, 168, 336), (3, 128, 256), (5, 83, 168), (7, 64, 128)],
)
def test_largest_batch_with_a_full_decode_graph(k, hopper, blackwell):
    assert max_graph_batch(profile=VLLM, gpu=H100, k=k, max_num_seqs=1024) == hopper
    assert max_graph_batch(profile=VLLM, gpu=B200, k=k, max_num_seqs=1024) == blackwell


@pytest.mark.parametrize(
    ("requests", "padded_tokens"),
    [(3, 16), (5, 24), (9, 40), (17, 72), (33, 136), (65, 272), (127, 512), (129, None)],
)
def test_padding_examples_at_k3_with_256_sequences(requests, padded_tokens):
    out = pad(
        profile=VLLM,
        gpu=H100,
        batch=np.full((1, 1, 1), float(requests)),
        k=np.full((1, 1, 1), 3.0),
        max_num_seqs=256,
    )
    if padded_tokens is None:
        assert not out.in_graph.item()
        assert out.requests.item() == requests
    else:
        assert out.in_graph.item()
        assert out.requests.item() * 4 == padded_tokens


def test_graphs_per_tier_of_the_published_schedule():
    """K = 3/1/0 up to 128/128/512 requests: 49, 50 and 51 graphs (engine notes, default 1024 sequences)."""
    counts = []
    for k in (3, 1, 0):
        sizes = captured_requests(
            profile=VLLM,
            arch_target="sm_90",
            query_tokens=k + 1,
            max_num_seqs=1024,
            max_num_batched_tokens=8192,
        )
        counts.append(sizes.size)
    assert counts == [49, 50, 51]


def test_sglang_counts_requests_and_uses_finer_sizes_with_speculation():
    sglang = registry.engine("sglang")
    off = captured_requests(
        profile=sglang, arch_target="sm_90", query_tokens=1, max_num_seqs=512, max_num_batched_tokens=8192
    )
    on = captured_requests(
        profile=sglang, arch_target="sm_90", query_tokens=4, max_num_seqs=512, max_num_batched_tokens=8192
    )
    assert off[:6].tolist() == [1, 2, 4, 8, 12, 16]
    assert on[:12].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]


def test_eager_pads_nothing():
    out = pad(
        profile=VLLM,
        gpu=H100,
        batch=np.array([[[3.0]], [[700.0]]]),
        k=np.zeros((1, 1, 1)),
        max_num_seqs=256,
        enabled=False,
    )
    assert out.requests.ravel().tolist() == [3.0, 700.0]
    assert not out.in_graph.any()
