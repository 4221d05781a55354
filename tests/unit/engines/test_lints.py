"""Lints against the user cases they come from."""

from __future__ import annotations

from typing import Any

from rooflinesim.engines.records import Finding
from rooflinesim.engines.sglang import lint as sglang
from rooflinesim.engines.trtllm import lint as trtllm
from rooflinesim.engines.vllm import lint as vllm
from rooflinesim.engines.vllm.methods import method_findings
from rooflinesim.engines.vllm.schedule import KEY


def _codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings}


def _spec(**extra: Any) -> dict[str, Any]:
    return {"method": "eagle3", "num_speculative_tokens": 3, **extra}


def test_v4_07_token_budget_admits_ten_and_kills_graphs() -> None:
    """Budget 32 at K=2: floor(32/3) = 10 requests, 30 tokens; sizes 3..96 step 3: everything above 30 is
    dead."""
    config = {
        "speculative_config": {"method": "dspark", "num_speculative_tokens": 2},
        "max_num_seqs": 32,
        "max_num_batched_tokens": 32,
        "compilation_config": {"cudagraph_capture_sizes": list(range(3, 97, 3))},
    }
    by_code = {finding.code: finding.message for finding in vllm.lint(config)}
    assert "admits 10 requests" in by_code["token-budget"]
    dead = by_code["dead-graphs"].split("capture sizes ")[1].split(" are")[0].split(", ")
    assert [int(size) for size in dead] == list(range(33, 97, 3))
    assert set(range(39, 97, 3)) <= {int(size) for size in dead}


def test_enough_budget_is_silent() -> None:
    config = {"speculative_config": _spec(), "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    assert vllm.lint(config) == ()
    assert (
        vllm.lint({"max_num_seqs": 32, "max_num_batched_tokens": 32}) == ()
    )  # no speculation, nothing to say


def test_s1_17_eager_deep_and_small_budget() -> None:
    """Qwen3-8B EAGLE3 K=15 eager; default budget 2048: 2048/16 = 128 requests; TTFT worse."""
    config = {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 15},
        "enforce_eager": True,
        "max_num_seqs": 256,
    }
    found = vllm.lint(config, default_max_num_batched_tokens=2048, trained_k=7)
    assert {"eager", "token-budget", "above-trained-depth"} <= _codes(found)
    assert any("admits 128 requests" in finding.message for finding in found)
    full = vllm.lint({**config, "max_num_seqs": 100}, default_max_num_batched_tokens=2048)
    assert any("TTFT" in finding.message for finding in full)


def test_v4_05_sglang_limit() -> None:
    assert sglang.max_running({"speculative_algorithm": "EAGLE"}) == (48, 48)
    assert sglang.max_running({"speculative_algorithm": "EAGLE", "dp_size": 8}) == (48, 6)
    assert sglang.max_running(
        {"speculative_algorithm": "EAGLE", "max_running_requests": 4096, "dp_size": 8}
    ) == (4096, 512)
    assert sglang.max_running({}) == (None, None)
    found = sglang.lint({"speculative-algorithm": "EAGLE", "dp-size": 8}, batch_size=64)
    assert any("at most 48, 6 per worker at dp=8" in finding.message for finding in found)
    assert "batch-limit" in _codes(found)


def test_graph_cliff() -> None:
    """The caller knows the last graph (128 requests at K=3 on H100): 129 is over the cliff, 128 is not."""
    config = {"speculative_config": _spec()}
    assert "graph-cliff" in _codes(vllm.lint(config, batch_size=129, max_graph_batch=128))
    assert "graph-cliff" not in _codes(vllm.lint(config, batch_size=128, max_graph_batch=128))
    assert "graph-cliff" in _codes(
        sglang.lint({"speculative_algorithm": "EAGLE3"}, batch_size=9, max_graph_batch=8)
    )
    spec = {"speculative_config": {"decoding_type": "MTP", "max_draft_len": 2}}
    assert "graph-cliff" in _codes(trtllm.lint(spec, batch_size=9, max_graph_batch=8))


def test_runner_support_table() -> None:
    """vLLM 0.33: V1 follows a table for ngram, eagle, eagle3, mtp, draft_model, dflash; V2 runs no suffix or
    custom class."""

    def codes(method: str, runner: str, dynamic: bool = True, dp: int = 1) -> set[str]:
        return {f.code for f in method_findings(method, runner=runner, data_parallel=dp, dynamic=dynamic)}

    for method in ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"):
        assert codes(method, "v1") == {"v1-piecewise"}
    for method in ("suffix", "custom_class"):
        assert codes(method, "v2") == {"v2-unsupported", "v1-static"}
    assert codes("ngram_gpu", "v1") == {"v1-static"}
    assert "v1-unsupported" in codes("dspark", "v1")
    assert codes("eagle3", "v2") == set()
    assert codes("eagle3", "v2", dp=2) == {"dp-static"}
    assert codes("eagle3", "v2", dynamic=False, dp=2) == set()
    assert codes("draft_model", "v2") == {"draft-constant"}
    for method in ("medusa", "mlp_speculator"):
        assert codes(method, "v2") == {"method-removed"}
    assert codes("deepseek_mtp", "v2") == {"method-alias"}
    assert codes("nonsense", "v2") == {"method-unknown"}


def test_vllm_data_parallel_and_other_traps() -> None:
    dynamic = {"speculative_config": _spec(**{KEY: [[1, 8, 3]]}), "data_parallel_size": 2}
    assert "dp-static" in _codes(vllm.lint(dynamic))
    assert "empty-table" in _codes(vllm.lint({"speculative_config": _spec(**{KEY: []})}))
    assert "draft-tp" in _codes(vllm.lint({"speculative_config": _spec(tensor_parallel_size=2)}))
    adaptive = {"speculative_config": _spec(enable_adaptive_verification=True), "enable_lora": True}
    assert "adaptive-refused" in _codes(vllm.lint(adaptive))
    mtp = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
    assert "mtp-multiple" in _codes(vllm.lint(mtp, trained_k=2))
    assert _codes(vllm.lint(mtp, trained_k=1)) == {"above-trained-depth"}
    assert vllm.lint(mtp, trained_k=3) == ()


def test_sglang_traps() -> None:
    base = {"speculative_algorithm": "EAGLE3", "max_running_requests": 64}
    assert sglang.lint(base) == ()
    assert "draft-tokens" in _codes(
        sglang.lint(
            {
                **base,
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 3,
            }
        )
    )
    adaptive = {**base, "speculative_adaptive": True}
    assert "adaptive-default" in _codes(sglang.lint(adaptive))
    assert "adaptive-static" in _codes(sglang.lint({**adaptive, "enable_dp_attention": True}))
    assert "adaptive-static" in _codes(sglang.lint({**adaptive, "speculative_algorithm": "NGRAM"}))
    assert "eager" in _codes(sglang.lint({**base, "disable_cuda_graph": True}))
    assert "method-unknown" in _codes(sglang.lint({"speculative_algorithm": "MEDUSA"}))
    assert "above-trained-depth" in _codes(sglang.lint({**base, "speculative_num_steps": 5}, trained_k=3))


def test_trtllm_traps() -> None:
    def lint(batch: int | None = None, **spec: Any) -> set[str]:
        config = {"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3, **spec}}
        return _codes(trtllm.lint(config, batch_size=batch))

    assert lint(8) == set()
    assert "above-schedule" in lint(64, draft_len_schedule={32: 3})
    assert "old-meaning" in lint(draft_len_schedule={1: 3, 8: 1})
    assert "schedule-invalid" in lint(draft_len_schedule={8: 1, 16: 3})
    assert "permanent-off" in lint(acceptance_rate_threshold=0.3, acceptance_rate_window_size=100)
    assert "schedule-unsupported" in lint(decoding_type="NGram", draft_len_schedule={8: 3})
    assert "pard-tokens" in lint(decoding_type="PARD")
    assert "method-unknown" in lint(decoding_type="Medusa")
    assert trtllm.lint({}) == ()
