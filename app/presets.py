"""Examples: a name and the query string of its scenario."""

from __future__ import annotations

from typing import Final

PRESETS: Final = {
    "Llama-3.1-8B, EAGLE-3": "bs=64",
    "Qwen3-30B-A3B (MoE), EAGLE-3": "model=Qwen%2FQwen3-30B-A3B&bs=4",
    "Llama-3.1-70B FP8, 4 H200": "gpu=h200-sxm&model=meta-llama%2FLlama-3.1-70B&tp=4&weights=fp8&bs=32",
    "DeepSeek-V3 MTP, 8 B200": "gpu=b200-sxm&model=deepseek-ai%2FDeepSeek-V3&draft=mtp"
    "&tp=8&ep=8&bs=64&ctx=4096",
    "gpt-oss-120b, one H100": "model=openai%2Fgpt-oss-120b&bs=32",
    "n-gram lookup, code edits": "draft=ngram&workload=editing&bs=8",
    "Long context: 64k tokens": "bs=8&ctx=65536&kmax=8",
    "EAGLE-3, table 3": "engine=sglang-0.4&draft=eagle3&weights=bf16&bs=16&kmax=3&form=al&alk=3&al=2.79",
    "SpecForge#339: MoE": "model=Qwen%2FQwen3-30B-A3B&draft=eagle3"
    "&tp=2&engine=sglang-0.4&weights=bf16&bs=4&seqs=128",
    "Too large: Llama-3.1-405B": "model=meta-llama%2FLlama-3.1-405B&bs=8",
}
