"""A bar while something is counted, on a terminal or in a notebook; hidden where there is neither."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Show = Callable[[float, int], None]
"""Called with the number of inputs that are done, perhaps a fraction, and of all of them."""


class Advance(Protocol):
    """Shows how much is done, of how much, and a count with its rate a second where one is given."""

    def __call__(self, done: float, total: int | None, count: int | None = None, /) -> None:
        """Show it."""


@contextmanager
def bar(description: str, *, quiet: bool, unit: str = "", transient: bool = True) -> Iterator[Advance]:
    """Yield a function that moves the bar; before its first call only the time is shown."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    console = Console(stderr=True, markup=False, emoji=False)
    hidden = quiet or not (console.is_terminal or console.is_jupyter)
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, *times, console=console, disable=hidden, transient=transient) as progress:
        task = progress.add_task(description, total=None, rate="")

        def advance(done: float, total: int | None, count: int | None = None, /) -> None:
            elapsed = progress.tasks[0].elapsed or 0.0
            rate = f"{count / elapsed:,.0f} {unit}/s" if count is not None and elapsed > 0 else ""
            progress.update(task, completed=done, total=total, rate=rate)

        yield advance


@contextmanager
def shown(what: str, progress: bool | Show | None) -> Iterator[Show]:
    """Yield what shows how far it is: the caller's own function, a bar, or nothing for ``progress=False``."""
    if progress is False or callable(progress):
        yield progress or (lambda _done, _total: None)
    else:
        with bar(what, quiet=False) as advance:
            yield advance
