"""Put the doctests of docstrings into fences, so that the site shows them as code and not as quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?|^\.\.\. ?.*\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences around every run of lines that begins with a prompt and ends before an empty line."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of whatever was just read."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
