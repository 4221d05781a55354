"""Which campaigns stand behind a scenario: what their setups share with it, and in what they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rooflinesim import registry
from rooflinesim.api.resolve import Resolved
from rooflinesim.errors import RooflinesimError
from rooflinesim.specs.files import spec_root
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


def _looked_up(find: Callable[[str], str], text: str) -> str:
    """The id behind a name; a name that leads nowhere matches nothing but itself."""
    if text.startswith("machines/"):  # measured machines lie in hw_specs/machines
        text = str(spec_root("hw_specs") / text)
    try:
        return find(text)
    except RooflinesimError:
        return text


def _aspects(given: Mapping[str, Any]) -> dict[str, str]:
    """GPU, model, engine and drafter that a campaign's group names; what it does not name matches nothing."""
    named = {key: str(given.get(key, "")) for key in ("gpu", "model", "engine", "draft")}
    model = _looked_up(lambda text: registry.model(text).id, named["model"])
    return {
        "GPU": _looked_up(lambda text: registry.gpu(text).id, named["gpu"]),
        "model": model,
        "engine": _looked_up(lambda text: registry.engine(text).engine, named["engine"]),
        # none, auto, ngram and the like have no head to look up
        "drafter": _looked_up(lambda text: registry.draft(text, target=model).method, named["draft"]),
    }


def _of_campaign(campaign: Campaign) -> list[dict[str, str]]:
    groups = list(campaign.spec.groups.values()) or [{}]
    return [_aspects({**campaign.spec.scenario, **group}) for group in groups]


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
        "drafter": d.method.removesuffix("_multi"),
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
