"""One file per page; ``VIEWS`` names them. A page of the simulator or planner is one more entry."""

from __future__ import annotations

from collections.abc import Callable

from views import acceptance, accuracy, best_k, compare, schedule, what_if, why

VIEWS: dict[str, Callable[[], None]] = {
    "What-if": what_if.draw,
    "Best K map": best_k.draw,
    "Why": why.draw,
    "Acceptance": acceptance.draw,
    "Schedule": schedule.draw,
    "Compare": compare.draw,
    "Accuracy": accuracy.draw,
}
