"""Drafters made from a model's shape: a model as draft LM, its MTP module, and a head nobody has published.

A head built here is an assumption; its ``defaulted`` field says so, and the caller shows it.
"""

from __future__ import annotations

from typing import Final

from rooflinesim.errors import InputError
from rooflinesim.specs.model import Attention, DenseFfn, DraftMethod, DraftSpec, Layer, ModelSpec

#: Output vocabulary of published EAGLE-3 heads (models reference, section 5).
REDUCED_VOCAB: Final = 32_000
#: Layers, target taps and block size of the published parallel drafters for 8B-class targets.
_PARALLEL: Final[dict[str, tuple[int, int, int]]] = {"dflash": (5, 5, 16), "dspark": (5, 5, 7)}
_PEAGLE_LAYERS: Final = 4
_MEDUSA_HEADS: Final = 5
#: Feed-forward width over hidden size of heads published for MoE targets without a dense layer (6144 / 2048).
_MOE_HEAD_FFN: Final = 3
_HEAD_DIM: Final = 128
_KV_HEADS: Final = 8


def as_draft_model(model: ModelSpec) -> DraftSpec:
    """A whole model as drafter: its own tables, its own cache.

    >>> from rooflinesim.specs.model import Layer
    >>> tiny = ModelSpec(id="t", hidden_size=8, vocab_size=10, max_context_tokens=9, layers=(Layer(count=1),))
    >>> as_draft_model(tiny).method
    'draft_model'
    """
    return DraftSpec(
        id=model.id,
        aliases=model.aliases,
        method="draft_model",
        target_id=model.draft_for[0] if model.draft_for else None,
        target_ids=model.draft_for[1:],
        architecture=model.architecture,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        layers=model.layers,
        fc_per_step=False,
        extra_norms=1 if model.final_norm else 0,
        norm_bias=model.norm_bias,
        head_bias=model.head_bias,
        position_params=model.position_params,
        owns_lm_head=True,
        owns_embedding=True,
        tie_embeddings=model.tie_embeddings,
        native_weights=model.native_weights,
        quantized_scope=model.quantized_scope,
        max_context_tokens=model.max_context_tokens,
        published_total_b=model.published_total_b,
        confidence=model.confidence,
        source=model.source,
        notes=model.notes,
        defaulted=model.defaulted,
        unrecognised=model.unrecognised,
    )


def mtp_head(target: ModelSpec) -> DraftSpec:
    """The MTP module of a target that ships one: two norms, a 2h -> h projection, a layer of the target's
    kind."""
    if target.n_mtp_layers < 1:
        raise InputError(
            f"draft 'mtp': {target.id} ships no MTP layer (num_nextn_predict_layers is 0 or absent)"
        )
    usable = [
        layer for layer in target.layers if layer.attention is not None and layer.attention.scope == "full"
    ] or [layer for layer in target.layers if layer.attention is not None]
    if not usable:
        raise InputError(f"draft 'mtp': {target.id} has no softmax-attention layer to build the module from")
    layer = next((one for one in reversed(usable) if one.moe is not None), usable[-1])
    return DraftSpec(
        id=f"{target.id}#mtp",
        method="mtp",
        target_id=target.id,
        architecture=target.architecture,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        layers=(layer.model_copy(update={"count": 1}),),
        fc_in_features=2 * target.hidden_size,
        n_aux_hidden_states=1,
        extra_norms=3,
        n_modules=target.n_mtp_layers,
        native_weights=target.native_weights,
        quantized_scope=target.quantized_scope,
        max_context_tokens=target.max_context_tokens,
        confidence=target.confidence,
        source=f"derived from the shape of {target.id}",
        defaulted=("layers: one layer of the target's kind",),
    )


def generic_head(target: ModelSpec, method: str) -> DraftSpec:
    """A head of ``method`` with the usual widths for ``target``, where no published head is known."""
    hidden = target.hidden_size
    layer = Layer(
        count=1, attention=_head_attention(target), dense=DenseFfn(intermediate_size=_ffn_width(target))
    )
    base = DraftSpec(
        id=f"{method}-like:{target.id}",
        method="eagle",
        target_id=target.id,
        hidden_size=hidden,
        vocab_size=target.vocab_size,
        native_weights="bf16",
        max_context_tokens=target.max_context_tokens,
        confidence="C",
        source=f"usual widths of a {method} head applied to {target.id}",
        defaulted=(
            f"draft: no {method} head for {target.id} is known, one with the usual widths is assumed",
        ),
    )
    return base.model_copy(update={"method": method, **_widths(method, layer, hidden, target.vocab_size)})


def _widths(method: DraftMethod | str, layer: Layer, hidden: int, vocab: int) -> dict[str, object]:
    if method == "eagle":
        one = layer.model_copy(update={"norms": 1})
        return {"layers": (one,), "fc_in_features": 2 * hidden, "fc_bias": True, "n_aux_hidden_states": 1}
    if method in ("eagle3", "peagle"):
        count = _PEAGLE_LAYERS if method == "peagle" else 1
        assert layer.attention is not None
        wide = layer.attention.model_copy(update={"in_features": 2 * hidden})
        first = layer.model_copy(update={"norms": 3, "attention": wide})
        rest = (layer.model_copy(update={"count": count - 1}),) if count > 1 else ()
        return {
            "layers": (first, *rest),
            "vocab_size": min(REDUCED_VOCAB, vocab),
            "fc_in_features": 3 * hidden,
            "fc_per_step": False,
            "n_aux_hidden_states": 3,
            "extra_norms": 1,
            "owns_lm_head": True,
            "embedding_copy": True,
        }
    if method in _PARALLEL:
        count, taps, block = _PARALLEL[method]
        return {
            "layers": (layer.model_copy(update={"count": count}),),
            "fc_in_features": taps * hidden,
            "fc_per_step": False,
            "n_aux_hidden_states": taps,
            "extra_norms": 2,
            "block_size": block,
        }
    if method == "medusa":
        return {"fc_in_features": hidden, "fc_bias": True, "owns_lm_head": True, "n_modules": _MEDUSA_HEADS}
    raise InputError(f"draft {method!r}: no head of this kind can be built from a target's shape")


def _head_attention(target: ModelSpec) -> Attention:
    """The target's own head counts when it has plain grouped-query attention, else heads of 128 with 8 KV
    heads."""
    for layer in target.layers:
        if layer.attention is not None and layer.attention.kind == "gqa":
            own = layer.attention
            return Attention(n_heads=own.n_heads, n_kv_heads=own.n_kv_heads, head_dim=own.head_dim)
    heads = max(1, target.hidden_size // _HEAD_DIM)
    kv_heads = _KV_HEADS if heads % _KV_HEADS == 0 else heads
    return Attention(n_heads=heads, n_kv_heads=kv_heads, head_dim=_HEAD_DIM)


def _ffn_width(target: ModelSpec) -> int:
    for layer in target.layers:
        if layer.dense is not None:
            return layer.dense.intermediate_size
    return _MOE_HEAD_FFN * target.hidden_size
