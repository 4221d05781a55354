"""``schedule --check``: an engine's configuration read as the engine reads it, rated, and linted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflinesim.api.emitting import lint_config
from rooflinesim.api.resolve import Resolved, resolve
from rooflinesim.api.scheduling import ScheduleAnswer, checked_max_batch, graph_limit, rate, schedule
from rooflinesim.engines import Finding, ReadSchedule, parse_schedule
from rooflinesim.engines.schedules import load_config
from rooflinesim.errors import RooflinesimError
from rooflinesim.schedule import Schedule, SolvedSchedule
from rooflinesim.specs.scenario import Scenario


@dataclass(frozen=True)
class CheckedSchedule:
    """A schedule read from a file, as its engine runs it, rated by our table and set beside ours."""

    read: ReadSchedule
    rated: SolvedSchedule
    ours: ScheduleAnswer
    graph_findings: tuple[str, ...] = ()
    lints: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of reading the schedule, and of the configuration around it."""
        return (*self.read.findings, *self.lints)


def check_schedule(
    scenario: Scenario | Resolved,
    file: Path,
    *,
    engine: str | None = None,
    max_batch: int | None = None,
    num_speculative_tokens: int | None = None,
) -> CheckedSchedule:
    """Read a schedule of any engine, expand it as the engine does, and rate it."""
    config = load_config(file)
    if isinstance(scenario, Scenario) and scenario.max_num_seqs is None:
        scenario = scenario.model_copy(update={"max_num_seqs": running_limit(config)})
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    top = checked_max_batch(resolved, max_batch)
    read = parse_schedule(config, engine=engine, max_batch=top, num_speculative_tokens=num_speculative_tokens)
    given = Schedule.from_k_by_batch(list(read.expand(top)))
    return CheckedSchedule(
        read=read,
        rated=rate(resolved, given, max_batch=top),
        ours=schedule(resolved, max_batch=top),
        graph_findings=_graph_findings(resolved, given),
        lints=_lints(resolved, config, read.findings),
    )


#: What the engines call their limit of running requests.
_LIMIT_KEYS = ("max_num_seqs", "max_running_requests", "max_batch_size")


def running_limit(config: Any) -> int | None:
    """The limit of running requests that a configuration states, whatever the engine calls it.

    >>> running_limit({"max-num-seqs": 32}), running_limit({"max_num_seqs": "many"}), running_limit([])
    (32, None, None)
    """
    if not isinstance(config, Mapping):
        return None
    plain = {str(key).replace("-", "_"): value for key, value in config.items()}
    for value in (plain.get(key) for key in _LIMIT_KEYS):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
    return None


def _lints(resolved: Resolved, config: Any, known: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings on the whole configuration that reading its schedule did not give already."""
    if not isinstance(config, Mapping):
        return ()
    try:
        found = lint_config(resolved, config)
    except RooflinesimError:
        return ()  # a bare table: nothing else to look at
    return tuple(item for item in found if item.code not in {one.code for one in known})


def _graph_findings(resolved: Resolved, given: Schedule) -> tuple[str, ...]:
    """Ranges that reach past the last captured graph of their K."""
    out = []
    for low, high, k in given.ranges:
        limit = graph_limit(resolved, k)
        if high > limit:
            out.append(
                f"batches {max(low, limit + 1)}-{high} at K = {k} run without a CUDA graph "
                f"(last graph: {limit})"
            )
    return tuple(out)


def rate_json(checked: CheckedSchedule) -> dict[str, Any]:
    """Schema 1: the file's ranges as the engine runs them, findings, regret against ours."""
    return {
        "schema": 1,
        "engine": checked.read.engine,
        "ranges": [list(r) for r in checked.rated.schedule.ranges],
        "findings": [{"code": f.code, "level": f.level, "message": f.message} for f in checked.findings],
        "graph_findings": list(checked.graph_findings),
        "regret_max": checked.rated.regret_max,
        "regret_mean": checked.rated.regret_mean,
        "gain_over_off": checked.rated.gain_over_off,
        "ours": [list(r) for r in checked.ours.schedule.ranges],
        "assumed": list(checked.ours.resolved.assumed),
    }
