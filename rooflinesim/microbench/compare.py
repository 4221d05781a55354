"""Measured beside predicted: a model on a machine, the engine. One canary serves each, so that all
agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rooflinesim import registry
from rooflinesim.errors import InputError
from rooflinesim.microbench.device import DeviceResult, bench_device, default_format
from rooflinesim.microbench.drain import Drain
from rooflinesim.microbench.engine.drafters import Drafter, DraftModel, Eagle, Ngram
from rooflinesim.microbench.engine.loop import Engine, fixed
from rooflinesim.microbench.engine.state import Recorder
from rooflinesim.microbench.env import Machine, free_memory_bytes, probe
from rooflinesim.microbench.model_bench import (
    Bencher,
    Cell,
    acceptance_by_k,
    deployment,
    eagle_spec,
    k_regret,
    measure_grid,
    measure_verify,
    predict_grid,
)
from rooflinesim.microbench.nn import Decoder, EagleHead, init_weights, torch_dtype
from rooflinesim.microbench.shapes import scale_to_fit
from rooflinesim.microbench.store import StoredMachine, read_machine
from rooflinesim.microbench.timing import Canary, Clock, Noise, choose_clock, noise_of, threads
from rooflinesim.microbench.train import Recipe, load_or_train, prompts
from rooflinesim.specs.model import DraftSpec, Layer, ModelSpec
from rooflinesim.step import StepTime

Progress = Callable[[float, str], None]


def numbers(text: str, flag: str, *, low: int) -> list[int]:
    """``1,4,16`` as distinct whole numbers, ascending.

    >>> numbers("8,1", "--bs", low=1)
    [1, 8]
    """
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"{flag}: {text!r} is not a list of whole numbers such as 1,4,16") from None
    if not values or values[0] < low:
        raise InputError(f"{flag}: {text!r} needs whole numbers of at least {low}")
    return values


def part_of(progress: Progress | None, start: float, share: float) -> Progress | None:
    """A progress callback for one part of the work."""
    if progress is None:
        return None
    return lambda done, text: progress(min(start + share * done, 1.0), text)


@dataclass(frozen=True)
class Compared:
    """Measured cells beside what the primitives predict. ``predicted`` has the axes (batch, k)."""

    name: str
    machine: Machine
    target: ModelSpec
    draft: DraftSpec
    cells: tuple[Cell, ...]
    batches: tuple[int, ...]
    ks: tuple[int, ...]
    predicted: StepTime
    noise: Noise
    seconds_verify: tuple[tuple[int, int, float, float], ...] = ()  # batch, query tokens, measured, predicted
    drained: tuple[Drain, ...] = ()
    drained_batch: int = 0
    ranges: tuple[tuple[int, int, int], ...] = ()

    def _at(self, values: np.ndarray, cell: Cell) -> float:
        shape = (len(self.batches), len(self.ks), 1)
        index = (self.batches.index(cell.batch_size), self.ks.index(cell.k), 0)
        return float(np.broadcast_to(values, shape)[index])

    def predicted_step_s(self, cell: Cell) -> float:
        """The predicted step of this cell, SD off included."""
        p = self.predicted
        return self._at(p.step_s if cell.speculative else p.off_step_s, cell)

    def errors(self, metric: str) -> np.ndarray:
        """(predicted − measured)/measured of ``verify_s``, ``draft_s`` or ``step_s`` over the cells."""
        out = []
        for cell in self.cells:
            if metric == "step_s":
                out.append(self.predicted_step_s(cell) / cell.step_s - 1.0)
            elif cell.speculative:
                out.append(self._at(getattr(self.predicted, metric), cell) / getattr(cell, metric) - 1.0)
        return np.array(out)

    def goodputs(self, lengths: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
        """Measured and predicted tokens/s, (batch, option); option 0 is SD off, then K = 1.. in the order
        of ``ks``."""
        options = [k for k in self.ks if k > 0]
        shape = (len(self.batches), 1 + len(options))
        measured, predicted = np.full(shape, math.nan), np.full(shape, math.nan)
        for cell in self.cells:
            if cell.speculative and cell.k == 0:
                continue
            at = (self.batches.index(cell.batch_size), 1 + options.index(cell.k) if cell.speculative else 0)
            gain = cell.batch_size * (lengths[cell.k] if cell.speculative else 1.0)
            measured[at], predicted[at] = gain / cell.step_s, gain / self.predicted_step_s(cell)
        return measured, predicted

    def choices(self) -> tuple[list[int], list[int], np.ndarray]:
        """Best K measured, best K predicted (0: SD off), and the K-regret, by batch size."""
        measured, predicted = self.goodputs(acceptance_by_k(self.cells))
        options = [0, *(k for k in self.ks if k > 0)]
        best, chosen = np.nanargmax(measured, axis=1), np.nanargmax(predicted, axis=1)
        return [options[i] for i in best], [options[i] for i in chosen], k_regret(measured, chosen)


def _machine(
    folder: Path | None,
    *,
    device: str,
    n_threads: int | None,
    fmt: str,
    clock: str,
    canary: Canary,
    progress: Progress | None,
) -> StoredMachine | DeviceResult:
    if folder is not None:
        return read_machine(folder)
    return bench_device(
        device=device, n_threads=n_threads, fmt=fmt, clock=clock, quick=True, canary=canary, progress=progress
    )


def new_canary(clock: Clock, dtype: torch.dtype) -> Canary:
    """A canary whose cold buffer never takes more than a twentieth of the free memory."""
    return Canary(clock=clock, dtype=dtype, cold_bytes=min(2.0**28, 0.05 * free_memory_bytes()))


@torch.no_grad()
def bench_model(
    *,
    model: str,
    machine_folder: Path | None,
    device: str,
    n_threads: int | None,
    fmt: str | None,
    clock: str,
    batches: Sequence[int],
    ks: Sequence[int],
    context_tokens: int,
    max_bytes: float,
    progress: Progress | None = None,
) -> Compared:
    """Any model, scaled to fit, with random weights: its passes and steps measured, and predicted from
    primitives."""
    machine = probe(device=device, n_threads=n_threads)
    number = fmt or default_format(machine)
    dtype = torch_dtype(number)
    free = machine.free_memory_bytes if machine.device == "cuda" else free_memory_bytes()
    spec = scale_to_fit(registry.model(model), max_bytes=min(max_bytes, 0.2 * free), fmt=number)
    chosen = choose_clock(device=machine.device, n_threads=machine.n_threads, wanted=clock)
    with threads(machine.n_threads):
        canary = new_canary(chosen, dtype)
        stored = _machine(
            machine_folder,
            device=device,
            n_threads=n_threads,
            fmt=number,
            clock=clock,
            canary=canary,
            progress=part_of(progress, 0.0, 0.5),
        )
        target = Decoder(spec)
        init_weights(target, seed=0)
        target = target.to(dtype=dtype, device=machine.device).eval()
        layer = dense_layer(spec)
        head = EagleHead((layer,), spec.hidden_size)
        init_weights(head, seed=1)
        head = head.to(dtype=dtype, device=machine.device).eval()
        bench = Bencher(chosen, canary, n_steps=5, budget_s=0.2, progress=part_of(progress, 0.5, 0.5))
        text = torch.randint(0, spec.vocab_size, (max(batches), context_tokens), device=machine.device)
        cells, _ = measure_grid(
            bench, target=target, drafter=Eagle(head, target), prompts=text, batches=batches, ks=ks
        )
        draft = eagle_spec(layer, spec)
        dep = deployment(
            gpu=stored.gpu,
            calibration=stored.calibration,
            profile=stored.profile,
            target=spec,
            fmt=number,
            method="eagle",
            draft=draft,
        )
        predicted = predict_grid(dep, batches=batches, ks=ks, context_tokens=mean_context(cells))
        verify = []
        for i, batch in enumerate(batches):
            for j, k in enumerate(ks):
                seconds, _, _ = measure_verify(
                    bench, target, batch=batch, query=k + 1, context=context_tokens
                )
                full = np.broadcast_to(predicted.verify_s, (len(batches), len(ks), 1))
                verify.append((batch, k + 1, seconds, float(full[i, j, 0])))
    return Compared(
        name=spec.notes,
        machine=machine,
        target=spec,
        draft=draft,
        cells=tuple(cells),
        batches=tuple(batches),
        ks=tuple(ks),
        predicted=predicted,
        noise=noise_of(canary),
        seconds_verify=tuple(verify),
    )


def dense_layer(spec: ModelSpec) -> Layer:
    """One dense layer of the target's attention, for its EAGLE head; a routed block becomes as wide as its
    top-k."""
    layer = spec.layers[0]
    if layer.moe is None:
        return layer.model_copy(update={"count": 1})
    from rooflinesim.specs.model import DenseFfn

    inner = layer.moe.top_k * layer.moe.intermediate_size
    return Layer(count=1, attention=layer.attention, dense=DenseFfn(intermediate_size=inner))


def mean_context(cells: Sequence[Cell]) -> float:
    """The context that stands for all cells, tokens."""
    return round(float(np.mean([c.context_tokens for c in cells])))


@dataclass(frozen=True)
class EngineRun:
    """A run of the engine on the trained models."""

    method: str
    k: int
    batch: int
    temperature: float
    recorder: Recorder


@torch.no_grad()
def run_engine(
    *,
    method: str,
    k: int,
    batch: int,
    n_steps: int,
    temperature: float,
    n_threads: int | None,
    seed: int,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> EngineRun:
    """Decode held-out prompts with one of the trained drafters and record what was accepted."""
    if method not in ("eagle", "draft_model", "ngram"):
        raise InputError(f"--draft: {method!r} is not one of eagle, draft_model, ngram")
    machine = probe(device="cpu", n_threads=n_threads)
    with threads(machine.n_threads):
        trained = load_or_train(recipe or Recipe(), progress=part_of(progress, 0.0, 0.9))
        makers: dict[str, Callable[[], Drafter]] = {
            "eagle": lambda: Eagle(trained.eagle, trained.target),
            "draft_model": lambda: DraftModel(trained.draft),
            "ngram": Ngram,
        }
        run = Engine(trained.target, makers[method]() if k else None, temperature=temperature, seed=seed)
        width = 64
        run.begin(prompts(trained, n=batch, width=width, seed=seed), slots=width + (k + 1) * (n_steps + 2))
        recorder = run.run(n_steps=n_steps, policy=fixed(k))
    if progress is not None:
        progress(1.0, "done")
    return EngineRun(method, k, batch, temperature, recorder)
