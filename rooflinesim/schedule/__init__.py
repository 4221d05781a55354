"""K by batch size: the schedule form, its solver, its regret and its graph-capture cost."""

from rooflinesim.schedule.form import CaptureCost, Schedule, capture_cost
from rooflinesim.schedule.solve import (
    ContextSchedule,
    RangeReport,
    SolvedSchedule,
    evaluate_schedule,
    regret_table,
    schedule_regret,
    solve_schedule,
    solve_schedule_over_context,
)

__all__ = [
    "CaptureCost",
    "ContextSchedule",
    "RangeReport",
    "Schedule",
    "SolvedSchedule",
    "capture_cost",
    "evaluate_schedule",
    "regret_table",
    "schedule_regret",
    "solve_schedule",
    "solve_schedule_over_context",
]
