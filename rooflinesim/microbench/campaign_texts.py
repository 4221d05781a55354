"""``source.yaml`` and ``scenario.yaml`` of a measured campaign."""

from __future__ import annotations

from typing import Any

import yaml

from rooflinesim.microbench.campaign import CampaignPlan
from rooflinesim.specs.model import DraftSpec
from rooflinesim.specs.scenario import Routing


def campaign_texts(
    plan: CampaignPlan,
    *,
    folder_name: str,
    draft: DraftSpec,
    number: str,
    routing: Routing | None,
    how: str,
    noise: str,
) -> dict[str, str]:
    """``source.yaml`` and ``scenario.yaml`` of a measured campaign."""
    kind = "mixture-of-experts" if routing is not None else "dense"
    source: dict[str, Any] = {
        "title": f"Our own speculative engine on a CPU, {kind} target, batch x K",
        "citation": how,
        "url": "rooflinesim bench campaign",
        "table": "every (batch, K): step, verify, draft and sampling time, acceptance by position, goodput",
        "values": "user log",
        "caveats": [
            noise,
            "the target is a small model trained on the Python standard library's sources and grown with "
            "weights that cost time and change no output (rooflinesim.microbench.grow), so that "
            "acceptance is "
            "real and the weights do not fit into a cache",
            "goodput is batch x AL / median step, AL pooled over the batch sizes at each K",
            "steps around which a fixed piece of work ran over 20 % slow were set aside; the notes say "
            "how many",
            "the draining batch is recorded, not scored: its outputs stay inside the trained window, past "
            "which acceptance collapses",
            "CUDA: not measured (no CUDA device was available)",
        ],
    }
    here = f"machines/{folder_name}"
    scenario: dict[str, Any] = {
        "gpu": f"{here}/gpu.yaml",
        "engine": f"{here}/engine.yaml",
        "calibration": f"../{here}/calibration.yaml",
        "model": f"{here}/{plan.spec.id}.yaml",
        "draft": f"{here}/{draft.id}.yaml",
        "weights": number,
        "kv": number,
        "k_max": max(plan.ks),
        "graphs": False,
        "max_num_seqs": 4096,
    }
    if routing is not None:
        scenario.update(skew=routing.skew, overlap=routing.overlap)
    data: dict[str, Any] = {
        "scenario": scenario,
        "given": "acceptance length at each K, measured (pooled over batches)"
        + ("; skew and overlap of the router, from counted experts" if routing is not None else ""),
        "assumed": ["the calibration was fitted to primitives only; no step time of any model entered it"],
        "scores": [
            {"kind": "timing", "metric": "verify_s", "bound": {"mape": 0.25}, "target": {"mape": 0.15}},
            {"kind": "timing", "metric": "draft_s", "bound": {"mape": 0.5}, "target": {"mape": 0.2}},
            {"kind": "timing", "metric": "step_s", "bound": {"mape": 0.25}, "target": {"mape": 0.15}},
            {
                "kind": "choice",
                "metric": "output_tokens_per_s",
                "bound": {"k_regret": 0.05},
                "target": {"k_regret": 0.05},
            },
            {
                "kind": "lengths",
                "metric": "acceptance_length",
                "bound": {"mape": 0.1},
                "target": {"mape": 0.05},
                "note": "extrapolate",
            },
        ],
    }
    dump: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 110}
    return {
        "source.yaml": yaml.safe_dump(source, **dump),
        "scenario.yaml": yaml.safe_dump(data, **dump),
    }
