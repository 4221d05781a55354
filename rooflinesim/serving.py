"""Steady state of a continuously batched engine: time per output token and time to first token.

A closed loop of N requests, each with S_in prompt and S_out output tokens. Every output token of a request is
one decode step of the whole batch, and while it decodes the other requests' prompts are computed: N·S_in
prompt tokens per S_out steps. What a prompt adds to a step is the step with the prompt in it minus the step
without.

(serve) TPOT = t_dec + (1 − 1/N)·E,  E = p·c·(t_mix − t_dec)  (mixed)  or  E = p·c·t_pre  (prompts first)

r = N/S_out prompts start per step (rate of a Poisson stream, μ = r/dp on each attention replica), p = 1 −
e^−r of the steps carry one, m = E[max over replicas]/p prompts at once on the fullest replica, c = ⌈m·S_in/C⌉
chunks within the token budget C. Tokens are conserved: p·m·S_in = r·S_in prompt tokens per step when dp = 1.

(ttft) TTFT = t_request + t_wait + c·t_pass: work outside the steps, the step under way when the request
arrives, then its own chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflinesim.forward import Shape, Stack, forward
from rooflinesim.grid import FloatArray, Grid
from rooflinesim.memory import footprint
from rooflinesim.ops.base import Op
from rooflinesim.passtime import PassTime, time_pass
from rooflinesim.step import Deployment, StepTime, engine_fusion, replica_batch, step_time

#: Families of ops that a prompt and the running sequences do not share: each reads its own cache.
OWN_CACHE = ("attention", "linear_state", "indexer")


@dataclass(frozen=True)
class Serving:
    """Times of each load, arrays of one shape. ``families`` splits tpot_s by kernel family.

    decode_step_s: a step without prompts; prefill_pass_s: one pass with a chunk of prompt (and, mixed, the
    batch); prefill_share_frac: the part of TPOT that prompts add; running: sequences decoding at once.
    """

    tpot_s: FloatArray
    ttft_s: FloatArray
    decode_step_s: FloatArray
    prefill_pass_s: FloatArray
    prefill_share_frac: FloatArray
    prefill_tokens_per_step: FloatArray
    running: FloatArray
    families: dict[str, FloatArray]
    log_sd: dict[str, float]
    step: StepTime


def busiest_replica(*, rate: FloatArray, n_replicas: int) -> FloatArray:
    """Expected prompts on the fullest of ``n_replicas`` replicas in one step, E[max of
    Poisson(rate/replicas)].

    The replicas meet at every expert layer, so the fullest sets the step. One replica: the rate itself.

    >>> busiest_replica(rate=np.array([0.5, 8.0]), n_replicas=1)
    array([0.5, 8. ])
    >>> busiest_replica(rate=np.array([0.01, 8.0]), n_replicas=8).round(3)
    array([0.01 , 2.579])
    """
    if n_replicas <= 1:
        return np.asarray(rate, dtype=np.float64)
    mu = np.asarray(rate, dtype=np.float64) / n_replicas
    total = np.zeros_like(mu)
    term, below = np.exp(-mu), np.exp(-mu)
    for count in range(1, int(np.ceil(mu.max() + 12.0 * np.sqrt(mu.max()) + 12.0))):
        total = total + (1.0 - np.power(np.minimum(below, 1.0), n_replicas))
        term = term * mu / count
        below = below + term
    return total


def prefill_pass(
    deployment: Deployment,
    *,
    prompts: FloatArray,
    chunk_tokens: FloatArray,
    cached_tokens: FloatArray,
    decoding: FloatArray,
    context_tokens: FloatArray,
) -> PassTime:
    """One pass over ``chunk_tokens`` of each of ``prompts`` (``cached_tokens`` of it done) and ``decoding``
    sequences.

    All tokens share the dense products and the experts; the prompt and each sequence read their own cache.
    Beyond the sizes of the piecewise graphs the host launches every kernel.
    """
    d = deployment
    one = np.ones_like(chunk_tokens)
    rows = prompts * chunk_tokens + decoding
    prompt = Shape(
        n_seqs=prompts,
        rows=rows,
        query_tokens=chunk_tokens,
        context_tokens=cached_tokens,
        head_rows=decoding + prompts,
        prefill=True,
    )
    common = {
        "stack": Stack.of_model(d.target),
        "parallel": d.parallel,
        "formats": d.formats,
        "routing": d.routing,
        "fusion": engine_fusion(d.profile, d.target.architecture),
    }
    ops: list[Op] = list(forward(shape=prompt, **common))  # type: ignore[arg-type]
    if np.any(decoding > 0):
        running = Shape(
            n_seqs=decoding,
            rows=decoding,
            query_tokens=one,
            context_tokens=context_tokens,
            head_rows=decoding,
        )
        ops += [op for op in forward(shape=running, **common) if op.family in OWN_CACHE]  # type: ignore[arg-type]
    in_graph = rows <= d.profile.piecewise_graph_tokens
    launch = 0.0 if d.ideal else d.profile.host.eager_launch_s
    return time_pass(ops, d.ceilings, in_graph=np.asarray(in_graph), eager_launch_s=launch)


def kv_limit(
    deployment: Deployment, *, isl_tokens: FloatArray, osl_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(sequences that the cache holds, share of a sequence's cache that only grows while it decodes). Shapes
    (n,).

    A scheduler that reserves the whole answer admits M/(S_in + S_out) sequences, one that admits by the
    prompt alone runs M/(S_in + S_out/2) on average and preempts; M is what the footprint leaves for the
    cache. Where the footprint says that the weights do not fit, memory is not modelled: infinite.
    """
    d = deployment
    reserved = d.profile.kv_admission == "reserved"
    held = np.rint(isl_tokens + (1.0 if reserved else 0.5) * osl_tokens)
    limit = np.full(held.shape, np.inf)
    for tokens in np.unique(held):  # a handful of lengths, each one footprint
        memory = footprint(
            gpu=d.ceilings.gpu,
            target=d.target,
            parallel=d.parallel,
            formats=d.formats,
            profile=d.profile,
            context_tokens=int(tokens),
        )
        fits = memory.free_bytes / max(memory.bytes_per_seq, 1.0) * d.parallel.dp
        if fits >= 1.0:
            limit[held == tokens] = fits
    grows = np.zeros_like(limit) if reserved else 0.5 * osl_tokens / (isl_tokens + 0.5 * osl_tokens)
    return limit, grows


def serve(
    deployment: Deployment,
    *,
    concurrency: FloatArray,
    isl_tokens: FloatArray,
    osl_tokens: FloatArray,
    max_num_batched_tokens: int | None = None,
    in_phase: bool = False,
    waves: float | None = None,
) -> Serving:
    """(serve), (ttft) for each load; the three arrays have one flat shape (n,).

    ``concurrency`` N requests in flight over all replicas, ``isl_tokens`` S_in and ``osl_tokens`` S_out on
    average, ``max_num_batched_tokens`` C per replica (``None``: the engine's). No prefix is cached.

    ``in_phase``: every request has the same lengths, so those that start together stay together: where
    prompts go first all are done before any sequence decodes, and only those behind a request's own cost it
    decode time. ``waves``: the load starts as one burst of N and each slot serves this many requests
    (``None``: steady state only).

    When the cache holds fewer than N sequences the rest waits: the time goes to TTFT, or, as far as a cache
    only fills up while decoding and the scheduler preempts, to TPOT.
    """
    d = deployment
    n_all = np.maximum(np.asarray(concurrency, dtype=np.float64), 1.0)
    isl = np.maximum(np.asarray(isl_tokens, dtype=np.float64), 1.0)
    osl = np.maximum(np.asarray(osl_tokens, dtype=np.float64), 1.0)
    budget = float(max_num_batched_tokens or d.profile.max_num_batched_tokens)
    holds, grows = kv_limit(d, isl_tokens=isl, osl_tokens=osl)
    limit = np.minimum(holds, float(d.max_num_seqs * d.parallel.dp * d.parallel.pp))
    waiting = np.maximum(n_all / limit - 1.0, 0.0)
    admitted = np.minimum(n_all, limit)
    decode_steps = np.maximum(osl - 1.0, 1.0)
    running = admitted
    for _ in range(3):  # the share of requests that are still in their prompt depends on the answer
        result = _steady(d, running, isl, osl, budget, in_phase)
        own = decode_steps * result.tpot_s
        running = np.clip(admitted * own / (own + result.ttft_s), 1.0, None)
    tpot, ttft = result.tpot_s, result.ttft_s
    whole = decode_steps * tpot + ttft
    burst = _burst(d, admitted, isl, budget)
    if in_phase and d.profile.prefill_policy == "first":
        ttft = np.maximum(ttft, burst)
    elif waves is not None:
        ttft = ttft + np.maximum(burst - ttft, 0.0) / waves
    ttft = ttft + waiting * (1.0 - grows) * whole + (0.0 if d.ideal else d.profile.host.request_s)
    tpot = tpot + waiting * grows * whole / decode_steps
    return replace(result, tpot_s=tpot, ttft_s=ttft, running=running)


def _burst(d: Deployment, n: FloatArray, isl: FloatArray, budget: float) -> FloatArray:
    """Mean wait when N prompts arrive at once: (passes + 1)/2 passes of a full budget, and one to hand
    over."""
    prompts = n / d.parallel.dp
    full = np.minimum(prompts * isl, budget)
    passes = prompts * isl / full
    chunk = np.minimum(full, isl)
    zero = np.zeros_like(n).reshape(-1, 1, 1)
    one_pass = prefill_pass(
        d,
        prompts=(full / chunk).reshape(-1, 1, 1),
        chunk_tokens=chunk.reshape(-1, 1, 1),
        cached_tokens=(0.5 * (isl - chunk)).reshape(-1, 1, 1),
        decoding=zero,
        context_tokens=zero,
    )
    return np.asarray(0.5 * (passes + 1.0) * float(d.parallel.pp) * one_pass.total_s.ravel())


def _steady(
    d: Deployment, running: FloatArray, isl: FloatArray, osl: FloatArray, budget: float, in_phase: bool
) -> Serving:
    column = (-1, 1, 1)
    n = running.reshape(column)
    context = (isl + 0.5 * osl).reshape(column)
    grid = Grid(batch=n, k=np.zeros((1, 1, 1)), context=context)
    step = step_time(d, grid)
    decode = step.off_step_s.ravel()
    per_rank = replica_batch(n, d.parallel).ravel()
    mixed = d.profile.prefill_policy == "mixed"
    together_phase = in_phase and not mixed

    rate = running / osl
    busy = 1.0 - np.exp(-rate)
    together = busiest_replica(rate=rate, n_replicas=d.parallel.dp) / busy
    room = np.maximum(budget - (per_rank if mixed else 0.0), 0.25 * budget)
    if together_phase:  # one burst of all prompts per answer
        busy, together = 1.0 / osl, running / d.parallel.dp
    tokens = together * isl
    chunks = np.ceil(tokens / room)
    chunk = tokens / chunks
    own = np.minimum(chunk, isl)  # of one prompt; its earlier chunks are cached, half of the rest on average
    one_pass = prefill_pass(
        d,
        prompts=(chunk / own).reshape(column),
        chunk_tokens=own.reshape(column),
        cached_tokens=(0.5 * (isl - own)).reshape(column),
        decoding=(per_rank if mixed else 0.0 * per_rank).reshape(column),
        context_tokens=context,
    )
    rounds = float(d.parallel.pp)
    host = np.broadcast_to(step.off_families["host"], step.off_step_s.shape).ravel()
    pass_s = rounds * one_pass.total_s.ravel() + (
        host if mixed else d.profile.host.off_step_s * (not d.ideal)
    )
    if together_phase:
        # its first token comes back while the next pass runs: of c passes, (c − 1)(c − 2)/2c are behind it
        # on average
        share = busy * np.maximum(chunks - 1.0, 0.0) * np.maximum(chunks - 2.0, 0.0) / (2.0 * chunks) * pass_s
    else:
        extra = busy * chunks * (np.maximum(pass_s - decode, 0.0) if mixed else pass_s)
        share = (1.0 - 1.0 / np.maximum(running, 1.0)) * extra
    tpot = decode + share
    # a request arrives at the end of a step and waits for the next one to finish, plain or not
    ttft = tpot + np.ceil(isl / room) * pass_s
    families = {
        name: np.broadcast_to(v if name == "host" else rounds * v, step.off_step_s.shape).ravel()
        for name, v in step.off_families.items()
    }
    families["prefill"] = share
    return Serving(
        tpot_s=tpot,
        ttft_s=ttft,
        decode_step_s=decode,
        prefill_pass_s=pass_s,
        prefill_share_frac=share / tpot,
        prefill_tokens_per_step=busy * tokens,
        running=running,
        families=families,
        log_sd={**step.log_sd, "prefill": 0.3},
        step=step,
    )
