"""Drafters: a draft language model, an EAGLE-style head on hidden states, and n-gram look-up. One
protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rooflinesim.microbench.engine.sampling import draw, probabilities
from rooflinesim.microbench.engine.state import Sequences
from rooflinesim.microbench.nn import Decoder, EagleHead, KvCache


@dataclass
class Proposal:
    """Drafted tokens (N, K), the probabilities they were drawn from (None: deterministic), how many are
    real."""

    tokens: Tensor
    q: Tensor | None
    n_drafted: Tensor | None = None


class Drafter(Protocol):
    """What the engine asks of a drafter. Its own cache must be in step after every call of ``propose``."""

    method: str

    def begin(self, sequences: Sequences, hidden: Tensor) -> None:
        """Read the prompts; ``hidden`` (N, P, h) are the target's normed states over them."""

    def propose(
        self, sequences: Sequences, *, k: int, temperature: float, generator: torch.Generator
    ) -> Proposal:
        """Draft ``k`` tokens per sequence; with k = 0 only catch up with what was committed."""

    def observe(self, hidden: Tensor, accepted: Tensor) -> None:
        """The verify pass' hidden states (N, K+1, h) and how many drafts were accepted."""

    def keep(self, index: Tensor) -> None:
        """Drop all but the sequences in ``index``."""

    def save(self) -> tuple[Tensor, ...] | None:
        """What it keeps outside its cache."""

    def load(self, saved: tuple[Tensor, ...] | None) -> None:
        """Back to what ``save`` returned."""


class Stateless:
    """Drafters that keep nothing outside their cache."""

    def save(self) -> tuple[Tensor, ...] | None:
        """Nothing."""
        return None

    def load(self, saved: tuple[Tensor, ...] | None) -> None:
        """Nothing."""


def select_cache(cache: KvCache, index: Tensor) -> KvCache:
    """The cache of the sequences in ``index`` alone."""
    return KvCache(cache.keys[:, index].contiguous(), cache.values[:, index].contiguous())


def _pick(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    q = probabilities(logits, temperature=temperature)
    return (q.argmax(dim=-1) if temperature <= 0.0 else draw(q, generator=generator)), q


class DraftModel(Stateless):
    """A small language model of its own. First pass: the last max(2, K+1) committed tokens, then K−1
    single ones.

    Two committed tokens can be missing from its cache after a step that accepted everything (the last
    draft and the bonus token); rewriting earlier positions with the same tokens changes nothing.
    """

    method = "draft_model"

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self.cache: KvCache | None = None

    def begin(self, sequences: Sequences, hidden: Tensor) -> None:
        """Run the prompts through the draft model."""
        width = hidden.shape[1]
        self.cache = self.model.new_cache(batch=sequences.batch, slots=sequences.tokens.shape[1])
        positions = torch.arange(width, device=hidden.device).expand(sequences.batch, width)
        self.model(sequences.tokens[:, :width], positions, self.cache, width)

    def propose(
        self, sequences: Sequences, *, k: int, temperature: float, generator: torch.Generator
    ) -> Proposal:
        """Draft autoregressively."""
        tokens, positions = sequences.recent(max(2, k + 1))
        hidden = self.model(tokens, positions, self.cache, sequences.longest)[:, -1:]
        out, probs = [], []
        for i in range(k):
            token, q = _pick(self.model.logits(hidden)[:, -1], temperature, generator)
            out.append(token)
            probs.append(q)
            if i + 1 < k:
                at = sequences.length.unsqueeze(1) + i
                hidden = self.model(token.unsqueeze(1), at, self.cache, sequences.longest + i + 1)
        if not out:
            return Proposal(sequences.tokens.new_zeros((sequences.batch, 0)), None)
        return Proposal(torch.stack(out, 1), torch.stack(probs, 1))

    def observe(self, hidden: Tensor, accepted: Tensor) -> None:
        """Nothing to learn from the target."""

    def keep(self, index: Tensor) -> None:
        """Drop sequences."""
        if self.cache is not None:
            self.cache = select_cache(self.cache, index)


class Eagle:
    """EAGLE (Li et al. 2024, arXiv 2401.15077): drafts hidden states. First pass over the last verify's
    K+1 tokens.

    Position t of the head reads the target's hidden state at t and the token at t+1, and predicts the
    hidden state at t+1. After a verify, rows 0..accepted hold true states; the pass runs over all K+1 (a
    fixed shape, as engines do) and later rows, which belong to rejected tokens, are overwritten by the
    next pass.
    """

    method = "eagle"

    def __init__(self, head: EagleHead, target: Decoder) -> None:
        self.head, self.target = head, target
        self.cache: KvCache | None = None
        self.hidden: Tensor | None = None  # (N, w, h) of the last verify
        self.accepted: Tensor | None = None

    def begin(self, sequences: Sequences, hidden: Tensor) -> None:
        """Run the prompt's pairs (hidden t, token t+1) for all but the last prompt token."""
        n, width, _ = hidden.shape
        like = self.target.head.weight.detach()
        self.cache = KvCache.empty(
            n_layers=len(self.head.stack.blocks),
            batch=n,
            slots=sequences.tokens.shape[1],
            n_kv_heads=self.head.stack.kv_heads,
            head_dim=self.head.stack.head_dim,
            like=like,
        )
        positions = torch.arange(width - 1, device=hidden.device).expand(n, width - 1)
        embedded = self.target.embed(sequences.tokens[:, 1:width])
        self.head(embedded, hidden[:, : width - 1], positions, self.cache, width - 1)
        # the first step drafts after the last prompt token, which the first verify has not read yet: its
        # state is that of the position before, known from the prompt
        rows = torch.arange(n, device=hidden.device)
        self.hidden = hidden[rows, sequences.length - 2].unsqueeze(1)
        self.accepted = torch.zeros(n, dtype=torch.long, device=hidden.device)

    def propose(
        self, sequences: Sequences, *, k: int, temperature: float, generator: torch.Generator
    ) -> Proposal:
        """Catch up over the last verify's tokens, then draft autoregressively on the head's own states."""
        assert self.hidden is not None and self.accepted is not None  # begin() ran
        n, width, _ = self.hidden.shape
        rows = torch.arange(n, device=self.hidden.device)
        # row i of the last verify sits at position length−2−accepted+i of the committed sequence and pairs
        # with the token that follows it; rows beyond `accepted` pair with stale tokens and are never read
        at = (sequences.length - 2 - self.accepted).unsqueeze(1) + torch.arange(width, device=rows.device)
        tokens = sequences.tokens.gather(1, (at + 1).clamp(max=sequences.tokens.shape[1] - 1))
        span = min(sequences.longest - 1 + width, sequences.tokens.shape[1])
        state = self.head(self.target.embed(tokens), self.hidden, at, self.cache, span)
        state = state[rows, self.accepted].unsqueeze(1)
        out, probs = [], []
        for i in range(k):
            token, q = _pick(self.target.logits(state)[:, -1], temperature, generator)
            out.append(token)
            probs.append(q)
            if i + 1 < k:
                where = sequences.length.unsqueeze(1) - 1 + i
                embedded = self.target.embed(token.unsqueeze(1))
                state = self.head(embedded, state, where, self.cache, sequences.longest + i)
        if not out:
            return Proposal(sequences.tokens.new_zeros((n, 0)), None)
        return Proposal(torch.stack(out, 1), torch.stack(probs, 1))

    def observe(self, hidden: Tensor, accepted: Tensor) -> None:
        """Keep the verify's states for the next first pass."""
        self.hidden, self.accepted = hidden, accepted

    def keep(self, index: Tensor) -> None:
        """Drop sequences."""
        if self.cache is not None and self.hidden is not None and self.accepted is not None:
            self.cache = select_cache(self.cache, index)
            self.hidden, self.accepted = self.hidden[index], self.accepted[index]

    def save(self) -> tuple[Tensor, ...] | None:
        """States and counts of the last verify."""
        assert self.hidden is not None and self.accepted is not None  # begin() ran
        return self.hidden, self.accepted

    def load(self, saved: tuple[Tensor, ...] | None) -> None:
        """Back to those states."""
        assert saved is not None
        self.hidden, self.accepted = saved


class Ngram(Stateless):
    """Look-up: the longest suffix (``longest`` down to ``shortest`` tokens) seen earlier; propose what
    followed it."""

    method = "ngram"

    def __init__(self, *, longest: int = 4, shortest: int = 2) -> None:
        self.sizes = range(longest, shortest - 1, -1)

    def begin(self, sequences: Sequences, hidden: Tensor) -> None:
        """No state."""

    def propose(
        self, sequences: Sequences, *, k: int, temperature: float, generator: torch.Generator
    ) -> Proposal:
        """Deterministic: the most recent earlier match of the longest size wins."""
        tokens, length = sequences.tokens, sequences.length
        n, width = sequences.batch, sequences.longest
        found = torch.full((n,), -1, dtype=torch.long, device=tokens.device)  # first token after the match
        for size in self.sizes:
            if size >= width or k == 0:
                continue
            tail, _ = sequences.recent(size)
            windows = tokens[:, :width].unfold(1, size, 1)
            after = torch.arange(windows.shape[1], device=tokens.device) + size
            hit = (windows == tail.unsqueeze(1)).all(dim=2) & (after < length.unsqueeze(1))
            latest = torch.where(hit, after, -1).max(dim=1).values
            usable = (found < 0) & (length > size)
            found = torch.where(usable, latest, found)
        at = found.clamp(min=0).unsqueeze(1) + torch.arange(k, device=tokens.device)
        n_drafted = torch.where(found >= 0, (length - found).clamp(min=0, max=k), 0)
        return Proposal(tokens.gather(1, at.clamp(max=tokens.shape[1] - 1)), None, n_drafted)

    def observe(self, hidden: Tensor, accepted: Tensor) -> None:
        """Nothing to learn."""

    def keep(self, index: Tensor) -> None:
        """No state."""
