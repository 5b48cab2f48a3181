"""Names of code in pages are there, and the examples of the page that says what a certificate means run."""

import doctest
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROOMS = "bounds|certificate|certify|evaluate|noise|paper|report|runs|sampling|smoothed|training|types|errors"
PAGE = DOCS / "guarantees.md"
NAMES = sorted(
    {
        name
        for page in (PAGE, DOCS / "errata.md")
        for name in re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
    }
)


def find(name: str) -> object:
    parts = name.split(".")
    for split in range(len(parts), -1, -1):
        try:
            found: object = import_module(".".join(["buckler", *parts[:split]]))
        except ModuleNotFoundError as missing:
            if not (missing.name or "").startswith("buckler"):
                raise
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def missing(names: Iterable[str]) -> list[str]:
    """Return the names that the package does not have."""
    found = []
    for name in names:
        try:
            find(name)
        except (AttributeError, LookupError):
            found.append(name)
    return found


def test_names_are_there() -> None:
    assert len(NAMES) > 30
    assert missing(NAMES) == []


def test_a_wrong_name_is_found() -> None:
    assert missing(["certify.no_such_name", "no_such_room.name"]) == ["certify.no_such_name", "no_such_room.name"]


def test_examples_of_guarantees_run() -> None:
    flags = doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags, encoding="utf-8")
    assert result.attempted >= 4
    assert result.failed == 0
