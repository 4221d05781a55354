"""Points per second of one large sweep, its peak memory, and the start-up of ``predict``.

Run: ``python validation/bench/grid.py``. Ratios and medians, never an assertion: machines differ.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from rooflinesim import api
from rooflinesim.api.sweeping import sweep
from rooflinesim.specs.scenario import Scenario

CASES = {
    "dense (Llama-3.1-8B, eagle3)": Scenario(gpu="h100", model="llama-3.1-8b"),
    "MoE (Qwen3-235B-A22B, eagle3, tp 8)": Scenario(gpu="h200", model="qwen3-235b-a22b", tp=8),
    "MLA + MoE (DeepSeek-V3, mtp, tp 8)": Scenario(gpu="h200", model="deepseek-v3", tp=8, draft="mtp"),
}
BATCHES = list(range(1, 257))
K_VALUES = list(range(8))
CONTEXTS = np.linspace(128, 32_768, 489).astype(int).tolist()


def main() -> None:
    points = len(BATCHES) * len(K_VALUES) * len(CONTEXTS)
    print(f"one api.sweep call of {points:,} points (batch x K x context)")
    for name, scenario in CASES.items():
        resolved = api.resolve(scenario)
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            columns = sweep(resolved, batch_sizes=BATCHES, k_values=K_VALUES, context_tokens=CONTEXTS)
            seconds.append(time.perf_counter() - start)
        assert columns["step_s"].size == points
        median = statistics.median(seconds[1:])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rate = points / median / 1e6
        print(f"  {name}: {rate:.2f} M points/s, {median:.2f} s, process peak {peak:.0f} MiB so far")
    command = [sys.executable, "-m", "rooflinesim", "predict", "--gpu", "h100", "--bs", "64"]
    walls = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        walls.append(time.perf_counter() - start)
    print(f"predict, whole process: median {statistics.median(walls[1:]):.2f} s, best {min(walls):.2f} s")


if __name__ == "__main__":
    main()
