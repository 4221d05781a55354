"""A batch that drains: sequences of very different lengths, as in a rollout. Off, every fixed K, and the
schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rooflinesim.microbench.engine.drafters import Drafter
from rooflinesim.microbench.engine.loop import Engine, Policy, fixed, scheduled
from rooflinesim.microbench.nn import Decoder
from rooflinesim.microbench.timing import Canary, Clock, spread_of

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Drain:
    """One policy's runs: seconds of step time for the whole job, tokens, and how disturbed the machine
    was."""

    policy: str
    seconds: float
    spread_frac: float
    n: int
    tokens: int
    slow_frac: float

    @property
    def tokens_per_s(self) -> float:
        """Output of the job per second of step time."""
        return self.tokens / self.seconds


def long_tail(n: int, *, mean_tokens: float, seed: int) -> Tensor:
    """Output lengths with a long tail (exponential, at least 4, at most 3 means), (n,)."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.empty(n).exponential_(1.0 / mean_tokens, generator=generator)
    return draw.clamp(min=4.0, max=3.0 * mean_tokens).round().long()


class Job:
    """One policy's run of the job: its own engine, advanced one step at a time."""

    def __init__(self, engine: Engine, policy: Policy | None, lengths: Tensor) -> None:
        self.engine, self.policy = engine, policy
        self.start = engine.sequences.length.clone()
        self.goal = lengths.to(self.start.device)
        self.seconds = 0.0
        self.slow: list[bool] = []

    @property
    def done(self) -> bool:
        """Whether every sequence has its tokens."""
        return self.engine.sequences.batch == 0

    def advance(self, canary: Canary | None) -> None:
        """Drop the sequences that are finished; else one step of the rest."""
        finished = self.engine.sequences.length - self.start >= self.goal
        if bool(finished.any()):
            index = torch.nonzero(~finished).flatten()
            self.start, self.goal = self.start[index], self.goal[index]
            self.engine.keep(index)
            return
        k = self.policy(self.engine.sequences.batch) if self.policy else 0
        self.seconds += self.engine.step(k).step_s
        if canary is not None:
            self.slow.append(not canary.quiet())


def profile_lengths(
    *,
    target: Decoder,
    drafter: Drafter,
    prompts: Tensor,
    k_max: int,
    mean_tokens: float,
    temperature: float,
    seed: int,
) -> dict[int, float]:
    """AL(K) = 1 + Σ_{i≤K} p_i up to ``k_max``, from one run of such a job with other prompts at K = k_max."""
    lengths = long_tail(prompts.shape[0], mean_tokens=mean_tokens, seed=seed)
    engine = Engine(target, drafter, temperature=temperature, seed=seed)
    engine.begin(prompts, slots=prompts.shape[1] + int(lengths.max()) + 2 * k_max + 4)
    job = Job(engine, fixed(k_max), lengths)
    while not job.done:
        job.advance(None)
    marginal = engine.recorder.marginal()
    return {k: 1.0 + sum(marginal[:k]) for k in range(k_max + 1)}


def drains(
    *,
    target: Decoder,
    drafter: Callable[[], Drafter],
    prompts: Tensor,
    ranges: list[tuple[int, int, int]],
    ks: Sequence[int],
    clock: Clock,
    canary: Canary | None,
    mean_tokens: float = 21.0,
    n_rounds: int = 3,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Drain]:
    """Run the job under every policy ``n_rounds`` times; medians.

    Within a round all policies run side by side, one step of whichever has used the least time so far, so
    that a slow spell of the machine hits all alike. A schedule's K = 0 keeps the drafter's cache in step
    ("SD on, K = 0"). Tokens past a sequence's length are thrown away: a large K wastes some at the end of
    every output.
    """
    lengths = long_tail(prompts.shape[0], mean_tokens=mean_tokens, seed=seed)
    slots = prompts.shape[1] + int(lengths.max()) + 2 * max(ks) + 4
    policies: list[tuple[str, Policy | None]] = [("off", None), *((f"K={k}", fixed(k)) for k in ks)]
    policies.append(("dynamic", scheduled(ranges)))
    rounds: list[dict[str, Job]] = []
    total = n_rounds * len(policies) * int(lengths.sum())
    finished = 0
    for turn in range(n_rounds):
        jobs: dict[str, Job] = {}
        for name, policy in policies:
            engine = Engine(
                target, drafter() if policy else None, temperature=temperature, seed=seed + turn, clock=clock
            )
            engine.begin(prompts, slots=slots)
            jobs[name] = Job(engine, policy, lengths)
        while any(not job.done for job in jobs.values()):
            job = min((j for j in jobs.values() if not j.done), key=lambda j: j.seconds)
            job.advance(canary)
            if progress is not None:
                left = sum(int(j.goal.sum()) for j in jobs.values())
                share = (finished + len(policies) * int(lengths.sum()) - left) / total
                progress(share, "draining batch")
        finished += len(policies) * int(lengths.sum())
        rounds.append(jobs)
    out = []
    for name, _ in policies:
        median_s, spread = spread_of([jobs[name].seconds for jobs in rounds])
        slow = [x for jobs in rounds for x in jobs[name].slow]
        share = sum(slow) / len(slow) if slow else 0.0
        out.append(Drain(name, median_s, spread, n_rounds, int(lengths.sum()), share))
    return out
