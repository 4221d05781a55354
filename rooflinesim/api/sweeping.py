"""``sweep``: a whole (batch, K, context) grid as flat columns, in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rooflinesim.api.evaluate import evaluate
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.specs.scenario import Scenario
from rooflinesim.uncertainty import Z80, speedup_log_sd

#: Points of one chunk: a few arrays of this size live at once.
CHUNK_POINTS = 250_000
Columns = dict[str, NDArray[np.float64]]


def sweep(
    scenario: Scenario | Resolved,
    *,
    batch_sizes: Sequence[int] | None = None,
    k_values: Sequence[int] | None = None,
    context_tokens: Sequence[int] | None = None,
) -> Columns:
    """Flat columns of the whole grid, rows in (batch, k, context) order. SI units in the names."""
    parts = list(
        sweep_chunks(scenario, batch_sizes=batch_sizes, k_values=k_values, context_tokens=context_tokens)
    )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def sweep_chunks(
    scenario: Scenario | Resolved,
    *,
    batch_sizes: Sequence[int] | None = None,
    k_values: Sequence[int] | None = None,
    context_tokens: Sequence[int] | None = None,
) -> Iterator[Columns]:
    """The same in chunks of whole batches, so that memory stays bounded and progress can be shown."""
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    asked = resolved.scenario
    batches = list(asked.batch_sizes if batch_sizes is None else batch_sizes)
    contexts = list(asked.context_tokens if context_tokens is None else context_tokens)
    ks = list(range(asked.k_max + 1)) if k_values is None else list(k_values)
    if resolved.deployment.method == "none":
        ks = [0]
    width = max(1, CHUNK_POINTS // max(1, len(contexts) * len(ks)))
    for start in range(0, len(batches), width):
        yield _columns(resolved, batches[start : start + width], ks, contexts)


def n_chunks(scenario: Scenario) -> int:
    """How many chunks :func:`sweep_chunks` yields for a scenario's own grid."""
    per_batch = max(1, len(scenario.context_tokens) * (scenario.k_max + 1))
    return -(-len(scenario.batch_sizes) // max(1, CHUNK_POINTS // per_batch))


def _columns(
    resolved: Resolved, batches: Sequence[int], ks: Sequence[int], contexts: Sequence[int]
) -> Columns:
    result = evaluate(resolved, batch_sizes=batches, k_values=ks, context_tokens=contexts, n_draws=0)
    grid, step = result.grid, result.step
    shape = grid.shape

    def flat(array: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.broadcast_to(array, shape).ravel()

    sd = speedup_log_sd(step)
    best = result.best.k[:, None, :].astype(np.float64)
    return {
        "batch_size": flat(grid.batch),
        "k": flat(grid.k),
        "context_tokens": flat(grid.context),
        "draft_s": flat(step.draft_s),
        "verify_s": flat(step.verify_s),
        "sample_s": flat(step.sample_s),
        "host_s": flat(step.host_s),
        "step_s": flat(step.step_s),
        "off_step_s": flat(step.off_step_s),
        "acceptance_length": flat(result.acceptance_length[None]),
        "goodput_tokens_per_s": flat(result.goodput),
        "speedup": flat(result.speedup),
        "speedup_low": flat(result.speedup * np.exp(-Z80 * sd)),
        "speedup_high": flat(result.speedup * np.exp(Z80 * sd)),
        "best_k": flat(best),
        "in_graph": flat(step.in_graph.astype(np.float64)),
    }
