"""A table of acceptance by context length, as a small CSV, to one curve."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping

from rooflinesim.acceptance.convert import Conversion, from_acceptance_length, from_conditional, from_marginal
from rooflinesim.acceptance.curve import AcceptanceCurve
from rooflinesim.errors import InputError

#: More text than this is not a table that somebody wrote by hand or exported per context.
MAX_CHARACTERS = 1_000_000


def parse_context_table(text: str, *, where: str = "acceptance by context") -> Conversion:
    """CSV with ``context_tokens`` and one form per row: c1[,decay] · c1,c2,c3... · p1,p2,p3... · k,al.

    Columns named c1 and decay give a geometric curve; c1, c2, ... conditionals; p1, p2, ... marginals; k and
    al one acceptance length. Lines that start with # are left out. ``measured_k`` is the least of the rows'.

    >>> table = "context_tokens,p1,p2\\n100,0.9,0.8\\n34000,0.53,0.3\\n86000,0.45,0.2\\n"
    >>> conversion = parse_context_table(table)
    >>> conversion.curve.acceptance_length(2, context_tokens=[100, 34000, 60000]).round(3).tolist()
    [2.7, 1.83, 1.74]
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{where}: longer than {MAX_CHARACTERS} characters")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    reader = csv.DictReader(lines, skipinitialspace=True)
    names = [(name or "").strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    if "context_tokens" not in names:
        raise InputError(f"{where}: no column context_tokens (columns: {', '.join(names) or 'none'})")
    rows: dict[float, Conversion] = {}
    for number, row in enumerate(reader, start=2):
        try:
            at = _number(row, "context_tokens")
            if at in rows:
                raise InputError(f"context_tokens {at:g} is given twice")
            rows[at] = _row(row, names)
        except InputError as error:
            raise InputError(f"{where}: row {number}: {error}") from None
    if not rows:
        raise InputError(f"{where}: no row")
    order = sorted(rows)
    curve = AcceptanceCurve.by_context(context_tokens=order, curves=[rows[at].curve for at in order])
    spots = "; ".join(f"{at:g} tokens: {rows[at].curve.describe()}" for at in order[:4])
    more = f"; and {len(order) - 4} more" if len(order) > 4 else ""
    text = f"acceptance at {len(order)} context lengths ({spots}{more}), marginals linear between them"
    warnings = dict.fromkeys(warning for at in order for warning in rows[at].warnings)
    return Conversion(curve, text, min(row.measured_k for row in rows.values()), tuple(warnings))


def _number(row: Mapping[str, str | None], name: str) -> float:
    given = row.get(name)
    try:
        value = float(given or "")
    except ValueError:
        raise InputError(f"{name}: {given!r} is not a number") from None
    if not math.isfinite(value):
        raise InputError(f"{name}: {given!r} is not a finite number")
    return value


def _listed(row: Mapping[str, str | None], names: list[str], letter: str) -> list[float]:
    """The numbers of columns c1, c2, ... (or p1, ...) without a gap, up to the first empty one."""
    out: list[float] = []
    while f"{letter}{len(out) + 1}" in names and (row.get(f"{letter}{len(out) + 1}") or "").strip():
        out.append(_number(row, f"{letter}{len(out) + 1}"))
    return out


def _row(row: Mapping[str, str | None], names: list[str]) -> Conversion:
    if "al" in names:
        if "k" not in names:
            raise InputError("column al needs a column k beside it")
        k = _number(row, "k")
        if k != int(k):
            raise InputError(f"k: {k:g} must be a whole number")
        return from_acceptance_length(k=int(k), acceptance_length=_number(row, "al"))
    marginal = _listed(row, names, "p")
    if marginal:
        return from_marginal(marginal)
    conditional = _listed(row, names, "c")
    if not conditional:
        known = ", ".join(n for n in names if re.fullmatch(r"[cp]\d+|al|k|decay", n)) or "none of them"
        raise InputError(f"no acceptance: give c1[,decay], c1,c2,..., p1,p2,... or k,al (found {known})")
    if len(conditional) == 1:
        decay = _number(row, "decay") if "decay" in names else 1.0
        curve = AcceptanceCurve.geometric(c1=conditional[0], decay=decay)
        return Conversion(curve, curve.describe(), 1)
    return from_conditional(conditional)
