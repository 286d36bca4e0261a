"""Who gains from taking part, in words that stay short for any number of owners."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["gains_in_words", "gains_of_own"]

NAMED_OWNERS = 6


def gains_in_words(gaining: Sequence[str], others: Sequence[str]) -> str:
    """How many gain, and the names of the fewer: those that do, or those that do not.

    >>> gains_in_words(["a", "b"], ["c"]), gains_in_words(["a"], ["b", "c"])
    ('2 of 3 owners gain; the one that does not: c', '1 owner of 3 gains: a')
    >>> gains_in_words([], ["a"]), gains_in_words(["a", "b"], [])
    ('no owner gains', 'every owner gains')
    """
    if not gaining or not others:
        return "every owner gains" if gaining else "no owner gains"
    total = len(gaining) + len(others)
    count = f"{len(gaining)} of {total} owners gain"
    if len(gaining) == 1:
        count = f"1 owner of {total} gains"
    if len(gaining) <= len(others):
        return f"{count}: {_named(gaining)}"
    few = "the one that does not" if len(others) == 1 else f"the {len(others)} that do not"
    return f"{count}; {few}: {_named(others)}"


def gains_of_own(name: str, *, gains: bool) -> str:
    """Whether the owner that is the learner gains; nobody else gets the model.

    >>> gains_of_own("a", gains=False)
    'a, which alone has the model, does not gain'
    """
    return f"{name}, which alone has the model, {'gains' if gains else 'does not gain'}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_OWNERS]) + (", ..." if len(names) > NAMED_OWNERS else "")
