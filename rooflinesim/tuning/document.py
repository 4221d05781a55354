"""The JSON document of ``tune``: schema 1, SI units in the names."""

from __future__ import annotations

from typing import Any

from rooflinesim.api.logs import acceptance_json
from rooflinesim.api.scheduling import schedule_json
from rooflinesim.tuning.core import TuneAnswer
from rooflinesim.tuning.overhead import Overhead


def tune_json(found: TuneAnswer) -> dict[str, Any]:
    """Schema 1; keys may be added, not renamed."""
    text = found.texts[0]
    curve = found.resolved.acceptance.curve
    top = max(found.answer.schedule.k_max, 1)
    at = found.resolved.scenario.context_tokens[0] if curve.depends_on_context else None
    return {
        "schema": 1,
        "scenario": found.resolved.scenario.model_dump(mode="json"),
        "assumed": list(found.assumed),
        "files": [
            {"path": use.path, "kind": use.kind, "used_for": list(use.used_for)}
            for use in found.sources.files
        ],
        "acceptance": acceptance_json(found.acceptance) if found.acceptance is not None else None,
        "curve": {
            "text": found.resolved.acceptance.text,
            "form": curve.form,
            "conditional": curve.conditional(top, context_tokens=at).tolist(),
        },
        "overhead": _overhead_json(found.overhead),
        "schedule": schedule_json(found.answer, text.text),
        "engine": text.engine,
        "launch": text.launch,
        "settings": list(text.settings),
        "gains": [vars(gain) for gain in found.gains],
        "gains_at_load": [vars(gain) for gain in found.gains_at_load],
        "given": [
            {
                "path": item.path,
                "ranges": [list(r) for r in item.schedule.ranges],
                "regret_max": item.rated.regret_max,
                "regret_mean": item.rated.regret_mean,
                "gain_over_off": item.rated.gain_over_off,
            }
            for item in found.given
        ],
        "measure_next": [vars(point) for point in found.measure_next],
        "findings": [
            {"path": path, "code": f.code, "level": f.level, "message": f.message}
            for path, f in found.findings
        ],
        "warnings": list(found.warnings),
    }


def _overhead_json(overhead: Overhead) -> dict[str, Any]:
    fit = overhead.fit
    return {
        "fitted": [
            {"name": f.name, "value": f.value, "stderr": f.stderr, "unit": f.unit}
            for f in (fit.fitted if fit is not None else ())
        ],
        "refused": [
            {
                "name": r.name,
                "reason": r.reason,
                "measure": [{"batch_size": b, "k": k, "context_tokens": c} for b, k, c in r.measure],
            }
            for r in (fit.refused if fit is not None else ())
        ],
        "refusal": overhead.refusal,
        "n": fit.n if fit is not None else 0,
        "residual_log_sd": fit.residual_log_sd if fit is not None else None,
        "before_log_sd": fit.before_log_sd if fit is not None else None,
        "times": [vars(item) for item in overhead.compared],
    }
