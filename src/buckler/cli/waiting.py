"""A bar on the terminal while something is counted that has no rate of its own; hidden where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from buckler.cli.terminal import Console

Advance = Callable[[int, int | None], None]


@contextmanager
def bar(description: str, *, quiet: bool) -> Iterator[Advance]:
    """Yield a function that is told how much is done, and of how much; before that, only the time is shown."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
