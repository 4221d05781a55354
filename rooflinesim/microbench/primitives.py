"""The primitives of one forward pass, measured one by one on cold, random data.

Each result carries the cost model's own count of the same work (an ``Op``), so that a fit compares like
with like: a
*group* here is what the cost model calls one launch (a norm with its residual add, the rotary embedding
with the cache append, a gated activation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rooflinesim.grid import FloatArray
from rooflinesim.microbench.nn import folded_attention, rms_norm, rotate, routed_experts, torch_dtype
from rooflinesim.microbench.timing import Canary, Clock, Pool, Timing, measure
from rooflinesim.ops.attention import gqa
from rooflinesim.ops.base import Op
from rooflinesim.ops.elementwise import elementwise, logits_passes
from rooflinesim.ops.linear import gemm
from rooflinesim.ops.moe import routed_experts as count_experts


@dataclass(frozen=True)
class Primitive:
    """One measured operation: what it was, what the cost model counts for it, how long it took."""

    family: str  # copy read gemm moe attention elementwise sampling launch graph allreduce host
    label: str
    dims: Mapping[str, float]
    timing: Timing
    op: Op | None = None
    cold: bool = True
    moved_bytes: float = 0.0


@dataclass
class Bench:
    """Where and how primitives are timed; ``tell`` is called with a text before each cell."""

    device: str
    fmt: str
    clock: Clock
    pool: Pool
    cell_s: float
    tell: Callable[[str], None] = field(default=lambda text: None)
    canary: Canary | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Number format as torch names it."""
        return torch_dtype(self.fmt)

    def time(self, fn: Callable[[], object], *, scale: float = 1.0) -> Timing:
        """Time one cell within its budget."""
        return measure(fn, clock=self.clock, budget_s=self.cell_s * scale, canary=self.canary)

    def random(self, *shape: int) -> Tensor:
        """Fresh activations, small and warm as in a real pass."""
        return torch.randn(*shape, device=self.device).to(self.dtype)


def _array(value: float) -> FloatArray:
    return np.asarray(float(value))


def bandwidth(bench: Bench, *, sizes_bytes: list[float]) -> Iterator[Primitive]:
    """Copy (read + write counted) and read (a sum) by size; sizes beyond half the pool are left out."""
    item = bench.pool.flat.element_size()
    for size in sizes_bytes:
        n = int(size / item) // 64 * 64
        if 2 * n > bench.pool.flat.numel():
            continue
        target = torch.empty(n, dtype=bench.dtype, device=bench.device)

        def copy(n: int = n, target: Tensor = target) -> Tensor:
            return target.copy_(bench.pool.next(n))

        def read(n: int = n) -> Tensor:
            return bench.pool.next(n).view(torch.int32).amax()

        kinds: list[tuple[str, float, Callable[[], Tensor]]] = [
            ("copy", 2.0 * n * item, copy),
            ("read", 1.0 * n * item, read),
        ]
        for label, moved, fn in kinds:
            bench.tell(f"{label} {size / 2**20:.3g} MiB")
            yield Primitive(
                label, label, {"bytes": moved}, bench.time(fn), None, bench.pool.cold, moved_bytes=moved
            )


def gemms(bench: Bench, *, shapes: list[tuple[int, int]], rows: list[int]) -> Iterator[Primitive]:
    """x (m, k) times a cold weight (n, k)ᵀ for every (k, n) and m."""
    for d_in, d_out in shapes:
        for m in rows:
            x = bench.random(m, d_in)
            bench.tell(f"GEMM {m} x {d_out} x {d_in}")

            def run(x: Tensor = x, shape: tuple[int, int] = (d_out, d_in)) -> Tensor:
                return functional.linear(x, bench.pool.next(*shape))

            timing = bench.time(run)
            op = gemm(
                name="gemm", rows=_array(m), in_features=d_in, out_features=d_out, weight_format=bench.fmt
            )
            yield Primitive("gemm", "gemm", {"m": m, "n": d_out, "k": d_in}, timing, op, bench.pool.cold)


def attentions(
    bench: Bench,
    *,
    heads: list[tuple[int, int, int]],
    batches: list[int],
    queries: list[int],
    contexts: list[int],
) -> Iterator[Primitive]:
    """q query tokens per sequence on a cold cache of S tokens, with the additive mask of a real pass."""
    limit = bench.pool.flat.numel()
    for n_heads, n_kv, dim in heads:
        for n in batches:
            for context in contexts:
                if 2 * n * context * n_kv * dim > limit:
                    continue
                for n_q in queries:
                    x = bench.random(n, n_q, n_heads, dim)
                    mask = torch.zeros(
                        (n, 1, n_q * n_heads // n_kv, context), dtype=bench.dtype, device=bench.device
                    )

                    def run(
                        x: Tensor = x, mask: Tensor = mask, shape: tuple[int, ...] = (n, context, n_kv, dim)
                    ) -> Tensor:
                        return folded_attention(x, bench.pool.next(*shape), bench.pool.next(*shape), mask)

                    bench.tell(f"attention N={n} q={n_q} S={context}")
                    op = gqa(
                        name="attention",
                        n_seqs=_array(n),
                        query_tokens=_array(n_q),
                        kv_tokens=_array(context),
                        n_heads=n_heads,
                        n_kv_heads=n_kv,
                        head_dim=dim,
                        v_head_dim=dim,
                        kv_format=bench.fmt,
                    )
                    dims = {"batch": n, "query": n_q, "context": context, "heads": n_heads, "kv_heads": n_kv}
                    yield Primitive("attention", "attention", dims, bench.time(run), op, bench.pool.cold)


def moes(
    bench: Bench, *, shapes: list[tuple[int, int, int, int]], tokens: list[int], seed: int = 0
) -> Iterator[Primitive]:
    """Routed experts over (tokens, experts): top-k, sort, gather, grouped products, mix. Uniform random
    scores.

    ``shapes`` are (hidden, inner, n_experts, top_k). Experts that no token chose are not read, and the
    count that goes into the fit is the number really read.
    """
    generator = torch.Generator().manual_seed(seed)
    for hidden, inner, n_experts, top_k in shapes:
        if 3 * hidden * inner * n_experts > bench.pool.flat.numel():
            continue
        for n in tokens:
            x = bench.random(n, hidden)
            scores = torch.rand(n, n_experts, generator=generator).to(bench.device).to(bench.dtype)
            distinct = int(scores.topk(top_k, dim=1).indices.reshape(-1).bincount().count_nonzero())

            def run(
                x: Tensor = x,
                scores: Tensor = scores,
                shape: tuple[int, int, int, int] = (n_experts, inner, hidden, top_k),
            ) -> object:
                e, i, h, chosen = shape
                weight, choice = scores.topk(chosen, dim=-1)
                weight = weight.softmax(dim=-1)
                return routed_experts(
                    x, choice, weight, bench.pool.next(e, 2 * i, h), bench.pool.next(e, h, i)
                )

            bench.tell(f"experts T={n} of {n_experts}/{top_k}")
            op = count_experts(
                rows=_array(n * top_k),
                experts_read=_array(distinct),
                n_local_experts=n_experts,
                hidden_size=hidden,
                intermediate_size=inner,
                gated=True,
                weight_format=bench.fmt,
            )
            dims = {
                "tokens": n,
                "n_experts": n_experts,
                "top_k": top_k,
                "hidden": hidden,
                "inner": inner,
                "distinct": distinct,
            }
            yield Primitive("moe", "experts", dims, bench.time(run, scale=1.5), op, bench.pool.cold)


def elementwise_groups(bench: Bench, *, widths: list[int], rows: list[int]) -> Iterator[Primitive]:
    """The small kernels between the products, grouped as the cost model counts them."""
    for hidden in widths:
        heads, kv, dim = max(1, hidden // 64), max(1, hidden // 256), 64
        gain = bench.random(hidden)
        inner = 3 * hidden
        for n in rows:
            x, y = bench.random(n, hidden), bench.random(n, hidden)
            qk = bench.random(n, 1, heads + kv, dim)
            cos, sin = bench.random(n, 1, 1, dim // 2), bench.random(n, 1, 1, dim // 2)
            gate_up = bench.random(n, 2 * inner)
            cache = bench.random(n + 64, kv * dim)
            slots = torch.arange(n, device=bench.device)

            def norm(x: Tensor = x, y: Tensor = y, gain: Tensor = gain) -> Tensor:
                return rms_norm(x + y, gain)

            def rope(
                qk: Tensor = qk,
                cos: Tensor = cos,
                sin: Tensor = sin,
                cache: Tensor = cache,
                slots: Tensor = slots,
                heads: int = heads,
                kv: int = kv,
                dim: int = dim,
            ) -> Tensor:
                turned = rotate(qk, cos, sin)
                new = turned[:, :, heads:].reshape(-1, kv * dim)
                cache.index_copy_(0, slots, new)
                return cache.index_copy_(0, slots, new)

            def act(gate_up: Tensor = gate_up) -> Tensor:
                gate, up = gate_up.chunk(2, dim=-1)
                return functional.silu(gate) * up

            for label, elems, fn in (
                ("norm", 4.0 * hidden, norm),
                ("rope", 2.0 * (heads + kv) * dim, rope),
                ("act", 3.0 * inner, act),
            ):
                bench.tell(f"{label} {n} x {hidden}")
                op = elementwise(
                    name=label, rows=_array(n), elems_per_row=elems, elem_bytes=float(x.element_size())
                )
                yield Primitive("elementwise", label, {"rows": n, "width": hidden}, bench.time(fn), op)


def samplers(bench: Bench, *, vocab: int, rows: list[int], k: int) -> Iterator[Primitive]:
    """Plain sampling of N rows, and accept/reject of N·(K+1) rows, from fp32 logits."""
    from rooflinesim.microbench.engine.sampling import accept, draw, probabilities

    generator = torch.Generator(device=bench.device).manual_seed(0)
    for n in rows:
        one = torch.randn(n, vocab, device=bench.device)
        many = torch.randn(n, k + 1, vocab, device=bench.device)
        q = torch.randn(n, k, vocab, device=bench.device).softmax(-1)
        drafts = q.argmax(-1)

        def plain(one: Tensor = one) -> object:
            return draw(probabilities(one, temperature=1.0), generator=generator)

        def reject(many: Tensor = many, q: Tensor = q, drafts: Tensor = drafts) -> object:
            return accept(p=probabilities(many, temperature=1.0), drafts=drafts, q=q, generator=generator)

        for label, count, fn in (("sample", n, plain), ("reject", n * (k + 1), reject)):
            bench.tell(f"{label} {n} x {vocab}")
            op = logits_passes(name=label, rows=_array(count), vocab_size=vocab, passes=1.0, launches=1.0)
            yield Primitive(
                "sampling", label, {"rows": count, "vocab": vocab, "batch": n}, bench.time(fn), op
            )


def launches(bench: Bench) -> Iterator[Primitive]:
    """What one small operation costs when there is nothing to do."""
    one = torch.zeros(1, device=bench.device, dtype=bench.dtype)
    bench.tell("small op")
    yield Primitive("launch", "small_op", {}, bench.time(lambda: one.add_(0.0)))
