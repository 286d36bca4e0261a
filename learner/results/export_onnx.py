"""A model with its whole pipeline as an ONNX graph: raw columns in, predictions out.

Numbers go in as doubles, NaN where there is no value; categories and dates as texts, empty where
there is no value. Texts are read as :mod:`common.columns` reads them: the same spellings of a
missing value, of a date and of a category that is a number. What ONNX cannot do is named in
docs/model.md.
"""

from __future__ import annotations

import re

import numpy as np
from onnx import TensorProto

from common.columns import category_key, missing_texts
from common.fitting import ColumnRule
from common.model import Model
from learner.results.onnx_graph import Graph

MISSING = rf"(?i)\s*(?:{'|'.join(map(re.escape, sorted(missing_texts())))})\s*"
# Of a number that no double holds runtimes make no infinity, but end: it is read as a text.
DIGITS, EXPONENT = "[0-9]{1,100}", "e[+-]?(?:0{0,2}[0-9]{1,2}|0?1[0-9]{2})"
PLAIN = rf"(?:{DIGITS}(?:\.(?:{DIGITS})?)?|\.{DIGITS})(?:{EXPONENT})?|inf(?:inity)?"
NUMBER = rf"(?i)[+-]?(?:{PLAIN})"
THOUSANDS = rf"[+-]?[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.(?:{DIGITS})?)?"
ISO = (
    r"\s*[0-9]{4}-[0-9]{1,2}(?:-[0-9]{1,2})?(?:[Tt ][0-9:.+Zz-]*)?\s*",
    r"\s*[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}\s*",
)
NAMED = r"(?i)\s*(?:[0-9]{{1,2}}[- ])?{month}[a-z]*[- ][0-9]{{4}}\s*"
# Months that are fewer apart are of one day.
SAME_DAY = 1e-6
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def onnx_bytes(model: Model) -> bytes:
    """The model as the bytes of an ONNX file.

    The outputs are those of :meth:`common.model.Model.predictions`, each of shape (n, 1).
    """
    graph, feature_map = Graph(), model.feature_map
    columns = [_centred(graph, rule) for rule in feature_map.columns]
    features = _bounded(graph, model, graph.op("Concat", *columns, axis=1))
    slopes = model.theta[: len(feature_map.bounds)][:, None]
    constant = float(model.theta[-1]) if feature_map.intercept else 0.0
    if not model.has_classes:
        # Runtimes fold a factor behind a matrix product into it, in single precision.
        target = feature_map.target
        slopes, constant = slopes * target.scale, constant * target.scale + target.center
    product = graph.op("MatMul", features, graph.constant(np.ascontiguousarray(slopes)))
    _predict(graph, model, graph.op("Add", product, graph.constant(constant)))
    notes = {"target": feature_map.target_name, "loss": model.loss.name}
    if model.has_classes:
        notes["positive"] = " or ".join(feature_map.target.class_values)
    if model.unprotected is not None:
        notes["unprotected"] = model.unprotected
    if model.insecure_noise:
        notes["insecure_noise"] = "true"
    made: bytes = graph.model(name="copriv", notes=notes).SerializeToString()
    return made


def _predict(graph: Graph, model: Model, margin: str) -> None:
    """The outputs, from the margins; of numbers these are in raw units."""
    if not model.has_classes:
        graph.output(margin, "prediction", "number")
        return
    is_positive = graph.op("Greater", margin, graph.constant(0.0))
    graph.output(graph.op("Cast", is_positive, to=TensorProto.INT64), "prediction", "whole")
    if model.has_probabilities:
        # Through tanh, which cannot overflow.
        half = graph.constant(0.5)
        bent = graph.op("Tanh", graph.op("Mul", margin, half))
        chance = graph.op("Add", graph.op("Mul", bent, half), half)
        graph.output(chance, "probability", "number")
    else:
        graph.output(margin, "score", "number")


def _bounded(graph: Graph, model: Model, columns: str) -> str:
    """Centred columns as features within the public bounds, the constant not counted."""
    feature_map = model.feature_map
    scales = np.array([rule.scale for rule in feature_map.columns])
    if feature_map.rotation is None:
        features = graph.op("Div", columns, graph.constant(scales))
    else:
        rotation = np.array(feature_map.rotation, dtype=np.float64) / scales
        features = graph.op("MatMul", columns, graph.constant(np.ascontiguousarray(rotation.T)))
    bounds = np.array(feature_map.bounds, dtype=np.float64)
    below = graph.op("Min", features, graph.constant(bounds))
    features = graph.op("Max", below, graph.constant(-bounds))
    if feature_map.l1_radius is None:
        return features
    inside = (feature_map.l1_radius - feature_map.intercept) * (1.0 - 1e-9)
    norms = graph.op("ReduceSum", graph.op("Abs", features), graph.constant([1]), keepdims=1)
    largest = graph.op("Max", norms, graph.constant(inside))
    return graph.op("Mul", features, graph.op("Div", graph.constant(inside), largest))


def _centred(graph: Graph, rule: ColumnRule) -> str:
    """One raw column, filled, clamped and centred, shape (n, 1)."""
    match rule.kind:
        case "number":
            complete = _filled(graph, rule, graph.input(rule.name, "number"))
        case "date":
            complete = _filled(graph, rule, _months(graph, graph.input(rule.name, "text")))
        case "category":
            complete = _coded(graph, rule, graph.input(rule.name, "text"))
    clipped = graph.op("Clip", complete, graph.constant(rule.low), graph.constant(rule.high))
    return graph.op("Sub", clipped, graph.constant(rule.center))


def _filled(graph: Graph, rule: ColumnRule, raw: str) -> str:
    """Numbers or months, filled where there is none, or one that says so; a day is 1/31."""
    is_none = graph.op("IsNaN", raw)
    near = SAME_DAY if rule.kind == "date" else 0.0
    for code in rule.numbers_missing:
        # By two ends: the difference of two infinities is no number.
        low, high = graph.constant(code - near), graph.constant(code + near)
        is_code = graph.op(
            "And", graph.op("GreaterOrEqual", raw, low), graph.op("LessOrEqual", raw, high)
        )
        is_none = graph.op("Or", is_none, is_code)
    return graph.where(is_none, rule.fill, raw)


def _split(graph: Graph, text: str, delimiter: str, count: int) -> list[str]:
    """The first parts of texts between delimiters, empty where there are fewer, of shape (n, 1).

    Without a delimiter they are words.
    """
    split = graph.op("StringSplit", text, delimiter=delimiter)
    shape = graph.op("Shape", split, start=0, end=2)
    wanted = graph.op("Concat", shape, graph.constant([count]), axis=0)
    empty = graph.op("Expand", graph.constant(""), wanted)
    padded = graph.op("Concat", split, empty, axis=2)
    places = [graph.constant(np.array(place, dtype=np.int64)) for place in range(count)]
    return [graph.op("Gather", padded, place, axis=2) for place in places]


def _coded(graph: Graph, rule: ColumnRule, text: str) -> str:
    """The code of each category, the fill value where it is missing."""
    # A key that is not its own canonical form never occurs: cells are read into that form.
    every = rule.codes | dict.fromkeys(rule.missing, rule.fill)
    codes = {key: code for key, code in every.items() if category_key(key) == key}
    numbers = {key: code for key, code in codes.items() if _is_number(key)}
    texts = {key: code for key, code in codes.items() if key not in numbers}
    most_words = max((len(key.split()) for key in texts), default=1)
    *words, beyond = _split(graph, text, "", most_words + 1)
    joined = words[0]
    empty = graph.constant("")
    for word in words[1:]:
        between = graph.where(graph.op("Equal", word, empty), empty, graph.constant(" "))
        joined = graph.op("StringConcat", graph.op("StringConcat", joined, between), word)
    found = graph.constant(rule.unknown)
    if texts:
        known = graph.lookup(
            joined, np.array([*texts], dtype=object), np.array([*texts.values()]), rule.unknown
        )
        found = graph.where(graph.op("Equal", beyond, empty), known, found)
    if numbers:
        is_number, value = _number_in(graph, words[0], [*words, beyond][1])
        keys = np.array([float(key) for key in numbers])
        known = graph.lookup(value, keys, np.array([*numbers.values()]), rule.unknown)
        found = graph.where(is_number, known, found)
    else:
        found = graph.op("Expand", found, graph.op("Shape", text))
    return graph.where(graph.matches(text, MISSING), rule.fill, found)


def _is_number(key: str) -> bool:
    """Whether a category's key is a number, as the graph finds it in a text.

    Python's own ``float`` takes more for one: it leaves out the line of "18_24", and reads the
    digits of every script.
    """
    return re.fullmatch(NUMBER, key, re.ASCII) is not None


def _number_in(graph: Graph, word: str, second: str) -> tuple[str, str]:
    """Whether texts are numbers or truth values, and which; 0 for the others."""
    alone = graph.op("Equal", second, graph.constant(""))
    plain, thousands = graph.matches(word, NUMBER), graph.matches(word, THOUSANDS)
    is_true, is_false = graph.matches(word, "(?i)true"), graph.matches(word, "(?i)false")
    zero, one = graph.constant("0"), graph.constant("1")
    read = graph.where(is_true, one, graph.where(plain, word, zero))
    value = graph.where(thousands, _of_thousands(graph, word, thousands), graph.number(read))
    either = graph.op("Or", graph.op("Or", plain, thousands), graph.op("Or", is_true, is_false))
    # Minus zero is zero.
    return graph.op("And", alone, either), graph.op("Add", value, graph.constant(0.0))


def _of_thousands(graph: Graph, word: str, is_one: str) -> str:
    """The numbers of texts such as 1,234.5; a grouped number of six parts is beyond 1e15."""
    parts = _split(graph, graph.where(is_one, word, graph.constant("0")), ",", 6)
    total = graph.number(parts[0])
    zero, is_negative = graph.constant("0"), graph.matches(word, "-.*")
    total = graph.op("Abs", total)
    for part in parts[1:]:
        is_there = graph.op("Not", graph.op("Equal", part, graph.constant("")))
        digits = graph.number(graph.where(is_there, part, zero))
        longer = graph.op("Add", graph.op("Mul", total, graph.constant(1000.0)), digits)
        total = graph.where(is_there, longer, total)
    return graph.where(is_negative, graph.op("Neg", total), total)


def _months(graph: Graph, text: str) -> str:
    """Months since January 2000 that texts say, NaN where they say no date."""
    iso, slashed = (graph.matches(text, form) for form in ISO)
    day_first = _split(
        graph, graph.where(slashed, _trimmed(graph, text), graph.constant("0/0/0")), "/", 3
    )
    month, day, year = map(graph.number, day_first)
    by_slashes = _counted(graph, year, month, day)
    found = graph.where(slashed, by_slashes, _by_name(graph, text))
    return graph.where(iso, _by_dashes(graph, text, iso), found)


def _trimmed(graph: Graph, text: str) -> str:
    """Texts without the spaces around them and what follows the first inside."""
    return _split(graph, text, "", 1)[0]


def _by_dashes(graph: Graph, text: str, is_iso: str) -> str:
    """2011-12 and 2011-12-01, whatever the time."""
    date = graph.where(is_iso, _trimmed(graph, text), graph.constant("0-0"))
    for mark in "Tt":
        date = _split(graph, date, mark, 1)[0]
    year, month, day = _split(graph, date, "-", 3)
    no_day = graph.op("Equal", day, graph.constant(""))
    day = graph.where(no_day, graph.constant("1"), day)
    return _counted(graph, *map(graph.number, (year, month, day)))


def _by_name(graph: Graph, text: str) -> str:
    """Dec-2011 and 1 December 2011."""
    words = graph.op("StringSplit", text, delimiter="")
    tokens = graph.op("StringSplit", words, delimiter="-")
    axes, zero = graph.constant([2, 3]), graph.constant("0")

    def summed(pattern: str) -> tuple[str, str]:
        fits = graph.matches(tokens, pattern)
        numbers = graph.number(graph.where(fits, tokens, zero))
        counts = graph.op("Cast", fits, to=TensorProto.DOUBLE)
        return tuple(graph.op("ReduceSum", v, axes, keepdims=0) for v in (numbers, counts))  # type: ignore[return-value]

    year, _ = summed("[0-9]{4}")
    day, days = summed("[0-9]{1,2}")
    day = graph.where(graph.op("Equal", days, graph.constant(0.0)), 1.0, day)
    month = graph.constant(0.0)
    for number, name in enumerate(MONTHS, start=1):
        month = graph.where(graph.matches(text, NAMED.format(month=name)), float(number), month)
    return _counted(graph, year, month, day)


def _counted(graph: Graph, year: str, month: str, day: str) -> str:
    """Months since January 2000, NaN where month or day is impossible."""

    def within(value: str, most: float) -> str:
        low = graph.op("GreaterOrEqual", value, graph.constant(1.0))
        return graph.op("And", low, graph.op("LessOrEqual", value, graph.constant(most)))

    years = graph.op("Mul", graph.op("Sub", year, graph.constant(2000.0)), graph.constant(12.0))
    months = graph.op("Add", years, graph.op("Sub", month, graph.constant(1.0)))
    days = graph.op("Div", graph.op("Sub", day, graph.constant(1.0)), graph.constant(31.0))
    valid = graph.op("And", within(month, 12.0), within(day, 31.0))
    return graph.where(valid, graph.op("Add", months, days), float("nan"))
