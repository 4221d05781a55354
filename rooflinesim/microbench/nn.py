"""A small but real decoder: RMSNorm, grouped-query attention with RoPE, gated or routed feed-forward, a KV
cache.

Built from any ``ModelSpec`` whose mixers are grouped-query attention (``shapes.scale_to_fit`` makes such a
spec of any model). Attention folds the query heads that share a key head into the query axis, so that keys
and values are read once per sequence and not once per query head or query token. Experts are gathered and
run as one product per expert that got tokens: an expert nobody chose is not read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rooflinesim.errors import InputError
from rooflinesim.specs.model import Layer, ModelSpec

NORM_EPS = 1e-6
ROPE_BASE = 10_000.0


def torch_dtype(fmt: str) -> torch.dtype:
    """The torch dtype of a number format this decoder can run in."""
    table = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    if fmt not in table:
        raise InputError(f"dtype: {fmt!r} is not one of {', '.join(table)} (what the torch decoder runs in)")
    return table[fmt]


@dataclass
class KvCache:
    """Keys and values of all layers, (layers, batch, slots, kv_heads, head_dim).

    A slot is a position, so rejecting drafted tokens is a change of the sequence's length and nothing
    else: stale slots lie behind the mask and are overwritten by the next pass.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(
        cls, *, n_layers: int, batch: int, slots: int, n_kv_heads: int, head_dim: int, like: Tensor
    ) -> KvCache:
        """A cache of zeros on the device and in the dtype of ``like``."""
        shape = (n_layers, batch, slots, n_kv_heads, head_dim)
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    @property
    def slots(self) -> int:
        """Positions that fit."""
        return int(self.keys.shape[2])


@dataclass
class Pass:
    """What every layer of one forward pass shares: positions, rotary factors, cache rows, mask."""

    cos: Tensor  # (batch, q, 1, head_dim/2)
    sin: Tensor
    rows: Tensor | None  # flat cache rows of the new tokens, (batch*q,)
    span: int  # cached positions that are visible at most
    mask: Tensor | None  # (batch, 1, groups*q, span), additive


class Module(nn.Module):
    """A module whose call has the type of its ``forward``: torch leaves it untyped."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
            """The forward pass."""


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    """x · Wᵀ, typed."""
    return functional.linear(x, module.weight)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x²) + ε) · weight over the last axis."""
    return functional.rms_norm(x, (x.shape[-1],), weight, NORM_EPS)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the two halves of the last axis."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def folded_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
    """Grouped-query attention, q (N, q, H, d) on k and v (N, S, H_kv, d) → (N, q, H·d).

    Query heads of one key head become extra query rows: K and V are read once. ``mask`` is (N, 1, G·q, S),
    row order group-major.
    """
    n, n_q, heads, dim = q.shape
    kv_heads = k.shape[2]
    groups = heads // kv_heads
    if causal:
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=groups > 1
        )
        return out.transpose(1, 2).reshape(n, n_q, heads * dim)
    rows = q.transpose(1, 2).reshape(n, kv_heads, groups * n_q, dim)
    out = functional.scaled_dot_product_attention(rows, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
    return out.reshape(n, heads, n_q, dim).transpose(1, 2).reshape(n, n_q, heads * dim)


class Mixer(Module):
    """Grouped-query attention with a fused q, k, v projection."""

    def __init__(self, layer: Layer, hidden: int) -> None:
        super().__init__()
        att = layer.attention
        if att is None or att.kind != "gqa" or layer.linear is not None:
            raise InputError(
                "model: this decoder runs grouped-query attention only; scale the spec with scale_to_fit"
            )
        self.heads, self.kv_heads, self.dim = att.n_heads, att.n_kv_heads, att.head_dim
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x: Tensor, step: Pass, keys: Tensor | None, values: Tensor | None) -> Tensor:
        """x (N, q, hidden); ``keys``/``values`` one layer of the cache, or None for a causal pass without
        cache."""
        n, n_q, _ = x.shape
        qkv = linear(self.qkv, x).view(n, n_q, self.heads + 2 * self.kv_heads, self.dim)
        qk = rotate(qkv[:, :, : self.heads + self.kv_heads], step.cos, step.sin)
        q, k = qk[:, :, : self.heads], qk[:, :, self.heads :]
        v = qkv[:, :, self.heads + self.kv_heads :]
        if keys is None or values is None or step.rows is None:
            return linear(self.out, folded_attention(q, k, v, None, causal=True))
        width = self.kv_heads * self.dim
        keys.view(-1, width).index_copy_(0, step.rows, k.reshape(-1, width))
        values.view(-1, width).index_copy_(0, step.rows, v.reshape(-1, width))
        return linear(self.out, folded_attention(q, keys[:, : step.span], values[:, : step.span], step.mask))


class DenseMlp(Module):
    """Gated feed-forward: out(silu(gate) · up), gate and up fused."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.w_in = nn.Linear(hidden, 2 * inner, bias=False)
        self.w_out = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., hidden) → (..., hidden)."""
        gate, up = linear(self.w_in, x).chunk(2, dim=-1)
        return linear(self.w_out, functional.silu(gate) * up)


def grouped_experts(
    x: Tensor, order: Tensor, counts: list[int], top_k: int, w_in: Tensor, w_out: Tensor
) -> Tensor:
    """One gated product per expert with tokens. x (T, hidden); ``order`` sorts the T·top_k choices by expert.

    Returns the expert outputs in the order of the choices' sort, (T·top_k, hidden). On CUDA in bf16 the
    two products are grouped kernels when torch has them.
    """
    gathered = x[order // top_k]
    if x.is_cuda and x.dtype == torch.bfloat16 and hasattr(functional, "grouped_mm"):
        offs = torch.tensor(counts, device=x.device, dtype=torch.int32).cumsum(0, dtype=torch.int32)
        gate, up = functional.grouped_mm(gathered, w_in.transpose(1, 2), offs=offs).chunk(2, dim=-1)
        return functional.grouped_mm(functional.silu(gate) * up, w_out.transpose(1, 2), offs=offs)
    parts: list[Tensor] = []
    at = 0
    for expert, count in enumerate(counts):
        if count:
            gate, up = functional.linear(gathered[at : at + count], w_in[expert]).chunk(2, dim=-1)
            parts.append(functional.linear(functional.silu(gate) * up, w_out[expert]))
            at += count
    return torch.cat(parts)


def routed_experts(
    x: Tensor, choice: Tensor, weight: Tensor, w_in: Tensor, w_out: Tensor
) -> tuple[Tensor, int]:
    """Sort the choices by expert, run the grouped products, mix. x (T, hidden); choice, weight (T, top_k).

    Returns (T, hidden) and the number of distinct experts that were read.
    """
    top_k = choice.shape[1]
    ids = choice.reshape(-1)
    order = ids.argsort()
    counts: list[int] = torch.bincount(ids, minlength=w_in.shape[0]).tolist()
    parts = grouped_experts(x, order, counts, top_k, w_in, w_out) * weight.reshape(-1)[order].unsqueeze(-1)
    out = torch.zeros_like(x).index_add_(0, order // top_k, parts)
    return out, sum(1 for count in counts if count)


class MoeMlp(Module):
    """Top-k routed experts with softmax weights over the chosen ones; only chosen experts are read."""

    def __init__(self, hidden: int, inner: int, n_experts: int, top_k: int) -> None:
        super().__init__()
        self.top_k, self.n_experts = top_k, n_experts
        self.router = nn.Linear(hidden, n_experts, bias=False)
        self.w_in = nn.Parameter(torch.empty(n_experts, 2 * inner, hidden))
        self.w_out = nn.Parameter(torch.empty(n_experts, hidden, inner))
        self.last_distinct = (
            0  # distinct experts of the latest pass: what the distinct-expert formula predicts
        )
        self.last_choice: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., hidden) → (..., hidden)."""
        flat = x.reshape(-1, x.shape[-1])
        weight, choice = linear(self.router, flat).topk(self.top_k, dim=-1)
        weight = weight.softmax(dim=-1)
        out, self.last_distinct = routed_experts(flat, choice, weight, self.w_in, self.w_out)
        self.last_choice = choice
        return out.view_as(x)


class Block(Module):
    """Pre-norm residual block: mixer, then feed-forward."""

    def __init__(self, layer: Layer, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.Parameter(torch.ones(hidden))
        self.norm2 = nn.Parameter(torch.ones(hidden))
        self.mixer = Mixer(layer, hidden)
        if layer.moe is not None:
            self.mlp: MoeMlp | DenseMlp = MoeMlp(
                hidden, layer.moe.intermediate_size, layer.moe.n_experts, layer.moe.top_k
            )
        elif layer.dense is not None:
            self.mlp = DenseMlp(hidden, layer.dense.intermediate_size)
        else:
            raise InputError("model: a layer without a feed-forward block cannot be built here")

    def forward(self, x: Tensor, step: Pass, keys: Tensor | None, values: Tensor | None) -> Tensor:
        """x (N, q, hidden) → the same shape."""
        x = x + self.mixer(rms_norm(x, self.norm1), step, keys, values)
        return x + self.mlp(rms_norm(x, self.norm2))


class Stack(Module):
    """Blocks with rotary tables; the part a target, a draft LM and an EAGLE head have in common."""

    def __init__(self, layers: tuple[Layer, ...], hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(layer, hidden) for layer in layers for _ in range(layer.count))
        att = layers[0].attention
        if att is None:
            raise InputError("model: the first layer has no attention")
        self.kv_heads, self.head_dim, self.groups = (
            att.n_kv_heads,
            att.head_dim,
            att.n_heads // att.n_kv_heads,
        )
        self.norm = nn.Parameter(torch.ones(hidden))

    def prepare(self, positions: Tensor, cache: KvCache | None, dtype: torch.dtype, span: int) -> Pass:
        """Rotary factors, cache rows and mask for tokens at ``positions`` (N, q)."""
        n, n_q = positions.shape
        half = self.head_dim // 2
        powers = torch.arange(half, dtype=torch.float64, device=positions.device) / half
        angle = positions.to(torch.float64).unsqueeze(-1) * ROPE_BASE**-powers
        cos, sin = angle.cos().to(dtype).unsqueeze(2), angle.sin().to(dtype).unsqueeze(2)
        if cache is None:
            return Pass(cos, sin, None, 0, None)
        rows = (positions + torch.arange(n, device=positions.device).unsqueeze(1) * cache.slots).reshape(-1)
        slot = torch.arange(span, device=positions.device)
        hidden = slot.view(1, 1, span) > positions.unsqueeze(-1)
        mask = torch.zeros((n, n_q, span), dtype=dtype, device=positions.device).masked_fill_(
            hidden, -math.inf
        )
        return Pass(cos, sin, rows, span, mask.repeat(1, self.groups, 1).unsqueeze(1))

    def forward(
        self, x: Tensor, positions: Tensor, cache: KvCache | None = None, span: int | None = None
    ) -> Tensor:
        """x (N, q, hidden) at ``positions`` (N, q) → normed hidden states (N, q, hidden).

        ``span`` is the number of cache slots that may be visible (largest position + 1); given by callers
        that know it on the host, so that a GPU need not be asked.
        """
        if cache is not None and span is None:
            span = int(positions.max()) + 1
        step = self.prepare(positions, cache, x.dtype, span or 0)
        for i, block in enumerate(self.blocks):
            x = block(
                x, step, None if cache is None else cache.keys[i], None if cache is None else cache.values[i]
            )
        return rms_norm(x, self.norm)


class Decoder(Module):
    """A decoder-only language model: token table, blocks, norm, head."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.stack = Stack(spec.layers, spec.hidden_size)
        self.head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tie_embeddings:
            self.head.weight = self.embed.weight

    def forward(
        self, tokens: Tensor, positions: Tensor, cache: KvCache | None = None, span: int | None = None
    ) -> Tensor:
        """tokens, positions (N, q) → hidden states (N, q, hidden), normed; ``logits`` turns them into
        scores."""
        return self.stack(self.embed(tokens), positions, cache, span)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, fp32 (or fp64)."""
        out = linear(self.head, hidden)
        return out if out.dtype == torch.float64 else out.float()

    def new_cache(self, *, batch: int, slots: int) -> KvCache:
        """An empty cache for ``batch`` sequences of up to ``slots`` tokens."""
        return KvCache.empty(
            n_layers=len(self.stack.blocks),
            batch=batch,
            slots=slots,
            n_kv_heads=self.stack.kv_heads,
            head_dim=self.stack.head_dim,
            like=self.head.weight.detach(),
        )


class EagleHead(Module):
    """A draft head on the target's hidden states: fc([embedding(t+1), hidden(t)]) → one block → next
    hidden state.

    Token table and output head are the target's; only ``fc`` and the block are its own.
    """

    def __init__(self, layers: tuple[Layer, ...], hidden: int) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.stack = Stack(layers, hidden)

    def forward(
        self,
        embedded: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: KvCache | None = None,
        span: int | None = None,
    ) -> Tensor:
        """embedded tokens and hidden states (N, q, hidden) → hidden states that the target's head reads."""
        return self.stack(linear(self.fc, torch.cat((embedded, hidden), dim=-1)), positions, cache, span)


def init_weights(module: nn.Module, *, seed: int) -> None:
    """Normal(0, 0.02) matrices (residual outputs narrower with depth), ones for norms, from one seeded
    generator."""
    generator = torch.Generator().manual_seed(seed)
    depth = max(1, sum(1 for m in module.modules() if isinstance(m, Block)))
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            nn.init.ones_(parameter)
            continue
        std = (
            0.02 / math.sqrt(2 * depth)
            if name.endswith(("mixer.out.weight", "w_out", "w_out.weight"))
            else 0.02
        )
        with torch.no_grad():
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
