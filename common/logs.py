"""Log lines for people, or one JSON object a line for machines; never a record or a response."""

from __future__ import annotations

import json
import logging
import select
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from common.texts import counted

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")


# A traceback may repeat what a caller sent.
LONGEST_TRACEBACK = 20_000
# Who reads our lines may be busy for so long.
LONGEST_WAIT_MS = 500
# What a pipe takes whole if it takes anything is 4,096 bytes.
CHARACTERS_AT_ONCE = 1024

log = logging.getLogger("copriv")


class _Lines(logging.Formatter):
    r"""Lines in which a caller's words cannot steer a terminal, fill a disk, or begin a line.

    A traceback keeps its lines, for people; all but the first line of a record are indented.

    >>> record = logging.LogRecord("copriv", 30, "", 0, "late\x1b[2J\n2026 INFO", (), None)
    >>> _Lines("%(message)s").format(record)
    'late [2J\n  2026 INFO'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The lines."""
        text = super().format(record)
        return "".join(c if c.isprintable() else "\n  " if c == "\n" else " " for c in text)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """A traceback, its end if it is long."""
        return super().formatException(ei)[-LONGEST_TRACEBACK:]


class JsonLines(_Lines):
    """One JSON object a line: time, level, logger, message, and error with a traceback.

    >>> record = logging.LogRecord("copriv.owner", 30, "", 0, "refused: %s", ("late",), None)
    >>> json.loads(JsonLines().format(record))["message"]
    'refused: late'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is now: a progress bar stands in front of it.

    What nobody reads is left out and counted. Who logs may hold a lock that all others need.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._left_out, self._is_cut = 0, False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        if self._left_out and self._has_room():
            lines, self._left_out = counted(self._left_out, "line"), 0
            log.warning("%s left out before this one: nobody read them", lines)
        try:
            self._write(self.format(record) + self.terminator)
        except Exception:  # of whatever stands in its place
            self.handleError(record)

    def _write(self, text: str) -> None:
        """Write as much of a text as somebody reads, on a line of its own."""
        text = self.terminator * self._is_cut + text
        for first in range(0, len(text), CHARACTERS_AT_ONCE):
            if not self._has_room():
                self._left_out += 1
                break
            self.stream.write(text[first : first + CHARACTERS_AT_ONCE])
            self.flush()
            self._is_cut = first + CHARACTERS_AT_ONCE < len(text)

    def _has_room(self) -> bool:
        """Whether it can be written without waiting for who reads it."""
        try:
            number = self.stream.fileno()
        except (AttributeError, OSError, ValueError):
            return True
        asked = select.poll()
        asked.register(number, select.POLLOUT)
        return bool(asked.poll(0 if self._left_out else LONGEST_WAIT_MS))


def start_logging(form: str, *, level: int = logging.WARNING) -> None:
    """Send our log lines to standard error; called again, it replaces the former."""
    handler = _StandardError()
    text = _Lines("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False
