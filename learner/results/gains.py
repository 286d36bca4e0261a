"""Who gains from taking part, in words that stay short for any number of owners."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["gains_in_words"]

NAMED_OWNERS = 6


def gains_in_words(gaining: Sequence[str], others: Sequence[str]) -> str:
    """How many gain, and the names of the fewer: those that do, or those that do not.

    >>> gains_in_words(["a", "b"], ["c"]), gains_in_words(["a"], ["b", "c"])
    ('2 of 3 owners gain; the one that does not: c', '1 of 3 owners gains: a')
    >>> gains_in_words([], ["a"]), gains_in_words(["a", "b"], [])
    ('no owner gains', 'every owner gains')
    """
    if not gaining or not others:
        return "every owner gains" if gaining else "no owner gains"
    verb = "gains" if len(gaining) == 1 else "gain"
    count = f"{len(gaining)} of {len(gaining) + len(others)} owners {verb}"
    if len(gaining) <= len(others):
        return f"{count}: {_named(gaining)}"
    few = "the one that does not" if len(others) == 1 else f"the {len(others)} that do not"
    return f"{count}; {few}: {_named(others)}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_OWNERS]) + (", ..." if len(names) > NAMED_OWNERS else "")
