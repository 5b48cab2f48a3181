"""The terminal that commands print to: text stays text, whatever brackets a path or a name may hold."""

from functools import partial

from rich import console

Console = partial(console.Console, markup=False, emoji=False)
