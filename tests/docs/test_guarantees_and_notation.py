"""The two pages that say what things mean: their examples run, and every name they give is there."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROOMS = "bounds|certify|evaluate|laws|paper|records|report|runs|sampling|training|types|errors"
NAMES = sorted(
    {
        name
        for page in ("guarantees.md", "notation.md")
        for name in re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", (DOCS / page).read_text(encoding="utf-8"))
    }
)


def find(name: str) -> object:
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
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


def test_notation_names_many_things() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_name_is_there(name: str) -> None:
    assert find(name) is not None


def test_a_wrong_name_is_found() -> None:
    with pytest.raises(AttributeError):
        find("certify.radii.no_such_name")


def test_examples_of_guarantees_run() -> None:
    flags = doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(DOCS / "guarantees.md"), module_relative=False, optionflags=flags, encoding="utf-8")
    assert result.attempted >= 4
    assert result.failed == 0
