"""What a user's files hold: each is tried as acceptance, times, an engine configuration and a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rooflinesim.api.logs import MeasuredAcceptance, acceptance_from_files, times_from_files
from rooflinesim.engines import FORMATS, TimingRecord, parse_schedule
from rooflinesim.engines.reading import open_text
from rooflinesim.engines.schedules import load_config
from rooflinesim.engines.sniff import detect, sweep_files
from rooflinesim.errors import InputError, RooflinesimError

#: More files than this are a mistaken glob.
MAX_FILES: Final = 2000
#: Keys that only an engine's own arguments have.
_SERVER_KEYS: Final = frozenset({"speculative_algorithm", "speculative_config"})


@dataclass(frozen=True)
class FileUse:
    """One file: what it is, and what it was read for (``acceptance``, ``times``, ``lints``, ``schedule``)."""

    path: str
    kind: str
    used_for: tuple[str, ...]


@dataclass(frozen=True)
class NamedConfig:
    """A parsed configuration and the file it came from."""

    path: str
    config: Any


@dataclass(frozen=True)
class Sources:
    """Everything read. ``acceptance``: one per format, the most trustworthy first."""

    files: tuple[FileUse, ...]
    acceptance: tuple[MeasuredAcceptance, ...]
    times: tuple[TimingRecord, ...]
    configs: tuple[NamedConfig, ...]
    schedules: tuple[NamedConfig, ...]
    warnings: tuple[str, ...]

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines that wrote the files, as far as their formats say."""
        found = [m.record.engine for m in self.acceptance]
        found += [use.kind.split("-", 1)[0] for use in self.files]
        return tuple(sorted({name for name in found if name in {"vllm", "sglang", "trtllm"}}))


@dataclass
class _Gathered:
    """The parts of Sources while they are gathered."""

    files: list[FileUse] = field(default_factory=list)
    acceptance: list[MeasuredAcceptance] = field(default_factory=list)
    times: list[TimingRecord] = field(default_factory=list)
    configs: list[NamedConfig] = field(default_factory=list)
    schedules: list[NamedConfig] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_sources(paths: Sequence[Path | str], *, k: int | None = None) -> Sources:
    """Read every file; files of one format are pooled (two Prometheus scrapes are a difference).

    A folder stands for the results of a sweep in it. ``k`` answers where a format does not hold K.

    Errors: InputError, one line that names the file, for a file that is nothing of use here.
    """
    if not paths:
        raise InputError("tune: give at least one log, metrics file, benchmark result or schedule")
    listed: list[Path] = []
    for path in map(Path, paths):
        listed.extend(sweep_files(path) if path.is_dir() else [path])
    listed = list(dict.fromkeys(listed))
    if len(listed) > MAX_FILES:
        raise InputError(f"tune: {len(listed)} files, at most {MAX_FILES} are read")
    gathered = _Gathered()
    groups: dict[str, list[Path]] = {}
    for path in listed:
        kind = _kind(path, gathered)
        if kind is not None:
            groups.setdefault(kind, []).append(path)
    for kind, some in groups.items():
        _read_group(kind, some, k, gathered)
    return Sources(
        files=tuple(gathered.files),
        acceptance=tuple(sorted(gathered.acceptance, key=_trust, reverse=True)),
        times=tuple(gathered.times),
        configs=tuple(gathered.configs),
        schedules=tuple(gathered.schedules),
        warnings=tuple(dict.fromkeys(gathered.warnings)),
    )


def _trust(measured: MeasuredAcceptance) -> tuple[bool, bool, bool, float]:
    """Unbiased counts before biased ones, counts before rates, rates before a mean; then the most steps."""
    record = measured.record
    counted = record.counts is not None
    return (
        counted and not record.biased,
        counted,
        record.rates is not None,
        float(record.n_steps or 0.0),
    )


def _kind(path: Path, gathered: _Gathered) -> str | None:
    """The measurement format of a file; None once it was taken as a configuration or a schedule."""
    file = open_text(path)
    try:
        return detect(file)
    except InputError as error:
        if _take_config(path, gathered):
            return None
        if "not a known format" not in str(error):
            raise
        raise InputError(
            f"{path}: neither a log, metrics, a benchmark result, an engine configuration nor a schedule "
            "(rooflinesim acceptance --list-formats names what is read)"
        ) from None


def _take_config(path: Path, gathered: _Gathered) -> bool:
    try:
        config = load_config(path)
    except RooflinesimError:
        return False
    uses = []
    arguments = server_arguments(config)
    if arguments is not None:
        gathered.configs.append(NamedConfig(str(path), arguments))
        uses.append("lints")
    try:
        parse_schedule(config)
    except RooflinesimError as error:
        if arguments is not None:
            gathered.warnings.append(f"{path}: no schedule in it ({error})")
    else:
        gathered.schedules.append(NamedConfig(str(path), config))
        uses.append("schedule")
    if uses:
        gathered.files.append(FileUse(str(path), "engine configuration", tuple(uses)))
    return bool(uses)


def server_arguments(config: Any) -> Mapping[str, Any] | None:
    """A configuration as the linters take it: an engine's arguments; a bare speculative config is wrapped.

    >>> server_arguments({"method": "eagle3", "num_speculative_tokens": 3})
    {'speculative_config': {'method': 'eagle3', 'num_speculative_tokens': 3}}
    >>> server_arguments([[1, 8, 3]]) is None
    True
    """
    if not isinstance(config, Mapping):
        return None
    keys = {str(key).replace("-", "_") for key in config}
    if keys & _SERVER_KEYS:
        return config
    return {"speculative_config": config} if "num_speculative_tokens" in keys else None


def _read_group(kind: str, paths: list[Path], k: int | None, gathered: _Gathered) -> None:
    """Both questions to the files of one format; a format that answers neither is an error."""
    form = FORMATS[kind]
    uses: list[str] = []
    errors: list[str] = []
    if form.text_acceptance is not None or form.json_acceptance is not None:
        try:
            gathered.acceptance.append(acceptance_from_files(paths, k=k))
            uses.append("acceptance")
        except InputError as error:
            errors.append(str(error))
    if form.text_timing is not None or form.json_timing is not None:
        try:
            times = times_from_files(paths, k=k)
        except InputError as error:
            errors.append(str(error))
        else:
            gathered.times.extend(times.records)
            gathered.warnings.extend(times.warnings)
            if times.records:
                uses.append("times")
    if not uses:
        named = ", ".join(str(path) for path in paths[:3])
        raise InputError("; ".join(errors) or f"{named}: {form.what} holds no acceptance and no step times")
    gathered.warnings.extend(errors)
    gathered.files.extend(FileUse(str(path), kind, tuple(uses)) for path in paths)
