"""Device memory: weights, caches, scratch of speculation; the largest batch that fits.

Capacity uses *total* parameters; bandwidth (elsewhere) the distinct active ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rooflinesim.errors import DoesNotFitError
from rooflinesim.specs.counting import (
    draft_weights_by_kind,
    held_tokens,
    kv_elems_of,
    state_elems_per_seq,
    weight_params_by_kind,
)
from rooflinesim.specs.engine import EngineProfile
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.model import DraftSpec, Layer, ModelSpec, ModelWeights
from rooflinesim.specs.scenario import Formats, Parallel
from rooflinesim.units import GIB, KV_BYTES, WEIGHT_BYTES

#: Recurrent states are kept in fp32 by the engines.
STATE_BYTES = 4.0


@dataclass(frozen=True)
class Line:
    """One line of a memory report: bytes on one rank."""

    name: str
    size_bytes: float
    note: str = ""


@dataclass(frozen=True)
class Footprint:
    """Memory of one rank. ``fixed`` does not depend on the batch; the rest is per sequence.

    kv_bytes_per_seq: cache of one sequence at the context asked for (target and draft).
    state_bytes_per_seq: recurrent states (one per draft position as well). lookahead_bytes_per_seq: cache
    slots reserved for drafted tokens.
    """

    capacity_bytes: float
    usable_bytes: float
    fixed: tuple[Line, ...]
    kv_bytes_per_token: float
    kv_bytes_per_seq: float
    state_bytes_per_seq: float
    lookahead_bytes_per_seq: float

    @property
    def fixed_bytes(self) -> float:
        """All lines that do not depend on the batch."""
        return sum(line.size_bytes for line in self.fixed)

    @property
    def free_bytes(self) -> float:
        """What is left for caches; negative when the weights alone do not fit."""
        return self.usable_bytes - self.fixed_bytes

    @property
    def bytes_per_seq(self) -> float:
        """Everything one more sequence needs."""
        return self.kv_bytes_per_seq + self.state_bytes_per_seq + self.lookahead_bytes_per_seq

    def largest_batch(self, *, parallel: Parallel) -> int:
        """Sequences that fit over all replicas (0: not even one)."""
        per_replica = math.floor(max(self.free_bytes, 0.0) / max(self.bytes_per_seq, 1.0))
        return per_replica * parallel.dp

    def short_bytes(self, *, batch_size: int, parallel: Parallel) -> float:
        """Missing bytes on the fullest rank for ``batch_size`` sequences; 0 when it fits."""
        per_replica = math.ceil(batch_size / parallel.dp)
        return max(0.0, per_replica * self.bytes_per_seq - self.free_bytes)

    def require(self, *, batch_size: int, parallel: Parallel) -> None:
        """Raise :class:`DoesNotFitError` when the batch does not fit."""
        short = self.short_bytes(batch_size=batch_size, parallel=parallel)
        if short > 0:
            raise DoesNotFitError(
                f"batch {batch_size} does not fit: short by {short / GIB:.1f} GiB per rank "
                f"(largest batch that fits is {self.largest_batch(parallel=parallel)})",
                short_bytes=short,
            )


def weights_bytes(
    weights: ModelWeights, *, parallel: Parallel, formats: Formats, experts_only: bool = False
) -> float:
    """Bytes of a model's layers, tables and norms on one rank.

    Dense weights divide by tp·pp, routed experts by the ranks of a stage (tp·dp) and pp; the router is
    replicated;
    tables divide by tp.
    """
    linear = WEIGHT_BYTES[formats.activations if experts_only else formats.weights]
    expert = WEIGHT_BYTES[formats.experts or formats.weights]
    plain = WEIGHT_BYTES[formats.activations]
    total = 0.0
    for layer in weights.layers:
        split = (layer.attention + layer.linear + layer.dense_ffn + layer.shared) * linear / parallel.tp
        routed = layer.n_experts * layer.expert * expert / (parallel.ep * parallel.moe_tp)
        replicated = (layer.router + layer.norms) * plain
        total += layer.count * (split + routed + replicated)
    total /= parallel.pp
    tables = weights.embedding + weights.head + weights.positions + weights.projection + weights.extra
    return total + tables * plain / parallel.tp + weights.final_norm * plain


def kv_bytes_of(
    layers: tuple[Layer, ...], *, context_tokens: float, parallel: Parallel, kv_format: str
) -> float:
    """Cache of one sequence on one rank: key/value heads divide by tp (never below one head), latents do
    not."""
    total = 0.0
    for layer in layers:
        attention = layer.attention
        if attention is None:
            continue
        held = held_tokens(attention, context_tokens=context_tokens)
        share = 1.0 if attention.mla is not None else 1.0 / min(parallel.tp, attention.n_kv_heads)
        total += layer.count * kv_elems_of(attention) * held * share
    return total * KV_BYTES[kv_format] / parallel.pp


def footprint(
    *,
    gpu: GpuSpec,
    target: ModelSpec,
    parallel: Parallel,
    formats: Formats,
    profile: EngineProfile,
    context_tokens: int,
    k: int = 0,
    method: str = "none",
    draft: DraftSpec | None = None,
    duplicated_tables: bool = False,
    n_graphs: int = 50,
    memory_utilization: float | None = None,
) -> Footprint:
    """Memory of one rank for this deployment at ``context_tokens`` per sequence and ``k`` drafted tokens.

    ``duplicated_tables``: the draft keeps its own copy of the target's embedding and head while the cache
    pool is sized.
    """
    experts_only = target.quantized_scope == "experts-only"
    lines = [
        Line(
            "target weights",
            weights_bytes(
                weight_params_by_kind(target), parallel=parallel, formats=formats, experts_only=experts_only
            ),
        )
    ]
    draft_layers: tuple[Layer, ...] = ()
    draft_formats = Formats(weights=formats.draft_weights or "bf16", activations=formats.activations)
    plain = WEIGHT_BYTES[formats.activations]
    if method == "self_sparse":
        draft_layers = ()  # the target drafts for itself over a part of its own cache
    elif draft is not None:
        weights = draft_weights_by_kind(draft)
        lines.append(Line("draft weights", weights_bytes(weights, parallel=parallel, formats=draft_formats)))
        table = target.vocab_size * target.hidden_size * plain / parallel.tp
        for name, owned in (("draft embedding", draft.owns_embedding), ("draft lm_head", draft.owns_lm_head)):
            if not owned and draft.layers:
                size = table if duplicated_tables else 0.0
                lines.append(
                    Line(name, size, "duplicated" if duplicated_tables else "shared with the target")
                )
        draft_layers = draft.layers
    lines.append(
        Line("workspace", profile.workspace_bytes, "activations and runtime buffers at default sizes")
    )
    lines.append(Line("CUDA graphs", n_graphs * profile.graph_bytes * (2 if draft_layers else 1)))

    share = memory_utilization or profile.memory_utilization
    taken = sum(line.size_bytes for line in lines) if profile.memory_share_of == "free" else 0.0
    usable = taken + share * (gpu.memory_bytes - taken)

    def kv_at(tokens: float) -> float:
        own = kv_bytes_of(target.layers, context_tokens=tokens, parallel=parallel, kv_format=formats.kv)
        return own + kv_bytes_of(
            draft_layers, context_tokens=tokens, parallel=parallel, kv_format=formats.draft_kv or formats.kv
        )

    slots = {"k": float(k), "k_plus_1": k + 1.0, "0": 0.0}[profile.lookahead_slots.get(method, "0")]
    state = state_elems_per_seq(target.layers) * STATE_BYTES / (parallel.tp * parallel.pp)
    per_token = (kv_at(2.0) - kv_at(1.0)) if context_tokens else 0.0
    return Footprint(
        capacity_bytes=gpu.memory_bytes,
        usable_bytes=usable,
        fixed=tuple(lines),
        kv_bytes_per_token=per_token,
        kv_bytes_per_seq=kv_at(float(context_tokens)),
        state_bytes_per_seq=state * (1.0 + k),
        lookahead_bytes_per_seq=slots * per_token,
    )


@dataclass(frozen=True)
class BlockPool:
    """A paged cache as an engine reports it. ``scratch_blocks_per_seq`` of the blocks hold speculation only.

    >>> BlockPool(n_blocks=90, block_bytes=2.0, blocks_per_seq=45, scratch_blocks_per_seq=9).concurrency
    2.0
    """

    n_blocks: int
    block_bytes: float
    blocks_per_seq: int
    scratch_blocks_per_seq: int = 0

    @property
    def size_bytes(self) -> float:
        """The whole pool."""
        return self.n_blocks * self.block_bytes

    @property
    def concurrency(self) -> float:
        """Sequences of full length that fit."""
        return self.n_blocks / self.blocks_per_seq

    @property
    def scratch_frac(self) -> float:
        """Share of a sequence's blocks that only speculation needs."""
        return self.scratch_blocks_per_seq / self.blocks_per_seq


def longest_context(*, available_bytes: float, kv_bytes_per_token: float, block_tokens: int = 16) -> int:
    """Longest sequence whose cache fits, in whole blocks.

    >>> longest_context(available_bytes=48.66 * 1024**3, kv_bytes_per_token=253_952, block_tokens=16)
    205728
    """
    return math.floor(available_bytes / kv_bytes_per_token / block_tokens) * block_tokens
