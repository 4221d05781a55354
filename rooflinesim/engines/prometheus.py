"""Prometheus text, bounded: only lines with a wanted name reach the parser; appended scrapes are told
apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from rooflinesim.engines.reading import TextFile, number, required
from rooflinesim.errors import InputError

Labels = tuple[tuple[str, str], ...]
Scrape = dict[tuple[str, Labels], float]

#: A scrape has a few dozen wanted lines per engine; a file of many more is not a scrape.
MAX_LINES: Final = 200_000


@dataclass(frozen=True)
class Series:
    """One series of a scrape: its name without the ``_total`` of counters."""

    name: str
    labels: Labels
    value: float

    def label(self, key: str) -> str:
        """One label's value; empty if absent."""
        return dict(self.labels).get(key, "")


def read_scrapes(file: TextFile, *, wanted: re.Pattern[str]) -> list[list[Series]]:
    """The scrapes of one file (several when they were appended), each as series whose names match
    ``wanted``."""
    scrapes: list[list[Series]] = [[]]
    seen: set[tuple[str, Labels]] = set()
    n_lines = 0
    for line_number, line in enumerate(file.lines(), start=1):
        if not line or line[0] == "#" or not wanted.match(line):
            continue
        n_lines += 1
        if n_lines > MAX_LINES or len(line) > 10_000:
            raise InputError(f"{file.name}: line {line_number}: more or longer lines than a scrape has")
        series = _series(line, where=f"{file.name}: line {line_number}")
        key = (series.name, series.labels)
        if key in seen:
            scrapes.append([])
            seen.clear()
        seen.add(key)
        scrapes[-1].append(series)
    return [scrape for scrape in scrapes if scrape]


def _series(line: str, *, where: str) -> Series:
    try:
        families = list(text_string_to_metric_families(line + "\n"))
        sample = families[0].samples[0]
        name, labels, value = sample.name, dict(sample.labels), float(sample.value)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{where}: not Prometheus text") from None
    checked = required(number(value, field=f"{where}: {name}"), field=name)
    name = name.removesuffix("_total").replace(":", "_")
    return Series(name, tuple(sorted((str(key), str(item)) for key, item in labels.items())), checked)


def as_scrape(series: Sequence[Series]) -> Scrape:
    """Series by name and labels."""
    return {(item.name, item.labels): item.value for item in series}


def difference(before: Scrape, after: Scrape) -> Iterator[Series]:
    """after - before, series by series; one that is new counts from 0."""
    for (name, labels), value in after.items():
        yield Series(name, labels, value - before.get((name, labels), 0.0))
