"""Cross-checks of a spec against itself: a sparse peak, a bidirectional link: each is off by two or more.

Each check has a name; a part to which it does not apply says so, and why, in ``check_exceptions``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflinesim.specs.base import Frozen
from rooflinesim.specs.counting import count, weight_params_by_kind
from rooflinesim.specs.gpu import GpuSpec
from rooflinesim.specs.model import ModelSpec

#: A nominal peak may be quoted at a clock this far below the maximum (Hopper, Blackwell data-centre parts).
CLOCK_BELOW_MAX: Final = 0.14
TOLERANCE: Final = 0.02
#: FLOP per byte at which 16-bit products turn compute-bound: lowest (Apple 34) to highest (TPU v6e 560) seen.
BALANCE: Final = (20.0, 620.0)
RATIO_TOLERANCE: Final = 0.03
#: (check, numerator, denominators in order of preference, ratio that holds for most parts)
_RATIOS: Final = (
    ("fp8_over_bf16", "fp8", ("bf16", "fp16"), 2.0),
    ("fp4_over_fp8", "fp4", ("fp8",), 2.0),
    ("int8_over_16bit", "int8", ("fp16", "bf16"), 2.0),
    ("tf32_over_bf16", "tf32", ("bf16", "fp16"), 0.5),
)
CHECKS: Final = (
    "peak_from_clock",
    *(name for name, *_ in _RATIOS),
    "link_halves",
    "pair_within_link",
    "balance",
    "memory_reported",
    "price_order",
)


class Finding(Frozen):
    """One check that did not hold: ``message`` says what was found and what was expected."""

    check: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message} ({self.check})"


def check_gpu(spec: GpuSpec) -> tuple[Finding, ...]:
    """Checks of an accelerator that fail and are not excused by ``check_exceptions``; empty when all hold."""
    found = [*_peak(spec), *_ratios(spec), *_links(spec), *_rest(spec)]
    for name in spec.check_exceptions:
        if name not in CHECKS:
            allowed = ", ".join(CHECKS)
            found.append(
                Finding(check=name, field="check_exceptions", message=f"no such check; there are {allowed}")
            )
    return tuple(one for one in found if one.check not in spec.check_exceptions or one.check not in CHECKS)


def _peak(spec: GpuSpec) -> list[Finding]:
    """Dense 16-bit peak = units x FLOP per clock x clock, or up to 14 % below (a lower nominal clock)."""
    name = "bf16" if "bf16" in spec.peaks else "fp16"
    peak = spec.peaks.get(name)
    if None in (peak, spec.sm_count, spec.flop_per_clk_per_sm_16bit, spec.boost_clock):
        return []
    assert peak and spec.sm_count and spec.flop_per_clk_per_sm_16bit and spec.boost_clock
    expected = spec.sm_count * spec.flop_per_clk_per_sm_16bit * spec.boost_clock.value * 1e6 / 1e12
    ratio = peak.value / expected
    if 1 - CLOCK_BELOW_MAX <= ratio <= 1 + TOLERANCE:
        return []
    hint = "; twice is the sparse figure" if abs(ratio / 2 - 1) < CLOCK_BELOW_MAX else ""
    message = (
        f"{peak.value:g} TFLOP/s is {ratio:.2f} of {expected:.4g} = {spec.sm_count} units x "
        f"{spec.flop_per_clk_per_sm_16bit:g} FLOP/clk x {spec.boost_clock.value:g} MHz{hint}"
    )
    return [Finding(check="peak_from_clock", field=f"peaks.{name}", message=message)]


def _ratios(spec: GpuSpec) -> list[Finding]:
    found = []
    for check, top, bottoms, expected in _RATIOS:
        bottom = next((name for name in bottoms if name in spec.peaks), None)
        if top not in spec.peaks or bottom is None:
            continue
        ratio = spec.peaks[top].value / spec.peaks[bottom].value
        if abs(ratio / expected - 1) > RATIO_TOLERANCE:
            message = f"{top}/{bottom} is {ratio:.3g}, {expected:g} holds for most parts"
            found.append(Finding(check=check, field=f"peaks.{top}", message=message))
    return found


def _links(spec: GpuSpec) -> list[Finding]:
    found = []
    both, one, pair = spec.scaleup_bidir, spec.scaleup_unidir, spec.p2p_pair_unidir
    if both and one and abs(2 * one.value / both.value - 1) > TOLERANCE:
        message = f"{one.value:g} GB/s per direction is not half of {both.value:g} GB/s bidirectional"
        found.append(Finding(check="link_halves", field="scaleup_unidir", message=message))
    if pair and one and pair.value > one.value * (1 + TOLERANCE):
        message = f"one pair has {pair.value:g} GB/s, more than the device's {one.value:g} GB/s per direction"
        found.append(Finding(check="pair_within_link", field="p2p_pair_unidir", message=message))
    return found


def _rest(spec: GpuSpec) -> list[Finding]:
    found = []
    peak = spec.peaks.get("bf16") or spec.peaks.get("fp16")
    if peak is not None:
        balance = peak.value * 1e12 / spec.mem_bytes_per_s
        if not BALANCE[0] <= balance <= BALANCE[1]:
            message = f"{balance:.4g} FLOP per byte; known parts have {BALANCE[0]:g} to {BALANCE[1]:g}"
            found.append(Finding(check="balance", field="memory_bandwidth", message=message))
    if spec.memory_reported is not None:
        share = spec.memory_reported.value / 1024.0 / spec.memory.value
        if not 0.9 <= share <= 1.0 + TOLERANCE:
            message = f"the driver reports {share:.2f} of the label taken as GiB; 0.90 to 1.00 is usual"
            found.append(Finding(check="memory_reported", field="memory_reported", message=message))
    prices = [spec.price_usd_per_hour[k] for k in ("low", "typical", "high") if k in spec.price_usd_per_hour]
    if prices != sorted(prices):
        found.append(
            Finding(check="price_order", field="price_usd_per_hour", message=f"{prices} does not rise")
        )
    return found


def _distance(published: float, value: float) -> float:
    return abs(value - published)


def check_model(spec: ModelSpec, *, tolerance: float = 0.015) -> tuple[Finding, ...]:
    """Counted against published parameters; empty when both agree within ``tolerance``.

    The total includes the published parts that are not language model. Published active counts include both
    vocabulary tables, only the head, or neither: the nearest convention is compared.
    """
    counted, weights = count(spec), weight_params_by_kind(spec)
    tables = (
        [0, weights.embedding, weights.embedding + weights.head] if weights.head else [0, weights.embedding]
    )
    actives = [(counted.active_params - without) / 1e9 for without in tables]
    found = []
    for field, published, values in (
        ("published_total_b", spec.published_total_b, [counted.total_params / 1e9 + spec.non_lm_params_b]),
        ("published_active_b", spec.published_active_b, actives),
    ):
        if not published:
            continue
        value = min(values, key=partial(_distance, published))
        if abs(value / published - 1) > tolerance:
            message = (
                f"the shape counts {value:.4g} B, {published:g} B is published ({value / published - 1:+.1%})"
            )
            found.append(Finding(check=field, field=field, message=message))
    return tuple(found)
