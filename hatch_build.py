"""The page that a package index shows: README.md with every relative address made absolute.

The repository's address is not written down anywhere: a release is told it (``BUCKLER_REPOSITORY``, which the release's
workflow sets). Without one, as in a build of one's own, links become plain words and pictures are left out, so that
nothing on the page is broken.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link or a picture whose address is relative."""


def described(readme: str, repository: str | None, version: str) -> str:
    """Return the text with its addresses at the version's tag of the repository, or without them."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"

    return LINK.sub(absolute, readme)


class ReadmeHook(MetadataHookInterface):
    """Sets the description, and the project's addresses where there are any."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what depends on the address to the metadata."""
        repository = os.environ.get("BUCKLER_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, repository, metadata["version"])}
        metadata["urls"] = {"Source": repository, "Issues": f"{repository}/issues"} if repository else {}
