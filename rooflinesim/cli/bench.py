"""``rooflinesim bench``: measure this machine, a model on it, and a speculative engine. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine (CPU or CUDA): its primitives, a real decoder, a real speculative engine. "
    "Needs torch.",
)

Tell = Callable[[float, str], None]
DEVICE = typer.Option("auto", "--device", help="auto, cpu or cuda.")
THREADS = typer.Option(None, "--threads", min=1, help="Threads to measure with (default: every usable core).")
DTYPE = typer.Option(
    None, "--dtype", help="bf16, fp32, fp16 (default: bf16 where the hardware multiplies it)."
)
CLOCK = typer.Option(
    "auto", "--clock", help="auto, wall, or cpu: the thread's own time, for a shared machine."
)
JSON = typer.Option(False, "--json", help="Print JSON.")
SEED = typer.Option(1, "--seed", min=0, help="Seed of training, prompts and sampling.")


@contextmanager
def progress_bar(title: str) -> Iterator[Tell]:
    """A progress bar on stderr, so that stdout stays clean for JSON."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, text: bar.update(task, completed=share, description=text)


@app.command()
def device(
    device: str = DEVICE,
    threads: int | None = THREADS,
    dtype: str | None = DTYPE,
    clock: str = CLOCK,
    quick: bool = typer.Option(False, "--quick", help="At most a minute, fewer shapes (full: at most ten)."),
    out: Path | None = typer.Option(
        None, "--out", help="Folder for gpu.yaml, calibration.yaml, engine.yaml."
    ),
    json_out: bool = JSON,
) -> None:
    """Measure bandwidth, products, experts, attention and launches; fit them; write a hw_spec and a
    calibration."""
    from rooflinesim.microbench.env import require_torch

    require_torch("bench device")
    from rooflinesim.cli.bench_views import device_json, device_view
    from rooflinesim.cli.out import show, show_json
    from rooflinesim.microbench.device import bench_device
    from rooflinesim.microbench.store import write_machine

    with progress_bar("bench device") as tell:
        result = bench_device(
            device=device, n_threads=threads, fmt=dtype, clock=clock, quick=quick, progress=tell
        )
    written = write_machine(out, result) if out is not None else []
    if json_out:
        show_json(device_json(result, written))
        return
    show(device_view(result, written))


@app.command()
def model(
    model: str = typer.Option("llama-3.1-8b", "--model", help="Any model name or file; scaled to fit."),
    machine: Path | None = typer.Option(
        None, "--machine", help="Folder of bench device; measured anew if missing."
    ),
    device: str = DEVICE,
    threads: int | None = THREADS,
    dtype: str | None = DTYPE,
    clock: str = CLOCK,
    bs: str = typer.Option("1,4,16,64", "--bs", help="Batch sizes."),
    ks: str = typer.Option("0,1,3,7", "--k", help="Draft lengths."),
    ctx: int = typer.Option(128, "--ctx", min=8, help="Cached tokens per sequence."),
    max_mib: float = typer.Option(
        512.0, "--max-mib", min=1.0, help="Weights of the scaled model, MiB at most."
    ),
    json_out: bool = JSON,
) -> None:
    """Time decode, verify, draft passes and whole steps of a real decoder; predict them from primitives
    alone."""
    from rooflinesim.microbench.env import require_torch

    require_torch("bench model")
    from rooflinesim.cli.bench_views import model_json, model_view
    from rooflinesim.cli.out import show, show_json
    from rooflinesim.microbench.compare import bench_model, numbers

    with progress_bar("bench model") as tell:
        result = bench_model(
            model=model,
            machine_folder=machine,
            device=device,
            n_threads=threads,
            fmt=dtype,
            clock=clock,
            batches=numbers(bs, "--bs", low=1),
            ks=numbers(ks, "--k", low=0),
            context_tokens=ctx,
            max_bytes=max_mib * 2**20,
            progress=tell,
        )
    if json_out:
        show_json(model_json(result))
        return
    show(model_view(result))


@app.command()
def campaign(
    names: list[str] = typer.Argument(..., help="dense, moe, or both."),
    out: Path = typer.Option(..., "--out", help="Folder: one campaign folder per name, and machines/."),
    device: str = DEVICE,
    threads: int | None = THREADS,
    dtype: str | None = DTYPE,
    clock: str = CLOCK,
    scale: float = typer.Option(
        1.0, "--scale", min=0.05, max=1.0, help="Depth of the models, for small machines."
    ),
    quick: bool = typer.Option(False, "--quick", help="Fewer cells."),
    machine: Path | None = typer.Option(None, "--machine", help="A folder of bench device, used as it is."),
    seed: int = SEED,
) -> None:
    """Measure the machine and the speculative engine on trained models (about ten minutes); write
    measurements.csv."""
    from rooflinesim.microbench.env import require_torch

    require_torch("bench campaign")
    from rooflinesim.cli.bench_views import campaign_view
    from rooflinesim.cli.out import show
    from rooflinesim.microbench.campaign_run import run_campaigns

    with progress_bar("bench campaign") as tell:
        results = run_campaigns(
            names,
            out=out,
            device=device,
            n_threads=threads,
            fmt=dtype,
            clock=clock,
            scale=scale,
            quick=quick,
            seed=seed,
            machine_folder=machine,
            progress=tell,
        )
    for result in results:
        show(campaign_view(result))


@app.command()
def engine(
    draft: str = typer.Option("eagle", "--draft", help="eagle, draft_model or ngram."),
    k: int = typer.Option(3, "--k", min=0, max=16, help="Drafted tokens per step."),
    bs: int = typer.Option(8, "--bs", min=1, max=512, help="Sequences."),
    steps: int = typer.Option(40, "--steps", min=1, max=1000, help="Steps."),
    temperature: float = typer.Option(1.0, "--temperature", min=0.0, max=2.0, help="0 is greedy."),
    threads: int | None = THREADS,
    seed: int = SEED,
    json_out: bool = JSON,
) -> None:
    """Run the speculative engine on models trained here (first time: about three minutes); print real
    acceptance."""
    from rooflinesim.microbench.env import require_torch

    require_torch("bench engine")
    from rooflinesim.cli.bench_views import engine_json, engine_view
    from rooflinesim.cli.out import show, show_json
    from rooflinesim.microbench.compare import run_engine

    with progress_bar("bench engine") as tell:
        result = run_engine(
            method=draft,
            k=k,
            batch=bs,
            n_steps=steps,
            temperature=temperature,
            n_threads=threads,
            seed=seed,
            progress=tell,
        )
    if json_out:
        show_json(engine_json(result))
        return
    show(engine_view(result))


@app.command()
def figures(
    names: list[str] | None = typer.Argument(
        None, help="Measured campaigns (default: the CPU ones that are shipped)."
    ),
    out: Path = typer.Option(Path("validation/figures"), "--out", help="Folder for the PNG files."),
) -> None:
    """Draw measured campaigns: measured points on model lines. Needs no torch."""
    from rooflinesim.cli.bench_figures import draw
    from rooflinesim.validate.campaign import campaigns

    for campaign in campaigns(names or ["2026_cpu"]):
        typer.echo(str(draw(campaign, out / f"{campaign.id}.png")))
