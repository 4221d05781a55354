"""Fit a user's own overhead and efficiencies to a few measured steps, and say what the rows cannot determine.

Four numbers at most: host seconds of a plain step and of a speculative round, and one factor each on the
memory and the compute efficiencies of the calibration in use. All are found by least squares on
log(measured / model), re-running the model. A number whose standard error would be too large is refused: it
keeps its prior, and the points that would settle it are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rooflinesim.api.resolve import Resolved
from rooflinesim.calibrate.kernels import to_yaml
from rooflinesim.errors import InputError
from rooflinesim.grid import FloatArray
from rooflinesim.measurements import Measurement
from rooflinesim.output import write_text
from rooflinesim.specs.base import Estimate
from rooflinesim.specs.calibration import Calibration
from rooflinesim.validate.observe import context_of, given_lengths, length_at, predict_rows
from rooflinesim.validate.user import STEP_METRICS, check_drafter, measured_step_s

#: Parameter → the largest standard error (of its natural scale) at which it counts as determined.
LIMITS: Final = {"off_host_s": 4e-4, "sd_host_s": 6e-4, "mem_eff": 0.10, "compute_eff": 0.15}
#: How uncertain a number is before anything is measured (host: seconds; efficiencies: log).
PRIOR_SD: Final = {"off_host_s": 3e-4, "sd_host_s": 6e-4, "mem_eff": 0.10, "compute_eff": 0.20}
#: Times of the accelerator alone (vllm bench forward): they settle efficiencies and say nothing of the host.
PART_METRICS: Final = ("verify_s", "draft_s")
#: Spread taken for rows that state none: repeated runs of one setting differ by about this much.
NOISE_FRAC: Final = 0.02
#: How far a factor on an efficiency, and a host time, may go.
FACTOR_RANGE: Final = (0.2, 1.6)
HOST_RANGE_S: Final = (0.0, 0.1)
#: Points searched for the ones that would settle a refused parameter.
_CANDIDATES: Final = tuple(
    (batch, k, context) for batch in (1, 8, 32, 128, 256) for k in (0, 3) for context in (512, 8192)
)


@dataclass(frozen=True)
class Fitted:
    """One fitted number; ``unit`` is ``s`` or ``factor`` (on the calibration's own efficiencies)."""

    name: str
    value: float
    stderr: float
    unit: str


@dataclass(frozen=True)
class Refused:
    """One number the rows do not determine, why, and the (batch, K, context) points to measure."""

    name: str
    reason: str
    measure: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class UserFit:
    """What came out. ``residual_log_sd``: spread of log(measured / fitted model); ``before`` that of the
    prior."""

    fitted: tuple[Fitted, ...]
    refused: tuple[Refused, ...]
    n: int
    residual_log_sd: float
    before_log_sd: float
    calibration: Calibration


def _scaled(value: Estimate, factor: float) -> Estimate:
    return Estimate(value=value.value * factor, stderr=value.stderr)


def scaled_calibration(
    base: Calibration, *, mem_eff: float = 1.0, compute_eff: float = 1.0, **host: float
) -> Calibration:
    """``base`` with every memory and compute efficiency multiplied, and own host times put in."""

    def family(fits: Mapping[str, Any]) -> dict[str, Any]:
        # built anew: a copy would carry the parameters that the original has already worked out
        return {
            key: type(fit)(
                **{
                    **{name: getattr(fit, name) for name in type(fit).model_fields},
                    "mem_eff": _scaled(fit.mem_eff, mem_eff),
                    "compute_eff": _scaled(fit.compute_eff, compute_eff),
                }
            )
            for key, fit in fits.items()
        }

    update: dict[str, Any] = {
        "gemm": family(base.gemm),
        "attention": family(base.attention),
        "moe": family(base.moe),
        **{name: Estimate(value=value) for name, value in host.items()},
    }
    return base.model_copy(update=update)


def _with(resolved: Resolved, values: Mapping[str, float]) -> Resolved:
    d = resolved.deployment
    base = d.ceilings.calibration
    ceilings = replace(d.ceilings, calibration=scaled_calibration(base, **values))
    return replace(resolved, deployment=replace(d, ceilings=ceilings))


def _steps(resolved: Resolved, rows: Sequence[Measurement]) -> list[Measurement]:
    """Each row as a step time or a part of one; throughput and TPOT need the acceptance length."""
    given = given_lengths(rows)
    metrics = [m for m in STEP_METRICS if any(r.metric == m for r in rows)]
    out = [row for row in rows if row.metric in PART_METRICS]
    for row in out:
        if row.value <= 0:
            raise InputError(f"line {row.line}: {row.metric}: must be above 0")
    if not metrics and not out:
        raise InputError(f"no row gives a step time; needs one of {', '.join(STEP_METRICS)}")
    for row in rows:
        if not metrics or row.metric != metrics[0]:
            continue
        if row.k > 0 and row.metric != "step_s" and (row.group, row.k) not in given:
            raise InputError(
                f"line {row.line}: {row.metric} at K = {row.k} needs the measured acceptance_length of that K"
            )
        value = measured_step_s(row, length_at(row, given, resolved))
        out.append(replace(row, metric="step_s", value=value))
    return out


def _prior(resolved: Resolved) -> dict[str, float]:
    host = resolved.deployment.profile.host
    own = resolved.deployment.ceilings.calibration
    return {
        "off_host_s": host.off_step_s if own.off_host_s is None else own.off_host_s.value,
        "sd_host_s": host.sd_round_s if own.sd_host_s is None else own.sd_host_s.value,
        "mem_eff": 1.0,
        "compute_eff": 1.0,
    }


def _model(resolved: Resolved, rows: Sequence[Measurement], values: Mapping[str, float]) -> FloatArray:
    predicted = predict_rows(_with(resolved, values), rows, {}, with_floor=False)
    return np.log([p.value for p in predicted])


def _jacobian(
    resolved: Resolved, rows: Sequence[Measurement], values: Mapping[str, float], names: Sequence[str]
) -> FloatArray:
    """∂ log t / ∂θ by central differences: θ in seconds for host times, log factor for efficiencies."""
    columns = []
    for name in names:
        step = 1e-4 if name.endswith("_s") else 0.02
        up, down = dict(values), dict(values)
        if name.endswith("_s"):
            up[name], down[name] = values[name] + step, max(values[name] - step, 0.0)
            width = up[name] - down[name]
        else:
            up[name], down[name] = values[name] * np.exp(step), values[name] * np.exp(-step)
            width = 2 * step
        columns.append((_model(resolved, rows, up) - _model(resolved, rows, down)) / width)
    return np.stack(columns, axis=1)


def _stderr(jacobian: FloatArray, sigma: FloatArray) -> FloatArray:
    """Standard errors of weighted least squares; infinite where the rows say nothing."""
    weighted = jacobian / sigma[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    safe = np.where(scale > 0, scale, 1.0)
    _, s, vt = np.linalg.svd(weighted / safe, full_matrices=False)
    if vt.shape[0] < jacobian.shape[1]:  # fewer rows than parameters
        missing = jacobian.shape[1] - vt.shape[0]
        _, _, full = np.linalg.svd(weighted / safe, full_matrices=True)
        vt, s = full, np.concatenate([s, np.zeros(missing)])
    inverse = np.where(s > 1e-6, 1.0 / np.maximum(s, 1e-12), 1e6)
    variance = np.square(vt.T * inverse).sum(axis=1)
    out: FloatArray = np.where(scale > 0, np.sqrt(variance) / safe, np.inf)
    return out


def _held(names: Sequence[str], free: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Pseudo-rows that hold every parameter that is not fitted to its prior, with the prior's own
    uncertainty."""
    rows = np.eye(len(names))[[i for i, n in enumerate(names) if n not in free]]
    return rows, np.asarray([PRIOR_SD[n] for n in names if n not in free])


def _conditional_stderr(
    jacobian: FloatArray, sigma: FloatArray, names: Sequence[str], free: Sequence[str]
) -> FloatArray:
    """Standard errors of the ``free`` parameters, the others being as uncertain as their priors."""
    rows, sd = _held(names, free)
    error = _stderr(np.vstack([jacobian, rows]), np.concatenate([sigma, sd]))
    return error[[list(names).index(n) for n in free]]


def _determined(jacobian: FloatArray, sigma: FloatArray, names: Sequence[str]) -> list[str]:
    """The largest set of parameters, worst dropped first, whose standard errors all keep their limits."""
    free = list(names)
    while free:
        error = _conditional_stderr(jacobian, sigma, names, free)
        over = np.asarray([e / LIMITS[n] for n, e in zip(free, error, strict=True)])
        if over.max() <= 1.0 and jacobian.shape[0] > len(free):
            break
        free.pop(int(over.argmax()))
    return free


def fit_user(resolved: Resolved, rows: Sequence[Measurement], *, calibration_id: str = "mine") -> UserFit:
    """Fit what ``rows`` determine, starting from the calibration and host times of ``resolved``.

    Errors: InputError when no row gives a step time, or the rows determine nothing.
    """
    from scipy.optimize import least_squares

    check_drafter(resolved, rows)
    steps = _steps(resolved, rows)
    sigma = np.asarray([max(r.spread_frac or NOISE_FRAC, 1e-3) / np.sqrt(r.n or 1) for r in steps])
    sigma = np.maximum(sigma, 0.005)
    measured = np.log([r.value for r in steps])
    prior = _prior(resolved)
    before = float(np.sqrt(np.mean(np.square(measured - _model(resolved, steps, prior)))))
    names = list(LIMITS)
    jacobian = _jacobian(resolved, steps, prior, names)
    free = _determined(jacobian, sigma, names)
    if not free:
        wanted = _points_for(resolved, steps, prior, names, "mem_eff", sigma)
        shown = "; ".join(f"batch {b}, K = {k}, context {c}" for b, k, c in wanted)
        raise InputError(f"too few rows ({len(steps)}): they determine nothing; measure {shown}")

    def unpack(theta: FloatArray) -> dict[str, float]:
        values = dict(prior)
        for name, t in zip(free, theta, strict=True):
            values[name] = float(t * 1e-3) if name.endswith("_s") else float(np.exp(t))
        return values

    def residual(theta: FloatArray) -> FloatArray:
        out: FloatArray = (measured - _model(resolved, steps, unpack(theta))) / sigma
        return out

    low = [HOST_RANGE_S[0] * 1e3 if n.endswith("_s") else np.log(FACTOR_RANGE[0]) for n in free]
    high = [HOST_RANGE_S[1] * 1e3 if n.endswith("_s") else np.log(FACTOR_RANGE[1]) for n in free]
    start = [prior[n] * 1e3 if n.endswith("_s") else 0.0 for n in free]
    start = [float(np.clip(s, lo + 1e-6, hi - 1e-6)) for s, lo, hi in zip(start, low, high, strict=True)]
    solution = least_squares(residual, start, bounds=(low, high), diff_step=[1e-3], loss="soft_l1")
    values = unpack(solution.x)
    left = measured - _model(resolved, steps, values)
    spread = float(np.sqrt(np.sum(np.square(left)) / max(len(steps) - len(free), 1)))
    final = _jacobian(resolved, steps, values, names)
    error = _conditional_stderr(final, np.maximum(sigma, spread), names, free)
    fitted = tuple(
        Fitted(
            name=n,
            value=values[n],
            stderr=float(e if n.endswith("_s") else e * values[n]),
            unit="s" if n.endswith("_s") else "factor",
        )
        for n, e in zip(free, error, strict=True)
    )
    refused = tuple(
        Refused(
            name=n,
            reason=f"{_reason(n, steps)}; kept at {_shown(n, prior[n])}",
            measure=_points_for(resolved, steps, values, names, n, sigma),
        )
        for n in names
        if n not in free
    )
    return UserFit(
        fitted=fitted,
        refused=refused,
        n=len(steps),
        residual_log_sd=spread,
        before_log_sd=before,
        calibration=_calibration(resolved, values, fitted, len(steps), spread, calibration_id),
    )


def _shown(name: str, value: float) -> str:
    return f"{value * 1e3:.2f} ms" if name.endswith("_s") else f"a factor of {value:g}"


def _reason(name: str, rows: Sequence[Measurement]) -> str:
    if name == "off_host_s" and all(r.k > 0 for r in rows):
        return "no row without speculation (K = 0)"
    if name == "sd_host_s" and all(r.k == 0 for r in rows):
        return "no row with speculation"
    if name == "compute_eff":
        return "no row is compute-bound enough"
    return "the rows cannot tell it from the other constants"


def _points_for(
    resolved: Resolved,
    rows: Sequence[Measurement],
    values: Mapping[str, float],
    names: Sequence[str],
    wanted: str,
    sigma: FloatArray,
) -> tuple[tuple[int, int, int], ...]:
    """Up to three further points, chosen greedily, that bring the standard error of ``wanted`` below its
    limit."""
    have = {(int(r.batch_size), r.k, int(context_of(r))) for r in rows if r.metric == "step_s"}
    speculative = resolved.deployment.speculative
    options = [p for p in _CANDIDATES if p not in have and (speculative or p[1] == 0)]
    extra = [
        replace(
            rows[0],
            metric="step_s",
            batch_size=float(b),
            k=k,
            context_tokens=float(c),
            query_tokens=None,
            draft_steps=None,
        )
        for b, k, c in options
    ]
    base = _jacobian(resolved, rows, values, names)
    more = _jacobian(resolved, extra, values, names)
    at = list(names).index(wanted)
    chosen: list[int] = []
    for _ in range(3):
        best, least = -1, np.inf
        for i in range(len(options)):
            if i in chosen:
                continue
            picked = [*chosen, i]
            noise = np.concatenate([sigma, np.full(len(picked), NOISE_FRAC)])
            error = float(_stderr(np.vstack([base, more[picked]]), noise)[at])
            if error < least:
                best, least = i, error
        if best < 0:
            break
        chosen.append(best)
        if least <= LIMITS[wanted]:
            break
    return tuple(options[i] for i in chosen)


def _calibration(
    resolved: Resolved,
    values: Mapping[str, float],
    fitted: Sequence[Fitted],
    n: int,
    spread: float,
    calibration_id: str,
) -> Calibration:
    base = resolved.deployment.ceilings.calibration
    free = {f.name: f for f in fitted}
    factors = {k: values[k] for k in ("mem_eff", "compute_eff")}
    host = {k: values[k] for k in ("off_host_s", "sd_host_s") if k in free}
    made = scaled_calibration(base, **factors, **host)
    shown = ", ".join(f"{f.name} {f.value:.4g} ± {f.stderr:.2g}" for f in fitted)
    update: dict[str, Any] = {
        "id": calibration_id,
        "kind": "machine",
        "source": f"own measurements: {n} rows, residual spread {spread:.3f}, on top of {base.id}; {shown}",
    }
    for name in host:
        update[name] = Estimate(value=values[name], stderr=free[name].stderr)
    return made.model_copy(update=update)


def write_calibration(
    fit: UserFit, path: str | Path, *, of: str = "one's own measurements", force: bool = False
) -> Path:
    """Write the calibration fitted to ``of`` as YAML; ``--calibration FILE`` reads it."""
    head = f"# Fitted to {of} by `rooflinesim calibrate`.\n"
    return write_text(path, head + to_yaml(fit.calibration), force=force)


def fit_json(fit: UserFit) -> dict[str, Any]:
    """The document that ``calibrate my.csv --json`` prints."""
    return {
        "schema": 1,
        "n": fit.n,
        "residual_log_sd": fit.residual_log_sd,
        "before_log_sd": fit.before_log_sd,
        "fitted": [f.__dict__ for f in fit.fitted],
        "refused": [
            {"name": r.name, "reason": r.reason, "measure": [list(point) for point in r.measure]}
            for r in fit.refused
        ],
    }
