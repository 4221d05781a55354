"""Norms, rotary embedding, activations, embedding look-up, and passes over the logits."""

from __future__ import annotations

from rooflinesim.grid import FloatArray
from rooflinesim.ops.base import Op


def elementwise(
    *,
    name: str,
    rows: FloatArray,
    elems_per_row: float,
    elem_bytes: float = 2.0,
    count: float = 1.0,
    launches: float = 1.0,
) -> Op:
    """Q = rows·elems·bytes moved (read and written counted in ``elems_per_row``); no FLOPs worth counting."""
    return Op(name=name, count=count, launches=launches, activation_bytes=rows * elems_per_row * elem_bytes)


def logits_passes(*, name: str, rows: FloatArray, vocab_size: float, passes: float, launches: float) -> Op:
    """(head) sampling or accept/reject: ``passes`` passes over rows·vocab fp32 logits."""
    return Op(
        name=name, launches=launches, activation_bytes=4.0 * passes * rows * vocab_size, family="sampling"
    )
