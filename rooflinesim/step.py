"""One speculative step: host + draft + verify + sample, by the engine profile's draft law.

(step) step_s = host + draft(method, engine, N, K) + verify(N·(K+1)) + sample/reject, and the plain step
beside it. "SD on, K = 0" is not "SD off": the drafter may still run and the host still does a speculative
round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinesim.efficiency import Ceilings
from rooflinesim.errors import InputError
from rooflinesim.forward import Fusion, Shape, Stack, forward
from rooflinesim.graphs import pad
from rooflinesim.grid import FloatArray, Grid
from rooflinesim.ops.base import Op
from rooflinesim.ops.elementwise import logits_passes
from rooflinesim.ops.linear import gemm
from rooflinesim.passtime import PassTime, time_pass
from rooflinesim.specs.engine import DraftLaw, EngineProfile
from rooflinesim.specs.model import DraftSpec, ModelSpec
from rooflinesim.specs.scenario import Formats, Parallel, Routing

#: Method whose draft law serves one that an engine profile does not list.
HOST_DRAFTERS = ("ngram", "suffix")


@dataclass(frozen=True)
class Deployment:
    """Everything a step's time depends on besides the batch: resolved specs, formats, engine and ceilings."""

    ceilings: Ceilings
    target: ModelSpec
    parallel: Parallel
    formats: Formats
    routing: Routing
    profile: EngineProfile
    method: str = "none"
    draft: DraftSpec | None = None
    draft_parallel: Parallel | None = None
    draft_kv_budget_tokens: float | None = None
    max_num_seqs: int = 256
    configured_k: int | None = None  # the largest K of the server; None: each K is its own server
    graphs: bool = True
    ideal: bool = False

    @property
    def speculative(self) -> bool:
        """Whether any drafter is configured."""
        return self.method != "none"


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step on the axes (batch, k, context); ``off_*`` is the same deployment without SD.

    ``families`` splits step_s by kernel family (with ``host``), ``log_sd`` gives each family's relative
    spread.
    """

    draft_s: FloatArray
    verify_s: FloatArray
    sample_s: FloatArray
    host_s: FloatArray
    step_s: FloatArray
    off_step_s: FloatArray
    families: dict[str, FloatArray]
    off_families: dict[str, FloatArray]
    log_sd: dict[str, float]
    in_graph: NDArray[np.bool_]
    verify_pass: PassTime
    off_pass: PassTime
    draft_passes: tuple[tuple[str, FloatArray, PassTime], ...]


def replica_batch(batch: FloatArray, parallel: Parallel) -> FloatArray:
    """Sequences in one replica's micro-batch: the batch is dealt over dp replicas and pp stages."""
    return np.ceil(batch / (parallel.dp * parallel.pp))


def engine_fusion(profile: EngineProfile, architecture: str = "") -> Fusion:
    """Which small kernels this engine merges for this model class."""
    plain = architecture in profile.unfused_models
    return Fusion(
        norm_quant=profile.fused_norm_quant and not plain,
        allreduce_norm=profile.fused_allreduce_norm and not plain,
        casts=plain,
        rope_in_attention=profile.fused_rope,
        qk_norm_launches=profile.qk_norm_launches,
        gather_tokens=profile.dp_exchange == "allgather",
    )


def target_pass(
    deployment: Deployment, *, batch: FloatArray, k: FloatArray, context: FloatArray
) -> tuple[PassTime, NDArray[np.bool_]]:
    """Verify pass (K = 0 is the plain decode pass): N·(K+1) tokens, padded to the engine's captured sizes."""
    d = deployment
    n = replica_batch(batch, d.parallel)
    query = k + 1.0
    padding = pad(
        profile=d.profile,
        gpu=d.ceilings.gpu,
        batch=n,
        k=k,
        max_num_seqs=d.max_num_seqs,
        enabled=d.graphs and not d.ideal,
    )
    in_graph = np.ones_like(padding.in_graph) if d.ideal else padding.in_graph
    shape = Shape(
        n_seqs=n,
        rows=padding.requests * query,
        query_tokens=query,
        context_tokens=context,
        head_rows=padding.requests * query,
    )
    ops = forward(
        stack=Stack.of_model(d.target),
        shape=shape,
        parallel=d.parallel,
        formats=d.formats,
        routing=d.routing,
        fusion=engine_fusion(d.profile, d.target.architecture),
    )
    launch = _launch_s(d)
    return time_pass(ops, d.ceilings, in_graph=in_graph, eager_launch_s=launch), in_graph


def _draft_pass(
    deployment: Deployment,
    *,
    n: FloatArray,
    tokens: FloatArray,
    context: FloatArray,
    first: bool,
    in_graph: bool,
) -> PassTime:
    """One pass of the drafter over ``tokens`` per request; logits for one row per request (parallel: per
    token)."""
    d = deployment
    parallel = d.draft_parallel or d.parallel
    formats = Formats(
        weights=d.formats.draft_weights or "bf16",
        activations=d.formats.activations,
        kv=d.formats.draft_kv or d.formats.activations,
    )
    law = _law(d)
    if d.draft is None:
        raise InputError(f"draft: method {d.method!r} needs a draft model or head")
    stack = Stack.of_draft(d.draft, d.target, first_pass=first)
    head_rows = n * tokens if law.block_tokens != "none" else n
    shape = Shape(n_seqs=n, rows=n * tokens, query_tokens=tokens, context_tokens=context, head_rows=head_rows)
    ops = forward(
        stack=stack,
        shape=shape,
        parallel=parallel,
        formats=formats,
        routing=d.routing,
        fusion=engine_fusion(d.profile, d.target.architecture),
        kv_budget_tokens=d.draft_kv_budget_tokens,
    )
    argmax = logits_passes(
        name="draft_argmax", rows=head_rows, vocab_size=stack.head_vocab, passes=0.75, launches=3.0
    )
    ops = (*ops, argmax)
    if law.block_tokens != "none" and d.draft.markov_rank:
        ops = (
            *ops,
            *_markov(d.draft.markov_rank, n=n, tokens=tokens, vocab=stack.head_vocab, tp=parallel.tp),
        )
    shape_bk = np.broadcast_shapes(n.shape, tokens.shape)
    graph = np.full(shape_bk, in_graph)
    launch = _launch_s(d)
    return time_pass(ops, d.ceilings, in_graph=graph, eager_launch_s=launch)


def _markov(rank: int, *, n: FloatArray, tokens: FloatArray, vocab: int, tp: int) -> tuple[Op, ...]:
    """A block drafter's serial refinement: at each position a rank·vocab correction and a choice."""
    depth = float(tokens.max())
    correct = gemm(
        name="markov",
        rows=n,
        in_features=rank,
        out_features=vocab / tp,
        weight_format="bf16",
        count=depth,
    )
    choose = logits_passes(
        name="markov_choice", rows=n * tokens, vocab_size=vocab / tp, passes=2.0, launches=3.0 * depth
    )
    return correct, choose


def _launch_s(deployment: Deployment) -> float:
    """Host seconds per kernel outside a graph; with graphs switched off nothing is compiled either."""
    host = deployment.profile.host
    if deployment.ideal:
        return 0.0
    if not deployment.graphs and host.uncompiled_launch_s is not None:
        return host.uncompiled_launch_s
    return host.eager_launch_s


def _law(deployment: Deployment) -> DraftLaw:
    law = deployment.profile.law(deployment.method)
    if law is None:
        known = ", ".join(sorted(deployment.profile.draft_laws))
        raise InputError(
            f"draft: {deployment.profile.id} does not support method {deployment.method!r}; it has {known}"
        )
    return law


def _draft(deployment: Deployment, grid: Grid) -> tuple[list[tuple[str, FloatArray, PassTime]], FloatArray]:
    """The drafter's passes as (label, how many times at each K, pass), and the host time it adds."""
    d, law = deployment, _law(deployment)
    parallel = d.draft_parallel or d.parallel
    n = replica_batch(grid.batch, parallel if parallel.dp == d.parallel.dp else d.parallel)
    k = grid.k
    fixed = d.configured_k is not None and not law.follows_k
    k_run = np.full_like(k, float(d.configured_k or 0)) if fixed else k
    on = np.where(k > 0, 1.0, 0.0)
    if law.at_k0 == "full":
        on_first = on_later = np.ones_like(on)
    else:
        on_first = np.ones_like(on) if law.at_k0 == "first_pass" else on
        on_later = on
    passes: list[tuple[str, FloatArray, PassTime]] = []
    one = np.ones((1, 1, 1))
    # the drafter replays its own captured graphs up to the same limit as the target
    replays = d.graphs and bool(d.profile.graph.grid)
    if law.first_pass_tokens != "none":
        extra = 1.0 if law.first_pass_tokens == "verify" else 2.0
        first = _draft_pass(d, n=n, tokens=k + extra, context=grid.context, first=True, in_graph=replays)
        modules = float(d.draft.n_modules) if d.draft is not None and d.method == "mtp_multi" else 1.0
        passes.append(("draft_first", on_first * modules, first))
    if law.later_passes != "none":
        later = _draft_pass(d, n=n, tokens=one, context=grid.context, first=False, in_graph=replays)
        less = 1.0 if law.later_passes == "k_minus_1" else 0.0
        passes.append(("draft_later", on_later * np.maximum(k_run - less, 0.0), later))
    if law.block_tokens != "none":
        width = k_run + (1.0 if law.block_tokens == "k_plus_1" else 0.0)
        block = _draft_pass(
            d, n=n, tokens=np.maximum(width, 1.0), context=grid.context, first=True, in_graph=replays
        )
        passes.append(("draft_block", on_later, block))
    host = on * law.host_s if not d.ideal else on * 0.0
    return passes, host


def _add(
    into: dict[str, FloatArray], families: dict[str, FloatArray], times: FloatArray | float = 1.0
) -> None:
    for name, seconds in families.items():
        into[name] = into.get(name, np.zeros(())) + seconds * times


def _sampling(deployment: Deployment, rows: FloatArray, *, speculative: bool) -> PassTime:
    sampler = deployment.profile.sampler
    op = logits_passes(
        name="reject" if speculative else "sample",
        rows=rows,
        vocab_size=deployment.target.vocab_size,
        passes=sampler.passes_sd if speculative else sampler.passes_off,
        launches=sampler.launches_sd if speculative else sampler.launches_off,
    )
    return time_pass([op], deployment.ceilings)


def step_time(deployment: Deployment, grid: Grid) -> StepTime:
    """Times of every (batch, k, context) of ``grid``, and of the same deployment with SD off.

    Errors: InputError when the engine does not support the method, or a draft is missing.
    """
    d = deployment
    host = d.profile.host
    own = d.ceilings.calibration
    off_fixed_s = host.off_step_s if own.off_host_s is None else own.off_host_s.value
    sd_fixed_s = host.sd_round_s if own.sd_host_s is None else own.sd_host_s.value
    scale = 0.0 if d.ideal else 1.0
    n = replica_batch(grid.batch, d.parallel)
    rounds = float(d.parallel.pp)  # each stage works on one micro-batch at a time

    off_pass, _ = target_pass(d, batch=grid.batch, k=np.zeros((1, 1, 1)), context=grid.context)
    off_sample = _sampling(d, n, speculative=False)
    off_host = scale * (off_fixed_s + host.per_request_s * n)
    off_families: dict[str, FloatArray] = {}
    _add(off_families, off_pass.families)
    _add(off_families, off_sample.families)
    off_families["host"] = off_host
    off_step = rounds * (off_pass.total_s + off_sample.total_s) + off_host

    verify, in_graph = target_pass(d, batch=grid.batch, k=grid.k, context=grid.context)
    log_sd = {**off_pass.log_sd, **off_sample.log_sd, **verify.log_sd, "host": host.rel_sd}
    families: dict[str, FloatArray] = {}
    _add(families, verify.families)
    sample = _sampling(d, n * (grid.k + 1.0), speculative=True)
    _add(families, sample.families)
    draft_s: FloatArray = np.zeros((1, 1, 1))
    per_request_s = host.per_request_s if host.sd_per_request_s is None else host.sd_per_request_s
    host_s: FloatArray = scale * (sd_fixed_s + per_request_s * n) + 0.0 * grid.k
    draft_passes: list[tuple[str, FloatArray, PassTime]] = []
    if d.speculative and d.method in HOST_DRAFTERS:
        host_s = host_s + scale * np.where(grid.k > 0, _law(d).host_s, 0.0)
    elif d.speculative:
        passes, host_extra = _draft(d, grid)
        host_s = host_s + host_extra
        for label, times, one_pass in passes:
            each = one_pass.total_s
            if not d.ideal and (host.draft_pass_s > 0.0 or host.draft_pass_per_request_s > 0.0):
                each = np.maximum(each, host.draft_pass_s) + host.draft_pass_per_request_s * n
                _add(families, {"host": (each - one_pass.total_s) * times})
            draft_s = draft_s + times * each
            _add(families, one_pass.families, times)
            log_sd.update({f: max(s, log_sd.get(f, 0.0)) for f, s in one_pass.log_sd.items()})
            draft_passes.append((label, times, one_pass))
    _add(families, {"host": host_s})
    step = rounds * (draft_s + verify.total_s + sample.total_s) + host_s
    return StepTime(
        draft_s=rounds * draft_s,
        verify_s=rounds * verify.total_s,
        sample_s=rounds * sample.total_s,
        host_s=host_s,
        step_s=step,
        off_step_s=off_step,
        families=families,
        off_families=off_families,
        log_sd=log_sd,
        in_graph=in_graph,
        verify_pass=verify,
        off_pass=off_pass,
        draft_passes=tuple(draft_passes),
    )
