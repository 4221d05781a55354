"""Memory against published engine logs and hand arithmetic."""

import pytest

from rooflinesim import registry
from rooflinesim.api import Scenario, fit_memory, resolve
from rooflinesim.errors import DoesNotFitError
from rooflinesim.memory import BlockPool, kv_bytes_of, longest_context
from rooflinesim.specs.scenario import Parallel
from rooflinesim.units import GIB


def test_block_pool_of_a_published_engine_log():
    """vLLM: 873 blocks of 14,611,968 B = 11.88 GiB; 45 blocks a request of which 9 are speculative
    scratch."""
    pool = BlockPool(n_blocks=873, block_bytes=14_611_968, blocks_per_seq=45, scratch_blocks_per_seq=9)
    assert pool.size_bytes / GIB == pytest.approx(11.880, abs=0.001)
    assert pool.concurrency == pytest.approx(19.40)
    assert int(pool.concurrency * 32_768) == 635_699
    assert pool.scratch_frac == pytest.approx(0.20)


def test_qwen3_coder_needs_62_gib_for_its_full_context():
    """Engine log: 262,144 tokens need 62.00 GiB; with 48.66 GiB it offers 205,728 tokens (blocks of 16)."""
    layers = registry.model("qwen3-coder-480b-a35b-instruct").layers
    per_token = kv_bytes_of(layers, context_tokens=1, parallel=Parallel(), kv_format="bf16")
    assert per_token == 253_952
    assert per_token * 262_144 / GIB == pytest.approx(62.00, abs=0.005)
    assert (
        longest_context(available_bytes=48.66 * GIB, kv_bytes_per_token=per_token, block_tokens=16) == 205_728
    )


@pytest.mark.parametrize(
    ("name", "context", "gib"),
    [
        ("gemma-3-27b-it", 131_072, 10.406),
        ("deepseek-v3.1", 163_840, 10.723),
        ("kimi-k2.5", 262_144, 17.156),
        ("qwen3-0.6b", 40_960, 4.375),
    ],
)
def test_cache_of_one_sequence(name, context, gib):
    layers = registry.model(name).layers
    got = kv_bytes_of(layers, context_tokens=context, parallel=Parallel(), kv_format="bf16")
    assert got / GIB == pytest.approx(gib, abs=0.002)


def test_weight_format_does_not_change_the_cache_format():
    sizes = set()
    for weights in ("bf16", "fp8", "nvfp4"):
        resolved = resolve(Scenario(gpu="b200", model="llama-3.1-70b", weights=weights, tp=2))
        sizes.add(fit_memory(resolved, context_tokens=4096, k=0).kv_bytes_per_token)
    assert len(sizes) == 1


def test_duplicated_draft_tables_are_their_own_lines():
    """vocabulary 248,320 x hidden 5,120 in 16 bit is 2.543 GB = 2.368 GiB a table (published report)."""
    assert pytest.approx(2.368, abs=0.001) == 248_320 * 5_120 * 2 / GIB
    resolved = resolve(Scenario(gpu="h200", model="qwen3.5-27b", draft="mtp"))
    d = resolved.deployment
    from rooflinesim.memory import footprint

    def lines(duplicated):
        out = footprint(
            gpu=d.ceilings.gpu,
            target=d.target,
            parallel=d.parallel,
            formats=d.formats,
            profile=d.profile,
            context_tokens=1024,
            k=1,
            method=d.method,
            draft=d.draft,
            duplicated_tables=duplicated,
        )
        return {line.name: line.size_bytes for line in out.fixed}

    shared, twice = lines(False), lines(True)
    assert shared["draft embedding"] == 0.0
    assert twice["draft embedding"] / GIB == pytest.approx(2.368, abs=0.001)
    assert twice["draft lm_head"] / GIB == pytest.approx(2.368, abs=0.001)


def test_a_speculative_head_adds_its_own_cache_layer():
    """Hybrid Qwen3.5 27B: 16 attention layers plus the MTP layer, so 17/16 of the cache per token."""
    base = fit_memory(
        resolve(Scenario(gpu="h200", model="qwen3.5-27b", draft="none")), context_tokens=4096, k=0
    )
    mtp = fit_memory(
        resolve(Scenario(gpu="h200", model="qwen3.5-27b", draft="mtp")), context_tokens=4096, k=1
    )
    assert mtp.kv_bytes_per_token / base.kv_bytes_per_token == pytest.approx(17 / 16)


def test_does_not_fit_says_by_how_much():
    resolved = resolve(Scenario(gpu="h100", model="llama-3.1-70b", draft="none"))
    memory = fit_memory(resolved, context_tokens=1024, k=0)
    assert memory.largest_batch(parallel=Parallel()) == 0
    with pytest.raises(DoesNotFitError, match=r"short by \d+\.\d GiB") as caught:
        memory.require(batch_size=1, parallel=Parallel())
    # 131.42 GiB of weights, 2 GiB workspace, 50 graphs of 10 MB, 1024 tokens of 327,680 B; 92 % of 81,090
    # MiB usable
    assert caught.value.short_bytes / GIB == pytest.approx(131.42 + 2.0 + 0.47 + 0.31 - 72.86, abs=0.1)


def test_total_parameters_fill_memory_active_ones_do_not():
    """Mixtral 46.7 B total: 93.4 GB in 16 bit, whatever the experts per token."""
    memory = fit_memory(
        resolve(Scenario(gpu="b200", model="mixtral-8x7b", draft="none")), context_tokens=1, k=0
    )
    assert memory.fixed[0].size_bytes / 1e9 == pytest.approx(93.4, abs=0.1)


def test_experts_divide_by_the_expert_group():
    one = fit_memory(
        resolve(Scenario(gpu="h200", model="deepseek-v3", tp=8, draft="none")), context_tokens=1, k=0
    )
    wide = fit_memory(
        resolve(Scenario(gpu="h200", model="deepseek-v3", tp=1, dp=32, ep=32, draft="none")),
        context_tokens=1,
        k=0,
    )
    assert wide.fixed[0].size_bytes < 0.6 * one.fixed[0].size_bytes
