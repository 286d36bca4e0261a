"""Names of owners, learners and studies: what they may be, wherever one is typed or sent."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from common.texts import first_few

NAME_RULE = "letters a-z, digits and . _ - only, and neither . nor .."
_CHARACTERS = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
LONGEST = 64


def check_name(name: str, *, also: str = "", longest: int = LONGEST) -> str:
    """A name as it is; it may become part of a path, so it is never "." or "..".

    Args:
      name: The name.
      also: Further characters that it may have.
      longest: How many characters it may have.

    Raises:
      ValueError: It is not one.

    >>> check_name("mount-sinai.2"), check_name("ada@bank", also="@")
    ('mount-sinai.2', 'ada@bank')
    >>> check_name("..")
    Traceback (most recent call last):
    ValueError: expected a name of up to 64 letters a-z, digits and . _ - only, and neither . nor ..
    """
    plain = name.translate(dict.fromkeys(map(ord, also), "-"))
    if len(name) > longest or name in {".", ".."} or not _CHARACTERS.fullmatch(plain):
        raise ValueError(f"expected a name of up to {longest} {_rule(also)}")
    return name


def nearest_letters(text: str) -> str:
    """A text in letters of ASCII, as people without the others would write it.

    >>> nearest_letters("Évry, Großhadern")
    'Evry, Grosshadern'
    """
    known = "".join(c.casefold() if c.islower() else c for c in text)
    return unicodedata.normalize("NFKD", known).encode("ascii", "ignore").decode()


def name_of_table(table: str, *, otherwise: str) -> str:
    """A name for what is made of a table, from its path or env:NAME.

    Args:
      table: As it was typed.
      otherwise: The name, if nothing of it can be one.

    >>> name_of_table("data/séjours 2023.csv", otherwise="owner")
    'sejours-2023'
    >>> name_of_table("..", otherwise="owner")
    'owner'
    """
    stem = Path(table).name.split(".")[0].removeprefix("env:").removeprefix("file:")
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", nearest_letters(stem), flags=re.ASCII)
    return plain.strip("-")[:60] or otherwise


def not_among(names: Container[str], wanted: str) -> str:
    """A name that is not taken yet: the wanted one, or with as many lines behind it as it takes.

    >>> not_among(["x0", "x1"], "y"), not_among(["x", "y"], "y")
    ('y', 'y_')
    """
    while wanted in names:
        wanted += "_"
    return wanted


def repeated(names: Iterable[str]) -> list[str]:
    """The names that stand more than once, in their order; a stranger may give a million.

    >>> repeated(["b", "a", "b", "c", "a"])
    ['b', 'a']
    """
    return [name for name, count in Counter(names).items() if count > 1]


def places_of(name: str, names: Sequence[str]) -> str:
    """The columns that have a name, counted from 1; the first few of many.

    >>> places_of("", ["age", "", "sex", ""])
    'columns 2, 4'
    """
    return "columns " + first_few([str(i) for i, one in enumerate(names, 1) if one == name], 5)


def learner_words(name: str) -> str:
    """A learner in a sentence about a study; one without a name of its own is called "learner".

    >>> learner_words("bank-a"), learner_words("learner")
    ('learner bank-a', 'its learner')
    """
    return "its learner" if name == "learner" else f"learner {name}"


def _rule(also: str) -> str:
    """The rule in words, with the further characters.

    >>> _rule("@")
    'letters a-z, digits and . _ - @ only, and neither . nor ..'
    """
    return NAME_RULE.replace("_ -", " ".join(["_ -", *also]))


Name = Annotated[str, AfterValidator(check_name)]
