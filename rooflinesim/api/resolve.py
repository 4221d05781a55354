"""From a scenario's names to specs, and the list of everything that was assumed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rooflinesim import registry
from rooflinesim.acceptance import Conversion, parse_acceptance, parse_context_table
from rooflinesim.efficiency import Ceilings, Network, ideal_calibration
from rooflinesim.errors import InputError, SpecError
from rooflinesim.specs.calibration import Calibration
from rooflinesim.specs.checks import check_gpu
from rooflinesim.specs.engine import EngineProfile
from rooflinesim.specs.files import load_yaml_spec
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.model import DraftSpec, ModelSpec
from rooflinesim.specs.scenario import Formats, Parallel, Routing, Scenario
from rooflinesim.step import HOST_DRAFTERS, Deployment
from rooflinesim.units import GIB, GIGA, KV_BYTES, MICRO, WEIGHT_BYTES

#: Drafters tried, in order, when the scenario says ``auto``.
AUTO_METHODS = ("eagle3", "mtp", "eagle")
#: A larger table of acceptance by context is refused unread.
MAX_TABLE_BYTES = 1_000_000


@dataclass(frozen=True)
class Resolved:
    """A scenario with every name looked up. ``assumed`` lists, in words, each default that was taken."""

    scenario: Scenario
    deployment: Deployment
    acceptance: Conversion
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def resolve(scenario: Scenario) -> Resolved:
    """Look everything up and check that it fits together.

    Errors: InputError or SpecError with one line naming the field.
    """
    assumed: list[str] = []
    warnings: list[str] = []
    gpu = registry.gpu(scenario.gpu)
    target = registry.model(scenario.model)
    profile = registry.engine(scenario.engine)
    given = scenario.model_fields_set
    for name, shown in (("model", target.id), ("engine", profile.id), ("gpu", gpu.id)):
        if name not in given:
            assumed.append(f"{name} {shown}")
    if "context_tokens" not in given:
        assumed.append(f"context {scenario.context_tokens[0]} tokens")
    if target.defaulted:
        assumed.append(f"model keys filled from family defaults: {', '.join(target.defaulted)}")
    if target.unrecognised:
        warnings.append(f"config keys not used: {', '.join(target.unrecognised)}")
    warnings += [f"{gpu.id}: {finding}" for finding in check_gpu(gpu)]
    longest = max(scenario.context_tokens)
    if longest > target.max_context_tokens:
        warnings.append(f"context {longest} is past the {target.max_context_tokens} tokens of {target.id}")
    parallel = Parallel(tp=scenario.tp, ep=scenario.ep, pp=scenario.pp, dp=scenario.dp)
    check_parallel(target, parallel)
    target, formats = resolve_formats(scenario, target, gpu, profile, assumed)
    method, draft = resolve_draft(scenario, target, assumed)
    if draft is not None and draft.target_id and target.id not in {draft.target_id, *draft.target_ids}:
        warnings.append(f"the head {draft.id} was made for {draft.target_id}, not for {target.id}")
    if draft is not None:
        formats = formats.model_copy(
            update={
                "draft_weights": scenario.draft_weights or draft_format(draft, formats),
                "draft_kv": formats.kv,  # one cache setting for both in every engine
            }
        )
    if method != "none" and profile.law(method) is None:
        raise InputError(
            f"--draft: {profile.id} does not support {method}; it has {', '.join(sorted(profile.draft_laws))}"
        )
    network = resolve_network(gpu, ranks=scenario.tp * scenario.dp, ideal=scenario.ideal, warnings=warnings)
    ceilings = Ceilings(
        gpu=gpu, calibration=resolve_calibration(scenario, gpu, profile, assumed), network=network
    )
    draft_parallel = resolve_draft_parallel(scenario, parallel, draft)
    deployment = Deployment(
        ceilings=ceilings,
        target=target,
        parallel=parallel,
        formats=formats,
        routing=Routing(skew=scenario.skew, overlap=scenario.overlap),
        profile=profile,
        method=method,
        draft=draft,
        draft_parallel=draft_parallel,
        draft_kv_budget_tokens=scenario.draft_kv_budget_tokens,
        max_num_seqs=scenario.max_num_seqs or default_max_num_seqs(profile, gpu),
        graphs=scenario.graphs,
        ideal=scenario.ideal,
    )
    acceptance = resolve_acceptance(scenario, method, assumed)
    if target.is_moe and scenario.overlap is None and scenario.skew == 0.0:
        assumed.append("experts chosen uniformly and independently (no skew, no overlap between tokens)")
    return Resolved(
        scenario=scenario,
        deployment=deployment,
        acceptance=acceptance,
        assumed=tuple(assumed),
        warnings=(*warnings, *acceptance.warnings),
    )


def resolve_network(gpu: GpuSpec, *, ranks: int, ideal: bool, warnings: list[str]) -> Network | None:
    """The network between usual nodes of this accelerator, when the ranks of one stage span several."""
    try:
        node = registry.node(gpu.id)
    except InputError:  # a user's own accelerator
        return None
    if ranks <= node.n_gpus:
        return None
    several = f"tp*dp = {ranks} ranks span several {node.id} of {node.n_gpus}"
    if node.scaleout is None:
        warnings.append(f"{several}: the network between them is not known and not priced, expect slower")
        return None
    latency_s = 0.0 if ideal or node.scaleout_latency is None else node.scaleout_latency.value * MICRO
    warnings.append(
        f"{several}: {node.scaleout.value:g} GB/s and {latency_s / MICRO:g} us between them is a guess"
    )
    return Network(ranks_per_node=node.n_gpus, bytes_per_s=node.scaleout.value * GIGA, latency_s=latency_s)


def check_parallel(target: ModelSpec, parallel: Parallel) -> None:
    """tp must divide the query heads, and divide or be a multiple of the KV heads; ep must divide the
    experts."""
    tp = parallel.tp
    for layer in target.layers:
        attention = layer.attention
        if attention is not None:
            if attention.n_heads % tp:
                raise InputError(
                    f"--tp: {tp} does not divide the {attention.n_heads} query heads of {target.id}"
                )
            kv = attention.n_kv_heads
            if attention.mla is None and kv % tp and tp % kv:
                raise InputError(
                    f"--tp: {tp} neither divides nor is a multiple of the {kv} KV heads of {target.id}"
                )
        if layer.moe is not None:
            ranks = parallel.tp * parallel.dp
            if parallel.ep > ranks or ranks % parallel.ep:
                raise InputError(f"--ep: {parallel.ep} must divide tp*dp = {ranks}")
            if layer.moe.n_experts % parallel.ep:
                raise InputError(
                    f"--ep: {parallel.ep} does not divide the {layer.moe.n_experts} experts of {target.id}"
                )
    if parallel.ep > 1 and not target.is_moe:
        raise InputError(f"--ep: {target.id} has no experts; use --ep 1")
    if parallel.pp > target.n_layers:
        raise InputError(f"--pp: {parallel.pp} stages for {target.n_layers} layers")


def resolve_formats(
    scenario: Scenario, target: ModelSpec, gpu: GpuSpec, profile: EngineProfile, assumed: list[str]
) -> tuple[ModelSpec, Formats]:
    """Weight, expert, activation and KV formats. A weight format does not change the KV format."""
    for field, value in (
        ("weights", scenario.weights),
        ("experts", scenario.experts),
        ("draft_weights", scenario.draft_weights),
    ):
        if value is not None and value not in WEIGHT_BYTES:
            raise InputError(
                f"--{field.replace('_', '-')}: {value!r} is not one of {', '.join(WEIGHT_BYTES)}"
            )
    if scenario.kv != "auto" and scenario.kv not in KV_BYTES:
        raise InputError(f"--kv: {scenario.kv!r} is not auto or one of {', '.join(KV_BYTES)}")
    activations = "bf16" if gpu.peak_flops_per_s("bf16") is not None else "fp16"
    weights = scenario.weights or target.native_weights
    experts = scenario.experts
    if scenario.weights is None:
        assumed.append(f"weights {weights} (as released)")
        if target.quantized_scope == "experts-only":
            experts = experts or weights
    else:
        target = target.model_copy(update={"quantized_scope": "all-linear"})
    if weights in {"bf16", "fp16"}:
        weights = activations
    kv = scenario.kv
    if kv == "auto":
        kv = activations if profile.kv_default == "auto" else profile.kv_default
        assumed.append(f"KV cache {kv} (the engine's default)")
    return target, Formats(
        weights=weights,
        experts=experts,
        activations=activations,
        kv=kv,
        head=weights if profile.quantized_head else None,
    )


def draft_format(draft: DraftSpec, formats: Formats) -> str:
    """A drafter keeps the format it was released in."""
    return formats.activations if draft.native_weights in {"bf16", "fp16"} else draft.native_weights


def resolve_draft(scenario: Scenario, target: ModelSpec, assumed: list[str]) -> tuple[str, DraftSpec | None]:
    """The drafting method and the drafter, if it has weights."""
    name = scenario.draft.strip()
    if name.lower() in {"none", "off"}:
        return "none", None
    if name.lower() in HOST_DRAFTERS:
        return name.lower(), None
    if name.lower() in {"self", "self_sparse", "self-sparse"}:
        draft = registry.draft(target.id, target=target).model_copy(update={"method": "self_sparse"})
        return "self_sparse", draft
    if name.lower() == "auto":
        draft = auto_draft(target)
        assumed.append(f"draft {draft.id} ({draft.method})")
    else:
        draft = registry.draft(name, target=target)
    if draft.defaulted:
        assumed.extend(draft.defaulted)
    method: str = draft.method
    if method == "mtp" and draft.n_modules > 1:
        method = "mtp_multi"
    if method == "draft_model" and draft.vocab_size and abs(draft.vocab_size - target.vocab_size) > 1024:
        assumed.append(
            f"draft vocabulary {draft.vocab_size} differs from the target's {target.vocab_size}: "
            "the engine must map tokens between them"
        )
    return method, draft


def auto_draft(target: ModelSpec) -> DraftSpec:
    """The published head of the first kind that exists for this target, else one with the usual widths."""
    for method in AUTO_METHODS:
        try:
            draft = registry.draft(method, target=target)
        except (InputError, SpecError):
            continue
        if not draft.defaulted or method == "mtp":
            return draft
    return registry.draft(AUTO_METHODS[0], target=target)


def resolve_draft_parallel(
    scenario: Scenario, parallel: Parallel, draft: DraftSpec | None
) -> Parallel | None:
    """The drafter runs on the target's ranks unless ``draft_tp`` says otherwise."""
    if draft is None:
        return None
    tp = scenario.draft_tp or parallel.tp
    for layer in draft.layers:
        attention = layer.attention
        if attention is not None and attention.n_heads % tp:
            raise InputError(f"--draft-tp: {tp} does not divide the {attention.n_heads} heads of {draft.id}")
    experts = [layer.moe.n_experts for layer in draft.layers if layer.moe is not None]
    ep = parallel.ep if experts and all(e % parallel.ep == 0 for e in experts) else 1
    if tp != parallel.tp:
        ep = 1
    return Parallel(tp=tp, ep=ep, pp=1, dp=parallel.dp)


def resolve_calibration(
    scenario: Scenario, gpu: GpuSpec, profile: EngineProfile, assumed: list[str]
) -> Calibration:
    """One's own file, else the fit for this accelerator and engine, else the documented rule."""
    if scenario.ideal:
        return ideal_calibration(gpu.id)
    if scenario.calibration is not None:
        return load_yaml_spec(Path(scenario.calibration), Calibration)
    if profile.kernels:
        named = registry.calibration(profile.kernels)
        if named is not None:
            return named
    found = registry.calibration(gpu.id, engine=profile.kernels or profile.engine)
    if found is None:
        found = registry.calibration("rule")
        if found is None:
            raise SpecError("hw_specs/calibrations/rule.yaml: missing from this installation")
        assumed.append(
            f"no kernel was measured on {gpu.id}: efficiencies by rule ({found.id}), wider error bars"
        )
    elif found.kind == "rule":
        assumed.append(f"no kernel table of {gpu.id}: {found.notes}")
    return with_allreduce_of(found, gpu, profile)


def with_allreduce_of(found: Calibration, gpu: GpuSpec, profile: EngineProfile) -> Calibration:
    """The calibration with the all-reduce kernels that the engine really runs on this architecture."""
    for prefix, engine in profile.allreduce_like.items():
        other = registry.calibration(gpu.id, engine=engine) if gpu.arch_target.startswith(prefix) else None
        if other is not None and other.kind == found.kind:
            return found.model_copy(update={"allreduce": other.allreduce})
    return found


def default_max_num_seqs(profile: EngineProfile, gpu: GpuSpec) -> int:
    """The engine's own limit of running requests for this memory size (graphs are captured up to it)."""
    small = gpu.memory_bytes < 70 * GIB or gpu.architecture in {"Ampere"}
    return profile.max_num_seqs["small" if small else "default"]


def resolve_acceptance(scenario: Scenario, method: str, assumed: list[str]) -> Conversion:
    """The curve the user gave, in whatever form, else the default of this drafter and workload."""
    forms = {
        "accept": scenario.accept,
        "al": scenario.al,
        "marginal": scenario.marginal,
        "conditional": scenario.conditional,
    }
    given = {name: text for name, text in forms.items() if text is not None}
    files = [
        flag
        for flag, file in (
            ("--accept-file", scenario.accept_file),
            ("--accept-by-ctx", scenario.accept_by_ctx),
        )
        if file is not None
    ]
    if files and (given or len(files) > 1):
        raise InputError(f"acceptance: give one form, not {files[0]} and another")
    if scenario.accept_by_ctx is not None:
        from rooflinesim.engines.reading import open_text

        table = open_text(scenario.accept_by_ctx, max_bytes=MAX_TABLE_BYTES)
        return parse_context_table(table.text(max_bytes=MAX_TABLE_BYTES), where=table.name)
    if scenario.accept_file is not None:
        from rooflinesim.api.logs import acceptance_from_files

        return acceptance_from_files([Path(scenario.accept_file)]).conversion
    if given:
        return parse_acceptance(**given)
    if method == "none":
        return parse_acceptance(accept="0")
    from rooflinesim.acceptance.stored import default_curve

    conversion = default_curve("mtp" if method == "mtp_multi" else method, scenario.workload)
    assumed.append(f"acceptance: {conversion.text} (default for {method}, workload {scenario.workload})")
    return conversion
