"""Progress bars of commands and of ``Smoothed``: on a terminal or in a notebook, and nothing where there is neither."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

Show = Callable[[float, int], None]
"""Function that shows progress, called with the number of inputs done, perhaps a fraction, and of all inputs."""

SECONDS_BETWEEN = 0.2
"""Seconds between two updates of a bar in a notebook."""


class Advance(Protocol):
    """Function that moves the bar to ``done`` of ``total`` (None: unknown), of inputs or of what else the bar counts.

    ``count`` draws so far are shown with their rate a second, or in their place the text ``note``.
    """

    def __call__(self, done: float, total: int | None, count: int | None = None, note: str = "", /) -> None:
        """Move the bar to ``done`` of ``total``."""


@contextmanager
def bar(description: str, *, quiet: bool, unit: str = "", transient: bool = True) -> Iterator[Advance]:
    """Yield a function that moves a progress bar on stderr, which is called ``description``; no bar if ``quiet``.

    Before the first call only the time is shown. ``unit`` is the noun for the function's ``count``, as ``draws``; a
    ``transient`` bar is erased at the end.
    """
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if console.is_jupyter and not quiet:
        with _in_notebook(description) as show:
            yield show
        return
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console, transient=transient) as progress:
        task = progress.add_task(description, total=None, note="")

        def advance(done: float, total: int | None, count: int | None = None, note: str = "", /) -> None:
            elapsed = progress.tasks[0].elapsed or 0.0
            rate = f"{count:,} {unit}, {count / elapsed:,.0f} a second" if count is not None and elapsed > 0 else ""
            progress.update(task, completed=done, total=total, note=note or rate)

        yield advance


@contextmanager
def _in_notebook(description: str) -> Iterator[Advance]:
    """Yield a function that moves a bar below the cell, erased at the end; it needs no notebook extension."""
    notebook: Any = import_module("IPython.display")
    page = notebook.HTML
    handle, last = notebook.display(page(escape(description)), display_id=True), 0.0

    def advance(done: float, total: int | None, count: int | None = None, note: str = "", /) -> None:
        nonlocal last
        del count, note
        if (now := monotonic()) - last > SECONDS_BETWEEN or done == total:
            last, most = now, "" if total is None else f" max='{total}'"
            handle.update(page(f"{escape(description)} <progress value='{done}'{most}></progress> {done:.0f}"))

    try:
        yield advance
    finally:
        handle.update(page(""))


@contextmanager
def shown(what: str, progress: bool | Show | None) -> Iterator[Show]:
    """Yield a function that shows progress: the caller's own, ``progress``; or that of a new bar called ``what``.

    With ``progress=False`` the function does nothing.
    """
    if progress is False or callable(progress):
        yield progress or (lambda _done, _total: None)
    else:
        with bar(what, quiet=False) as advance:
            yield advance
