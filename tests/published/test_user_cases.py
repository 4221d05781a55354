"""What engineers measured in public threads: signs, orderings and best K (magnitudes are in validation/)."""

import numpy as np
import pytest

from rooflinesim.api import Scenario, evaluate


def run(**fields):
    return evaluate(Scenario(**fields), n_draws=0)


def test_s1_01_the_gain_shrinks_with_tensor_parallel_ranks():
    """sglang#6949, a 32B target: the same head gains 1.43x on one GPU and loses on four (0.97x).

    The direction holds: fixed costs stay while the target's step shrinks. The loss itself is not reproduced.
    """
    gain = {}
    for tp in (1, 4):
        result = run(
            gpu="a100-80gb-sxm",
            model="qwen2.5-32b",
            draft="eagle",
            engine="sglang-0.4",
            tp=tp,
            weights="bf16",
            batch_sizes=(1,),
            k_max=3,
            al="3:2.3",
        )
        gain[tp] = result.speedup[0, 3, 0]
        share = result.step.families["host"] / result.step.step_s
        gain[f"host {tp}"] = float(np.broadcast_to(share, result.step.step_s.shape)[0, 3, 0])
    assert gain[4] < gain[1] - 0.1
    assert gain["host 4"] > 2 * gain["host 1"]


def test_s1_03_mtp_never_gains_more_than_its_acceptance_length():
    """vllm#12755, DeepSeek-R1 with K = 1 and 82 % acceptance: 1.63x at low load, then less; the ceiling is
    1.82."""
    result = run(
        gpu="h200",
        model="deepseek-v3",
        draft="mtp",
        tp=8,
        batch_sizes=(1, 4, 16, 64, 256),
        k_max=1,
        al="1:1.82",
    )
    gain = result.speedup[:, 1, 0]
    assert gain.max() < 1.82
    assert gain[0] == pytest.approx(1.63, rel=0.1)
    assert gain[1:].max() < gain[0]


def test_s1_05_one_acceptance_two_verify_curves(tmp_path):
    """llama.cpp, eight rows cost 2.39 of one on an RTX 3090 and 6.54 on an M4: K = 2 pays on one of them
    only."""
    verdict = {}
    for name, eight in (("rtx3090", 2.39), ("m4", 6.54)):
        curve = tmp_path / f"{name}.csv"
        one = {"rtx3090": 22.8, "m4": 172.0}[name]
        curve.write_text(f"rows,ms\n1,{one}\n8,{one * eight}\n")
        result = run(
            gpu="rtx-3090",
            model="qwen3.5-27b",
            weights="q4-k",
            draft="ngram",
            engine="llama.cpp",
            batch_sizes=(1,),
            k_max=2,
            al="2:2.2",
            verify_curve=str(curve),
        )
        verdict[name] = result.speedup[0, 2, 0]
    assert verdict["rtx3090"] > 1.4
    assert verdict["m4"] < 1.0


def test_m3_01_a_cliff_at_two_rows_rules_out_any_short_draft(tmp_path):
    """ik_llama.cpp#1630, GLM-4.5-Air: two rows cost 3.05 of one, so K = 1 (AL <= 2) can never pay."""
    curve = tmp_path / "glm.csv"
    steps = {1: 5.88, 2: 17.93, 3: 20.58, 4: 22.89, 6: 27.05, 8: 30.07}
    curve.write_text("rows,ms\n" + "\n".join(f"{n},{t}" for n, t in steps.items()) + "\n")
    result = run(
        gpu="rtx-5090",
        model="glm-4.5-air",
        draft="ngram",
        engine="llama.cpp",
        weights="int4",
        batch_sizes=(1,),
        k_max=2,
        accept="0.99",
        verify_curve=str(curve),
    )
    assert result.speedup[0, 1, 0] < 1.0
    assert result.best.off_is_best[0, 0]


def test_s1_07_a_small_drafter_reverses_near_batch_32():
    """vllm#17984, 70B target, 1B drafter: the gain reverses at batch 32, and larger K makes it worse."""
    result = run(
        gpu="a100-80gb-sxm",
        model="llama-2-70b",
        draft="llama-3.2-1b",
        tp=4,
        engine="vllm-0.6",
        batch_sizes=(1, 8, 16, 32, 64, 128),
        k_max=8,
        accept="0.7",
    )
    gain = result.speedup[:, :, 0]
    crossing = {
        k: next(b for b, g in zip((1, 8, 16, 32, 64, 128), gain[:, k], strict=True) if g < 1) for k in (3, 8)
    }
    assert 16 <= crossing[8] <= crossing[3] <= 128
    assert gain[3, 8] < gain[3, 3]


def test_s1_09_a_drafter_an_eighth_of_the_target_is_dear():
    """tensorrtllm_backend#498, 70B with 8B on 4 A100: by bytes a draft pass is 0.11 of a target step, K = 5
    over 0.5."""
    result = run(
        gpu="a100-80gb-sxm",
        model="llama-3-70b",
        draft="meta-llama-3-8b",
        tp=4,
        engine="vllm-0.10",
        batch_sizes=(1,),
        k_max=5,
        accept="0.7",
    )
    share = (result.step.draft_s / result.step.off_step_s)[0, :, 0]
    assert share[5] > 0.5
    assert 0.11 < share[5] / 5 < 0.2


def test_s1_13_a_very_deep_draft_is_punished():
    """vllm#24343, A100 40GB, EAGLE: K = 1 gains 32 %, K = 32 loses 34 %; best K is at most 4."""
    result = run(
        gpu="a100-40gb-sxm",
        model="llama-3.1-8b",
        draft="eagle",
        engine="vllm-0.10",
        batch_sizes=(1,),
        k_max=32,
        conditional="0.63,0.5,0.45,0.4",
    )
    assert result.best.k[0, 0] <= 4
    assert result.speedup[0, 1, 0] > 1.2
    assert result.speedup[0, 32, 0] == pytest.approx(0.66, abs=0.12)


def test_k2_03_near_tie_of_3_and_4_on_an_rtx_3090():
    """qwen38-mtp pull 77: 31.3 off, 49.4, 52.9, 51.9 tokens/s at K = 2, 3, 4: best 3."""
    rates = {2: 0.7935, 3: 0.7185, 4: 0.6349}
    lengths = {k: 1 + k * a for k, a in rates.items()}
    goodput = {}
    for k, al in lengths.items():
        result = run(
            gpu="rtx-3090",
            model="qwen3.5-27b",
            weights="q4-k",
            draft="mtp",
            draft_weights="q4-k",
            engine="llama.cpp",
            batch_sizes=(1,),
            k_max=k,
            al=f"{k}:{al}",
        )
        goodput[k] = result.goodput[0, k, 0]
    best = max(goodput.values())
    assert min(k for k, g in goodput.items() if g >= 0.99 * best) == 3
