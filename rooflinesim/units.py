"""Prefixes, byte sizes of number formats, and numbers with units as people write them.

Vendors print decimal prefixes (GB/s, TFLOP/s); memory is counted in GiB. Inside the package everything is SI.
"""

from __future__ import annotations

import re
from typing import Final

from rooflinesim.errors import InputError

KILO: Final = 1e3
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12
KIB: Final = 1024.0
MIB: Final = 1024.0**2
GIB: Final = 1024.0**3
MICRO: Final = 1e-6
MILLI: Final = 1e-3

#: Bytes per stored weight element, block scales included.
#: fp8-block: one fp32 scale per 128x128 block (DeepSeek). int4: one fp16 scale and one fp16-packed zero per
#: group of 128 (AWQ/GPTQ: 4 + 16/128 + 4/128 bits). mxfp4: 4 bit + one 8-bit scale per 32 = 4.25 bit.
#: nvfp4: 4 bit + one fp8 scale per 16 = 4.5 bit (the fp32 per-tensor scale is negligible).
#: q4-k, q6-k: mean bits of the GGUF mixes Q4_K_M (4.85) and Q6_K (6.56) as llama.cpp prints them.
WEIGHT_BYTES: Final[dict[str, float]] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4.0 / (128 * 128),
    "int8": 1.0,
    "int4": (4.0 + 16.0 / 128 + 4.0 / 128) / 8.0,
    "mxfp4": 4.25 / 8.0,
    "nvfp4": 4.5 / 8.0,
    "q4-k": 4.85 / 8.0,
    "q6-k": 6.56 / 8.0,
}

#: Bytes per cached key or value element.
KV_BYTES: Final[dict[str, float]] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
}

#: The arithmetic a matrix product with these weights runs in. int4/mxfp4 weights are dequantised to 16 bit
#: in the
#: kernel (weight-only); fp8 and nvfp4 quantise the activations too.
COMPUTE_FORMAT: Final[dict[str, str]] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "fp8-block": "fp8",
    "int8": "int8",
    "int4": "bf16",
    "mxfp4": "bf16",
    "nvfp4": "fp4",
    "q4-k": "int8",
    "q6-k": "int8",
}

_SCALE: Final[dict[str, tuple[str, float]]] = {
    "b": ("bytes", 1.0),
    "kb": ("bytes", 1e3),
    "mb": ("bytes", 1e6),
    "gb": ("bytes", 1e9),
    "tb": ("bytes", 1e12),
    "kib": ("bytes", KIB),
    "mib": ("bytes", MIB),
    "gib": ("bytes", GIB),
    "tib": ("bytes", 1024.0**4),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6),
    "µs": ("seconds", 1e-6),
    "ns": ("seconds", 1e-9),
}
_QUANTITY = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ]+)\s*$")


def parse_quantity(text: str, *, dimension: str, field: str) -> float:
    """Read ``48GiB`` or ``40ms`` as an SI number of ``dimension`` (``bytes`` or ``seconds``).

    >>> parse_quantity("48GiB", dimension="bytes", field="--mem")
    51539607552.0
    >>> parse_quantity("40ms", dimension="seconds", field="--tpot")
    0.04
    """
    match = _QUANTITY.match(text)
    units = sorted(unit for unit, (dim, _) in _SCALE.items() if dim == dimension and unit.isascii())
    if match is None or match.group(2).lower() not in _SCALE:
        raise InputError(f"{field}: {text!r} needs a number with a unit, one of {', '.join(units)}")
    dim, scale = _SCALE[match.group(2).lower()]
    if dim != dimension:
        raise InputError(f"{field}: {text!r} is in {dim}, expected {dimension} ({', '.join(units)})")
    return float(match.group(1)) * scale
