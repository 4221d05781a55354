"""Texts of serving engines: acceptance and times in, schedules and configurations out. No physics."""

from rooflinesim.engines.records import AcceptanceRecord, EngineText, Finding, StepTable, TimingRecord
from rooflinesim.engines.schedules import emit_schedule, parse_schedule, read_schedule, sniff_engine
from rooflinesim.engines.serving import Times
from rooflinesim.engines.sniff import FORMATS, read_acceptance, read_step_table, read_timing
from rooflinesim.engines.tables import ReadSchedule

__all__ = [
    "FORMATS",
    "AcceptanceRecord",
    "EngineText",
    "Finding",
    "ReadSchedule",
    "StepTable",
    "Times",
    "TimingRecord",
    "emit_schedule",
    "parse_schedule",
    "read_acceptance",
    "read_schedule",
    "read_step_table",
    "read_timing",
    "sniff_engine",
]
