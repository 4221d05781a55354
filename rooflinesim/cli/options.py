"""The scenario flags that every command shares, and how lists and files of them are read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from rooflinesim.errors import InputError
from rooflinesim.specs.files import read_yaml
from rooflinesim.specs.scenario import Scenario

LAYOUT = "Parallel layout and formats"
ACCEPTANCE = "Acceptance (one form)"
ENGINE = "Engine and routing"
MAX_LIST = 100_000


def parse_list(text: str, *, flag: str) -> tuple[int, ...]:
    """Read ``1,8,64``, ``1:256`` (both ends) or ``1:256:8``, or a mix with commas.

    >>> parse_list("1,8,64:256:64", flag="--bs")
    (1, 8, 64, 128, 192, 256)
    """
    out: list[int] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        try:
            numbers = [int(b.replace("_", "")) for b in bounds]
        except ValueError:
            raise InputError(
                f"{flag}: {part.strip()!r} is not a whole number or a range like 1:256"
            ) from None
        if len(numbers) == 1:
            out.append(numbers[0])
            continue
        step = numbers[2] if len(numbers) == 3 else 1
        if len(numbers) > 3 or step < 1 or numbers[1] < numbers[0]:
            raise InputError(f"{flag}: {part.strip()!r} is not a range FIRST:LAST or FIRST:LAST:STEP")
        if (numbers[1] - numbers[0]) // step > MAX_LIST:
            raise InputError(f"{flag}: {part.strip()!r} holds more than {MAX_LIST} values")
        out.extend(range(numbers[0], numbers[1] + 1, step))
    if any(value < 1 for value in out):
        raise InputError(f"{flag}: {text!r} must hold whole numbers of 1 or more")
    return tuple(dict.fromkeys(out))


def _opt(flag: str, text: str, panel: str | None = None, *more: str) -> Any:
    return typer.Option(flag, *more, help=text, rich_help_panel=panel, show_default=False)


#: flag name in Scenario -> (annotation, default). Shown once, used by predict, sweep, schedule and tune.
FLAGS: dict[str, Any] = {
    "gpu": Annotated[str | None, _opt("--gpu", "Accelerator: a name or a YAML file. Default h100.")],
    "model": Annotated[
        str | None, _opt("--model", "Target model: a name, config.json or YAML. Default llama-3.1-8b.")
    ],
    "draft": Annotated[
        str | None,
        _opt(
            "--draft",
            "Drafter: a name, config.json, eagle3, mtp, ..., ngram, self, none. Default: the target's head.",
        ),
    ],
    "engine": Annotated[
        str | None, _opt("--engine", "vllm, sglang, trtllm, a version or YAML. Default vllm.")
    ],
    "bs": Annotated[str | None, _opt("--bs", "Batch sizes: 64, or 1,8,64, or 1:256. Default 64.")],
    "ctx": Annotated[str | None, _opt("--ctx", "Context tokens per sequence, as --bs. Default 1024.")],
    "k_max": Annotated[int | None, _opt("--k-max", "Largest K considered. Default 8.")],
    "tp": Annotated[int | None, _opt("--tp", "Tensor-parallel ranks.", LAYOUT)],
    "ep": Annotated[int | None, _opt("--ep", "Expert-parallel ranks (divides tp*dp).", LAYOUT)],
    "pp": Annotated[int | None, _opt("--pp", "Pipeline stages.", LAYOUT)],
    "dp": Annotated[int | None, _opt("--dp", "Attention replicas (data parallel).", LAYOUT)],
    "draft_tp": Annotated[
        int | None, _opt("--draft-tp", "Ranks of the drafter. Default: as the target.", LAYOUT)
    ],
    "weights": Annotated[
        str | None,
        _opt("--weights", "bf16, fp8, fp8-block, int4, mxfp4, nvfp4. Default: as released.", LAYOUT),
    ],
    "experts": Annotated[str | None, _opt("--experts", "Weight format of the experts alone.", LAYOUT)],
    "kv": Annotated[
        str | None, _opt("--kv", "KV cache: auto, bf16, fp8. Default auto (the activations').", LAYOUT)
    ],
    "draft_weights": Annotated[str | None, _opt("--draft-weights", "Weight format of the drafter.", LAYOUT)],
    "accept": Annotated[
        str | None, _opt("--accept", "C1[,DECAY]: first-position acceptance and its decay.", ACCEPTANCE)
    ],
    "al": Annotated[
        str | None, _opt("--al", "K:AL, acceptance length measured at K, as 3:2.41.", ACCEPTANCE)
    ],
    "marginal": Annotated[
        str | None, _opt("--marginal", "p1,p2,...: share of steps that accept position i.", ACCEPTANCE)
    ],
    "conditional": Annotated[
        str | None, _opt("--conditional", "c1,c2,...: acceptance given all before.", ACCEPTANCE)
    ],
    "accept_file": Annotated[
        str | None, _opt("--accept-file", "An engine's log, metrics or benchmark file.", ACCEPTANCE)
    ],
    "accept_by_ctx": Annotated[
        str | None,
        _opt(
            "--accept-by-ctx", "CSV of acceptance by context_tokens (c1,decay; p1,p2,..; k,al).", ACCEPTANCE
        ),
    ],
    "workload": Annotated[
        str | None,
        _opt("--workload", "Default curve for: mixed, chat, coding, ... Default mixed.", ACCEPTANCE),
    ],
    "max_num_seqs": Annotated[
        int | None, _opt("--max-num-seqs", "Engine's limit of running requests (sets graph sizes).", ENGINE)
    ],
    "graphs": Annotated[
        bool | None,
        typer.Option(
            "--graphs/--eager", help="CUDA graphs on or off.", rich_help_panel=ENGINE, show_default=False
        ),
    ],
    "skew": Annotated[float | None, _opt("--skew", "Expert popularity ~ rank^-SKEW. Default 0.", ENGINE)],
    "overlap": Annotated[
        float | None,
        _opt("--overlap", "Share of experts that consecutive tokens share. Default: chance.", ENGINE),
    ],
    "draft_kv_budget_tokens": Annotated[
        int | None, _opt("--draft-kv-budget", "Cache tokens a self-speculating draft reads.", ENGINE)
    ],
    "verify_curve": Annotated[
        str | None, _opt("--verify-curve", "CSV rows,ms: a measured verify curve in place of ours.", ENGINE)
    ],
    "calibration": Annotated[
        str | None, _opt("--calibration", "YAML of your own fit (rooflinesim calibrate).", ENGINE)
    ],
    "ideal": Annotated[
        bool | None,
        typer.Option(
            "--ideal",
            help="The bare roofline: no fixed cost, efficiency 1.",
            rich_help_panel=ENGINE,
            show_default=False,
        ),
    ],
    "scenario": Annotated[str | None, _opt("--scenario", "YAML with any of these (flags win).", ENGINE)],
}

_LISTS = {"bs": ("batch_sizes", "--bs"), "ctx": ("context_tokens", "--ctx")}


#: What a scenario file may call a field, beside its own name: the flag's.
_ALIASES = {"bs": "batch_sizes", "ctx": "context_tokens", "draft_kv_budget": "draft_kv_budget_tokens"}
_TEXTS = ("accept", "al", "marginal", "conditional")


def file_fields(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a scenario file, which may be written as on the command line.

    >>> file_fields({"bs": "1:3", "ctx": 512, "k-max": 4, "accept": 0.7, "marginal": [0.7, 0.4]})
    {'batch_sizes': (1, 2, 3), 'context_tokens': (512,), 'k_max': 4, 'accept': '0.7', 'marginal': '0.7,0.4'}
    """
    flags = dict(_LISTS.values())
    out: dict[str, Any] = {}
    for key, value in data.items():
        name = str(key).replace("-", "_")
        name = _ALIASES.get(name, name)
        if name in out:
            raise InputError(f"--scenario: {key} is given twice")
        if name in flags and isinstance(value, str | int) and not isinstance(value, bool):
            value = parse_list(str(value), flag=flags[name])
        elif name in _TEXTS and _is_number(value):
            value = f"{value:g}"
        elif name in _TEXTS and isinstance(value, list) and all(_is_number(item) for item in value):
            value = ",".join(f"{item:g}" for item in value)
        out[name] = value
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def build_scenario(values: dict[str, Any]) -> Scenario:
    """A Scenario from flags and, under them, a scenario file. Only what was given is set."""
    fields: dict[str, Any] = {}
    file = values.pop("scenario", None)
    if file is not None:
        fields.update(file_fields(read_yaml(Path(file))))
    for name, value in values.items():
        if value is None:
            continue
        if name in _LISTS:
            field, flag = _LISTS[name]
            fields[field] = parse_list(value, flag=flag)
        else:
            fields[name] = value
    try:
        return Scenario(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][0]) if first["loc"] else "scenario"
        flag = {field: name for name, field in _ALIASES.items()}.get(where, where).replace("_", "-")
        allowed = ", ".join(Scenario.model_fields) if first["type"] == "extra_forbidden" else ""
        hint = f"; fields are {allowed}" if allowed else f" (given: {first.get('input')!r})"
        raise InputError(f"--{flag}: {first['msg'].removeprefix('Value error, ')}{hint}") from None


def with_scenario(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every scenario flag; it receives them as one ``scenario`` argument."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for name, p in signature.parameters.items() if name != "scenario"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in FLAGS.items()
    ]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        scenario = build_scenario({name: values.pop(name) for name in FLAGS})
        return command(scenario=scenario, **values)

    wrapper.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*shared, *own]}
    del wrapper.__wrapped__
    return wrapper
