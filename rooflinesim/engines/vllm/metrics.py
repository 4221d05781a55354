"""vLLM's ``/metrics``: acceptance from the difference of two scrapes, or of one since start."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rooflinesim.engines import tally
from rooflinesim.engines.prometheus import Scrape, Series, as_scrape, difference, read_scrapes
from rooflinesim.engines.reading import MAX_POSITIONS, TextFile
from rooflinesim.engines.records import AcceptanceRecord
from rooflinesim.errors import InputError

_WANTED = re.compile(
    r"vllm[:_]spec_decode_num_(?:drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"(?:_total|_created)?[{ ]"
)
_DRAFTS = "vllm_spec_decode_num_drafts"
_DRAFTED = "vllm_spec_decode_num_draft_tokens"
_ACCEPTED = "vllm_spec_decode_num_accepted_tokens"
_PER_POSITION = "vllm_spec_decode_num_accepted_tokens_per_pos"


def read_prometheus(files: Sequence[TextFile], *, k: int | None = None) -> AcceptanceRecord:
    """Two scrapes (files in either order, or appended to one file) differenced; one scrape counts since
    start.

    Several engines (data parallel) are summed; several models are refused.
    """
    source = ", ".join(file.name for file in files)
    scrapes = [scrape for file in files for scrape in read_scrapes(file, wanted=_WANTED)]
    if not scrapes:
        raise InputError(
            f"{source}: no vllm:spec_decode_* counters: speculation is off or this is another server"
        )
    models = {series.label("model_name") for scrape in scrapes for series in scrape}
    if len(models) > 1:
        raise InputError(
            f"{source}: counters of several models ({', '.join(sorted(models))}); keep one model's lines"
        )
    warnings: list[str] = []
    if len(scrapes) == 1:
        warnings.append(
            "one scrape: counts are since server start, warm-up included; two scrapes isolate a run"
        )
        total = scrapes[0]
    else:
        total = _between(as_scrape(scrapes[0]), as_scrape(scrapes[-1]), source=source, warnings=warnings)
    engines = {series.label("engine") for series in total}
    if len(engines) > 1:
        warnings.append(f"{len(engines)} engines (data parallel) are summed")
    return _record(total, source=source, warnings=warnings, k=k)


def _between(before: Scrape, after: Scrape, *, source: str, warnings: list[str]) -> list[Series]:
    """The difference of the counters; ``_created`` times are no counts, but tell a restart from a wrong
    order."""
    created = {key: value for key, value in before.items() if key[0].endswith("_created")}
    if any(abs(after[key] - value) > 1.0 for key, value in created.items() if key in after):
        raise InputError(
            f"{source}: the server restarted between the scrapes: its counters were created anew"
        )
    forward = list(difference(before, after))
    if all(series.value >= 0 for series in forward):
        if before.keys() - after.keys():
            warnings.append("series of the first scrape are gone in the last: an engine went away")
        return forward
    backward = list(difference(after, before))
    if created and all(series.value >= 0 for series in backward):
        warnings.append("the newer scrape was given first: order reversed")
        return backward
    raise InputError(
        f"{source}: counters fall: give the older scrape first (or the server restarted between the scrapes)"
    )


def _record(total: list[Series], *, source: str, warnings: list[str], k: int | None) -> AcceptanceRecord:
    def summed(name: str) -> float:
        return sum(series.value for series in total if series.name == name)

    drafts, drafted, accepted = summed(_DRAFTS), summed(_DRAFTED), summed(_ACCEPTED)
    if drafts <= 0:
        raise InputError(f"{source}: nothing was drafted between the scrapes")
    positions: dict[int, float] = {}
    for series in total:
        if series.name == _PER_POSITION:
            label = series.label("position")
            if not label.isdecimal() or len(label) > 6 or int(label) >= MAX_POSITIONS:
                raise InputError(f"{source}: position label {label[:20]!r} is not 0..{MAX_POSITIONS - 1}")
            positions[int(label)] = positions.get(int(label), 0.0) + series.value
    al, rate, mean_k = tally.mean_of_counters(
        n_steps=drafts, drafted_tokens=drafted, accepted_tokens=accepted, field=source
    )
    if not positions:
        return tally.from_means(
            format="vllm-prometheus", engine="vllm", source=source, acceptance_length=al,
            k=k or tally.whole_k(mean_k), rate=rate, n_steps=drafts, warnings=warnings,
        )  # fmt: skip
    by_position = [positions.get(i, 0.0) for i in range(max(positions) + 1)]
    counts = tally.counters(
        n_steps=drafts, accepted_per_position=by_position, drafted_tokens=drafted, field=source
    )
    return tally.from_counts(
        counts,
        format="vllm-prometheus",
        engine="vllm",
        source=source,
        reported=al,
        rate=rate,
        warnings=warnings,
    )
