"""Measured campaigns of the torch engine: a dense and a routed target with a trained EAGLE head, written
as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rooflinesim.errors import InputError
from rooflinesim.microbench import BENCHMARK_VERSION
from rooflinesim.microbench.drain import Drain
from rooflinesim.microbench.engine.drafters import Eagle
from rooflinesim.microbench.env import Machine, free_memory_bytes
from rooflinesim.microbench.grow import grow_decoder, grow_eagle
from rooflinesim.microbench.model_bench import Bencher, Cell, acceptance_by_k, marginal_of, measure_grid
from rooflinesim.microbench.nn import Decoder, EagleHead, torch_dtype
from rooflinesim.microbench.shapes import decoder_spec, weight_bytes
from rooflinesim.microbench.train import VOCAB, Trained, prompts
from rooflinesim.ops.moe import distinct_experts, effective_tokens, overlap_discount
from rooflinesim.specs.model import Attention, DenseFfn, Layer, ModelSpec
from rooflinesim.specs.scenario import Routing

COLUMNS = [
    "campaign",
    "machine",
    "benchmark_version",
    "gpu",
    "n_gpus",
    "tp",
    "engine",
    "target",
    "draft",
    "method",
    "weights",
    "batch_size",
    "k",
    "query_tokens",
    "context_tokens",
    "metric",
    "value",
    "unit",
    "spread_frac",
    "n",
    "use",
    "notes",
]
#: AL(K) up to here is what a short calibration would give; larger K are predicted from it.
GIVEN_K = 3


@dataclass(frozen=True)
class Row:
    """One line of ``measurements.csv``."""

    metric: str
    value: float
    unit: str
    batch_size: int | None = None
    k: int | None = None
    query_tokens: int | None = None
    context_tokens: int | None = None
    spread_frac: float | None = None
    n: int | None = None
    use: str = "score"
    notes: str = ""


@dataclass(frozen=True)
class Setup:
    """What all rows of a campaign share."""

    campaign: str
    machine: str
    gpu: str
    target: str
    draft: str
    method: str
    weights: str


@dataclass(frozen=True)
class CampaignPlan:
    """The model a campaign runs and the grid it measures."""

    id: str
    spec: ModelSpec
    eagle_layer: Layer
    batches: tuple[int, ...]
    ks: tuple[int, ...]
    prompt_tokens: int = 32
    room_tokens: int = 96
    temperature: float = 1.0
    seed: int = 1

    @property
    def needs_bytes(self) -> float:
        """Memory that weights (twice, while they are cast), caches and activations take, roughly."""
        return 3.5 * weight_bytes(self.spec, fmt="bf16") + 0.5 * 2**30


def dense_plan(*, scale: float = 1.0) -> CampaignPlan:
    """248 M weights in 20 layers; ``scale`` shrinks depth and batches for small machines."""
    layers = max(4, round(20 * scale))
    return CampaignPlan(
        id="2026_cpu_dense",
        spec=decoder_spec(
            id=f"bench-dense-{layers}l",
            hidden=1024,
            n_layers=layers,
            n_heads=16,
            n_kv_heads=4,
            head_dim=64,
            inner=3072,
            vocab=VOCAB,
            notes="trained target grown without changing its outputs",
        ),
        eagle_layer=Layer(
            count=1,
            attention=Attention(n_heads=16, n_kv_heads=4, head_dim=64),
            dense=DenseFfn(intermediate_size=3072),
        ),
        batches=(1, 2, 4, 8, 16, 32, 64, 128),
        ks=(0, 1, 2, 3, 5, 7),
    )


def moe_plan(*, scale: float = 1.0) -> CampaignPlan:
    """302 M expert weights, 32 experts of which 2 are chosen, in 6 layers."""
    layers = max(4, round(6 * scale))
    return CampaignPlan(
        id="2026_cpu_moe",
        spec=decoder_spec(
            id=f"bench-moe-{layers}l-32e",
            hidden=1024,
            n_layers=layers,
            n_heads=8,
            n_kv_heads=2,
            head_dim=64,
            inner=512,
            vocab=VOCAB,
            n_experts=32,
            top_k=2,
            notes="trained target upcycled: every expert computes the trained block, the router is random",
        ),
        eagle_layer=Layer(
            count=1,
            attention=Attention(n_heads=2, n_kv_heads=1, head_dim=64),
            dense=DenseFfn(intermediate_size=384),
        ),
        batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        ks=(0, 1, 2, 3, 5, 7),
    )


def build(plan: CampaignPlan, trained: Trained, *, fmt: str, device: str) -> tuple[Decoder, EagleHead]:
    """The grown target and EAGLE head on the device, in the number format."""
    if device == "cpu" and plan.needs_bytes > free_memory_bytes():
        raise InputError(
            f"campaign {plan.id}: needs about {plan.needs_bytes / 2**30:.1f} GiB, "
            f"{free_memory_bytes() / 2**30:.1f} GiB are free; use --scale 0.25"
        )
    dtype = torch_dtype(fmt)
    target = grow_decoder(trained.target, plan.spec, seed=plan.seed).to(dtype=dtype, device=device)
    head = grow_eagle(trained.eagle, plan.eagle_layer, plan.spec.hidden_size, seed=plan.seed)
    return target, head.to(dtype=dtype, device=device)


def run(
    plan: CampaignPlan,
    trained: Trained,
    bench: Bencher,
    *,
    target: Decoder,
    head: EagleHead,
    machine: Machine,
) -> list[Cell]:
    """Measure the campaign's grid."""
    text = prompts(trained, n=max(plan.batches), width=plan.prompt_tokens, seed=plan.seed).to(machine.device)
    cells, _ = measure_grid(
        bench,
        target=target,
        drafter=Eagle(head, target),
        prompts=text,
        batches=plan.batches,
        ks=plan.ks,
        temperature=plan.temperature,
        room_tokens=plan.room_tokens,
        seed=plan.seed,
    )
    return cells


def _note(cell: Cell, *extra: str) -> str:
    parts = [p for p in extra if p]
    if cell.aside_frac > 0.0:
        then = "set aside" if cell.gated else "too few undisturbed: all used"
        parts.append(f"{100 * cell.aside_frac:.0f} % of steps disturbed: {then}")
    if cell.noisy:
        parts.append("noisy")
    if not math.isnan(cell.distinct_experts):
        parts.append(f"{cell.distinct_experts:.2f} distinct experts per layer")
    return "; ".join(parts)


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """Every metric of every cell: times, goodput; and acceptance, pooled over the batch sizes.

    K = 0 in the step and goodput rows is *SD off*; what *SD on, K = 0* took is recorded beside it as
    ``given``, because the cost of keeping the drafter's cache in step is not what a K of 0 is scored on.
    """
    rows: list[Row] = []
    al = acceptance_by_k(cells)
    # goodput of different K is compared at one context: the mean, which the cells differ from by a few tokens
    context = round(sum(c.context_tokens for c in cells) / len(cells))
    for cell in cells:
        idle = cell.speculative and cell.k == 0
        use = "given" if idle else "score"
        label = "SD on, K = 0" if idle else "" if cell.speculative else "SD off"
        common: dict[str, Any] = {
            "batch_size": cell.batch_size,
            "k": cell.k,
            "query_tokens": cell.k + 1,
            "context_tokens": round(cell.context_tokens),
            "spread_frac": round(cell.spread_frac, 4),
            "n": cell.n,
        }
        rows.append(Row("step_s", cell.step_s, "s", use=use, notes=_note(cell, label), **common))
        rows.append(Row("verify_s", cell.verify_s, "s", notes=_note(cell, label), **common))
        if cell.speculative:
            rows.append(Row("draft_s", cell.draft_s, "s", use=use, notes=_note(cell, label), **common))
        rows.append(Row("sample_s", cell.sample_s, "s", use="given", notes=_note(cell, label), **common))
        length = al[cell.k] if cell.speculative else 1.0
        how = f"batch x AL / median step; AL {length:.3f} pooled over batches" if cell.k else ""
        goodput = cell.batch_size * length / cell.step_s
        note = _note(cell, label, how)
        at = {**common, "context_tokens": context}
        rows.append(Row("goodput_tokens_per_s", goodput, "tokens/s", use=use, notes=note, **at))
    largest = max(c.batch_size for c in cells)
    for k, length in al.items():
        if k == 0:
            continue
        n = sum(len(c.accepted) for c in cells if c.speculative and c.k == k)
        pooled: dict[str, Any] = {"batch_size": largest, "k": k, "n": n, "notes": "pooled over batches"}
        use = "given" if k <= GIVEN_K else "score"
        rows.append(Row("acceptance_length", length, "tokens", use=use, **pooled))
        for i, p in enumerate(marginal_of(cells, k), start=1):
            rows.append(Row(f"accept_marginal_pos{i}", p, "frac", use="given", **pooled))
    return rows


def write_rows(path: Path, setup: Setup, rows: Sequence[Row]) -> None:
    """Write ``measurements.csv``: SI units, six significant digits, empty where a column does not apply."""
    shared = {
        **asdict(setup),
        "benchmark_version": BENCHMARK_VERSION,
        "n_gpus": 1,
        "tp": 1,
        "engine": "research",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            line = {**shared, **asdict(row)}
            line["value"] = f"{row.value:.6g}"
            writer.writerow({name: "" if line[name] is None else line[name] for name in COLUMNS})


def smaller(plan: CampaignPlan, *, batches: tuple[int, ...], ks: tuple[int, ...]) -> CampaignPlan:
    """The same model on a smaller grid."""
    return replace(plan, batches=batches, ks=ks)


#: Runs a campaign by name.
PLANS: dict[str, Callable[..., CampaignPlan]] = {"dense": dense_plan, "moe": moe_plan}


def count_routing(cells: Sequence[Cell], *, n_experts: int, top_k: int) -> Routing:
    """Skew and overlap of the router from *counted* distinct experts of every cell; no time enters.

    The pair (s, overlap) on a grid that brings the cost model's D(T_eff) closest to the counts, in relative
    squares.
    """
    rows = [c for c in cells if not math.isnan(c.distinct_experts)]
    if not rows:
        return Routing()
    batch = np.array([float(c.batch_size) for c in rows])
    query = np.array([c.k + 1.0 for c in rows])
    counted = np.array([c.distinct_experts for c in rows])
    best = (math.inf, 0.0, top_k / n_experts)
    for skew in np.linspace(0.0, 1.5, 31):
        for overlap in np.linspace(top_k / n_experts, 0.8, 31):
            rho = overlap_discount(overlap=float(overlap), n_experts=n_experts, top_k=top_k)
            tokens = effective_tokens(batch=batch, query_tokens=query, rho=rho)
            model = distinct_experts(n_tokens=tokens, n_experts=n_experts, top_k=top_k, skew=float(skew))
            loss = float(((model / counted - 1.0) ** 2).sum())
            best = min(best, (loss, float(skew), float(overlap)))
    return Routing(skew=round(best[1], 3), overlap=round(best[2], 3))


def drain_rows(drained: Sequence[Drain], ranges: Sequence[tuple[int, int, int]], *, batch: int) -> list[Row]:
    """The draining job under each policy, as recorded evidence (no single K and batch to score)."""
    rows = []
    schedule = " ".join(f"{low}-{high}:{k}" for low, high, k in ranges)
    for d in drained:
        fixed_k = int(d.policy[2:]) if d.policy.startswith("K=") else 0
        text = f"draining batch of {batch}, policy {d.policy}"
        if d.policy == "dynamic":
            text += f" (predicted K by batch {schedule})"
        if d.slow_frac > 0.0:
            text += f"; machine disturbed in {100 * d.slow_frac:.0f} % of steps"
        rows.append(
            Row(
                "output_tokens_per_s",
                d.tokens_per_s,
                "tokens/s",
                batch_size=batch,
                k=fixed_k,
                spread_frac=round(d.spread_frac, 4),
                n=d.n,
                use="given",
                notes=text,
            )
        )
    return rows
