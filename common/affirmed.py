"""Which of two values of a target says yes, and so is class +1."""

from __future__ import annotations

from collections.abc import Mapping

# Of two values the one that says yes is class +1, beside what says no.
SAYS_YES = {
    "1": {"0", "-1"},
    "yes": {"no"},
    "y": {"n"},
    "t": {"f"},
    "positive": {"negative"},
    "ja": {"nein", "nee", "nej", "nei"},
    "j": {"n"},
    "wahr": {"falsch"},
    "oui": {"non"},
    "o": {"n"},
    "vrai": {"faux"},
    "si": {"no"},
    "s\xed": {"no"},
    "s\xec": {"no"},
    "s": {"n"},
    "vero": {"falso"},
    "verdadero": {"falso"},
    "sim": {"n\xe3o", "nao"},
    "tak": {"nie"},
    "ano": {"ne"},
}


def affirmed(counts: Mapping[str, int]) -> str:
    """Which of two values is class +1: the one that says yes, or else the rarer.

    >>> affirmed({"1": 700, "0": 300}), affirmed({"No": 40, "Yes": 60})
    ('1', 'Yes')
    >>> affirmed({"home": 90, "died": 10})
    'died'
    """
    spelt = {value.lower(): value for value in counts}
    yes = [value for key, value in spelt.items() if SAYS_YES.get(key, set()) & spelt.keys()]
    return yes[0] if yes else min(counts, key=lambda value: counts[value])
