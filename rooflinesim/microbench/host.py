"""What the engine itself costs per step, with a target and a draft that compute nothing: the host
primitive."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rooflinesim.microbench.engine.drafters import Proposal, Stateless
from rooflinesim.microbench.engine.loop import Engine
from rooflinesim.microbench.engine.state import Sequences
from rooflinesim.microbench.nn import Decoder, KvCache
from rooflinesim.microbench.primitives import Bench, Primitive
from rooflinesim.microbench.shapes import decoder_spec


class _NullTarget(Decoder):
    """Prepares a pass as the real decoder does (rotary factors, mask, cache rows), then returns zeros."""

    def __init__(self, *, device: str, dtype: torch.dtype, n_heads: int, n_kv_heads: int) -> None:
        super().__init__(
            decoder_spec(
                id="null",
                hidden=16,
                n_layers=1,
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                head_dim=2,
                inner=16,
                vocab=128,
            )
        )
        self.to(device=device, dtype=dtype)
        self.blank: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def forward(
        self, tokens: Tensor, positions: Tensor, cache: KvCache | None = None, span: int | None = None
    ) -> Tensor:
        """Zeros of the right shape."""
        self.stack.prepare(positions, cache, self.head.weight.dtype, span or 0)
        key = (int(tokens.shape[0]), int(tokens.shape[1]))
        if key not in self.blank:
            weight = self.head.weight
            self.blank[key] = (weight.new_zeros((*key, 16)), weight.new_zeros((*key, 128)).float())
        return self.blank[key][0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Zeros: uniform probabilities."""
        return self.blank[(int(hidden.shape[0]), int(hidden.shape[1]))][1]


class _NullDrafter(Stateless):
    """Proposes zeros with uniform probabilities."""

    method = "null"

    def begin(self, sequences: Sequences, hidden: Tensor) -> None:
        """Nothing."""

    def propose(
        self, sequences: Sequences, *, k: int, temperature: float, generator: torch.Generator
    ) -> Proposal:
        """k zeros per sequence."""
        tokens = sequences.tokens.new_zeros((sequences.batch, k))
        return Proposal(tokens, torch.full((sequences.batch, k, 128), 1.0 / 128, device=tokens.device))

    def observe(self, hidden: Tensor, accepted: Tensor) -> None:
        """Nothing."""

    def keep(self, index: Tensor) -> None:
        """Nothing."""


def engine_host(bench: Bench, *, batches: list[int], k: int = 3) -> Iterator[Primitive]:
    """Seconds per step of bookkeeping, sampling included: plain (K = 0, no drafter) and speculative."""
    for n in batches:
        for label, drafted in (("off", 0), ("sd", k)):
            target = _NullTarget(device=bench.device, dtype=bench.dtype, n_heads=8, n_kv_heads=2)
            drafter = _NullDrafter() if drafted else None
            engine = Engine(target, drafter, temperature=1.0, clock=bench.clock)
            prompt = torch.zeros((n, 64), dtype=torch.long, device=bench.device)
            slots = 64 + 400 * (drafted + 1)

            def one(
                engine: Engine = engine, drafted: int = drafted, prompt: Tensor = prompt, slots: int = slots
            ) -> None:
                if engine.sequences.longest + drafted + 2 > slots:
                    engine.begin(prompt, slots=slots)
                engine.step(drafted)
                engine.recorder.steps.clear()

            engine.begin(prompt, slots=slots)
            bench.tell(f"engine bookkeeping N={n} {label}")
            yield Primitive("host", label, {"batch": n, "k": drafted, "vocab": 128}, bench.time(one))
