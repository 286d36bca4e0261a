"""Progress of long work, and who is away: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from learner.training.line import OwnerLine

LINES = 5


class Stages:
    """Says what is done before the training begins: one line each, with its seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._since = time.monotonic()

    def __call__(self, what: str) -> None:
        """This is done, since the line before or since the beginning."""
        now = time.monotonic()
        self._console.print(f"{what} ({now - self._since:.1f} s)", highlight=False)
        self._since = now


class _Statuses(ProgressColumn):
    """Who is away or has left, redrawn with the bar."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: Sequence[OwnerLine] = ()

    def render(self, task: Task) -> Text:
        """The end of the line."""
        del task
        return Text(self.sentence(), style="yellow")

    def sentence(self) -> str:
        """The statuses, with commas."""
        return ", ".join(filter(None, (one.status for one in self.watched)))


class Advance:
    """Called after each step of long work; shows the progress now and then."""

    def __init__(
        self, console: Console, what: str, total: int, bar: Progress | None, statuses: _Statuses
    ) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._bar = bar
        self._statuses = statuses
        self._task = bar.add_task(what, total=total) if bar else None
        # A terminal redraw for each of 10,000 ticks would cost more than the ticks.
        self._every = max(1, total // (100 if bar else LINES))

    def watch(self, watched: Sequence[OwnerLine]) -> None:
        """Show beside the progress which of these owners are away or have left."""
        self._statuses.watched = watched

    def __call__(self, done: int) -> None:
        """This many steps are done."""
        if done % self._every and done != self._total:
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
        else:
            status = self._statuses.sentence()
            line = f"{self._what}: {done:,} of {self._total:,}" + (f" ({status})" if status else "")
            self._console.print(line, highlight=False)


@contextmanager
def progress(console: Console, what: str, *, total: int) -> Iterator[Advance]:
    """Show the progress of ``total`` steps."""
    statuses = _Statuses()
    if not console.is_terminal:
        yield Advance(console, what, total, None, statuses)
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        statuses,
        console=console,
    ) as bar:
        yield Advance(console, what, total, bar, statuses)
