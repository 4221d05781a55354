"""``controller``: the solved table in its online form, a KController that starts where the schedule is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rooflinesim.api.scheduling import ScheduleAnswer
from rooflinesim.controller import KController
from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray

#: Rows of the controller's table beside the starts of the ranges: between two rows times are linear.
N_ROWS = 24


def controller(
    answer: ScheduleAnswer, *, captured_k: Sequence[int] | None = None, **options: Any
) -> KController:
    """A KController whose prior is the solved table: step seconds by batch and K, acceptance by position.

    ``captured_k``: the K that the server captured graphs for; the schedule's own when left out (with one K
    there is nothing to choose: capture its neighbours too). ``options`` are KController's: half lives,
    hysteresis, ties. Several contexts are averaged, as the schedule averages them.

    >>> from rooflinesim.api import Scenario
    >>> from rooflinesim.api.scheduling import schedule
    >>> answer = schedule(Scenario(accept="0.7", k_max=5), max_batch=64)
    >>> online = controller(answer)
    >>> online.next_k(1) == answer.schedule.ranges[0][2]
    True

    Errors: InputError when a captured K is not in the table.
    """
    result = answer.evaluation
    known = result.grid.k.ravel().astype(int).tolist()
    ks = sorted({int(k) for k in (answer.schedule.distinct_k if captured_k is None else captured_k)})
    missing = [k for k in ks if k not in known]
    if missing or not ks:
        raise InputError(
            f"captured_k: {missing or 'empty'}; the table holds K = {known[0]}..{known[-1]} (--k-max)"
        )
    batches = _rows(result.grid.batch.ravel(), [low for low, _, _ in answer.schedule.ranges])
    at = np.searchsorted(result.grid.batch.ravel(), batches)
    columns = [known.index(k) for k in ks]
    step_s = np.broadcast_to(result.step.step_s, result.goodput.shape)
    return KController(
        batch_sizes=[int(n) for n in batches],
        k_values=ks,
        step_s=step_s.mean(axis=2)[at][:, columns].tolist(),
        conditional=_conditional(answer, ks[-1]).tolist(),
        **options,
    )


def _rows(batches: FloatArray, starts: Sequence[int]) -> FloatArray:
    """Batch sizes of the rows: spread by ratio, and the start of every range."""
    spread = np.geomspace(batches[0], batches[-1], N_ROWS).round()
    wanted = np.union1d(spread, np.asarray(starts, dtype=np.float64))
    return np.intersect1d(wanted, batches)


def _conditional(answer: ScheduleAnswer, k_max: int) -> FloatArray:
    curve = answer.resolved.acceptance.curve
    if not curve.depends_on_context:
        return curve.conditional(k_max)
    contexts = np.asarray(answer.resolved.scenario.context_tokens, dtype=np.float64)
    mean: FloatArray = curve.conditional(k_max, context_tokens=contexts).mean(axis=0)
    return mean
