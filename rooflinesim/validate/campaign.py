"""A validation campaign: one folder named after the published table it reproduces, with exactly three files.

``source.yaml`` says who measured what and what is doubtful about it; ``scenario.yaml`` how the model is set
up, what it takes as given and the bound each score must keep; ``measurements.csv`` holds the published
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from rooflinesim.errors import InputError, SpecError, unknown_name
from rooflinesim.measurements import Measurement, read_measurements
from rooflinesim.specs.base import Frozen
from rooflinesim.specs.files import load_yaml_spec, spec_root, validate
from rooflinesim.specs.scenario import Scenario

FILES: Final = ("source.yaml", "scenario.yaml", "measurements.csv")
ScoreKind = Literal["timing", "speedup", "choice", "lengths", "claims", "serving"]


class Source(Frozen):
    """Where a campaign's numbers come from."""

    title: str
    citation: str
    url: str
    table: str
    values: Literal["printed", "printed in code", "read from figure coordinates", "user log", "computed"]
    caveats: tuple[str, ...] = ()

    @property
    def published(self) -> bool:
        """Whether the numbers are somebody else's, with an address; else they are this project's own."""
        return self.url.startswith("https://")


class ScoreSpec(Frozen):
    """One score of a campaign: what is compared, the bound that must hold, and the target that was set for
    it.

    ``bound`` and ``target`` map a statistic (mape, median, k_regret, sign_correct, rmse) to its limit.
    """

    kind: ScoreKind
    metric: str = ""
    groups: tuple[str, ...] = ()  # empty: all
    bound: dict[str, float]
    target: dict[str, float] = Field(default_factory=dict)
    note: str = ""


class CampaignSpec(Frozen):
    """How a campaign is reproduced."""

    scenario: dict[str, Any] = Field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = Field(default_factory=dict)
    given: str
    assumed: tuple[str, ...] = ()
    fitted: str = ""  # which constants were fitted on rows marked ``fit``, if any
    fast: bool = True
    scores: tuple[ScoreSpec, ...]


@dataclass(frozen=True)
class Campaign:
    """One folder under validation/."""

    folder: Path
    source: Source
    spec: CampaignSpec

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def rows(self) -> tuple[Measurement, ...]:
        """All rows of measurements.csv."""
        return read_measurements(self.folder / "measurements.csv")

    def scenario(self, group: str) -> Scenario:
        """The scenario of one group: the common part, with the group's own values on top."""
        if group and group not in self.spec.groups:
            raise unknown_name(f"group in {self.id}", group, self.spec.groups)
        data = {**self.spec.scenario, **self.spec.groups.get(group, {})}
        calibration = data.get("calibration")
        if calibration is not None:
            data["calibration"] = str(spec_root("hw_specs") / "calibrations" / str(calibration))
        for key in ("gpu", "engine", "model", "draft"):  # measured machines lie in hw_specs/machines
            if str(data.get(key, "")).startswith("machines/"):
                data[key] = str(spec_root("hw_specs") / str(data[key]))
        return validate(data, Scenario, where=f"{self.id}/scenario.yaml: {group or 'scenario'}")

    def select(self, *, metric: str, groups: tuple[str, ...], use: str = "score") -> list[Measurement]:
        """Rows of one metric, groups and use."""
        return [
            row
            for row in self.rows
            if row.use == use and row.metric == metric and (not groups or row.group in groups)
        ]


def load_campaign(folder: Path) -> Campaign:
    """Read and check one folder."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise SpecError(f"{folder}: needs {', '.join(missing)}")
    return Campaign(
        folder=folder,
        source=load_yaml_spec(folder / "source.yaml", Source),
        spec=load_yaml_spec(folder / "scenario.yaml", CampaignSpec),
    )


def campaign_names() -> list[str]:
    """Names of the campaigns that come with the package, sorted."""
    root = spec_root("validation")
    return sorted(p.name for p in root.iterdir() if p.is_dir() and (p / "scenario.yaml").is_file())


def campaigns(names: list[str] | None = None) -> list[Campaign]:
    """The named campaigns (a unique part of a name is enough), or all."""
    known = campaign_names()
    if not names:
        return [load_campaign(spec_root("validation") / name) for name in known]
    chosen: list[str] = []
    for name in names:
        hits = [k for k in known if k == name] or [k for k in known if name.lower() in k.lower()]
        if not hits:
            raise unknown_name("campaign", name, known)
        chosen.extend(h for h in hits if h not in chosen)
    if not chosen:
        raise InputError("campaign: none chosen")
    return [load_campaign(spec_root("validation") / name) for name in chosen]
