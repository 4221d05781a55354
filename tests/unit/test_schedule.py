"""Schedules: form, solver, gains, hysteresis, contexts, captured graphs."""

from __future__ import annotations

import numpy as np
import pytest

from rooflinesim.errors import InputError
from rooflinesim.schedule import (
    Schedule,
    capture_cost,
    evaluate_schedule,
    schedule_regret,
    solve_schedule,
    solve_schedule_over_context,
)


def test_ranges_are_checked():
    for ranges, words in (
        ((), "no range"),
        (((2, 8, 3),), "must start at 1"),
        (((1, 8, 3), (8, 16, 2)), "must start at 9"),
        (((1, 8, 3), (10, 16, 2)), "must start at 9"),
        (((1, 0, 3),), "ends before"),
        (((1, 8, -1),), "K = -1"),
    ):
        with pytest.raises(InputError, match=words):
            Schedule(ranges)


def test_lookup_expand_and_carry():
    schedule = Schedule(((1, 48, 3), (49, 128, 2), (129, 192, 1)))
    assert schedule.lookup([1, 48, 49, 128, 129, 10_000]).tolist() == [3, 3, 2, 2, 1, 1]
    assert schedule.expand(200).tolist() == [3] * 48 + [2] * 80 + [1] * 72
    assert Schedule.from_k_by_batch(schedule.expand(192)) == schedule
    assert schedule.cut(60).ranges == ((1, 48, 3), (49, 60, 2))
    with pytest.raises(InputError, match="at least 1"):
        schedule.lookup(0)


def test_k2_13_clamped_schedule_is_constant():
    schedule = Schedule(((1, 8, 5), (9, 16, 4)))
    assert not schedule.is_constant
    assert schedule.clamped(3).is_constant and schedule.clamped(3).ranges == ((1, 16, 3),)


def dense_table(n):
    """A dense model past its ridge: step = max(6, 4 + tokens/8) + 0.7 K; flat acceptance 0.7."""
    ks = np.arange(0, 6)
    length = (1 - 0.7 ** (ks + 1)) / 0.3
    step = np.maximum(6.0, 4.0 + n[:, None] * (ks + 1) / 8) + 0.7 * ks
    return ks, n[:, None] * length / step, n / np.maximum(6.0, 4.0 + n / 8)


def test_dense_schedule_falls_and_beats_both_rivals():
    n = np.arange(1, 129)
    ks, table, off = dense_table(n)
    solved = solve_schedule(batch_size=n, k=ks, goodput=table, off_goodput=off)
    chosen = [k for _, _, k in solved.schedule.ranges]
    assert chosen == sorted(chosen, reverse=True) and len(chosen) >= 3
    assert solved.regret_max <= 0.01
    assert solved.gain_over_best_fixed > 0.0
    assert [r.k for r in solved.ranges] == chosen
    # hand check of one gain: mean over all batches of goodput over that of SD off
    mine = table[np.arange(n.size), solved.schedule.lookup(n)]
    assert solved.gain_over_off == pytest.approx(float(np.mean(mine / off)) - 1)
    last = solved.ranges[-1]
    inside = (n >= last.low) & (n <= last.high)
    assert last.gain_over_off == pytest.approx(float(np.mean(mine[inside] / off[inside])) - 1)


def test_zero_regret_reproduces_the_argmax_in_goodput():
    n = np.arange(1, 65)
    ks, table, _ = dense_table(n)
    solved = solve_schedule(batch_size=n, k=ks, goodput=table, max_regret_frac=0.0)
    assert solved.regret_max == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(solved.schedule.expand(64), ks[np.argmax(table, axis=1)])


def test_few_distinct_k_cost_regret_and_it_is_said():
    n = np.arange(1, 129)
    ks, table, _ = dense_table(n)
    free = solve_schedule(batch_size=n, k=ks, goodput=table)
    one = solve_schedule(batch_size=n, k=ks, goodput=table, max_distinct=1)
    two = solve_schedule(batch_size=n, k=ks, goodput=table, max_distinct=2)
    assert len([k for k in one.schedule.distinct_k if k]) <= 1
    assert len([k for k in two.schedule.distinct_k if k]) <= 2
    assert one.regret_max > two.regret_max > free.regret_max
    assert "cannot stay below 1.0%" in one.notes[0]
    with pytest.raises(InputError, match="no K at all"):
        solve_schedule(batch_size=n, k=ks[1:], goodput=table[:, 1:], max_distinct=0)


def test_the_limit_on_distinct_k_holds_after_a_switch():
    # each batch prefers its own K; only one of them may be drafted
    table = [[1.0, 1.0, 2.0, 1.0], [1.5, 2.0, 1.0, 1.0]]
    solved = solve_schedule(batch_size=[1, 2], k=[0, 1, 2, 3], goodput=table, max_distinct=1)
    assert solved.schedule.ranges == ((1, 1, 2), (2, 2, 0))
    assert solved.regret_max == 0.25


def test_hysteresis_joins_short_ranges_unless_they_pay():
    # one batch in the middle (a graph-size step) prefers K = 1 by 2 %; another by 30 %
    n = np.arange(1, 41)
    table = np.tile([1.0, 1.1], (40, 1))
    table[19] = [1.0, 0.98]
    table[30] = [1.43, 1.0]
    plain = solve_schedule(batch_size=n, k=[1, 2], goodput=table)
    assert plain.schedule.ranges == ((1, 19, 2), (20, 20, 1), (21, 30, 2), (31, 31, 1), (32, 40, 2))
    calm = solve_schedule(batch_size=n, k=[1, 2], goodput=table, min_range_batches=4)
    assert calm.schedule.ranges == ((1, 30, 2), (31, 31, 1), (32, 40, 2))
    assert calm.regret_max == pytest.approx(0.02)


def test_a_sparse_grid_is_noted():
    solved = solve_schedule(batch_size=[1, 8, 64], k=[1, 3], goodput=[[1, 2], [1, 2], [2, 1]])
    assert solved.schedule.ranges == ((1, 63, 3), (64, 64, 1))
    assert "point below" in solved.notes[0]


def test_points_that_do_not_run_are_avoided():
    table = [[1.0, 2.0], [1.0, np.nan]]
    solved = solve_schedule(batch_size=[1, 2], k=[0, 4], goodput=table)
    assert solved.schedule.ranges == ((1, 1, 4), (2, 2, 0))
    with pytest.raises(InputError, match="no K runs"):
        solve_schedule(batch_size=[1, 2], k=[0, 4], goodput=[[1.0, 2.0], [np.nan, np.nan]])


def test_off_altogether():
    solved = solve_schedule(
        batch_size=[1, 2], k=[0, 1], goodput=[[0.9, 0.8], [0.9, 0.7]], off_goodput=[1.0, 1.0]
    )
    assert solved.off_altogether and solved.ranges[0].off_is_better
    assert solved.gain_over_off == pytest.approx(-0.1)


def test_regret_of_a_foreign_schedule():
    n = [1, 2, 3]
    table = [[1.0, 2.0], [2.0, 2.0], [4.0, 3.0]]
    regret = schedule_regret(schedule=Schedule(((1, 3, 2),)), batch_size=n, k=[0, 2], goodput=table)
    np.testing.assert_allclose(regret, [0.0, 0.0, 0.25])
    report = evaluate_schedule(schedule=Schedule(((1, 3, 2),)), batch_size=n, k=[0, 2], goodput=table)
    assert report.regret_max == 0.25 and report.regret_mean == pytest.approx(0.25 / 3)
    with pytest.raises(InputError, match="K = 7 is not in the table"):
        schedule_regret(schedule=Schedule(((1, 3, 7),)), batch_size=n, k=[0, 2], goodput=table)


def test_context_mix_is_collapsed_with_its_regret():
    # short contexts want K = 1, long ones K = 3
    short, long = np.tile([10.0, 8.0], (4, 1)), np.tile([2.0, 4.0], (4, 1))
    table = np.stack([short, long], axis=2)
    solved = solve_schedule_over_context(
        batch_size=[1, 2, 3, 4], k=[1, 3], goodput=table, context_weights=[0.75, 0.25]
    )
    assert [s.schedule.ranges[0][2] for s in solved.by_context] == [1, 3]
    # mixed: K = 1 gives 0.75·10 + 0.25·2 = 8, K = 3 gives 7; the ideal is 0.75·10 + 0.25·4 = 8.5
    assert solved.collapsed.schedule.ranges == ((1, 4, 1),)
    np.testing.assert_allclose(solved.regret_by_context, [0.0, 0.5])
    assert solved.regret_mix == pytest.approx(1 - 8 / 8.5)


def test_capture_cost_counts_each_k_once():
    # 51 sizes for K = 0, 35 for others: 3 and 1 add two sets of graphs
    cost = capture_cost(ks=[3, 3, 1, 0], sizes={0: 51, 1: 35, 3: 35}, capture_s=0.5, graph_bytes=1e7)
    assert (cost.n_graphs, cost.capture_s, cost.graph_bytes) == (121, 60.5, 1.21e9)
    assert capture_cost(ks=[2], sizes=10, capture_s=1, graph_bytes=1).graphs_by_k == {2: 10}
    with pytest.raises(InputError, match="none given for K = 5"):
        capture_cost(ks=[5], sizes={1: 2}, capture_s=1, graph_bytes=1)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"batch_size": [2, 1]}, "rise"),
        ({"k": [1, 0]}, "rising"),
        ({"goodput": [[1.0, 2.0]]}, "not"),
        ({"max_regret_frac": 1.0}, "regret bound"),
    ],
)
def test_bad_tables_are_refused(kwargs, words):
    good = {"batch_size": [1, 2], "k": [0, 1], "goodput": [[1.0, 2.0], [2.0, 1.0]]}
    with pytest.raises(InputError, match=words):
        solve_schedule(**{**good, **kwargs})
