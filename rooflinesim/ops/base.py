"""What an op counts: floating-point operations, bytes by kind, launches. Never seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rooflinesim.grid import FloatArray

ZERO: FloatArray = np.zeros(())


@dataclass(frozen=True, kw_only=True)
class Op:
    """``count`` equal occurrences of one kernel (or fused group) on one rank. Arrays are per occurrence.

    Every array broadcasts on (batch, k, context).
    """

    name: str
    count: float = 1.0
    launches: float = 1.0
    flops: FloatArray = field(default_factory=lambda: ZERO)
    weight_bytes: FloatArray = field(default_factory=lambda: ZERO)
    kv_bytes: FloatArray = field(default_factory=lambda: ZERO)
    activation_bytes: FloatArray = field(default_factory=lambda: ZERO)
    comm_bytes: FloatArray = field(default_factory=lambda: ZERO)
    family: str = "elementwise"

    @property
    def moved_bytes(self) -> FloatArray:
        """Bytes through device memory per occurrence."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, kw_only=True)
class GemmOp(Op):
    """A dense product of ``rows`` x ``in_features`` with ``in_features`` x ``out_features``."""

    rows: FloatArray
    in_features: float
    out_features: float
    weight_format: str
    family: str = "gemm"


@dataclass(frozen=True, kw_only=True)
class AttentionOp(Op):
    """Softmax attention of ``query_tokens`` per sequence over ``kv_tokens`` cached tokens."""

    n_seqs: FloatArray
    query_tokens: FloatArray
    kv_tokens: FloatArray
    n_heads: float
    n_kv_heads: float
    head_dim: float
    kv_format: str
    mla: bool = False
    family: str = "attention"


@dataclass(frozen=True, kw_only=True)
class MoeOp(Op):
    """Routed experts: ``rows`` expert-rows over ``experts_read`` distinct experts of ``n_local_experts`` on
    this rank."""

    rows: FloatArray
    experts_read: FloatArray
    n_local_experts: float
    hidden_size: float
    intermediate_size: float  # on this rank
    expert_bytes: float
    weight_format: str
    family: str = "moe"


@dataclass(frozen=True, kw_only=True)
class CollectiveOp(Op):
    """``comm_bytes`` is the message of one rank; ``pattern`` is allreduce, allgather, alltoall or p2p."""

    pattern: str
    n_ranks: int
    family: str = "collective"
