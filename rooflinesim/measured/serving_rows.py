"""The aggregated serving rows of ``aiconfigurator-core`` as scenarios with a measured TPOT and TTFT.

The package (NVIDIA, Apache-2.0) is read where it is installed (extra ``validation``); no row is stored here.
Which KV format, prompt budget and checkpoint parts a row ran with is not in the file: those settings are
facts of the launch scripts and stand, with their sources, in
``validation/2026_serving_rows_no_sd/scenario.yaml``.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.resources
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from rooflinesim import registry
from rooflinesim.errors import InputError, RooflinesimError
from rooflinesim.specs.files import read_yaml, spec_root
from rooflinesim.specs.scenario import Scenario

CAMPAIGN: Final = "2026_serving_rows_no_sd"
PACKAGE: Final = "aiconfigurator_core"
TABLE: Final = ("systems", "silicon_sample.csv")
#: One pair of (model, accelerator) in this many is for fitting the engines' host costs; never scored.
FIT_ONE_IN: Final = 3

_SYSTEMS: Final = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "a100_sxm": "a100-80gb-sxm",
    "l40s": "l40s",
}
#: Names of the file whose shape is another of its models': they share that one's side of the split.
_MODELS: Final = {
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-V3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-V3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}
#: What the file's quantisation words mean for the format of linear layers and experts, before a setting says
#: more.
_FORMATS: Final = {"fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4", "int4_wo": "int4", "": "bf16"}


@dataclass(frozen=True)
class ServingRow:
    """One measured point. ``pair`` is what the split hashes; ``setting`` the launch settings that were
    applied.

    isl_tokens and osl_tokens are means over requests, not the nominal maximum; ``note`` says why a row cannot
    be answered (empty: it can).
    """

    row: int
    pair: tuple[str, str]
    engine: str
    gpu: str
    model: str
    is_moe: bool
    scenario: Scenario | None
    concurrency: float
    isl_tokens: float
    osl_tokens: float
    nominal: tuple[int, int]
    max_num_batched_tokens: int | None
    stream_interval: int
    in_phase: bool
    waves: float | None
    tpot_s: float
    ttft_s: float
    precision: str
    provenance: str
    run: str  # which benchmark run: engine version and date, as far as the file says
    setting: str
    note: str = ""

    @property
    def keys(self) -> dict[str, Any]:
        """What scores are grouped by."""
        s = self.scenario
        return {
            "gpu": self.gpu,
            "engine": self.engine,
            "model": self.model,
            "precision": self.precision,
            "tp": s.tp if s else 0,
            "ep": s.ep if s else 0,
            "dp": s.dp if s else 0,
            "concurrency": self.concurrency,
            "isl": self.nominal[0],
            "osl": self.nominal[1],
            "moe": self.is_moe,
            "setting": self.setting,
            "provenance": self.provenance,
            "row": self.row,
        }


def table_path() -> Path:
    """Where the installed package keeps the rows. Errors: InputError with the command that installs it."""
    try:
        root = importlib.resources.files(PACKAGE)
    except ModuleNotFoundError:
        raise InputError(
            "serving rows: aiconfigurator-core is not installed; pip install 'rooflinesim[validation]'"
        ) from None
    return Path(str(root.joinpath(*TABLE)))


@cache
def settings() -> dict[str, Any]:
    """The campaign's scenario.yaml, its ``groups`` in the order they are tried."""
    data = read_yaml(spec_root("validation") / CAMPAIGN / "scenario.yaml")
    groups = data.get("groups", {})
    assert isinstance(groups, dict)
    return groups


def fit_pairs(pairs: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The third of the (model, accelerator) pairs that host costs may be fitted on: first by SHA-256 of the
    names.

    >>> pairs = [("a", "x"), ("b", "x"), ("c", "x")]
    >>> len(fit_pairs(pairs)), fit_pairs(pairs) == fit_pairs(reversed(pairs))
    (1, True)
    """
    ordered = sorted(set(pairs), key=lambda p: hashlib.sha256("|".join(p).encode()).hexdigest())
    return frozenset(ordered[: len(ordered) // FIT_ONE_IN])


def read_rows(path: Path | None = None) -> list[ServingRow]:
    """All aggregated rows, in file order, each with a scenario or with the reason why it has none."""
    with (path or table_path()).open(newline="", encoding="utf-8") as handle:
        return [_row(i, raw) for i, raw in enumerate(csv.DictReader(handle)) if raw["mode"] == "agg"]


def split(rows: Iterable[ServingRow]) -> tuple[list[ServingRow], list[ServingRow]]:
    """(rows that may be fitted on, rows that are scored): no (model, accelerator) pair is in both."""
    every = list(rows)
    fitted = fit_pairs(r.pair for r in every)
    return [r for r in every if r.pair in fitted], [r for r in every if r.pair not in fitted]


def _number(raw: Mapping[str, str], name: str, default: float) -> float:
    text = raw.get(name, "")
    return float(text) if text else default


def layout(raw: Mapping[str, str]) -> dict[str, int]:
    """tp, ep, dp, pp of one row as ranks of one node.

    The file's ranks obey tp·dp = moe_tp·moe_ep. Where an InferenceX run used the same ranks twice, the file
    holds their *product*: tensor and expert parallelism (tp 8 and ep 8 as tp 64, moe_tp 8, moe_ep 8), or
    attention replicas (tp 4, dp 4, ep 16 on four accelerators). Evidence: nodes of 8, and 4 H100 whose cache
    is full at 16 sequences of MiniMax-M2.5.

    >>> layout({"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8", "attention_dp_size": "1"})
    {'tp': 8, 'ep': 8, 'dp': 1, 'pp': 1}
    >>> layout({"tp_size": "1", "moe_tp_size": "4", "moe_ep_size": "4", "attention_dp_size": "16"})
    {'tp': 1, 'ep': 4, 'dp': 4, 'pp': 1}
    >>> layout({"tp_size": "4", "moe_tp_size": "1", "moe_ep_size": "16", "attention_dp_size": "4"})
    {'tp': 1, 'ep': 4, 'dp': 4, 'pp': 1}
    """
    tp, pp = max(1, int(_number(raw, "tp_size", 1))), max(1, int(_number(raw, "pp_size", 1)))
    dp, ep = max(1, int(_number(raw, "attention_dp_size", 1))), max(1, int(_number(raw, "moe_ep_size", 1)))
    moe_tp = max(1, int(_number(raw, "moe_tp_size", 1)))
    if moe_tp == ep > 1 and tp * dp == moe_tp * ep and tp * dp > 8:
        tp, dp = (1, ep) if dp > 1 else (ep, 1)
    elif moe_tp == 1 and tp == dp > 1 and ep == tp * dp:
        tp, ep = 1, dp
    return {"tp": tp, "ep": ep, "dp": dp, "pp": pp}


def provenance(raw: Mapping[str, str]) -> str:
    """Which collection a row belongs to: ``inferencex`` (dated exports) or ``author`` (local comparison
    files)."""
    text = raw["silicon_data_source"]
    return (
        "inferencex"
        if re.search(
            r"db-dump|source_file=\d{4}-\d{2}-\d{2}\.csv|source_file=[\w.-]+-gap-analysis\.csv", text
        )
        else "author"
    )


def _run(raw: Mapping[str, str]) -> str:
    date = re.search(r"measured=(\d{4}-\d{2}-\d{2})", raw["silicon_data_source"])
    return f"{raw['backend_version']} {date.group(1) if date else ''}".strip()


def probably_speculative(rows: Iterable[ServingRow]) -> frozenset[int]:
    """Rows of runs that were probably made with multi-token prediction, told by the file alone.

    The file does not say. A run (version and date) of a model with such layers is taken for speculative
    when, at up to 8 requests, its TPOT is at most 0.7 of the slowest run with the same columns, in the median
    of the points they share. Engine updates have gained less between two runs; drafted tokens halve TPOT.
    """
    at: dict[tuple[Any, ...], dict[str, float]] = {}
    every = [r for r in rows if r.scenario is not None and registry.model(r.model).n_mtp_layers > 0]
    for r in every:
        point = ((*r.pair, r.engine, r.precision), r.scenario, r.nominal, r.concurrency, 0)
        runs = at.setdefault(point, {})
        runs[r.run] = min(r.tpot_s, runs.get(r.run, math.inf))
    ratios: dict[tuple[Any, ...], list[float]] = {}
    for point, runs in at.items():
        if point[-2] <= 8 and len(runs) > 1:
            for run, value in runs.items():
                ratios.setdefault((*point[0], run), []).append(value / max(runs.values()))
    fast = {key for key, values in ratios.items() if sorted(values)[len(values) // 2] <= 0.7}
    return frozenset(r.row for r in every if (*r.pair, r.engine, r.precision, r.run) in fast)


def _matches(when: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    for key, wanted in when.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if facts[key] not in allowed:
            return False
    return True


def _row(index: int, raw: Mapping[str, str]) -> ServingRow:
    engine = raw["backend"]
    gpu = _SYSTEMS.get(raw["system"], raw["system"])
    name = _MODELS.get(raw["model_path"], raw["model_path"])
    spec = registry.model(name)
    where = layout(raw)
    facts: dict[str, Any] = {
        "engine": engine,
        "gpu": gpu,
        "model": spec.id,
        "precision": raw["precision"] or "bf16",
        "provenance": provenance(raw),
        "version": raw["backend_version"],
        "isl": int(float(raw["isl"])),
        "osl": int(float(raw["osl"])),
    }
    chosen: dict[str, Any] = {}
    used: list[str] = []
    for title, group in settings().items():
        if _matches(group.get("when", {}), facts):
            chosen.update({k: v for k, v in group.items() if k not in {"when", "source"}})
            used.append(title)
    weights = _FORMATS[raw["gemm_quant_mode"] or ""]
    experts = _FORMATS[raw["moe_quant_mode"] or ""] if spec.is_moe else None
    note, scenario = "", None
    try:
        scenario = Scenario(
            gpu=gpu,
            model=spec.id,
            draft="none",
            engine=chosen.get("engine", engine),
            weights=chosen.get("weights", weights),
            experts=chosen.get("experts", experts) if spec.is_moe else None,
            kv=chosen.get("kv", "auto"),
            skew=chosen.get("skew", 0.0) if spec.is_moe else 0.0,
            k_max=0,
            **where,
        )
    except (RooflinesimError, ValueError) as error:
        note = str(error)
    length = float(chosen.get("mean_length_frac", 1.0))
    return ServingRow(
        row=index,
        pair=(name, raw["system"]),
        engine=engine,
        gpu=gpu,
        model=spec.id,
        is_moe=spec.is_moe,
        scenario=scenario,
        concurrency=_number(raw, "batch_size", math.nan),
        isl_tokens=length * facts["isl"],
        osl_tokens=length * facts["osl"],
        nominal=(facts["isl"], facts["osl"]),
        max_num_batched_tokens=chosen.get("max_num_batched_tokens"),
        stream_interval=int(chosen.get("stream_interval", 1)),
        in_phase=bool(chosen.get("in_phase", False)),
        waves=chosen.get("waves"),
        tpot_s=_number(raw, "silicon_tpot_ms", math.nan) * 1e-3,
        ttft_s=_number(raw, "silicon_ttft_ms", math.nan) * 1e-3,
        precision=facts["precision"],
        provenance=facts["provenance"],
        run=_run(raw),
        setting=" + ".join(used),
        note=note,
    )
