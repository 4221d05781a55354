"""From a table of goodput by batch and K to the fewest ranges whose regret stays small.

Regret of K at batch b = 1 - goodput[b, K]/max_K goodput[b]: the fraction of goodput lost there by not using
the best K. A switch of K costs nothing in the table, but each distinct K costs graph captures and each range
a line that an operator must believe, hence: few ranges, few K.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from rooflinesim.acceptance.formulas import FloatArray
from rooflinesim.errors import InputError
from rooflinesim.schedule.form import IntArray, Schedule
from rooflinesim.solver import best_fixed_k

#: Sets of K tried at most when their number is limited; beyond it the sets with the lowest mean regret are
#: kept.
_MAX_SETS: Final = 20_000
_CHUNK: Final = 1_000


@dataclass(frozen=True)
class RangeReport:
    """One range: largest regret inside, and mean gains (fractions) of its K over its rivals."""

    low: int
    high: int
    k: int
    regret_max: float
    gain_over_off: float | None
    gain_over_best_fixed: float

    @property
    def off_is_better(self) -> bool:
        """Whether this range should run without speculation at all (its K pays less than *SD off*)."""
        return self.gain_over_off is not None and self.gain_over_off < 0.0


@dataclass(frozen=True)
class SolvedSchedule:
    """A schedule with what it costs and brings; fractions, over the batches of the table."""

    schedule: Schedule
    regret_max: float
    regret_mean: float
    best_fixed: int
    gain_over_off: float | None
    gain_over_best_fixed: float
    ranges: tuple[RangeReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def off_altogether(self) -> bool:
        """Whether speculation pays in no range."""
        return all(r.gain_over_off is not None and r.gain_over_off <= 0.0 for r in self.ranges)


def regret_table(goodput: ArrayLike) -> FloatArray:
    """1 - goodput/max over the last axis (K); nan (does not run) becomes infinite regret.

    >>> regret_table([[10.0, 8.0], [5.0, float("nan")]]).round(2).tolist()
    [[0.0, 0.2], [0.0, inf]]
    """
    table = np.asarray(goodput, dtype=np.float64)
    runs = np.isfinite(table)
    if not np.all(runs.any(axis=-1)):
        raise InputError("schedule: at some batch no K runs at all; lower the largest batch")
    best = np.where(runs, table, -np.inf).max(axis=-1, keepdims=True)
    out: FloatArray = np.where(runs, 1.0 - np.where(runs, table, 0.0) / best, np.inf)
    return out


def _check(batch_size: ArrayLike, k: ArrayLike, goodput: ArrayLike) -> tuple[IntArray, IntArray, FloatArray]:
    n, ks = np.asarray(batch_size, dtype=np.int64), np.asarray(k, dtype=np.int64)
    table = np.asarray(goodput, dtype=np.float64)
    if n.ndim != 1 or n.size == 0 or n[0] < 1 or np.any(np.diff(n) <= 0):
        raise InputError("schedule: batch sizes must rise from at least 1")
    if ks.ndim != 1 or np.any(np.diff(ks) <= 0) or np.any(ks < 0):
        raise InputError("schedule: k must be rising whole numbers that are not negative")
    if table.shape[:2] != (n.size, ks.size):
        raise InputError(f"schedule: goodput of shape {table.shape} is not ({n.size} batches, {ks.size} K)")
    return n, ks, table


def schedule_regret(
    *, schedule: Schedule, batch_size: ArrayLike, k: ArrayLike, goodput: ArrayLike
) -> FloatArray:
    """Regret of any schedule at every batch of a table (batch, k): fractions, shape (batch,).

    >>> three = Schedule(((1, 9, 3),))
    >>> schedule_regret(schedule=three, batch_size=[1, 8], k=[1, 3], goodput=[[1, 2], [4, 3]]).tolist()
    [0.0, 0.25]
    """
    n, ks, table = _check(batch_size, k, goodput)
    wanted = schedule.lookup(n)
    missing = sorted(set(wanted.tolist()) - set(ks.tolist()))
    if missing:
        raise InputError(f"schedule: K = {missing[0]} is not in the table (K = {', '.join(map(str, ks))})")
    regret = regret_table(table)
    out: FloatArray = regret[np.arange(n.size), np.searchsorted(ks, wanted)]
    return out


def _sets(n_k: int, zero: bool, limit: int | None, regret: FloatArray) -> np.ndarray:
    """Masks (sets, K) of the K allowed together; K = 0 needs no limit, it drafts nothing."""
    positive = list(range(1 if zero else 0, n_k))
    if limit is None or limit >= len(positive):
        return np.ones((1, n_k), dtype=bool)
    if limit < 0 or (limit == 0 and not zero):
        raise InputError(f"schedule: at most {limit} distinct K >= 1 leaves no K at all")
    # the most useful K first, so that a cut list of sets holds the promising ones
    order = sorted(positive, key=lambda j: float(np.minimum(regret[:, j], 1.0).mean()))
    chosen = list(islice(combinations(order, limit), _MAX_SETS))
    masks = np.zeros((len(chosen), n_k), dtype=bool)
    for row, members in enumerate(chosen):
        masks[row, list(members)] = True
    masks[:, :1] |= zero
    return masks


def _worst(masks: np.ndarray, regret: FloatArray) -> FloatArray:
    """The largest regret of each set when every batch takes the best K in it, shape (sets,)."""
    out = np.empty(masks.shape[0])
    for start in range(0, masks.shape[0], _CHUNK):
        part = masks[start : start + _CHUNK]
        worst = np.zeros(part.shape[0])
        for row in regret:
            np.maximum(worst, np.where(part, row, np.inf).min(axis=1), out=worst)
        out[start : start + _CHUNK] = worst
    return out


def _fewest_ranges(masks: np.ndarray, regret: FloatArray, bound: float) -> IntArray:
    """Dynamic programme: per set, fewest ranges with regret <= bound, then the least total regret; the best
    path.

    State: K of the current batch. Staying adds its regret, switching adds one range as well.
    """
    per_row = np.where(regret <= bound, regret, np.inf)
    range_cost = float(np.sum(np.where(np.isfinite(per_row), per_row, 0.0).max(axis=1))) + 1.0
    totals = np.empty(masks.shape[0])
    for start in range(0, masks.shape[0], _CHUNK):
        allowed = np.where(masks[start : start + _CHUNK], 0.0, np.inf)
        cost = allowed + per_row[0] + range_cost
        for row in per_row[1:]:
            cost = np.minimum(cost, cost.min(axis=1, keepdims=True) + range_cost) + row + allowed
        totals[start : start + _CHUNK] = cost.min(axis=1)
    # again for the best set alone, now with the way back
    allowed = np.where(masks[int(np.argmin(totals))], 0.0, np.inf)
    cost = allowed + per_row[0] + range_cost
    n_k = cost.size
    came = np.empty((regret.shape[0], n_k), dtype=np.int64)
    for i, row in enumerate(per_row[1:], start=1):
        source = int(np.argmin(cost))
        switch = cost[source] + range_cost
        came[i] = np.where(cost <= switch, np.arange(n_k), source)
        cost = np.minimum(cost, switch) + row + allowed
    path = np.empty(regret.shape[0], dtype=np.int64)
    path[-1] = int(np.argmin(cost))
    for i in range(regret.shape[0] - 1, 0, -1):
        path[i - 1] = came[i, path[i]]
    return path


def _absorb_short(path: IntArray, n: IntArray, regret: FloatArray, min_range: int, bound: float) -> IntArray:
    """Give a range of fewer than ``min_range`` batches the K of a neighbour, unless it costs too much."""
    path = path.copy()
    refused: set[int] = set()
    while True:
        starts = np.flatnonzero(np.concatenate([[True], np.diff(path) != 0]))
        ends = np.concatenate([starts[1:], [path.size]])
        highs = np.concatenate([n[starts[1:]] - 1, n[-1:]])
        lows = np.concatenate([[1], n[starts[1:]]])
        lengths = highs - lows + 1
        short = [
            i
            for i in np.argsort(lengths, kind="stable")
            if lengths[i] < min_range and starts[i] not in refused
        ]
        if starts.size == 1 or not short:
            return path
        at = int(short[0])
        rows = slice(int(starts[at]), int(ends[at]))
        neighbours = [int(path[starts[j]]) for j in (at - 1, at + 1) if 0 <= j < starts.size]
        costs = [float(regret[rows, j].max()) for j in neighbours]
        if min(costs) <= bound:
            path[rows] = neighbours[int(np.argmin(costs))]
        else:
            refused.add(int(starts[at]))


def solve_schedule(
    *,
    batch_size: ArrayLike,
    k: ArrayLike,
    goodput: ArrayLike,
    off_goodput: ArrayLike | None = None,
    max_regret_frac: float = 0.01,
    max_distinct: int | None = None,
    min_range_batches: int = 1,
    min_range_regret_frac: float = 0.03,
    weights: ArrayLike | None = None,
) -> SolvedSchedule:
    """(sched) The fewest contiguous batch ranges with regret <= max_regret_frac at every batch of the table.

    batch_size: (B,) rising, best 1, 2, 3, ... k: (K,) rising. goodput: (B, K) tokens/s, nan where it does
    not run. off_goodput: (B,) of SD off. max_distinct: at most so many different K >= 1 (each costs graph
    captures); where that cannot keep the bound, the smallest reachable regret is used instead, with a note.
    min_range_batches (hysteresis): shorter ranges join a neighbour, unless that costs more than
    min_range_regret_frac. weights: (B,) share of time at each batch, for the gains. Among equally few ranges
    the least total regret wins; exact.

    >>> solved = solve_schedule(batch_size=[1, 2, 3], k=[0, 2], goodput=[[1.0, 2.0], [2.0, 2.01], [3.0, 2.0]])
    >>> solved.schedule.ranges, round(solved.regret_max, 3)
    (((1, 2, 2), (3, 3, 0)), 0.0)
    """
    n, ks, table = _check(batch_size, k, goodput)
    if table.ndim != 2:
        raise InputError("schedule: goodput has a context axis; use solve_schedule_over_context")
    if not 0.0 <= max_regret_frac < 1.0:
        raise InputError(f"schedule: regret bound {max_regret_frac:g} must be in 0..1")
    regret = regret_table(table)
    masks = _sets(ks.size, bool(ks[0] == 0), max_distinct, regret)
    notes = []
    bound = max_regret_frac
    worst = _worst(masks, regret)
    if worst.min() > bound:
        bound = float(worst.min())
        notes.append(
            f"with at most {max_distinct} distinct K the regret cannot stay below {max_regret_frac:.1%}: "
            f"the least reachable is {bound:.1%}"
        )
    slack = bound + 1e-12
    path = _fewest_ranges(masks[worst <= slack], regret, slack)
    if min_range_batches > 1:
        path = _absorb_short(path, n, regret, min_range_batches, max(min_range_regret_frac, slack))
    if n.size > 1 and np.any(np.diff(n) > 1):
        notes.append("batches between the points of the table take the K of the point below")
    schedule = Schedule.from_grid(batch_size=n, k=ks[path])
    return _report(schedule, n, ks, table, regret, off_goodput, weights, tuple(notes))


def evaluate_schedule(
    *,
    schedule: Schedule,
    batch_size: ArrayLike,
    k: ArrayLike,
    goodput: ArrayLike,
    off_goodput: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> SolvedSchedule:
    """The same report for a schedule that came from elsewhere (an engine's file, another tool).

    >>> report = evaluate_schedule(
    ...     schedule=Schedule(((1, 3, 2),)), batch_size=[1, 3], k=[0, 2], goodput=[[1.0, 2.0], [3.0, 1.5]]
    ... )
    >>> report.regret_max, report.best_fixed
    (0.5, 0)
    """
    n, ks, table = _check(batch_size, k, goodput)
    schedule_regret(
        schedule=schedule, batch_size=n, k=ks, goodput=table
    )  # K outside the table is refused there
    return _report(schedule, n, ks, table, regret_table(table), off_goodput, weights, ())


def _report(
    schedule: Schedule,
    n: IntArray,
    ks: IntArray,
    table: FloatArray,
    regret: FloatArray,
    off_goodput: ArrayLike | None,
    weights: ArrayLike | None,
    notes: tuple[str, ...],
) -> SolvedSchedule:
    rows = np.arange(n.size)
    at = np.searchsorted(ks, schedule.lookup(n))
    mine, lost = table[rows, at], regret[rows, at]
    share = np.ones(n.size) if weights is None else np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    # a K that does not run at some batch cannot be the fixed one
    fixed = best_fixed_k(k=ks, goodput=np.where(np.isfinite(table), table, 0.0), weights=weights)
    rival = table[:, int(np.searchsorted(ks, fixed.k))]
    off = None if off_goodput is None else np.asarray(off_goodput, dtype=np.float64)

    def gain(over: FloatArray, pick: np.ndarray) -> float:
        pick = pick & np.isfinite(over)
        if not pick.any():
            return float("nan")
        if weights is None:
            return float(np.mean(mine[pick] / over[pick])) - 1.0
        return float(np.sum(share[pick] * mine[pick]) / np.sum(share[pick] * over[pick])) - 1.0

    reports = []
    for lo, hi, k in schedule.ranges:
        inside = (n >= lo) & (n <= hi)
        if not inside.any():
            continue
        over_off = None if off is None else gain(off, inside)
        reports.append(RangeReport(lo, hi, k, float(lost[inside].max()), over_off, gain(rival, inside)))
    everywhere = np.ones(n.size, dtype=bool)
    return SolvedSchedule(
        schedule=schedule,
        regret_max=float(lost.max()),
        regret_mean=float(np.sum(share * lost)),
        best_fixed=fixed.k,
        gain_over_off=None if off is None else gain(off, everywhere),
        gain_over_best_fixed=gain(rival, everywhere),
        ranges=tuple(reports),
        notes=notes,
    )


@dataclass(frozen=True)
class ContextSchedule:
    """A (batch x context) table solved at each context, and collapsed to one schedule for a context mix.

    ``regret_by_context``: largest regret of the collapsed schedule at each context; ``regret_mix``: goodput
    lost, under the mix, against choosing K by batch *and* context (largest over batches).
    """

    collapsed: SolvedSchedule
    by_context: tuple[SolvedSchedule, ...]
    regret_by_context: FloatArray
    regret_mix: float


def solve_schedule_over_context(
    *,
    batch_size: ArrayLike,
    k: ArrayLike,
    goodput: ArrayLike,
    context_weights: ArrayLike,
    off_goodput: ArrayLike | None = None,
    max_regret_frac: float = 0.01,
    max_distinct: int | None = None,
    min_range_batches: int = 1,
    min_range_regret_frac: float = 0.03,
    weights: ArrayLike | None = None,
) -> ContextSchedule:
    """(sched) Engines index K by batch alone: solve at every context, then once for the mix, and say what
    that loses.

    goodput: (B, K, C); context_weights: (C,) share of time at each context; off_goodput: (B, C). The
    collapsed table is Σ_c w_c goodput[:, :, c]. The other arguments as in ``solve_schedule``.

    >>> table = np.array([[[1.0, 3.0], [2.0, 2.0]]])  # one batch, K = 0 and 2, two contexts
    >>> solved = solve_schedule_over_context(
    ...     batch_size=[1], k=[0, 2], goodput=table, context_weights=[0.9, 0.1]
    ... )
    >>> solved.collapsed.schedule.ranges, solved.regret_by_context.round(2).tolist()
    (((1, 1, 2),), [0.0, 0.33])
    >>> round(solved.regret_mix, 3)
    0.048
    """
    n, ks, table = _check(batch_size, k, goodput)
    share = np.asarray(context_weights, dtype=np.float64)
    if table.ndim != 3 or share.shape != table.shape[2:] or np.any(share < 0) or share.sum() <= 0:
        raise InputError(
            f"schedule: goodput {table.shape} needs (batch, K, context) and one weight per context"
        )
    share = share / share.sum()
    off = None if off_goodput is None else np.asarray(off_goodput, dtype=np.float64)

    def solve(part: FloatArray, part_off: FloatArray | None) -> SolvedSchedule:
        return solve_schedule(
            batch_size=n,
            k=ks,
            goodput=part,
            off_goodput=part_off,
            max_regret_frac=max_regret_frac,
            max_distinct=max_distinct,
            min_range_batches=min_range_batches,
            min_range_regret_frac=min_range_regret_frac,
            weights=weights,
        )

    collapsed = solve(table @ share, None if off is None else off @ share)
    each = tuple(solve(table[:, :, c], None if off is None else off[:, c]) for c in range(share.size))
    at = np.searchsorted(ks, collapsed.schedule.lookup(n))
    rows = np.arange(n.size)
    by_context = regret_table(np.moveaxis(table, 1, 2))[rows, :, at]
    ideal = np.nanmax(table, axis=1) @ share
    mix = 1.0 - (table[rows, at, :] @ share) / ideal
    return ContextSchedule(collapsed, each, by_context.max(axis=0), float(mix.max()))
