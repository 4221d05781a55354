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
    """Output lengths with a long tail (exponential, at least 4, at most 5 means), (n,)."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.empty(n).exponential_(1.0 / mean_tokens, generator=generator)
    return draw.clamp(min=4.0, max=5.0 * mean_tokens).round().long()


def drains(
    *,
    target: Decoder,
    drafter: Drafter,
    prompts: Tensor,
    ranges: list[tuple[int, int, int]],
    ks: Sequence[int],
    clock: Clock,
    canary: Canary | None,
    mean_tokens: float = 24.0,
    n_rounds: int = 3,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Drain]:
    """Run the job under every policy, ``n_rounds`` times in turn (so that slow spells hit all alike);
    medians.

    K = 0 of the schedule switches the drafter to catching up only ("SD on, K = 0").
    """
    lengths = long_tail(prompts.shape[0], mean_tokens=mean_tokens, seed=seed)
    slots = prompts.shape[1] + int(lengths.max()) + max(ks) + 4
    policies: list[tuple[str, Policy | None]] = [("off", None), *((f"K={k}", fixed(k)) for k in ks)]
    policies.append(("dynamic", scheduled(ranges)))
    seconds: dict[str, list[float]] = {name: [] for name, _ in policies}
    slow: dict[str, list[bool]] = {name: [] for name, _ in policies}
    done = 0
    for turn in range(n_rounds):
        for name, policy in policies:
            done += 1
            if progress is not None:
                progress(done / (n_rounds * len(policies)), f"draining batch, {name}")
            engine = Engine(
                target, drafter if policy else None, temperature=temperature, seed=seed + turn, clock=clock
            )
            engine.begin(prompts, slots=slots)
            quiet: list[bool] = []

            def choose(batch: int, policy: Policy | None = policy, quiet: list[bool] = quiet) -> int:
                if canary is not None:
                    quiet.append(canary.quiet())
                return policy(batch) if policy else 0

            engine.generate(targets=lengths, policy=choose)
            seconds[name].append(sum(step.step_s for step in engine.recorder.steps))
            slow[name].extend(not q for q in quiet)
    out = []
    for name, _ in policies:
        median_s, spread = spread_of(seconds[name])
        share = sum(slow[name]) / len(slow[name]) if slow[name] else 0.0
        out.append(Drain(name, median_s, spread, n_rounds, int(lengths.sum()), share))
    return out
