"""From a server's own files to its schedule: acceptance and overhead fitted, K by batch solved and rated."""

from rooflinesim.tuning.core import TuneAnswer, tune
from rooflinesim.tuning.document import tune_json
from rooflinesim.tuning.pages import write_report
from rooflinesim.tuning.sources import Sources, read_sources

__all__ = ["Sources", "TuneAnswer", "read_sources", "tune", "tune_json", "write_report"]
