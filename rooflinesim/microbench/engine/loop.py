"""The engine: prefill, draft, verify in one pass, accept, commit. Lossless at any temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rooflinesim.errors import InputError
from rooflinesim.microbench.engine.drafters import Drafter, Proposal, select_cache
from rooflinesim.microbench.engine.sampling import accept, probabilities
from rooflinesim.microbench.engine.state import Recorder, Sequences, StepRecord
from rooflinesim.microbench.nn import Decoder
from rooflinesim.microbench.timing import Clock, read_clock

#: A draft length for a batch size: a fixed K, or a schedule.
Policy = Callable[[int], int]


def fixed(k: int) -> Policy:
    """Always ``k``."""
    return lambda batch_size: k


def scheduled(ranges: list[tuple[int, int, int]]) -> Policy:
    """K by batch size from ranges (lowest, highest, K); beyond the last range its K holds.

    >>> policy = scheduled([(1, 4, 5), (5, 64, 2)])
    >>> policy(1), policy(5), policy(100)
    (5, 2, 2)
    """
    if not ranges:
        raise InputError("schedule: no ranges given")

    def policy(batch_size: int) -> int:
        return next((k for low, high, k in ranges if low <= batch_size <= high), ranges[-1][2])

    return policy


@dataclass(frozen=True)
class Snapshot:
    """Committed tokens, lengths, and what the drafter keeps outside its cache."""

    tokens: Tensor
    length: Tensor
    longest: int
    drafter: tuple[Tensor, ...] | None


class Engine:
    """A batch of sequences decoded together by a target and, unless it is plain decoding, a drafter."""

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter | None = None,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        clock: Clock = "wall",
    ) -> None:
        self.target, self.drafter = target, drafter
        self.temperature, self.clock = temperature, clock
        self.generator = torch.Generator(device=target.head.weight.device).manual_seed(seed)
        self.recorder = Recorder()
        self.ids = torch.zeros(0, dtype=torch.long)

    @torch.no_grad()
    def begin(self, prompts: Tensor, *, slots: int, lengths: Tensor | None = None) -> None:
        """Prefill: fill the caches of target and drafter. The prompt's last token is left to the first
        step."""
        self.sequences = Sequences.of_prompts(prompts, slots=slots, lengths=lengths)
        n, width = prompts.shape
        self.ids = torch.arange(n)
        self.cache = self.target.new_cache(batch=n, slots=slots)
        positions = torch.arange(width, device=prompts.device).expand(n, width)
        hidden = self.target(prompts, positions, self.cache, width)
        if self.drafter is not None:
            self.drafter.begin(self.sequences, hidden)

    @torch.no_grad()
    def step(self, k: int) -> StepRecord:
        """One step with ``k`` drafted tokens: draft, verify k+1 tokens per sequence, accept, commit."""
        if k < 0 or (k > 0 and self.drafter is None):
            raise InputError(f"k: {k} drafted tokens need a drafter and k >= 0")
        sequences = self.sequences
        context = float(sequences.longest)
        t0 = read_clock(self.clock)
        if self.drafter is None:
            proposal = Proposal(sequences.tokens.new_zeros((sequences.batch, 0)), None)
        else:
            proposal = self.drafter.propose(
                sequences, k=k, temperature=self.temperature, generator=self.generator
            )
        t1 = read_clock(self.clock)
        last, at = sequences.recent(1)
        tokens = torch.cat((last, proposal.tokens), dim=1)
        positions = at + torch.arange(k + 1, device=at.device)
        hidden = self.target(tokens, positions, self.cache, sequences.longest + k)
        logits = self.target.logits(hidden)
        t2 = read_clock(self.clock)
        accepted, following = accept(
            p=probabilities(logits, temperature=self.temperature),
            drafts=proposal.tokens,
            q=proposal.q,
            generator=self.generator,
            n_drafted=proposal.n_drafted,
        )
        sequences.commit(proposal.tokens, accepted, following)
        if self.drafter is not None:
            self.drafter.observe(hidden, accepted)
        counts = accepted.tolist()
        sequences.longest = int(sequences.length.max())
        t3 = read_clock(self.clock)
        drafted = [k] * len(counts) if proposal.n_drafted is None else proposal.n_drafted.tolist()
        record = StepRecord(
            batch_size=sequences.batch,
            k=k,
            context_tokens=context,
            accepted=tuple(counts),
            drafted=tuple(drafted),
            draft_s=t1 - t0,
            verify_s=t2 - t1,
            sample_s=t3 - t2,
        )
        self.recorder.steps.append(record)
        return record

    def snapshot(self) -> Snapshot:
        """The committed state. Caches need no copy: slots past a sequence's length are overwritten before
        use."""
        drafter = self.drafter.save() if self.drafter is not None else None
        sequences = self.sequences
        return Snapshot(sequences.tokens.clone(), sequences.length.clone(), sequences.longest, drafter)

    def restore(self, saved: Snapshot) -> None:
        """Back to a snapshot of this same batch; the random generator goes on, so samples differ."""
        self.sequences = Sequences(saved.tokens.clone(), saved.length.clone(), saved.longest)
        if self.drafter is not None:
            self.drafter.load(saved.drafter)

    def run(self, *, n_steps: int, policy: Policy) -> Recorder:
        """``n_steps`` steps of the whole batch; nobody finishes."""
        for _ in range(n_steps):
            self.step(policy(self.sequences.batch))
        return self.recorder

    def generate(self, *, targets: Tensor, policy: Policy) -> list[list[int]]:
        """Decode until sequence i has ``targets[i]`` new tokens; finished ones leave the batch, which
        shrinks.

        Returns the new tokens of every sequence, cut to its target.
        """
        start = self.sequences.length.clone()
        goal = targets.to(start.device)
        out: list[list[int]] = [[] for _ in range(self.sequences.batch)]
        while self.sequences.batch:
            done = self.sequences.length - start >= goal
            if bool(done.any()):
                for row in torch.nonzero(done).flatten().tolist():
                    begin, n_new = int(start[row]), int(goal[row])
                    out[int(self.ids[row])] = self.sequences.tokens[row, begin : begin + n_new].tolist()
                index = torch.nonzero(~done).flatten()
                start, goal = start[index], goal[index]
                self.keep(index)
                continue
            self.step(policy(self.sequences.batch))
        return out

    def keep(self, index: Tensor) -> None:
        """Drop all but the sequences in ``index`` from target, drafter and batch."""
        self.ids = self.ids[index.cpu()]
        self.sequences.keep(index)
        self.cache = select_cache(self.cache, index)
        if self.drafter is not None:
            self.drafter.keep(index)
