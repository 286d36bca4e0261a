"""What `copriv check` found is read in a terminal of 80 letters, and in a narrower one."""

import io
import re

import pytest
from rich.console import Console

from common.findings import fails, passes, unchecked
from learner.commands.checking import _tables
from learner.training.agreement import RULES


@pytest.mark.parametrize("width", [44, 80, 100, 160])
@pytest.mark.parametrize("names", [["a"], ["mount-sinai", "nyu-langone", "montefiore"]])
@pytest.mark.parametrize("times", [1, 9])
def test_no_rule_or_mark_is_broken_and_every_site_has_each(width, names, times):
    """FAIL stood above S, and reac above hed."""
    sites = [f"{name}{i}" for i in range(times) for name in names]
    found = [
        tuple(
            (fails(rule, "no"), passes(rule, "yes"), unchecked(rule, "later"))[i % 3]
            for i, rule in enumerate(RULES)
        )
        for _ in sites
    ]
    made = io.StringIO()
    for table in _tables(sites, found, width=width):
        Console(file=made, width=width).print(table)
    text = made.getvalue()
    words = text.split()
    assert max(map(len, text.splitlines())) <= width
    for rule in RULES:
        assert rule in words
    for site in sites:
        assert words.count(site) == 1
    marks = len(sites) * len(RULES)
    assert len(re.findall(r"(?<!\S)(?:FAILS|pass|-)(?!\S)", text)) == marks
