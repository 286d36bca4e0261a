"""What was probably meant: the nearest of the names that there are."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from common.errors import InputError
from common.texts import LONGEST_NAME, brief, named

# Of the letters of two names this many are in both, in one order; fewer is chance (nope, income).
NEAR = 0.65
NAMED = 8
# Letters that are all capitals are a word from here on.
WORD = 4
# What is missing is named, and compared, so far: the name may be a stranger's, and of any length,
# and two that are long are compared in the time of their product.
LONGEST_SHOWN = 200
ACCENTS = ", whose accents are stored in another form (copy it from there)"
_SEPARATORS = ";\t|,"
_SIGNS = "+-\u2212"
# What surrounds a name by mistake.
_AROUND = " '\""
_TRUTHS = (frozenset({"1", "y", "yes", "t", "true"}), frozenset({"0", "n", "no", "f", "false"}))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    r"""The end of a sentence about an unknown name: the nearest known one, or nothing.

    >>> did_you_mean("epsylon", ["epsilon", "clip"]), did_you_mean("Age", ["age"])
    ("; did you mean 'epsilon'?", "; did you mean 'age'?")
    >>> did_you_mean("kappa", ["epsilon"]), did_you_mean("nope", ["income"])
    ('', '')
    >>> "accents are stored in another form" in did_you_mean("Cr\u00e9dit", ["Cre\u0301dit"])
    True
    >>> print(did_you_mean("Alter (Gruppe)", ["Alter\n(Gruppe)"]))
    ; did you mean 'Alter\n(Gruppe)'?
    """
    near = nearest(name, known)
    if near is None:
        return ""
    # A line break must be seen: without it the name would look like the one that is unknown.
    return f"; did you mean {near[:LONGEST_NAME]!r}{of_accents(near, name)}?"


def of_accents(near: str, name: str) -> str:
    """That two names look alike and are not, or nothing."""
    return ACCENTS if near != name and _composed(near) == _composed(name) else ""


def nearest(name: str, known: Iterable[str], *, cutoff: float = NEAR) -> str | None:
    """The known name that is nearest to another, None if none is near."""
    by_lower = {_compared(one): one for one in known}
    near = difflib.get_close_matches(_compared(name), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def nearest_spelling(value: str, known: Iterable[str]) -> str | None:
    """The known value that another one may be a spelling of, None if none is near.

    >>> nearest_spelling("Y", ["no", "yes"]), nearest_spelling("M", ["Female", "Male"])
    ('yes', 'Male')
    >>> nearest_spelling("Femal", ["Female", "Male"]), nearest_spelling("x", ["Female", "Male"])
    ('Female', None)
    """
    names = list(known)
    same = same_words(names, [value])
    short = _bare(value)
    begun = [name for name in names if short and _bare(name).startswith(short)]
    if same or len(begun) == 1:
        return (same or begun)[0]
    return nearest(value, names)


def same_words(values: Iterable[str], words: Iterable[str]) -> list[str]:
    """The values that differ from one of some words in letters' case and marks only.

    Every yes is the same word, and so is every no. A sign makes another one: -1 is not 1.

    >>> same_words(["charged off", "Paid"], ["Charged-Off"]), same_words(["1", "n"], ["Yes"])
    (['charged off'], ['1'])
    >>> same_words(["-1", "A-"], ["1", "A+"])
    []
    """
    bare = {_bare(word) for word in words} - {""}
    bare = bare.union(*(truth for truth in _TRUTHS if bare & truth))
    return [value for value in values if _bare(value) in bare]


def spelt_alike(values: Iterable[str]) -> list[list[str]]:
    """The values that differ in letters' case, or in what stands between words, only; grouped.

    Signs elsewhere may make values different, as A+ and A-. Or where several values are the first
    letters of one other each, these pairs.

    >>> spelt_alike(["Den Haag", "A+", "den-haag", "Delft", "A-", "LEIDEN", "Leiden"])
    [['Den Haag', 'den-haag'], ['LEIDEN', 'Leiden']]
    >>> spelt_alike(["F", "Male", "Female", "M"]), spelt_alike(["A", "B", "AB", "O"])
    ([['F', 'Female'], ['M', 'Male']], [])
    """
    distinct = list(values)
    spelt: dict[str, list[str]] = {}
    for value in distinct:
        spelt.setdefault(_as_words(_composed(value).casefold()), []).append(value)
    return [alike for alike in spelt.values() if len(alike) > 1] or _initials(distinct)


def _initials(values: Sequence[str]) -> list[list[str]]:
    """The values that are the first letter of one other each, and it; nothing for a single one."""
    words: dict[str, list[str]] = {}
    for value in values:
        # AA and AB are grades and groups of blood.
        if value.isalpha() and (value[1:].islower() or len(value) >= WORD):
            words.setdefault(value[0].casefold(), []).append(value)
    begun = {value: words.get(value.casefold(), []) for value in values if len(value) == 1}
    pairs = [[value, *its] for value, its in begun.items() if len(its) == 1]
    return pairs if len(pairs) > 1 else []


def _as_words(value: str) -> str:
    """A value with spaces for what joins its words."""
    beside = zip(f" {value}", value, f"{value[1:]} ", strict=False)
    return "".join(
        " " if mark in "-_" and before.isalnum() and after.isalnum() else mark
        for before, mark, after in beside
    )


def _bare(value: str) -> str:
    """The letters and digits of a value, in small letters, and a sign at either end."""
    folded = _composed(value).casefold()
    bare = "".join(filter(str.isalnum, folded))
    return f"{_sign(folded[:1])}{bare}{_sign(folded[1:][-1:])}"


def _sign(mark: str) -> str:
    """A mark if it is a sign, else nothing."""
    return mark if mark in _SIGNS else ""


def _compared(name: str) -> str:
    """What of a name is compared with others."""
    return _composed(name[:LONGEST_SHOWN]).lower().strip(_AROUND)


def _composed(name: str) -> str:
    """A name with its accents in one form: Macs store them beside their letters (NFD)."""
    return unicodedata.normalize("NFC", name)


def among_columns(name: str, columns: Iterable[str], *, listed: bool = True) -> str:
    """As :func:`did_you_mean` for a column; where none is near, those that there are.

    Args:
      name: The column that is not there.
      columns: Those that are.
      listed: Whether they may be listed: not before it is known that they are no record.

    >>> among_columns("nummm", ["num", "age"])
    "; did you mean 'num'?"
    >>> among_columns("site", ["age", "sex"])
    '; the columns are age, sex'
    >>> among_columns("site", ["site;age"])
    "; only one column was found: is ';' the separator? set separator, or leave it to be found"
    """
    names = list(columns)
    if len(names) == 1:
        inside = [mark for mark in _SEPARATORS if mark in names[0]]
        if inside:
            return (
                f"; only one column was found: is {inside[0]!r} the separator? set separator, or "
                "leave it to be found"
            )
    near = did_you_mean(name, names)
    if near or not listed:
        return near
    return f"; the columns are {named(names, NAMED)}"


def check_columns(needed: Iterable[str], columns: Iterable[str], *, where: str) -> None:
    """Refuse a table that does not have each column that the feature map needs once.

    Raises:
      InputError: The sentence names the first that is not there, and what was probably meant, or
        that is there twice.
    """
    names = Counter(columns)
    for name in needed:
        if names[name] > 1:
            refuse_twice([name], where=where)
        if name not in names:
            raise InputError(
                f"{where}: no column {name[:LONGEST_SHOWN]!r}, which the feature map needs"
                f"{among_columns(name, list(names))}"
            )


def refuse_twice(twice: Sequence[str], *, where: str) -> None:
    """Refuse a table with names that two columns have, if there are any.

    Raises:
      InputError: The sentence names the first of them.
    """
    if twice:
        shown = brief(twice[0])
        raise InputError(f"{where}: the column name {shown!r} occurs twice; rename one")
