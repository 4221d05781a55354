"""Draws the README's figure anew: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

from rooflinesim.api import Scenario, evaluate
from rooflinesim.plots import best_k_map, save

BATCHES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
PANELS = {
    "dense: Llama-3.1-8B, H100": Scenario(gpu="h100", model="llama-3.1-8b", max_num_seqs=1024),
    "MoE: Qwen3-30B-A3B, H100": Scenario(gpu="h100", model="qwen3-30b-a3b", max_num_seqs=1024),
}

if __name__ == "__main__":
    panels = [(name, evaluate(scenario, batch_sizes=BATCHES, n_draws=0)) for name, scenario in PANELS.items()]
    save(best_k_map(panels), str(Path(__file__).parent / "images" / "best_k.png"), force=True)
