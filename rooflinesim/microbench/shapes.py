"""Model shapes for measuring: any ``ModelSpec`` scaled to fit a machine, and the small shapes that are
trained here."""

from __future__ import annotations

from rooflinesim.errors import InputError
from rooflinesim.specs.model import Attention, DenseFfn, Layer, ModelSpec, MoeFfn
from rooflinesim.units import WEIGHT_BYTES


def decoder_spec(
    *,
    id: str,
    hidden: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    inner: int,
    vocab: int,
    n_experts: int = 0,
    top_k: int = 0,
    max_context: int = 4096,
    tie: bool = False,
    notes: str = "",
) -> ModelSpec:
    """A plain decoder of equal layers: dense, or routed when ``n_experts`` is given."""
    moe = MoeFfn(n_experts=n_experts, top_k=top_k, intermediate_size=inner) if n_experts else None
    layer = Layer(
        count=n_layers,
        attention=Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim),
        dense=None if moe else DenseFfn(intermediate_size=inner),
        moe=moe,
    )
    return ModelSpec(
        id=id,
        family="bench",
        hidden_size=hidden,
        vocab_size=vocab,
        tie_embeddings=tie,
        max_context_tokens=max_context,
        layers=(layer,),
        source="built for measuring",
        notes=notes,
    )


def layer_params(layer: Layer, hidden: int) -> int:
    """Weights of one layer as the torch decoder builds it (matrices only)."""
    att = layer.attention
    if att is None:
        raise InputError("model: a layer without attention has no torch counterpart here")
    mixer = hidden * att.head_dim * (2 * att.n_heads + 2 * att.n_kv_heads)
    if layer.moe is not None:
        return mixer + hidden * layer.moe.n_experts * (1 + 3 * layer.moe.intermediate_size)
    return mixer + 3 * hidden * (layer.dense.intermediate_size if layer.dense else 0)


def weight_bytes(spec: ModelSpec, *, fmt: str = "bf16") -> float:
    """Bytes of all weights of the torch decoder built from ``spec``.

    >>> spec = decoder_spec(
    ...     id="x", hidden=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, inner=128, vocab=256
    ... )
    >>> weight_bytes(spec) == 2.0 * (2 * (64 * 16 * 12 + 3 * 64 * 128) + 2 * 64 * 256)
    True
    """
    layers = sum(layer.count * layer_params(layer, spec.hidden_size) for layer in spec.layers)
    tables = (1 if spec.tie_embeddings else 2) * spec.vocab_size * spec.hidden_size
    return WEIGHT_BYTES[fmt] * (layers + tables)


def _multiple(value: float, step: int) -> int:
    return max(step, round(value / step) * step)


def _shrink(spec: ModelSpec, scale: float, n_layers: int, vocab: int) -> ModelSpec:
    """One equal-layer decoder with widths scaled by ``scale``; experts and top-k stay, they make the
    valley."""
    moe_layers = sum(layer.count for layer in spec.layers if layer.moe is not None)
    main = next(
        layer for layer in spec.layers if (layer.moe is not None) == (2 * moe_layers >= spec.n_layers)
    )
    att = next((layer.attention for layer in spec.layers if layer.attention is not None), None)
    n_heads = att.n_heads if att else max(1, spec.hidden_size // 128)
    n_kv = n_heads if att is None or att.kind == "mla" else att.n_kv_heads
    dim = 64 if att is None or att.kind == "mla" else min(att.head_dim, 128)
    group = max(1, n_heads // max(1, n_kv))
    kv = max(1, round(n_kv * scale))
    ffn = main.moe or main.dense
    inner = ffn.intermediate_size if ffn is not None else 4 * spec.hidden_size
    return decoder_spec(
        id=f"{spec.id}-scaled",
        hidden=_multiple(spec.hidden_size * scale, 64),
        n_layers=n_layers,
        n_heads=kv * group,
        n_kv_heads=kv,
        head_dim=max(16, dim),
        inner=_multiple(inner * scale, 32),
        vocab=vocab,
        n_experts=main.moe.n_experts if main.moe else 0,
        top_k=main.moe.top_k if main.moe else 0,
        notes=f"{spec.id}: widths x {scale:.3g}, {n_layers} of {spec.n_layers} layers, vocabulary {vocab}; "
        "other mixers replaced by grouped-query attention",
    )


def scale_to_fit(spec: ModelSpec, *, max_bytes: float, fmt: str = "bf16", min_layers: int = 4) -> ModelSpec:
    """The largest decoder of ``spec``'s proportions whose weights fit into ``max_bytes``.

    Layers go first (equal layers repeat the same measurement), then the vocabulary down to 32k, then all
    widths together. The number of experts and top-k stay; one line of ``notes`` says what was cut.
    """
    vocab = spec.vocab_size
    for scale in (1.0, 0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625, 0.03125):
        for words in (vocab, min(vocab, 32_768), min(vocab, 4096)):
            tried = _shrink(spec, scale, min_layers, words)
            tables = 2 * WEIGHT_BYTES[fmt] * words * tried.hidden_size
            if weight_bytes(tried, fmt=fmt) <= max_bytes and (tables <= 0.25 * max_bytes or words <= 4096):
                per_layer = WEIGHT_BYTES[fmt] * layer_params(tried.layers[0], tried.hidden_size)
                n_layers = int((max_bytes - tables) // per_layer)
                return _shrink(spec, scale, min(spec.n_layers, max(min_layers, n_layers)), words)
    raise InputError(
        f"model: {spec.id} cannot be scaled into {max_bytes / 2**20:.0f} MiB with {min_layers} layers; "
        "free some memory or choose a smaller model"
    )
