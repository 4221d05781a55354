"""Which vLLM version 0.33 methods run on which model runner, and what dynamic K does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rooflinesim.engines.records import Finding


@dataclass(frozen=True)
class Method:
    """Support of one method: model runners, and whether V1 follows a dynamic K."""

    v2: bool
    v1: bool
    v1_dynamic: bool
    drafts: bool = True


#: vLLM 0.33.0: vllm/config/speculative.py, vllm/v1/spec_decode/dynamic/utils.py. Variants with
#: ``parallel_drafting`` are not told apart here.
METHODS: Final[dict[str, Method]] = {
    "eagle": Method(v2=True, v1=True, v1_dynamic=True),
    "eagle3": Method(v2=True, v1=True, v1_dynamic=True),
    "mtp": Method(v2=True, v1=True, v1_dynamic=True),
    "draft_model": Method(v2=True, v1=True, v1_dynamic=True),
    "dflash": Method(v2=True, v1=True, v1_dynamic=True),
    "dspark": Method(v2=True, v1=False, v1_dynamic=False),
    "ngram": Method(v2=True, v1=True, v1_dynamic=True),
    "ngram_gpu": Method(v2=True, v1=True, v1_dynamic=False),
    "suffix": Method(v2=False, v1=True, v1_dynamic=False),
    "custom_class": Method(v2=False, v1=True, v1_dynamic=False),
    "extract_hidden_states": Method(v2=True, v1=True, v1_dynamic=False, drafts=False),
}
#: Gone in 0.33.0.
REMOVED: Final = ("medusa", "mlp_speculator")


def method_findings(method: str, *, runner: str, data_parallel: int, dynamic: bool) -> list[Finding]:
    """What the engine silently does not do for this method.

    >>> [finding.code for finding in method_findings("suffix", runner="v1", data_parallel=2, dynamic=True)]
    ['dp-static', 'v1-static']
    """
    if method in REMOVED:
        return [Finding("method-removed", f"method {method!r} no longer exists in vLLM 0.33", "error")]
    known = METHODS.get(method)
    if known is None:
        if method.endswith("_mtp"):
            return [
                Finding("method-alias", f"method {method!r} is deprecated; vLLM rewrites it to 'mtp'", "note")
            ]
        return [Finding("method-unknown", f"method {method!r} is not one of {', '.join(METHODS)}", "error")]
    found: list[Finding] = []
    if not known.drafts:
        found.append(Finding("no-drafts", f"method {method!r} drafts nothing: no speculation", "error"))
    if runner == "v2" and not known.v2:
        found.append(
            Finding("v2-unsupported", f"method {method!r} does not run on the V2 model runner; V1 is used")
        )
    if runner == "v1" and not known.v1:
        found.append(
            Finding("v1-unsupported", f"method {method!r} does not run on the V1 model runner", "error")
        )
    if not dynamic:
        return found
    if data_parallel > 1:
        found.append(
            Finding(
                "dp-static",
                f"data parallel {data_parallel}: vLLM switches the K table off and runs the static K",
            )
        )
    on_v1 = runner == "v1" or not known.v2
    if on_v1 and not known.v1_dynamic:
        found.append(
            Finding("v1-static", f"on the V1 runner method {method!r} ignores the K table: static K")
        )
    elif on_v1:
        found.append(Finding("v1-piecewise", "on the V1 runner a K table forces PIECEWISE CUDA graphs"))
    elif method == "draft_model":
        found.append(
            Finding(
                "draft-constant",
                "the V2 draft model always drafts num_speculative_tokens: only verify gets cheaper",
            )
        )
    elif method in ("dflash", "dspark"):
        found.append(
            Finding(
                "draft-constant", f"{method} drafts its whole block at any K > 0: only verify gets cheaper"
            )
        )
    return found
