"""Make a trained model as large as a measurement needs without changing what it computes.

Training takes minutes only because the models are tiny; a tiny model fits into a cache and its step time
is all launch overhead. So width, depth and experts are added around the trained weights in a way that
leaves every logit as it was:

- width: the trained residual stream lives in the first coordinates, scaled by r = √(h_big/h_small) so that
every RMS
  norm sees the same mean square; norm weights are divided by r, residual outputs multiplied by it.
- heads, inner width and layers: the added ones have random input matrices and zero output matrices: they
are read and
  multiplied like any other weight and add nothing.
- experts ("sparse upcycling", Komatsuzaki et al. 2022, arXiv 2212.05055): each expert is a separate copy
of the
  trained block and the router is random; the routing weights of the chosen experts sum to one, so their
  mix is the trained block whichever experts were chosen.

Every added weight costs its memory traffic and its arithmetic; acceptance stays that of the trained models.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rooflinesim.errors import InputError
from rooflinesim.microbench.nn import Block, Decoder, DenseMlp, EagleHead, Mixer, MoeMlp, Stack, init_weights
from rooflinesim.specs.model import Layer, ModelSpec


def _widen_mixer(small: Mixer, big: Mixer, r: float) -> None:
    hidden, dim = small.out.weight.shape[0], small.dim
    group_small, group_big = small.heads // small.kv_heads, big.heads // big.kv_heads
    if dim != big.dim or group_small > group_big or small.kv_heads > big.kv_heads:
        raise InputError(
            "model: growing keeps head_dim and cannot shrink key heads or the query heads of each"
        )
    big.out.weight.zero_()

    def rows(source: int, target: int) -> None:
        big.qkv.weight[target * dim : (target + 1) * dim, :hidden] = small.qkv.weight[
            source * dim : (source + 1) * dim
        ]

    for kv in range(small.kv_heads):
        for j in range(group_small):
            old, new = kv * group_small + j, kv * group_big + j
            rows(old, new)
            big.out.weight[:hidden, new * dim : (new + 1) * dim] = (
                r * small.out.weight[:, old * dim : (old + 1) * dim]
            )
        for part in range(2):  # keys, then values
            rows(small.heads + part * small.kv_heads + kv, big.heads + part * big.kv_heads + kv)


def _widen_mlp(w_in: Tensor, w_out: Tensor, small: DenseMlp, r: float) -> None:
    """Put the trained block into one dense block's or one expert's matrices."""
    hidden, inner = small.w_out.weight.shape
    wide = w_out.shape[1]
    if inner > wide:
        raise InputError(f"model: the inner width {wide} is smaller than the trained {inner}")
    w_in[:inner, :hidden] = small.w_in.weight[:inner]
    w_in[wide : wide + inner, :hidden] = small.w_in.weight[inner:]
    w_out.zero_()
    w_out[:hidden, :inner] = r * small.w_out.weight


def _grow_stack(small: Stack, big: Stack, r: float, *, seed: int) -> None:
    hidden = small.norm.shape[0]
    blocks: list[Block] = list(big.blocks)  # type: ignore[arg-type]
    if len(small.blocks) > len(blocks):
        raise InputError(f"model: {len(blocks)} layers are fewer than the trained {len(small.blocks)}")
    generator = torch.Generator().manual_seed(seed)
    for i, block in enumerate(blocks):
        old = small.blocks[i] if i < len(small.blocks) else None
        if isinstance(block.mlp, MoeMlp):
            # spread the router's scores widely: top-k then depends on the token and not on rounding
            router = block.mlp.router.weight
            router.copy_(torch.empty(router.shape).normal_(0.0, 1.0, generator=generator))
        if not isinstance(old, Block):
            block.mixer.out.weight.zero_()
            if isinstance(block.mlp, MoeMlp):
                block.mlp.w_out.zero_()
            else:
                block.mlp.w_out.weight.zero_()
            continue
        for name in ("norm1", "norm2"):
            getattr(block, name)[:hidden] = getattr(old, name) / r
        _widen_mixer(old.mixer, block.mixer, r)
        assert isinstance(old.mlp, DenseMlp)
        if isinstance(block.mlp, MoeMlp):
            for expert in range(block.mlp.n_experts):
                _widen_mlp(block.mlp.w_in[expert], block.mlp.w_out[expert], old.mlp, r)
        else:
            _widen_mlp(block.mlp.w_in.weight, block.mlp.w_out.weight, old.mlp, r)
    big.norm[:hidden] = small.norm / r


@torch.no_grad()
def grow_decoder(small: Decoder, spec: ModelSpec, *, seed: int = 0) -> Decoder:
    """A decoder of shape ``spec`` (dense or routed) with the logits of the trained dense ``small``."""
    if spec.vocab_size != small.spec.vocab_size or spec.hidden_size < small.spec.hidden_size:
        raise InputError("model: growing keeps the vocabulary and cannot shrink the width")
    big = Decoder(spec)
    init_weights(big, seed=seed)
    hidden, r = small.spec.hidden_size, math.sqrt(spec.hidden_size / small.spec.hidden_size)
    big.embed.weight.zero_()
    big.embed.weight[:, :hidden] = r * small.embed.weight
    big.head.weight[:, :hidden] = small.head.weight
    _grow_stack(small.stack, big.stack, r, seed=seed)
    return big.requires_grad_(False).eval()


@torch.no_grad()
def grow_eagle(small: EagleHead, layer: Layer, hidden: int, *, seed: int = 0) -> EagleHead:
    """The trained EAGLE head for a target grown to ``hidden``, with one block of shape ``layer``."""
    big = EagleHead((layer,), hidden)
    init_weights(big, seed=seed)
    old = small.stack.norm.shape[0]
    r = math.sqrt(hidden / old)
    big.fc.weight.zero_()
    big.fc.weight[:old, :old] = small.fc.weight[:, :old]  # the embedding carries r already
    big.fc.weight[:old, hidden : hidden + old] = r * small.fc.weight[:, old:]
    _grow_stack(small.stack, big.stack, r, seed=seed)
    return big.requires_grad_(False).eval()
