"""``KController``: which K to draft next, online. Standard library only, so that it can live inside an
engine.

The table of the model (step seconds by batch and K, acceptance by position) is the prior: the first answer
needs no observation. Two running corrections then move it: acceptance by position, and the ratio of measured
to tabulated step time by batch row and K. K = argmax AL(K)/step_s(batch, K) over the captured K, with
hysteresis.

Invariants (tested):
1. K is always one of the captured K.
2. Before any observation K is the table's own best (ties within ``tie_frac`` to the smaller K).
3. Conditional acceptance stays in [0, 1]; step-time corrections stay within a factor ``MAX_CORRECTION``.
4. What is not observed fades back to the table with ``half_life_steps``: at K = 0 acceptance cannot be seen,
   so a controller that gave up drafting tries again, and a K whose step once was slow gets another chance.
   There is no exploration beyond that: a K never tried is judged by the table and the errors of those tried.
5. The answer depends on the calls alone: no clock, no randomness.
6. ``next_k`` costs O(K) arithmetic, ``observe`` O(K · requests); nothing grows with time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

#: Largest factor by which measured step times may move the table, up or down.
MAX_CORRECTION = 4.0


class _Fading:
    """A mean whose weight halves every ``half_life`` ticks, pulled to a prior mean by a prior weight."""

    __slots__ = ("mean_sum", "tick", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean_sum = 0.0  # weight x mean
        self.tick = 0

    def fade(self, tick: int, keep: float) -> None:
        if tick > self.tick:
            factor = keep ** (tick - self.tick)
            self.weight *= factor
            self.mean_sum *= factor
            self.tick = tick

    def add(self, value: float, weight: float, tick: int, keep: float) -> None:
        self.fade(tick, keep)
        self.weight += weight
        self.mean_sum += weight * value

    def mean(self, prior: float, prior_weight: float, tick: int, keep: float) -> float:
        self.fade(tick, keep)
        return (self.mean_sum + prior_weight * prior) / (self.weight + prior_weight)


def _logit(p: float) -> float:
    p = min(max(p, 1e-4), 1.0 - 1e-4)
    return math.log(p / (1.0 - p))


def _clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


class KController:
    """Chooses the draft length for the step after the one being planned.

    batch_sizes
        Rising batch sizes of the table's rows.
    k_values
        Rising K that the engine has captured graphs for; nothing else is ever returned.
    step_s
        Table [row][column] of step seconds for batch_sizes x k_values.
    conditional
        Prior acceptance of positions 1..max(k_values): P(accepted | all before were).
    half_life_steps
        Steps after which an observation counts half.
    acceptance_prior_tries, step_prior_steps
        How many tried drafts, and how many timed steps, the table is worth.
    hysteresis_frac, min_hold_steps
        In one table row K changes only for a gain above hysteresis_frac, and not before min_hold_steps
        observed steps.
    tie_frac
        Ties this close go to the smaller K, at the first answer of a row.

    One step of lag: the K that ``next_k`` gives while step t is planned is drafted at the end of step t and
    verified in step t+1 (with asynchronous scheduling step t is planned while step t-1 still runs).
    ``observe`` is told the K that a finished step verified, so the lag needs no bookkeeping here.

    >>> controller = KController(
    ...     batch_sizes=[1, 64], k_values=[0, 1, 3], conditional=[0.8, 0.7, 0.7],
    ...     step_s=[[0.007, 0.008, 0.009], [0.010, 0.016, 0.027]],
    ... )
    >>> controller.next_k(1), controller.next_k(64)
    (3, 1)
    >>> for _ in range(200):
    ...     controller.observe(64, 1, [0] * 64, 0.016)
    >>> controller.next_k(64)
    0
    """

    def __init__(
        self,
        *,
        batch_sizes: Sequence[int],
        k_values: Sequence[int],
        step_s: Sequence[Sequence[float]],
        conditional: Sequence[float],
        half_life_steps: float = 500.0,
        acceptance_prior_tries: float = 200.0,
        step_prior_steps: float = 8.0,
        hysteresis_frac: float = 0.02,
        min_hold_steps: int = 8,
        tie_frac: float = 0.01,
    ) -> None:
        self._batches = [int(n) for n in batch_sizes]
        self._ks = [int(k) for k in k_values]
        self._table = [[float(s) for s in row] for row in step_s]
        if not self._batches or self._batches[0] < 1 or sorted(set(self._batches)) != self._batches:
            raise ValueError("batch_sizes: must rise from at least 1")
        if not self._ks or self._ks[0] < 0 or sorted(set(self._ks)) != self._ks:
            raise ValueError("k_values: must be rising whole numbers that are not negative")
        if len(self._table) != len(self._batches) or any(len(row) != len(self._ks) for row in self._table):
            raise ValueError(f"step_s: must have {len(self._batches)} rows of {len(self._ks)} numbers")
        if any(not (math.isfinite(s) and s > 0) for row in self._table for s in row):
            raise ValueError("step_s: every time must be a finite number above 0")
        if len(conditional) < self._ks[-1] or any(not 0.0 <= c <= 1.0 for c in conditional):
            raise ValueError(f"conditional: must hold {self._ks[-1]} fractions between 0 and 1")
        if half_life_steps <= 0 or acceptance_prior_tries <= 0 or step_prior_steps <= 0:
            raise ValueError("half_life_steps and the prior weights must be above 0")
        self._prior = [float(c) for c in conditional[: self._ks[-1]]]
        self._keep = 0.5 ** (1.0 / half_life_steps)
        self._tries = acceptance_prior_tries
        self._steps = step_prior_steps
        self._hysteresis = hysteresis_frac
        self._hold = min_hold_steps
        self._tie = tie_frac
        self._tick = 0
        self._accepted = [_Fading() for _ in self._prior]
        self._expected = _Fading()  # pooled: what the prior would have accepted at the tries seen
        self._pooled = _Fading()
        self._ratio = [[_Fading() for _ in self._ks] for _ in self._batches]
        self._last: list[int | None] = [None] * len(self._batches)  # column last answered in each row
        self._since = [0] * len(self._batches)  # tick of each row's last change

    # ---- the two calls
    #  --------------------------------------------------------------------------------------

    def next_k(self, batch_size: int) -> int:
        """K to draft for the step after the one being planned, for ``batch_size`` running requests."""
        row = self._row(batch_size)
        score = self.goodput_by_k(batch_size)
        best = max(range(len(score)), key=lambda j: (score[j], -j))
        last = self._last[row]
        if last is None:
            best = next(j for j in range(len(score)) if score[j] >= score[best] * (1.0 - self._tie))
        else:
            held = self._tick - self._since[row]
            if held < self._hold or score[best] <= score[last] * (1.0 + self._hysteresis):
                best = last
        if best != last:
            self._last[row], self._since[row] = best, self._tick
        return self._ks[best]

    def observe(
        self, batch_size: int, k: int, accepted_per_request: Sequence[int], step_s: float | None = None
    ) -> None:
        """One finished step: the K it ran with, accepted drafts of each request, and its seconds if known.

        At K = 0 give a 0 for each request: such steps count for the fading too. Leave ``step_s`` out for
        steps that also ran a prefill or were otherwise not like the table's. A K outside the captured set
        (for example an engine start-up step) teaches acceptance only.
        """
        self._tick += 1
        positions = min(k, len(self._prior))
        reached = len(accepted_per_request)
        for i in range(positions):
            passed = sum(1 for accepted in accepted_per_request if accepted > i)
            if reached:
                rate = passed / reached
                self._accepted[i].add(rate, float(reached), self._tick, self._keep)
                self._pooled.add(rate, float(reached), self._tick, self._keep)
                self._expected.add(self._prior[i], float(reached), self._tick, self._keep)
            reached = passed
        if step_s is not None and step_s > 0 and math.isfinite(step_s) and k in self._ks:
            column = self._ks.index(k)
            bound = math.log(MAX_CORRECTION)
            ratio = _clip(math.log(step_s / self._step_of_table(batch_size, column)), -bound, bound)
            row = self._row(batch_size)
            self._ratio[row][column].add(ratio, 1.0, self._tick, self._keep)

    # ---- what it believes
    #  -----------------------------------------------------------------------------------

    def conditional(self) -> list[float]:
        """Believed acceptance by position: the prior, moved by what was seen there and (less) elsewhere."""
        # a workload that is easier or harder moves every position by one logit shift, seen or not
        shift = 0.0
        if self._expected.weight > 0.0:
            expected = self._expected.mean_sum / self._expected.weight
            pooled = self._pooled.mean(expected, self._tries, self._tick, self._keep)
            shift = _logit(pooled) - _logit(expected)
        out = []
        for prior, seen in zip(self._prior, self._accepted, strict=True):
            moved = prior if prior in (0.0, 1.0) else 1.0 / (1.0 + math.exp(-(_logit(prior) + shift)))
            out.append(_clip(seen.mean(moved, self._tries, self._tick, self._keep), 0.0, 1.0))
        return out

    def acceptance_length_by_k(self) -> list[float]:
        """Believed AL at each captured K."""
        lengths, survive = [1.0], 1.0
        for c in self.conditional():
            survive *= c
            lengths.append(lengths[-1] + survive)
        return [lengths[k] for k in self._ks]

    def step_s_by_k(self, batch_size: int) -> list[float]:
        """Believed step seconds at each captured K.

        The log of measured/table is, a priori, one part common to all K of the row plus one part of that K,
        equally uncertain. Seen at one K only, an error is shared half and half, so that a K which turns out
        dear is left for another; seen at several alike, it is common, and the choice goes back to where it
        was.
        """
        seen = self._ratio[self._row(batch_size)]
        trust, ratios = [], []
        for cell in seen:
            cell.fade(self._tick, self._keep)
            trust.append(cell.weight / (cell.weight + self._steps))
            ratios.append(cell.mean_sum / cell.weight if cell.weight > 0.0 else 0.0)
        common = sum(t * r for t, r in zip(trust, ratios, strict=True)) / (1.0 + sum(trust))
        return [
            self._step_of_table(batch_size, j) * math.exp(common + trust[j] * (ratios[j] - common))
            for j in range(len(self._ks))
        ]

    def goodput_by_k(self, batch_size: int) -> list[float]:
        """Believed tokens per second and request at each captured K."""
        return [
            al / s for al, s in zip(self.acceptance_length_by_k(), self.step_s_by_k(batch_size), strict=True)
        ]

    # ---- the table
    #  ------------------------------------------------------------------------------------------

    def _row(self, batch_size: int) -> int:
        """The row at or below the batch (the first for smaller ones)."""
        return max(bisect_right(self._batches, batch_size) - 1, 0)

    def _step_of_table(self, batch_size: int, column: int) -> float:
        """Linear between rows, so that a correction does not mistake the batch for an error; held outside."""
        row = self._row(batch_size)
        low = self._table[row][column]
        if row + 1 == len(self._batches) or batch_size <= self._batches[row]:
            return low
        high = self._table[row + 1][column]
        part = (batch_size - self._batches[row]) / (self._batches[row + 1] - self._batches[row])
        return low + part * (high - low)
