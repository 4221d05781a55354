"""Whatever stands in a configuration, the answer is a spec or one line: never a traceback, never a hang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rooflinesim.errors import SpecError
from rooflinesim.hf_import import import_config
from rooflinesim.specs.counting import count, count_draft
from rooflinesim.specs.model import ModelSpec

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "hf_configs").glob("*.json"))
CONFIGS: list[dict[str, Any]] = [json.loads(path.read_text(encoding="utf-8")) for path in FIXTURES]

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**13)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({key for config in CONFIGS for key in [*config, *config.get("text_config", {})]})
EXTRA = [
    "layers_block_type", "hybrid_override_pattern", "hybrid_layer_pattern", "block_configs",
    "ffn_multipliers", "moe_layers",
    "mlp_only_layers", "moe_layer_freq", "no_rope_layers", "sliding_window_pattern", "kv_lora_rank",
    "index_n_heads", "attn_config",
    "ffn_config", "eagle_config", "speculators_config", "medusa_num_heads", "transformer_layer_config",
    "dflash_config",
    "num_query_heads", "global_head_dim", "swa_head_dim", "is_encoder_decoder", "draft_vocab_size",
    "target_layer_ids",
]  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    config=st.sampled_from(CONFIGS),
    changes=st.dictionaries(st.sampled_from(KEYS + EXTRA), ODD, min_size=1, max_size=4),
    nested=st.booleans(),
)
def test_spec_or_one_line(config: dict[str, Any], changes: dict[str, Any], nested: bool) -> None:
    if nested and isinstance(config.get("text_config"), dict):
        changed = config | {"text_config": config["text_config"] | changes}
    else:
        changed = config | changes
    try:
        spec = import_config(changed, name="fuzz")
    except SpecError as error:
        assert "\n" not in str(error) and str(error).startswith("fuzz")
        return
    counted = count(spec) if isinstance(spec, ModelSpec) else count_draft(spec)
    assert counted.total_params >= counted.active_params >= counted.streamed_params > 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(config=st.sampled_from(CONFIGS), data=st.data())
def test_missing_key_is_a_default_or_one_line(config: dict[str, Any], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(config)))
    try:
        spec = import_config({key: value for key, value in config.items() if key != gone}, name="fuzz")
    except SpecError as error:
        assert "\n" not in str(error)
        return
    assert gone not in spec.unrecognised
