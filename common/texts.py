"""Text from the far side, made fit for a log line, a terminal, or a sentence of ours."""

from __future__ import annotations

__all__ = ["LONGEST_TEXT", "counted", "printable"]

# A status has room for some thousand bytes.
LONGEST_TEXT = 400


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun, in the right form.

    >>> counted(1, "study", "studies"), counted(2, "study", "studies"), counted(1200, "owner")
    ('1 study', '2 studies', '1,200 owners')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def printable(text: object, longest: int = LONGEST_TEXT) -> str:
    r"""The text on one line, without anything that moves a cursor, and no longer than this.

    Whatever Unicode does not call printable becomes a space: control characters, line ends,
    marks that turn the direction of writing, surrogates, private use.

    Args:
      text: What the far side sent; None is what it did not say.
      longest: The largest number of characters, 3 or more.

    >>> printable("no\ncolumn \x1b[31m'x'")
    "no column  [31m'x'"
    >>> printable("x" * 1000, longest=8)
    'xxxxx...'
    """
    whole = "" if text is None else str(text)
    cut = whole if len(whole) <= longest else whole[: longest - 3] + "..."
    return "".join(c if c.isprintable() else " " for c in cut)
