"""What this machine is: cores, caches, memory, instruction sets, torch. Reads files; never imports torch
by itself."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from rooflinesim.errors import InputError

#: Assumed last-level cache when the system does not say, bytes.
DEFAULT_LLC_BYTES = 32 * 1024**2
#: Assumed free memory when the system does not say, bytes.
DEFAULT_MEMORY_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Machine:
    """The machine a measurement ran on; ``describe`` is the text that goes beside every stored number."""

    name: str
    device: str  # "cpu" or "cuda"
    n_cores: int
    n_threads: int
    n_devices: int
    last_level_cache_bytes: float
    free_memory_bytes: float
    features: tuple[str, ...]
    torch_version: str
    system: str

    @property
    def describe(self) -> str:
        """One line: device, cores, threads, caches, memory, instruction sets, software."""
        return (
            f"{self.name}; {self.device}; {self.n_cores} cores, {self.n_threads} threads; last-level cache "
            f"{self.last_level_cache_bytes / 2**20:.0f} MiB; {self.free_memory_bytes / 2**30:.1f} GiB free; "
            f"{' '.join(self.features) or 'no wide vectors'}; torch {self.torch_version}; {self.system}"
        )


def has_torch() -> bool:
    """Whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def require_torch(what: str) -> None:
    """Raise one clear line when torch is missing.

    The cost model, schedules, calibrations that are already stored and the validation scores need no torch.
    """
    if not has_torch():
        raise InputError(
            f"{what} needs torch, which is not installed (pip install 'rooflinesim[bench]'); everything else "
            "- predict, sweep, schedule, calibrate from stored measurements, validate - works without it"
        )


def usable_cores() -> int:
    """Cores this process may run on: affinity and the container's CPU quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(float(quota) / float(period))))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def free_memory_bytes() -> float:
    """Memory this process can still take: what the kernel calls available, cut by the container's limit."""
    free = float(DEFAULT_MEMORY_BYTES)
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if match:
            free = float(match.group(1)) * 1024.0
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = float(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            free = min(free, float(limit) - used)
    except (OSError, ValueError):
        pass
    return max(free, 0.0)


def last_level_cache_bytes() -> float:
    """Size of the largest cache level of the first core, bytes."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if match:
            sizes.append(
                float(match.group(1)) * {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}[match.group(2)]
            )
    return max(sizes, default=float(DEFAULT_LLC_BYTES))


def _cpu_text() -> tuple[str, str]:
    """Model name and flags of the first core, from the kernel."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine(), ""
    name = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"(?:flags|Features)\s*:\s*(.+)", text)
    return (name.group(1).strip() if name else platform.machine()), (flags.group(1) if flags else "")


def probe(*, device: str = "auto", n_threads: int | None = None) -> Machine:
    """Describe the machine and choose the device: ``cuda`` when torch sees one, else ``cpu``."""
    require_torch("measuring this machine")
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device: {device!r} is not one of auto, cpu, cuda")
    on_gpu = torch.cuda.is_available()
    if device == "cuda" and not on_gpu:
        raise InputError("--device cuda: torch sees no CUDA device here; use --device cpu")
    cores = usable_cores()
    threads = cores if n_threads is None else n_threads
    if threads < 1:
        raise InputError(f"--threads: {threads} is not a positive number of threads")
    name, flags = _cpu_text()
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
    features = tuple(flag for flag in wanted if flag in flags.split())
    if on_gpu and device != "cpu":
        prop = torch.cuda.get_device_properties(0)
        return Machine(
            name=prop.name,
            device="cuda",
            n_cores=cores,
            n_threads=threads,
            n_devices=torch.cuda.device_count(),
            last_level_cache_bytes=float(prop.L2_cache_size),
            free_memory_bytes=float(torch.cuda.mem_get_info(0)[0]),
            features=(f"sm_{prop.major}{prop.minor}",),
            torch_version=torch.__version__,
            system=f"{platform.system()} {platform.machine()}, CUDA {torch.version.cuda}",
        )
    return Machine(
        name=name,
        device="cpu",
        n_cores=cores,
        n_threads=min(threads, cores),
        n_devices=1,
        last_level_cache_bytes=last_level_cache_bytes(),
        free_memory_bytes=free_memory_bytes(),
        features=features,
        torch_version=torch.__version__,
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    )
