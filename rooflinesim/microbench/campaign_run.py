"""A whole campaign: machine, grid, draining batch; and the three files of each campaign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rooflinesim.errors import InputError
from rooflinesim.microbench import campaign as camp
from rooflinesim.microbench.campaign_texts import campaign_texts
from rooflinesim.microbench.compare import Compared, mean_context, new_canary, part_of
from rooflinesim.microbench.device import DeviceResult, bench_device, default_format, provenance
from rooflinesim.microbench.drain import drains, profile_lengths
from rooflinesim.microbench.engine.drafters import Eagle
from rooflinesim.microbench.env import Machine, probe
from rooflinesim.microbench.model_bench import Bencher, Cell, deployment, eagle_spec, predict_grid
from rooflinesim.microbench.nn import torch_dtype
from rooflinesim.microbench.store import StoredMachine, read_machine, write_machine, write_shapes
from rooflinesim.microbench.timing import Canary, Clock, choose_clock, noise_of, threads
from rooflinesim.microbench.train import Recipe, Trained, load_or_train, prompts
from rooflinesim.specs.scenario import Routing

Progress = Callable[[float, str], None]


def schedule_ranges(result: Compared, lengths: dict[int, float]) -> tuple[tuple[int, int, int], ...]:
    """Predicted K by batch for a workload with these acceptance lengths, as ranges up to the largest batch.

    Step times are the predicted ones. Between measured batch sizes the choice of the next smaller one holds.
    """
    _, predicted = result.goodputs(lengths)
    options = [0, *(k for k in result.ks if k > 0)]
    ranges: list[tuple[int, int, int]] = []
    for i, (batch, row) in enumerate(zip(result.batches, predicted, strict=True)):
        k = options[int(np.nanargmax(row))]
        high = result.batches[i + 1] - 1 if i + 1 < len(result.batches) else batch
        if ranges and ranges[-1][2] == k:
            ranges[-1] = (ranges[-1][0], high, k)
        else:
            ranges.append((1 if i == 0 else batch, high, k))
    return tuple(ranges)


@torch.no_grad()
def run_campaigns(
    names: Sequence[str],
    *,
    out: Path,
    device: str,
    n_threads: int | None,
    fmt: str | None,
    clock: str,
    scale: float = 1.0,
    quick: bool = False,
    seed: int = 1,
    machine_folder: Path | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> list[Compared]:
    """Measure the machine, then each campaign, and write everything below ``out``."""
    unknown = [name for name in names if name not in camp.PLANS]
    if unknown or not names:
        raise InputError(
            f"campaign: {', '.join(unknown) or 'none given'}; allowed are {', '.join(camp.PLANS)}"
        )
    machine = probe(device=device, n_threads=n_threads)
    number = fmt or default_format(machine)
    chosen = choose_clock(device=machine.device, n_threads=machine.n_threads, wanted=clock)
    trained = load_or_train(recipe or Recipe(), progress=part_of(progress, 0.0, 0.2))
    results = []
    with threads(machine.n_threads):
        canary = new_canary(chosen, torch_dtype(number))
        measured: StoredMachine | DeviceResult
        if machine_folder is not None:
            measured, folder = read_machine(machine_folder), out / "machines" / machine_folder.name
        else:
            result = bench_device(
                device=device,
                n_threads=n_threads,
                fmt=number,
                clock=clock,
                quick=quick,
                canary=canary,
                progress=part_of(progress, 0.2, 0.2),
            )
            measured, folder = result, out / "machines" / result.gpu.id
            write_machine(folder, result)
        for i, name in enumerate(names):
            plan = camp.PLANS[name](scale=scale)
            plan = replace(plan, seed=seed)
            if quick:
                plan = camp.smaller(plan, batches=(1, 4, 16), ks=(0, 1, 3))
            tell = part_of(progress, 0.4 + 0.6 * i / len(names), 0.6 / len(names))
            compared = _campaign(plan, trained, measured, canary, chosen, number, machine, quick, tell)
            _write(out, folder, plan, compared, measured, chosen, number)
            results.append(compared)
    return results


def _campaign(
    plan: camp.CampaignPlan,
    trained: Trained,
    measured: StoredMachine | DeviceResult,
    canary: Canary,
    clock: Clock,
    number: str,
    machine: Machine,
    quick: bool,
    progress: Progress | None,
) -> Compared:
    bench = Bencher(
        clock,
        canary,
        n_steps=3 if quick else 5,
        budget_s=0.1,
        rounds=1 if quick else 2,
        extra_rounds=0 if quick else 2,
        progress=part_of(progress, 0.0, 0.8),
    )
    target, head = camp.build(plan, trained, fmt=number, device=machine.device)
    cells = camp.run(plan, trained, bench, target=target, head=head, machine=machine)
    routing = _routing(plan, cells)
    draft = eagle_spec(plan.eagle_layer, plan.spec)
    dep = deployment(
        gpu=measured.gpu,
        calibration=measured.calibration,
        profile=measured.profile,
        target=plan.spec,
        fmt=number,
        method="eagle",
        draft=draft,
        routing=routing or Routing(),
    )
    result = Compared(
        name=plan.id,
        machine=machine,
        target=plan.spec,
        draft=draft,
        cells=tuple(cells),
        batches=plan.batches,
        ks=plan.ks,
        predicted=predict_grid(dep, batches=plan.batches, ks=plan.ks, context_tokens=mean_context(cells)),
        noise=noise_of(canary),
    )
    # prompt and longest output together stay inside the window the models were trained on: past it,
    # acceptance collapses (AL at K = 7 falls from 4.6 to 2.3), and no schedule by batch size can know that
    n, mean_tokens = (16, 8.0) if quick else (32, 21.0)

    def text(seed: int) -> Tensor:
        return prompts(trained, n=n, width=plan.prompt_tokens, seed=seed).to(machine.device)

    # the job's own acceptance: outputs wander off, so it is lower than right behind a prompt
    lengths = profile_lengths(
        target=target,
        drafter=Eagle(head, target),
        prompts=text(plan.seed + 1),
        k_max=max(plan.ks),
        mean_tokens=mean_tokens,
        temperature=plan.temperature,
        seed=plan.seed + 1,
    )
    ranges = schedule_ranges(result, lengths)
    drained = drains(
        target=target,
        drafter=lambda: Eagle(head, target),
        prompts=text(plan.seed),
        ranges=list(ranges),
        ks=[k for k in plan.ks if k in (1, 3, 5, 7)],
        mean_tokens=mean_tokens,
        clock=clock,
        canary=canary,
        n_rounds=1 if quick else 3,
        temperature=plan.temperature,
        seed=plan.seed,
        progress=part_of(progress, 0.8, 0.2),
    )
    return replace(result, drained=tuple(drained), drained_batch=n, ranges=ranges, noise=noise_of(canary))


def _write(
    out: Path,
    folder: Path,
    plan: camp.CampaignPlan,
    result: Compared,
    measured: StoredMachine | DeviceResult,
    clock: Clock,
    number: str,
) -> None:
    write_shapes(folder, result.target, result.draft)
    setup = camp.Setup(
        campaign=plan.id,
        machine=measured.gpu.id,
        gpu=measured.gpu.id,
        target=plan.spec.id,
        draft=result.draft.id,
        method="eagle",
        weights=number,
    )
    rows = [
        *camp.rows_of(result.cells),
        *camp.drain_rows(result.drained, result.ranges, batch=result.drained_batch),
    ]
    camp.write_rows(out / plan.id / "measurements.csv", setup, rows)
    texts = campaign_texts(
        plan,
        folder_name=folder.name,
        draft=result.draft,
        number=number,
        routing=_routing(plan, result.cells),
        how=provenance(result.machine, clock),
        noise=result.noise.line,
    )
    for name, text in texts.items():
        (out / plan.id / name).write_text(text, encoding="utf-8")


def _routing(plan: camp.CampaignPlan, cells: Sequence[Cell]) -> Routing | None:
    """What the router does, counted; None for a dense model."""
    moe = plan.spec.layers[0].moe
    return None if moe is None else camp.count_routing(cells, n_experts=moe.n_experts, top_k=moe.top_k)
