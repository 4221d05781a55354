"""Which campaigns stand behind a scenario: what their setups share with it, and in what they differ."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from rooflinesim import registry
from rooflinesim.api.resolve import Resolved
from rooflinesim.errors import RooflinesimError
from rooflinesim.specs.scenario import Scenario
from rooflinesim.validate.campaign import Campaign, campaign_names, campaigns

ASPECTS = ("GPU", "model", "engine", "drafter")


@dataclass(frozen=True)
class Evidence:
    """One campaign beside a scenario, by its closest group."""

    campaign: str
    shared: tuple[str, ...]
    differs: tuple[str, ...]

    @property
    def strength(self) -> Literal["close", "partial", "none"]:
        """``close``: same GPU and model; ``partial``: one of the two; ``none``: neither."""
        both = {"GPU", "model"} & set(self.shared)
        return "close" if len(both) == 2 else "partial" if both else "none"


def _aspects(scenario: Scenario) -> dict[str, str]:
    """GPU, model, engine and drafter of a scenario, looked up but not checked against each other."""
    model = registry.model(scenario.model)
    draft = scenario.draft
    with contextlib.suppress(RooflinesimError):  # none, auto, ngram and the like have no head to look up
        draft = registry.draft(scenario.draft, target=model).method
    return {
        "GPU": registry.gpu(scenario.gpu).id,
        "model": model.id,
        "engine": registry.engine(scenario.engine).engine,
        "drafter": draft,
    }


def _of_campaign(campaign: Campaign) -> list[dict[str, str]]:
    names = list(campaign.spec.groups) or [""]
    return [_aspects(campaign.scenario(name)) for name in names]


def evidence(resolved: Resolved) -> list[Evidence]:
    """Every campaign of the package, the closest first.

    >>> from rooflinesim.api import Scenario, resolve
    >>> found = evidence(resolve(Scenario(gpu="h100", model="llama-3.1-8b", draft="eagle3")))
    >>> found[0].strength, "GPU" in found[0].shared
    ('close', True)
    """
    d = resolved.deployment
    asked = {
        "GPU": d.ceilings.gpu.id,
        "model": d.target.id,
        "engine": d.profile.engine,
        "drafter": d.method,
    }
    out: list[Evidence] = []
    for name in campaign_names():
        (campaign,) = campaigns([name])
        best: tuple[str, ...] = ()
        for group in _of_campaign(campaign):
            shared = tuple(name for name in ASPECTS if group[name] == asked[name])
            weight = (len({"GPU", "model"} & set(shared)), len(shared))
            if weight > (len({"GPU", "model"} & set(best)), len(best)):
                best = shared
        out.append(Evidence(campaign.id, best, tuple(name for name in ASPECTS if name not in best)))
    order = {"close": 0, "partial": 1, "none": 2}
    return sorted(out, key=lambda item: (order[item.strength], -len(item.shared), item.campaign))
