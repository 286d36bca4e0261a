r"""A model with its whole pipeline as one SQL query: it adds the prediction to each row of a table.

Plain SQL of common table expressions and CASE, so that SQLite, PostgreSQL, DuckDB and others run
it. Columns of numbers must be numbers there, dates DATE or text YYYY-MM-DD, categories text or
numbers; NULL is a missing value. What SQL cannot do is named in docs/model.md. Each stage is a
table of the next: raw, filled and clamped, standardised, features, scaled down, margin.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence

from common.columns import category_key, missing_texts
from common.fitting import ColumnRule
from common.model import Model

# Deeper sums than this are refused by SQLite.
LONGEST_SUM = 500
# Beyond this margin a probability is 0 or 1, and an exponential overflows.
LARGEST_MARGIN = 700.0
# In some databases a backslash would make a quotation mark a part of the text, and at the character
# 0 a query ends: no database has a text with it.
UNWRITABLE = frozenset("\\\0")
# What the table is called inside of the query, before each of its columns: SQLite takes a name in
# quotes that stands alone, and that no column has, for a text, and that text for the number 0.
_TABLE = "copriv_records"
# What a column must be in the table, by its kind.
NEEDS = {
    "number": "Numbers, NULL where missing, a truth value as 1 or 0, and no text",
    "date": "DATE, or text that begins YYYY-MM-DD, since any other is taken for missing",
    "category": "Text or numbers",
}


def sql_query(model: Model) -> str:
    """The query; replace ``records`` after FROM by the name of the table.

    The columns that it adds are those of :meth:`common.model.Model.predictions`.
    """
    source, steps = f"records AS {_TABLE}", []
    for stage, columns in _stages(model):
        added = ",\n    ".join(f"{value} AS {name}" for name, value in columns)
        # A text for people to run; names and texts in it are quoted.
        selected = f"SELECT *,\n    {added}\n  FROM {source}"  # noqa: S608
        # PostgreSQL would put each stage into the next, once for each mention of a column: minutes
        # and gigabytes for some thousand rows.
        steps.append(f"{stage} AS MATERIALIZED (\n  {selected}\n)")
        source = stage
    query = ",\n".join(steps)
    return f"{_heading(model)}WITH {query}\nSELECT *,\n{_outputs(model)}\nFROM {source};\n"


def _stages(model: Model) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each stage's name, with the columns that it adds: (name, value)."""
    feature_map = model.feature_map
    rules, bounds = feature_map.columns, feature_map.bounds
    yield "copriv_filled", [(f"copriv_c{j}", _filled(rule)) for j, rule in enumerate(rules)]
    yield (
        "copriv_standardised",
        [(f"copriv_z{j}", _standardised(rule, f"copriv_c{j}")) for j, rule in enumerate(rules)],
    )
    features = [f"copriv_z{j}" for j in range(len(rules))]
    if feature_map.rotation is not None:
        rotated = [
            _sum([f"{_number(weight)} * {z}" for weight, z in zip(row, features, strict=True)])
            for row in feature_map.rotation
        ]
        features = [f"copriv_f{i}" for i in range(len(bounds))]
        yield "copriv_features", list(zip(features, rotated, strict=True))
    yield (
        "copriv_bounded",
        [
            (f"copriv_x{i}", _clamped(feature, -bound, bound))
            for i, (feature, bound) in enumerate(zip(features, bounds, strict=True))
        ],
    )
    norm = _sum([f"ABS(copriv_x{i})" for i in range(len(bounds))])
    yield "copriv_norms", [("copriv_norm", norm)]
    terms = _sum([f"{_number(model.theta[i])} * copriv_x{i}" for i in range(len(bounds))])
    constant = f" + {_number(model.theta[-1])}" if feature_map.intercept else ""
    yield "copriv_margins", [("copriv_margin", f"{_shrunk(model)} * {terms}{constant}")]


def _standardised(rule: ColumnRule, column: str) -> str:
    """A filled column, clamped, centred and scaled."""
    clamped = _clamped(column, rule.low, rule.high)
    return f"({clamped} - {_number(rule.center)}) / {_number(rule.scale)}"


def _heading(model: Model) -> str:
    """What the query is, in comments."""
    target = model.feature_map.target
    lines = [f"Predicts {target.name!r}: a linear model by {model.loss.name} loss, made by copriv."]
    if model.has_classes:
        lines.append(f"prediction is 1 where {model.meaning_of_one}, else 0.")
    if model.unprotected is not None:
        lines.append(f"UNPROTECTED: made from raw records of {model.unprotected}; keep it there.")
    if model.insecure_noise:
        lines.append("INSECURE: the noise came from a seed and protected nobody.")
    for kind, needs in NEEDS.items():
        names = [repr(rule.name) for rule in model.feature_map.columns if rule.kind == kind]
        lines += [f"{needs}: {', '.join(names)}."] * bool(names)
    lines.append("MATERIALIZED: leave the word out where a database does not know it.")
    return "".join(f"-- {' '.join(line.split())}\n" for line in lines)


def _outputs(model: Model) -> str:
    if not model.has_classes:
        target = model.feature_map.target
        return f"  copriv_margin * {_number(target.scale)} + {_number(target.center)} AS prediction"
    prediction = "  CASE WHEN copriv_margin > 0 THEN 1 ELSE 0 END AS prediction"
    if not model.has_probabilities:
        return f"{prediction},\n  copriv_margin AS score"
    bounded = _clamped("copriv_margin", -LARGEST_MARGIN, LARGEST_MARGIN)
    return f"{prediction},\n  1.0 / (1.0 + EXP(-({bounded}))) AS probability"


def _shrunk(model: Model) -> str:
    """The factor that scales a record down to the L1 radius."""
    feature_map = model.feature_map
    if feature_map.l1_radius is None:
        return "1.0"
    inside = _number((feature_map.l1_radius - feature_map.intercept) * (1.0 - 1e-9))
    return f"(CASE WHEN copriv_norm > {inside} THEN {inside} / copriv_norm ELSE 1.0 END)"


def _filled(rule: ColumnRule) -> str:
    """One raw column as a number, filled where it is missing."""
    column = _name(rule.name)
    fill = _number(rule.fill)
    match rule.kind:
        case "number":
            # Databases that know NaN sort it above all numbers; SQLite takes an empty text for 0.
            number = (
                f"CASE WHEN LOWER({_as_text(column)}) IN ({_missing()}) THEN NULL "
                f"ELSE CAST({column} AS DOUBLE PRECISION) END"
            )
            for code in rule.numbers_missing:
                number = _without(number, code)
            return f"COALESCE({number}, {fill})"
        case "date":
            return f"COALESCE({_months(column, rule.numbers_missing)}, {fill})"
        case "category":
            return _coded(rule, _as_text(column), fill)


def _as_text(column: str) -> str:
    """A cell as a text without blanks around it."""
    return f"TRIM(CAST({column} AS VARCHAR(1000)))"


def _without(number: str, code: float) -> str:
    """A number, NULL where it is the code; no two databases write infinity alike.

    >>> _without("x", 999.0), _without("x", -math.inf)
    ('NULLIF(x, 999.0e0)', 'CASE WHEN x >= -1.7976931348623157e+308 THEN x END')
    """
    if math.isfinite(code):
        return f"NULLIF({number}, {_number(code)})"
    sign = "<=" if code > 0 else ">="
    largest = _number(math.copysign(sys.float_info.max, code))
    return f"CASE WHEN {number} {sign} {largest} THEN {number} END"


def _months(column: str, missing: Sequence[float]) -> str:
    """Months since January 2000 of a date, NULL where there is none or one of the missing.

    A text is made an integer only once it is known to be one: elsewhere some databases take it for
    0, others end the query.
    """
    text = f"SUBSTR({_as_text(column)}, 1, 10)"
    years = [f"SUBSTR({text}, {place}, 1) IN ({_texts(range(10), 1)})" for place in (1, 2, 3, 4)]
    months = f"SUBSTR({text}, 6, 2) IN ({_texts(range(1, 13), 2)})"
    days = f"SUBSTR({text}, 9, 2) IN ({_texts(range(1, 32), 2)})"
    others = [f"{text} <> {_text(_day(code))}" for code in missing]
    valid = " AND ".join([f"{text} LIKE '____-__-__'", *years, months, days, *others])
    year, month, day = (
        f"CAST(SUBSTR({text}, {start}, {length}) AS INTEGER)"
        for start, length in ((1, 4), (6, 2), (9, 2))
    )
    return f"CASE WHEN {valid} THEN ({year} - 2000) * 12 + ({month} - 1) + ({day} - 1) / 31.0 END"


def _day(months: float) -> str:
    """The day so many months after January 2000.

    >>> _day(95999 + 30 / 31.0), _day(-1.0)
    ('9999-12-31', '1999-12-01')
    """
    whole = math.floor(months + 1e-6)
    year, month = divmod(whole, 12)
    return f"{2000 + year:04}-{month + 1:02}-{round((months - whole) * 31) + 1:02}"


def _texts(numbers: Iterable[int], length: int) -> str:
    """Whole numbers as texts of so many digits."""
    return ", ".join(_text(f"{number:0{length}}") for number in numbers)


def _coded(rule: ColumnRule, text: str, fill: str) -> str:
    """The code of each category."""
    cases = [f"WHEN {text} IS NULL OR LOWER({text}) IN ({_missing()}) THEN {fill}"]
    codes = rule.codes | dict.fromkeys(rule.missing, rule.fill)
    cases += [
        f"WHEN {text} IN ({', '.join(map(_text, _spellings(key)))}) THEN {_number(code)}"
        for key, code in codes.items()
        if category_key(key) == key and not UNWRITABLE & set(key)
    ]
    lines = "\n      ".join(cases)
    return f"CASE\n      {lines}\n      ELSE {_number(rule.unknown)} END"


def _missing() -> str:
    """The texts, in small letters, that say that there is no value."""
    return ", ".join(_text(spelling) for spelling in sorted(missing_texts()))


def _spellings(key: str) -> list[str]:
    """A category as databases write it: a whole number also with a decimal, 1 and 0 also as truth.

    >>> _spellings("1"), _spellings("New York")
    (['1', '1.0', 'true', 'True', 'TRUE'], ['New York'])
    """
    if not (key.isascii() and key.removeprefix("-").isdigit()):
        return [key]
    truth = {"1": ["true", "True", "TRUE"], "0": ["false", "False", "FALSE"]}
    return [key, f"{key}.0", *truth.get(key, [])]


def _clamped(value: str, low: float, high: float) -> str:
    return (
        f"(CASE WHEN {value} < {_number(low)} THEN {_number(low)} "
        f"WHEN {value} > {_number(high)} THEN {_number(high)} ELSE {value} END)"
    )


def _sum(terms: Sequence[str]) -> str:
    """A sum whose nesting no database finds too deep."""
    if len(terms) <= LONGEST_SUM:
        return f"({' + '.join(terms)})"
    parts = [_sum(terms[i : i + LONGEST_SUM]) for i in range(0, len(terms), LONGEST_SUM)]
    return _sum(parts)


def _number(value: float) -> str:
    """A number in the one way that every database reads as a double.

    >>> _number(-0.5), _number(3.0)
    ('-0.5e0', '3.0e0')
    """
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _name(column: str) -> str:
    """A column of the table."""
    return f'{_TABLE}."' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    """A text in quotes."""
    return "'" + value.replace("'", "''") + "'"
