"""Host costs: the stored values come out of the rows again, and no scored row is among them."""

from __future__ import annotations

import pytest

from rooflinesim import registry
from rooflinesim.calibrate.hosts import HostFit, fit_hosts, usable
from rooflinesim.errors import InputError
from rooflinesim.measured.serving_rows import probably_speculative, read_rows, split, table_path


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        table_path()
    except InputError:
        pytest.skip("aiconfigurator-core is not installed")


@pytest.fixture(scope="module")
def fits() -> dict[str, HostFit]:
    return fit_hosts()


def test_only_pairs_that_are_never_scored() -> None:
    rows = read_rows()
    _, held = split(rows)
    used = usable(rows)
    assert {r.pair for r in used} & {r.pair for r in held} == set()
    assert {r.row for r in used} & probably_speculative(rows) == frozenset()


@pytest.mark.parametrize(
    ("group", "profile"),
    [("vllm-0.12", "vllm-0.12"), ("vllm", "vllm"), ("sglang", "sglang"), ("trtllm", "trtllm")],
)
def test_stored_values_come_out_again(fits: dict[str, HostFit], group: str, profile: str) -> None:
    """Within half a standard error: kernels may be refitted without a refit of the hosts."""
    fit, host = fits[group], registry.engine(profile).host
    assert abs(fit.off_step_s - host.off_step_s) <= 0.5 * fit.off_step_stderr_s
    assert abs(fit.per_request_s - host.per_request_s) <= 0.5 * fit.per_request_stderr_s


def test_values_are_those_of_a_host(fits: dict[str, HostFit]) -> None:
    """Milliseconds a step and tens of microseconds a request; published rounds of speculation cost 1.2 to
    3.6 ms.
    """
    for fit in fits.values():
        assert 0.0 < fit.off_step_s < 3.6e-3
        assert 0.0 < fit.per_request_s < 6e-5


def test_dense_rows_leave_two_percent(fits: dict[str, HostFit]) -> None:
    """Qwen3-32B on H100 under vLLM 0.12: 90 rows, TP 2 to 8, batch 8 to 128, prompts to 4096."""
    assert fits["vllm-0.12"].n == 90
    assert fits["vllm-0.12"].mape < 0.03
