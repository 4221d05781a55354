"""Pure counts of FLOPs, bytes and launches, one file per kind of op."""

from rooflinesim.ops.base import AttentionOp, CollectiveOp, GemmOp, MoeOp, Op

__all__ = ["AttentionOp", "CollectiveOp", "GemmOp", "MoeOp", "Op"]
