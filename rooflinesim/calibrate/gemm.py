"""Dense products: fitted on half of the (n, k) shapes, scored on the other half."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rooflinesim.calibrate.fitting import FitResult, Param, log_spread, robust_fit, score
from rooflinesim.calibrate.tables import Table, halves, load
from rooflinesim.efficiency import Ceilings, ideal_calibration
from rooflinesim.forms import gemm_form
from rooflinesim.grid import FloatArray
from rooflinesim.specs.calibration import GemmFit
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.units import WEIGHT_BYTES

#: data type in the tables → weight format here
FORMATS: Final[dict[str, str]] = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "nvfp4": "nvfp4",
    "int4_wo": "int4",
}
#: token counts that engines capture as graphs, and the even prefill sizes of the tables
CAPTURED: Final = np.array([1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)])
#: One row above a tile: what the sizes between 256 and 512 cost, which no table holds. Fitted for 16 bit: in
#: 8 bit the odd count also misaligns the vector of row scales, which captured sizes never do.
ABOVE_TILE: Final = np.array([129, 161, 193, 225, 257, 513, 769, 1025])
ABOVE_TILE_FORMATS: Final = {"bf16"}
PREFILL: Final = np.array([768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 3072, 4096, 8192, 16384])
#: weight of each zone in the fit: decisions on K are taken in the core
ZONES: Final = {
    "core": 1.0,
    "head": 0.12,
    "tiny": 0.04,
    "small": 0.08,
    "prefill": 0.05,
    "deep": 0.02,
}
PARAMS: Final = (
    Param("t_fixed_s", 4e-6, 0.0, 4e-5),
    Param("k_latency_s", 5e-7, 0.0, 8e-6),
    Param("mem_eff", 0.86, 0.1, 1.0),
    Param("compute_eff", 0.75, 0.03, 1.0),
    Param("ridge_p", 4.0, 1.0, 12.0),
    Param("pad_frac", 0.7, 0.0, 1.0),
    Param("wave_frac", 0.1, 0.0, 1.0),
    Param("occupancy_exp", 0.1, 0.0, 0.6),
)
TILES: Final = tuple(itertools.product((16, 64, 128), (64, 128, 256), (64, 128, 256), (64, 128)))
#: Kernels inside the timed call that a served checkpoint does not run: their own tables (same inputs)
#: are subtracted before the fit. Static input scales need no ``computescale``; TensorRT-LLM writes the
#: quantised input in the kernel before (sum over ranks with norm, activation, attention), so no
#: ``scale_matrix``.
NOT_SERVED: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("vllm", "fp8"): ("computescale",),
    ("trtllm", "fp8"): ("computescale", "scale_matrix"),
}
#: Rows of an untuned kernel, for which another engine's stand in: nvfp4 products of TensorRT-LLM stream at
#: 2.7 TB/s on B200 (n = k = 8192, one row) where SGLang and vLLM reach 4.5; a server tunes them at start.
UNTUNED: Final = {("trtllm", "nvfp4")}
#: (engine, format) whose rows were timed eagerly, launch by launch: no measure of a captured graph
EAGER_ROWS: Final = {("vllm", "fp8-block")}


def zone(m: FloatArray, n: FloatArray, k: FloatArray) -> NDArray[np.str_]:
    """Which zone a row is in.

    core: n and k 4096..16384, captured m; head: vocabulary (n above); tiny, small: narrower; prefill: more
    rows; deep: k above 16384, which no layer has.
    """
    core = np.isin(m, CAPTURED) & (np.minimum(n, k) >= 4096) & (np.maximum(n, k) <= 16384)
    narrow = np.minimum(n, k) < 4096
    return np.select(
        [core, k > 16384, n > 16384, narrow & (n * k < 2**22), narrow],
        ["core", "deep", "head", "tiny", "small"],
        "prefill",
    )


def rows_of(gpu: GpuSpec, engine: str, fmt: str) -> Table | None:
    """Measured rows of one weight format, one per (m, n, k), widths 256 and up.

    Rows faster than reading the weights at the data sheet's bandwidth are left out: their weights were still
    in the last-level cache from the last replay (up to 128 MB on Ada and GB202), and a model's are not.
    """
    raw = load(gpu.id, engine, "gemm", "gemm")
    name = next(key for key, value in FORMATS.items() if value == fmt)
    if raw is None or (engine, fmt) in EAGER_ROWS | UNTUNED:
        return None
    table = raw.where(raw.text("gemm_dtype") == name)
    if len(table) < 500:
        return None
    table = table.median_by(["m", "n", "k", "kernel_source"])
    for kernel in NOT_SERVED.get((engine, fmt), ()):
        table = _without(gpu, engine, table, kernel)
    n, k = table.number("n"), table.number("k")
    floor_s = WEIGHT_BYTES[fmt] * n * k / gpu.mem_bytes_per_s
    return table.where((n >= 256) & (k >= 256) & (table.number("latency") * 1e-3 >= floor_s))


def _less(engine: str, fmt: str) -> str:
    kernels = NOT_SERVED.get((engine, fmt), ())
    return f"; less the {' and '.join(kernels)} rows (static input scales)" if kernels else ""


def _without(gpu: GpuSpec, engine: str, table: Table, kernel: str) -> Table:
    """The rows less the time of one kernel inside them, interpolated in log m and log k."""
    from scipy.interpolate import RegularGridInterpolator  # only when kernels are fitted

    found = load(gpu.id, engine, "quantize", kernel)
    if found is None:
        return table
    part = found.median_by(["m", "k"])
    m, k = np.unique(part.number("m")), np.unique(part.number("k"))
    grid = np.full((m.size, k.size), np.nan)
    grid[np.searchsorted(m, part.number("m")), np.searchsorted(k, part.number("k"))] = part.number("latency")
    if np.isnan(grid).any():
        return table
    at = RegularGridInterpolator((np.log(m), np.log(k)), grid, bounds_error=False, fill_value=None)
    points = np.stack([np.log(table.number("m")), np.log(table.number("k"))], axis=1)
    latency = table.number("latency")
    rest = np.maximum(latency - at(points), 0.3 * latency)
    return Table({**table.columns, "latency": rest}, table.version)


def _inputs(gpu: GpuSpec, fmt: str, table: Table) -> dict[str, Any]:
    m, n, k = table.number("m"), table.number("n"), table.number("k")
    quantises = fmt in {
        "fp8",
        "fp8-block",
        "nvfp4",
    }  # the timed call reads 16 bit, writes and re-reads the cast
    in_bytes = 2.0 + 2.0 * WEIGHT_BYTES[fmt] if quantises else 2.0
    ceilings = Ceilings(gpu=gpu, calibration=ideal_calibration(gpu.id))
    return {
        "rows": m,
        "out_features": n,
        "in_features": k,
        "weight_bytes": WEIGHT_BYTES[fmt] * n * k,
        "activation_bytes": m * (in_bytes * k + 2.0 * n),
        "peak_flops_per_s": ceilings.peak_flops_per_s(fmt),
        "mem_bytes_per_s": gpu.mem_bytes_per_s,
        "sm_count": float(gpu.sm_count or 100),
    }


def _model(inputs: dict[str, Any], tiles: tuple[int, ...], values: dict[str, Any]) -> FloatArray:
    low, high, tile_n, stream = tiles
    return gemm_form(
        **inputs, tile_m_min=low, tile_m_max=high, tile_n=tile_n, stream_tile_n=stream, **values
    )[0]


def search(
    inputs: dict[str, Any],
    measured_s: FloatArray,
    weights: FloatArray,
    clusters: NDArray[np.int64],
    tiles: tuple[tuple[int, ...], ...] = TILES,
) -> tuple[FitResult, tuple[int, ...]]:
    """The best of the tile choices by the robust objective (on every fifth row), refitted on all rows."""
    some = slice(None, None, 5)
    thin = {key: value[some] if isinstance(value, np.ndarray) else value for key, value in inputs.items()}

    def cost(choice: tuple[int, ...]) -> float:
        return robust_fit(
            model=lambda values: _model(thin, choice, values),
            measured_s=measured_s[some],
            params=PARAMS,
            weights=weights[some],
            scale=0.04,
            errors=False,
        ).cost

    best = min(tiles, key=cost) if len(tiles) > 1 else tiles[0]
    result = robust_fit(
        model=lambda values: _model(inputs, best, values),
        measured_s=measured_s,
        params=PARAMS,
        clusters=clusters,
        weights=weights,
        scale=0.04,
    )
    return result, best


def fit_gemm(gpu: GpuSpec, engine: str, fmt: str) -> GemmFit | None:
    """The fit of one weight format, or ``None`` where no graph-mode rows exist.

    Rows at one token are left out where they take more than 1.3 times the two-token row at the median:
    another kernel serves them, and a time that falls with rows is not in the form. The note in ``source``
    says so.
    """
    table = rows_of(gpu, engine, fmt)
    if table is None:
        return None
    m, n, k = table.number("m"), table.number("n"), table.number("k")
    notes = ""
    if _single_row_is_slow(table):
        notes = "; rows at one token left out of the fit: a slower kernel serves them"
    odd = (m > 16) & (np.mod(m, 16) == 1) & (m <= 513)
    use = np.isin(m, np.r_[CAPTURED, PREFILL])
    above = np.isin(m, ABOVE_TILE) & (fmt in ABOVE_TILE_FORMATS)
    fitted_m = (use | above) & ((m > 1) if notes else True)
    shape_half = halves(n, k)
    zones = zone(m, n, k)
    train = fitted_m & (shape_half == 0)
    part = table.where(train)
    clusters = np.unique(np.stack([n, k]), axis=1, return_inverse=True)[1].ravel()[train]
    wide = (np.minimum(n, k) >= 4096) & (np.maximum(n, k) <= 16384)
    weights = np.where(above & wide, 0.7, np.array([ZONES[name] for name in zones]))[train]
    result, tiles = search(_inputs(gpu, fmt, part), part.number("latency") * 1e-3, weights, clusters)
    held = table.where(shape_half == 1)
    model_s = _model(_inputs(gpu, fmt, held), tiles, result.values)
    measured_s = held.number("latency") * 1e-3
    held_zone = zones[shape_half == 1]
    held_use, held_odd = use[shape_half == 1], odd[shape_half == 1]
    domains = {
        "n and k 4096-16384, captured m <= 512": held_use & (held_zone == "core"),
        "n or k below 4096": held_use & np.isin(held_zone, ["tiny", "small"]),
        "vocabulary heads: n 51200 and 65536": held_use & (held_zone == "head"),
        "prefill, m 768-16384": held_use & (held_zone == "prefill"),
        "odd m (one above a multiple of 16), n and k 4096-16384": held_odd
        & (np.minimum(held.number("n"), held.number("k")) >= 4096)
        & (np.maximum(held.number("n"), held.number("k")) <= 16384),
    }
    if notes:
        core = domains["n and k 4096-16384, captured m <= 512"]
        domains["the same without m = 1"] = core & (held.number("m") > 1)
    scores = tuple(
        score(domain=name, model_s=model_s[mask], measured_s=measured_s[mask])
        for name, mask in domains.items()
        if mask.any()
    )
    core = held_use & (held_zone == "core")
    return GemmFit(
        **result.estimates,
        tile_m_min=tiles[0],
        tile_m_max=tiles[1],
        tile_n=tiles[2],
        stream_tile_n=tiles[3],
        log_sd=log_spread(model_s=model_s[core], measured_s=measured_s[core]),
        n=int(train.sum()),
        kernel="+".join(sorted(set(table.text("kernel_source").tolist()))),
        source=f"gemm {engine} {table.version}, half of the (n, k) shapes{notes}{_less(engine, fmt)}",
        score=scores,
    )


def evaluate(gpu: GpuSpec, engine: str, fmt: str, fit: GemmFit) -> tuple[FloatArray, FloatArray] | None:
    """(model, measured) seconds of any fit on one accelerator's held-out core rows; ``None`` without rows."""
    table = rows_of(gpu, engine, fmt)
    if table is None:
        return None
    m, n, k = table.number("m"), table.number("n"), table.number("k")
    use = (zone(m, n, k) == "core") & (halves(n, k) == 1)
    if _single_row_is_slow(table):
        use &= m > 1
    core = table.where(use)
    return gemm_form(**_inputs(gpu, fmt, core), **_any(fit.params))[0], core.number("latency") * 1e-3


def _any(params: dict[str, float]) -> dict[str, Any]:
    return dict(params)


def _single_row_is_slow(table: Table) -> bool:
    m, n, k, t = (table.number(name) for name in ("m", "n", "k", "latency"))
    key = n * 1e6 + k
    one, two = m == 1, m == 2
    common, i, j = np.intersect1d(key[one], key[two], return_indices=True)
    return bool(common.size and np.median(t[one][i] / t[two][j]) > 1.3)
