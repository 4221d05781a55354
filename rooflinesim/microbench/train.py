"""Small language models trained here, in minutes, on text that ships with Python: so that acceptance is real.

Target, draft LM and EAGLE head learn the standard library's own sources, byte by byte (128 symbols). The
drafts learn the *target's* distribution on that text (distillation), as real drafts do. Seeded; kept in a
cache directory.
"""

from __future__ import annotations

import hashlib
import math
import os
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rooflinesim.errors import InputError
from rooflinesim.microbench import BENCHMARK_VERSION
from rooflinesim.microbench.nn import Decoder, EagleHead, init_weights
from rooflinesim.microbench.shapes import decoder_spec
from rooflinesim.specs.model import Attention, DenseFfn, Layer, ModelSpec

#: Symbols: ASCII; every other byte is symbol 127.
VOCAB = 128
#: Called with the share of the work done and a short text.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Recipe:
    """How the three models are trained. The defaults take about 2.5 minutes on two quiet cores."""

    seed: int = 1
    corpus_bytes: int = 6_000_000
    window_tokens: int = 96
    batch_size: int = 16
    target_steps: int = 900
    draft_steps: int = 450
    eagle_steps: int = 450
    learning_rate: float = 3e-3

    @property
    def key(self) -> str:
        """Name of this recipe in the cache."""
        return hashlib.sha256(f"{self}{BENCHMARK_VERSION}{torch.__version__}".encode()).hexdigest()[:16]


def target_spec() -> ModelSpec:
    """Shape of the trained target (0.8 M weights)."""
    return decoder_spec(
        id="bench-target",
        hidden=128,
        n_layers=4,
        n_heads=2,
        n_kv_heads=1,
        head_dim=64,
        inner=384,
        vocab=VOCAB,
    )


def draft_spec() -> ModelSpec:
    """Shape of the trained draft LM."""
    return decoder_spec(
        id="bench-draft", hidden=64, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=64, inner=192, vocab=VOCAB
    )


def eagle_layer() -> Layer:
    """The one block of the EAGLE head."""
    return Layer(
        count=1,
        attention=Attention(n_heads=2, n_kv_heads=1, head_dim=64),
        dense=DenseFfn(intermediate_size=384),
    )


@dataclass
class Trained:
    """The three models and the held-out text that prompts come from."""

    target: Decoder
    draft: Decoder
    eagle: EagleHead
    held_out: Tensor
    loss_nats: float


def corpus(*, n_bytes: int, seed: int) -> Tensor:
    """Python sources of the standard library in a seeded order, as symbols 0..127, (n_bytes,)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py") if not {"site-packages", "test", "tests"} & set(p.parts))
    if not files:
        raise InputError(
            f"training text: no Python sources under {root}; the engine needs a full standard library"
        )
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed)).tolist()
    data = bytearray()
    for i in order:
        data += files[i].read_bytes()
        if len(data) >= n_bytes:
            break
    return torch.frombuffer(bytearray(data[:n_bytes]), dtype=torch.uint8).long().clamp(max=VOCAB - 1)


def windows(text: Tensor, *, batch: int, width: int, generator: torch.Generator) -> Tensor:
    """Random windows of the text, (batch, width)."""
    start = torch.randint(0, len(text) - width, (batch, 1), generator=generator)
    return text[start + torch.arange(width)]


def _fit(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    text: Tensor,
    recipe: Recipe,
    n_steps: int,
    tell: Callable[[float], None],
) -> float:
    """AdamW with warm-up and cosine decay; returns the mean loss of the last tenth of the steps."""
    generator = torch.Generator().manual_seed(recipe.seed)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.05
    )
    late: list[float] = []
    for step in range(n_steps):
        warm = min(1.0, (step + 1) / 40)
        rate = recipe.learning_rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / n_steps)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = windows(text, batch=recipe.batch_size, width=recipe.window_tokens + 1, generator=generator)
        loss = loss_of(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        if step >= int(0.9 * n_steps):
            late.append(float(loss.detach()))
        tell((step + 1) / n_steps)
    return sum(late) / len(late)


def _cross(logits: Tensor, soft: Tensor) -> Tensor:
    """Cross-entropy against a distribution."""
    return -(soft * logits.log_softmax(-1)).sum(-1).mean()


@torch.enable_grad()
def train(recipe: Recipe, *, progress: Progress | None = None) -> Trained:
    """Train target, draft LM and EAGLE head."""
    torch.manual_seed(recipe.seed)
    text = corpus(n_bytes=recipe.corpus_bytes, seed=recipe.seed)
    split = int(0.95 * len(text))
    learn, held_out = text[:split], text[split:]
    work = {
        "target": recipe.target_steps * 1.0,
        "draft": recipe.draft_steps * 0.7,
        "EAGLE": recipe.eagle_steps * 1.1,
    }
    total, done = sum(work.values()), 0.0

    def teller(name: str) -> Callable[[float], None]:
        base = done

        def tell(share: float) -> None:
            if progress is not None:
                progress((base + share * work[name]) / total, f"training {name}")

        return tell

    positions = torch.arange(recipe.window_tokens).expand(recipe.batch_size, -1)
    target = Decoder(target_spec())
    init_weights(target, seed=recipe.seed)

    def target_loss(batch: Tensor) -> Tensor:
        logits = target.logits(target(batch[:, :-1], positions))
        return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    loss = _fit(target, target_loss, learn, recipe, recipe.target_steps, teller("target"))
    done += work["target"]
    target.requires_grad_(False).eval()

    draft = Decoder(draft_spec())
    init_weights(draft, seed=recipe.seed + 1)

    def draft_loss(batch: Tensor) -> Tensor:
        with torch.no_grad():
            soft = target.logits(target(batch[:, :-1], positions)).softmax(-1)
        return _cross(draft.logits(draft(batch[:, :-1], positions)), soft)

    _fit(draft, draft_loss, learn, recipe, recipe.draft_steps, teller("draft"))
    done += work["draft"]

    eagle = EagleHead((eagle_layer(),), target.spec.hidden_size)
    init_weights(eagle, seed=recipe.seed + 2)

    def eagle_loss(batch: Tensor) -> Tensor:
        """Two unrolled passes: on true states, then on the head's own, so that deep drafts do not fall
        apart."""
        with torch.no_grad():
            hidden = target(batch[:, :-1], positions)
            soft = target.logits(hidden).softmax(-1)
            embedded = target.embed(batch[:, 1:-1])
        at = positions[:, :-1]
        first = eagle(embedded, hidden[:, :-1], at)
        second = eagle(embedded[:, 1:], first[:, :-1], at[:, 1:])
        return (
            _cross(target.logits(first), soft[:, 1:])
            + _cross(target.logits(second), soft[:, 2:])
            + 0.5 * functional.smooth_l1_loss(first, hidden[:, 1:])
        )

    _fit(eagle, eagle_loss, learn, recipe, recipe.eagle_steps, teller("EAGLE"))
    for module in (draft, eagle):
        module.requires_grad_(False).eval()
    return Trained(target, draft, eagle, held_out, loss)


def cache_dir() -> Path:
    """Where trained weights are kept: ``ROOFLINESIM_CACHE``, else the user's cache directory."""
    given = os.environ.get("ROOFLINESIM_CACHE")
    base = (
        Path(given)
        if given
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rooflinesim"
    )
    return base / "microbench"


def load_or_train(
    recipe: Recipe, *, progress: Progress | None = None, directory: Path | None = None
) -> Trained:
    """The trained models, from the cache when this recipe was trained before with this version of torch.

    The cache is a plain array file (no pickle); a broken one is no reason to fail: the models are trained
    again.
    """
    where = (directory or cache_dir()) / f"{recipe.key}.npz"
    if where.exists():
        try:
            with np.load(where, allow_pickle=False) as arrays:
                return _unpack(dict(arrays))
        except (RuntimeError, KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile):
            where.unlink(missing_ok=True)
    trained = train(recipe, progress=progress)
    state: dict[str, Any] = {
        f"{name}|{key}": value.numpy()
        for name in _MODELS
        for key, value in getattr(trained, name).state_dict().items()
    }
    state["held_out"] = trained.held_out.to(torch.uint8).numpy()
    state["loss_nats"] = np.array(trained.loss_nats)
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        partial = where.with_suffix(f".{os.getpid()}.tmp.npz")
        np.savez(partial, **state)
        partial.replace(where)
    except OSError:
        pass  # a read-only home only means training again next time
    return trained


#: Fields of ``Trained`` that hold weights.
_MODELS = ("target", "draft", "eagle")


def _unpack(arrays: dict[str, Any]) -> Trained:
    target, draft = Decoder(target_spec()), Decoder(draft_spec())
    eagle = EagleHead((eagle_layer(),), target.spec.hidden_size)
    trained = Trained(
        target, draft, eagle, torch.from_numpy(arrays["held_out"]).long(), float(arrays["loss_nats"])
    )
    for name in _MODELS:
        module: nn.Module = getattr(trained, name)
        own = {
            key.split("|", 1)[1]: torch.from_numpy(value)
            for key, value in arrays.items()
            if key.startswith(f"{name}|")
        }
        module.load_state_dict(own)
        module.requires_grad_(False).eval()
    return trained


def prompts(trained: Trained, *, n: int, width: int, seed: int) -> Tensor:
    """``n`` held-out prompts of ``width`` tokens."""
    generator = torch.Generator().manual_seed(seed)
    return windows(trained.held_out, batch=n, width=width, generator=generator)
