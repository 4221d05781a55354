"""The console blocks of the documents: run, compared with what the page shows, or written anew.

``python tests/cli/readme_blocks.py`` rewrites every block's output in place.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/tune.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, shown output) pairs of one block; a command may go on over lines that end in a backslash."""
    out: list[tuple[str, str]] = []
    lines = block.splitlines()
    i = 0
    while i < len(lines):
        assert lines[i].startswith("$ "), f"a console block starts with '$ ': {lines[i]!r}"
        command = lines[i][2:]
        while command.endswith("\\"):
            i += 1
            command = command[:-1].rstrip() + " " + lines[i].strip()
        i += 1
        shown = []
        while i < len(lines) and not lines[i].startswith("$ "):
            shown.append(lines[i])
            i += 1
        out.append((command, "\n".join(shown)))
    return out


def run(command: str, folder: Path) -> str:
    """Output of one rooflinesim command in ``folder`` (docs/samples is linked into it), trailing blanks
    cut."""
    words = shlex.split(command)
    assert words[0] == "rooflinesim", command
    result = subprocess.run(
        [sys.executable, "-m", "rooflinesim", *words[1:]],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "130", "NO_COLOR": "1", "TERM": "dumb"},
    )
    text = result.stdout + result.stderr
    assert "Traceback" not in text, text
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def workspace() -> Path:
    """A folder as a reader would have it: the samples beside them, nothing of the checkout."""
    folder = Path(tempfile.mkdtemp())
    (folder / "samples").symlink_to(ROOT / "docs" / "samples")
    return folder


ACCURACY = re.compile(r"(<!-- accuracy[^>]*-->\n).*?(<!-- /accuracy -->)", re.S)
#: Rows of the generated validation table that the README repeats: (campaign, what) -> how it reads there.
REPEATED = {
    ("2026_serving_rows_no_sd", "time per token"): "2,649 serving rows, no SD, every engine and model, TPOT",
    ("2026_serving_rows_no_sd", "tpot_s (dense)"): "... dense models among them",
    ("2025_llama70b_fp8_vllm", "time per token"): "Llama-3.1-70B FP8, vLLM, H100 and H200, TPOT",
    ("2024_magicdec_table3", "verify / plain step"): "MagicDec, 8 A100, verify over plain step",
    ("2026_performance_or_illusion_fit", "target pass"): "Llama-3.1-8B on H100, step over tokens and cache",
    ("2026_vllm_adaptive_b300_cost", "target pass"): "DeepSeek-V4-Flash on 4 B300, step over tokens",
    ("2025_moesd_table1", "peak speed-up"): "MoE speed-ups (MoESD)",
    ("2025_eagle3_table3", "speed-up"): "EAGLE-3 speed-up over batch",
    ("2025_specforge_issue339", "speed-up"): "Qwen3-30B-A3B, every setting slower than none",
    ("2026_inferencex_golden_al", "acceptance length"): "acceptance length from two numbers, 14 drafters",
}


def _side_by_side() -> str:
    """Against the other tool's own estimates of the same measured rows."""
    path = ROOT / "validation" / "comparisons" / "aiconfigurator_0.12.0.json"
    whole = json.loads(path.read_text())["subsets"][0]
    ours, theirs = whole["here_same_rows"], whole["aiconfigurator"]
    mine = f"median error {ours['median']:.1%}, within 20 %: {ours['within_20']:.0%}"
    other = f"aiconfigurator 0.12.0: {theirs['median']:.1%}, {theirs['within_20']:.0%}"
    return f"- side by side on {ours['n']} serving rows that both tools answer: {mine}; {other}."


def accuracy_block() -> str:
    """The headline and a few rows of validation/README.md, as the README repeats them."""
    text = (ROOT / "validation" / "README.md").read_text()
    bullets = [line for line in text.splitlines() if line.startswith("- ")][:5]
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and tuple(cells[:2]) in REPEATED:
            rows.append(f"| {REPEATED[cells[0], cells[1]]} | {cells[2]} | {cells[4]} |")
    bullets.append(_side_by_side())
    head = "| measured by others | n | error |\n|---|---:|---|\n"
    more = "\nEvery row, misses included, with its source: [validation/README.md](validation/README.md).\n"
    return "\n".join(bullets) + "\n\n" + head + "\n".join(rows) + "\n" + more


def rewrite(path: Path) -> None:
    folder = workspace()

    def renew(match: re.Match[str]) -> str:
        parts = []
        for command, _ in commands(match.group(1)):
            parts.append(f"$ {command}\n{run(command, folder)}\n")
        return "```console\n" + "".join(parts) + "```"

    text = BLOCK.sub(renew, path.read_text())
    path.write_text(ACCURACY.sub(lambda m: m.group(1) + accuracy_block() + m.group(2), text))


if __name__ == "__main__":
    for name in DOCUMENTS:
        rewrite(ROOT / name)
