"""The sequences of a batch, and what one step records."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rooflinesim.errors import InputError


@dataclass
class Sequences:
    """Committed tokens of a batch. The last committed token is not yet in any cache: the next pass reads it.

    ``tokens`` (N, slots), ``length`` (N,), and on the host the largest length.
    """

    tokens: Tensor
    length: Tensor
    longest: int

    @classmethod
    def of_prompts(cls, prompts: Tensor, *, slots: int, lengths: Tensor | None = None) -> Sequences:
        """Prompts (N, P) of one width; shorter ones are given by ``lengths`` (N,)."""
        n, width = prompts.shape
        if width < 2 or width >= slots:
            raise InputError(
                f"prompts: {width} tokens must lie in 2..{slots - 1} (the cache has {slots} slots)"
            )
        tokens = prompts.new_zeros((n, slots))
        tokens[:, :width] = prompts
        if lengths is None:
            lengths = torch.full((n,), width, dtype=torch.long, device=prompts.device)
        return cls(tokens, lengths.clone(), int(lengths.max()))

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return int(self.tokens.shape[0])

    def recent(self, width: int) -> tuple[Tensor, Tensor]:
        """The last ``width`` committed tokens of every sequence and their positions, both (N, width)."""
        back = torch.arange(width - 1, -1, -1, device=self.tokens.device)
        positions = (self.length.unsqueeze(1) - 1 - back).clamp(min=0)
        return self.tokens.gather(1, positions), positions

    def commit(self, drafts: Tensor, accepted: Tensor, following: Tensor) -> None:
        """Append the accepted drafts and the token that follows them; what lies behind is overwritten
        later."""
        k = drafts.shape[1]
        block = torch.cat((drafts, following.unsqueeze(1)), dim=1)
        block = block.scatter(1, accepted.unsqueeze(1), following.unsqueeze(1))
        at = self.length.unsqueeze(1) + torch.arange(k + 1, device=drafts.device)
        if self.longest + k + 1 > self.tokens.shape[1]:
            raise InputError(
                f"context: {self.longest + k + 1} tokens exceed the {self.tokens.shape[1]} slots"
            )
        self.tokens.scatter_(1, at, block)
        self.length += accepted + 1

    def keep(self, index: Tensor) -> None:
        """Drop all but the sequences in ``index``."""
        self.tokens, self.length = self.tokens[index], self.length[index]
        self.longest = int(self.length.max()) if self.length.numel() else 0


@dataclass(frozen=True)
class StepRecord:
    """One step: what was drafted, what was accepted, and where the time went."""

    batch_size: int
    k: int
    context_tokens: float
    accepted: tuple[int, ...]  # per sequence
    drafted: tuple[int, ...]  # per sequence; below k where a look-up found nothing
    draft_s: float
    verify_s: float
    sample_s: float

    @property
    def step_s(self) -> float:
        """The whole step, s."""
        return self.draft_s + self.verify_s + self.sample_s

    @property
    def emitted(self) -> int:
        """Tokens the step emitted, bonus tokens included."""
        return sum(self.accepted) + len(self.accepted)


@dataclass
class Recorder:
    """Steps of a run, and what follows from them."""

    steps: list[StepRecord] = field(default_factory=list)

    def acceptance_length(self) -> float:
        """AL: tokens emitted per sequence and step, bonus included, 1 ≤ AL ≤ K+1."""
        rows = sum(len(s.accepted) for s in self.steps)
        return sum(s.emitted for s in self.steps) / rows

    def marginal(self) -> list[float]:
        """p_i: share of sequence-steps with at least i accepted tokens, among the steps with K ≥ i."""
        k_max = max((s.k for s in self.steps), default=0)
        out = []
        for i in range(1, k_max + 1):
            rows = [a for s in self.steps if s.k >= i for a in s.accepted]
            out.append(sum(1 for a in rows if a >= i) / len(rows))
        return out

    def conditional(self) -> list[float]:
        """c_i = p_i / p_{i−1}; 0 where nothing got that far."""
        marginal = self.marginal()
        before = [1.0, *marginal]
        return [m / b if b > 0.0 else 0.0 for m, b in zip(marginal, before, strict=False)]

    def goodput_tokens_per_s(self) -> float:
        """Tokens emitted per second of step time."""
        return sum(s.emitted for s in self.steps) / sum(s.step_s for s in self.steps)
