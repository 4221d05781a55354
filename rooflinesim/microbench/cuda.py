"""Primitives that only exist on CUDA: graph replay against eager launches, fp8 products, all-reduce
between devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from rooflinesim.microbench.primitives import Bench, Primitive
from rooflinesim.ops.collective import collective
from rooflinesim.ops.linear import gemm


def graph_replay(bench: Bench, *, n_ops: int = 200, width: int = 1024) -> Iterator[Primitive]:
    """A chain of ``n_ops`` small products, launched one by one and replayed from a captured graph.

    The difference per op is the host's launch cost that a graph hides.
    """
    x = bench.random(1, width)
    weight = bench.pool.next(width, width)

    def chain() -> torch.Tensor:
        y = x
        for _ in range(n_ops):
            y = functional.linear(y, weight)
        return y

    bench.tell("eager chain")
    eager = bench.time(chain)
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chain()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    bench.tell("graph replay")
    replay = bench.time(graph.replay)
    yield Primitive("graph", "eager", {"ops": n_ops}, eager)
    yield Primitive("graph", "replay", {"ops": n_ops}, replay)


def fp8_gemms(bench: Bench, *, shapes: list[tuple[int, int]], rows: list[int]) -> Iterator[Primitive]:
    """fp8 (e4m3) products with per-tensor scales; nothing where the device or torch lacks them (before
    sm_89)."""
    major, minor = torch.cuda.get_device_capability(0)
    if (major, minor) < (8, 9) or not hasattr(torch, "_scaled_mm"):
        return
    scale = torch.ones((), device=bench.device)
    for d_in, d_out in shapes:
        per_weight = d_in * d_out
        n_buffers = max(2, int(bench.pool.flat.numel() * bench.pool.flat.element_size() // per_weight))
        base = torch.randn(d_out, d_in, device=bench.device).to(torch.float8_e4m3fn)
        weights = [base.clone() for _ in range(min(n_buffers, 256))]
        turn = [0]
        for m in rows:
            padded = max(16, m)  # the kernel wants at least 16 rows; fewer are padded as engines do
            x = torch.randn(padded, d_in, device=bench.device).to(torch.float8_e4m3fn)

            def run(
                x: torch.Tensor = x, weights: list[torch.Tensor] = weights, turn: list[int] = turn
            ) -> object:
                turn[0] = (turn[0] + 1) % len(weights)
                return torch._scaled_mm(
                    x, weights[turn[0]].t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
                )

            bench.tell(f"fp8 GEMM {m} x {d_out} x {d_in}")
            op = gemm(
                name="gemm",
                rows=np.asarray(float(m)),
                in_features=d_in,
                out_features=d_out,
                weight_format="fp8",
            )
            yield Primitive(
                "gemm", "fp8", {"m": m, "n": d_out, "k": d_in}, bench.time(run), op, bench.pool.cold
            )


def all_reduces(bench: Bench, *, sizes_bytes: list[int]) -> Iterator[Primitive]:
    """All-reduce over all devices of this process by message size; nothing with one device."""
    n = torch.cuda.device_count()
    if n < 2:
        return
    for size in sizes_bytes:
        count = size // torch.empty((), dtype=bench.dtype).element_size()
        tensors = [torch.zeros(count, dtype=bench.dtype, device=f"cuda:{i}") for i in range(n)]
        bench.tell(f"all-reduce {size} bytes over {n}")
        op = collective(
            name="allreduce", pattern="allreduce", message_bytes=np.asarray(float(size)), n_ranks=n, count=1.0
        )
        reduce: Any = torch.cuda.nccl.all_reduce  # untyped in torch

        def run(tensors: list[torch.Tensor] = tensors, reduce: Any = reduce) -> object:
            return reduce(tensors)

        timing = bench.time(run)
        yield Primitive("allreduce", "allreduce", {"bytes": size, "ranks": n}, timing, op)
