"""A model with its whole pipeline as JSON, for programs that know nothing of copriv."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pandas as pd

from common.fitting import ColumnRule
from common.model import Model
from learner.results.coefficients import coefficients

STEPS = (
    "column: a number; a date as months since 2000-01 with days as parts of 31; a category as "
    "codes[text], where 36 is the text of the number 36.0, unknown for a text that codes has not",
    "fill a value that is missing, or is one of the column's missing where it has some, then clamp "
    "it to low..high",
    "z = (value - center) / scale",
    "features = rotation z, or z where rotation is null",
    "clamp each feature to -bound..bound",
    "where l1_radius is given: if the sum of absolute features is above r = (l1_radius - intercept)"
    " (1 - 1e-9), multiply them by r / sum",
    "append the feature 1 if intercept",
    "margin = sum of theta and features",
)
OUTPUTS = {
    "number": "prediction = margin * target.scale + target.center",
    "probability": "probability = 1 / (1 + exp(-margin)); prediction = 1 where margin > 0, else 0",
    "score": "score = margin; prediction = 1 where margin > 0, else 0",
}


def json_text(model: Model) -> str:
    """The pipeline, its coefficients in raw units, and rows with predictions to check it by."""
    kind = "number" if not model.has_classes else "score"
    kind = "probability" if model.has_probabilities else kind
    table: dict[str, Any] = {
        "format": "copriv-pipeline/1",
        "steps": [*STEPS, OUTPUTS[kind]],
        **({} if model.unprotected is None else {"unprotected": model.unprotected}),
        **({"insecure_noise": True} if model.insecure_noise else {}),
        **model.loss.as_terms(),
        "theta": model.theta.tolist(),
        "coefficients": [asdict(one) for one in coefficients(model)],
        "feature_map": json.loads(model.feature_map.to_json()),
        "examples": _examples(model),
    }
    return json.dumps(table, indent=1, allow_nan=False) + "\n"


def _examples(model: Model) -> list[dict[str, Any]]:
    """Rows of ends, of missing values and of codes for them, with what is predicted for each."""
    rules = model.feature_map.columns
    rows = [
        {rule.name: None for rule in rules},
        *({rule.name: _cell(rule, end) for rule in rules} for end in ("low", "high")),
        *[{rule.name: next(iter(rule.missing), None) for rule in rules}]
        * any(r.missing for r in rules),
    ]
    predicted = model.predictions(pd.DataFrame(rows, dtype=object), where="examples")
    return [
        {"row": row, **{key: values[i].item() for key, values in predicted.items()}}
        for i, row in enumerate(rows)
    ]


def _cell(rule: ColumnRule, end: str) -> object:
    """A raw cell at one end of a column's range."""
    if rule.kind == "number":
        return getattr(rule, end)
    if rule.kind == "date":
        return "2000-01-01" if end == "low" else "2020-12-31"
    known = sorted(rule.codes, key=rule.codes.__getitem__)
    if not known:
        return "unknown"
    if end == "low":
        return known[0]
    # As a table has it where the column has gaps: 36.0 is the category 36.
    text = known[-1]
    return float(text) if text.isdecimal() and text.isascii() and len(text) < 16 else text
