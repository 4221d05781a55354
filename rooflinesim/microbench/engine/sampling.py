"""Lossless verification of drafted tokens: greedy and rejection sampling (Leviathan et al. 2023, arXiv
2211.17192)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def probabilities(logits: Tensor, *, temperature: float) -> Tensor:
    """Softmax(logits/T) over the last axis; T = 0 is the one-hot of the largest score.

    >>> probabilities(torch.tensor([1.0, 3.0, 2.0]), temperature=0.0)
    tensor([0., 1., 0.])
    """
    if temperature <= 0.0:
        return functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
    return (logits / temperature).softmax(dim=-1)


def draw(weights: Tensor, *, generator: torch.Generator) -> Tensor:
    """One index per row with probability proportional to ``weights`` (rows, V); an exponential race, no sync.

    argmax_i w_i/e_i with e_i ~ Exp(1) picks i with probability w_i/Σw. Weights of zero are never picked
    while another is positive.
    """
    race = torch.empty_like(weights).exponential_(generator=generator)
    return (weights / race).argmax(dim=-1)


def accept(
    *,
    p: Tensor,
    drafts: Tensor,
    q: Tensor | None,
    generator: torch.Generator,
    n_drafted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Accept a prefix of the drafts and draw the token that follows it, so that outputs are distributed as p.

    Symbols: ``p`` (N, K+1, V) target probabilities after 0..K drafted tokens; ``drafts`` (N, K); ``q`` (N,
    K, V) the probabilities they were drawn from, or None when the drafter is deterministic (q is the
    one-hot of the draft); ``n_drafted`` (N,) how many of the K a drafter really proposed (None: all).
    Draft i is accepted with probability min(1, p_i(d_i)/q_i(d_i)). At the first rejection the next token
    is drawn from normalised max(0, p_i − q_i); after K acceptances, or where nothing was proposed, from p
    itself. Returns accepted (N,) in 0..K, and the next token (N,).
    """
    n, k = drafts.shape
    rows = torch.arange(n, device=drafts.device)
    if k == 0:
        return torch.zeros(n, dtype=torch.long, device=drafts.device), draw(p[:, 0], generator=generator)
    p_draft = p[:, :k].gather(2, drafts.unsqueeze(-1)).squeeze(-1)
    q_draft = torch.ones_like(p_draft) if q is None else q.gather(2, drafts.unsqueeze(-1)).squeeze(-1)
    u = torch.rand(p_draft.shape, generator=generator, dtype=p.dtype, device=p.device)
    ok = u * q_draft < p_draft
    if n_drafted is not None:
        ok &= torch.arange(k, device=drafts.device) < n_drafted.unsqueeze(1)
    accepted = ok.long().cumprod(dim=1).sum(dim=1)
    p_next = p[rows, accepted]
    at = accepted.clamp(max=k - 1)
    if q is None:
        q_next = torch.zeros_like(p_next).scatter_(1, drafts[rows, at].unsqueeze(1), 1.0)
    else:
        q_next = q[rows, at].to(p_next.dtype)
    rejected = accepted < (k if n_drafted is None else n_drafted.clamp(max=k))
    residual = (p_next - q_next).clamp(min=0.0)
    # p = q up to rounding leaves nothing: such a rejection has probability ~0, and p is then the right law
    # anyway
    usable = rejected & (residual.sum(dim=1) > 0.0)
    return accepted, draw(torch.where(usable.unsqueeze(1), residual, p_next), generator=generator)
