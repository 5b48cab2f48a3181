"""Records do not change once made, have no room for misspelt fields, and are compared only where that has a meaning."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "buckler"
ROOMS = (
    "bounds",
    "certify",
    "noise",
    "evaluate/curves.py",
    "runs/store",
    "runs/identity.py",
    "runs/executor.py",
    "sampling/streams.py",
    "certificate.py",
)


def records() -> list[type[Any]]:
    """Return every record of what certificates and evidence rest on."""
    places = [SOURCES / room for room in ROOMS]
    paths = [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    names = ["buckler." + path.relative_to(SOURCES).with_suffix("").as_posix().replace("/", ".") for path in paths]
    modules = [importlib.import_module(name.removesuffix(".__init__")) for name in names]
    found = {kind for module in modules for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)}
    return sorted((kind for kind in found if isinstance(kind, type)), key=lambda kind: kind.__qualname__)


def has_arrays(kind: type[Any]) -> bool:
    kinds = [str(field.type) for field in dataclasses.fields(kind)]
    return any(("Array" in name or "ndarray" in name) and "Callable" not in name for name in kinds)


@pytest.mark.parametrize("kind", records(), ids=lambda kind: kind.__qualname__)
def test_a_record_is_frozen_and_slotted(kind: Any) -> None:
    made = kind.__dataclass_params__
    assert made.frozen
    assert "__slots__" in vars(kind)
    # Arrays have no single truth of equality: a record that holds some, or a record of some, is itself alone.
    alone = {other.__name__ for other in records() if not other.__dataclass_params__.eq}
    kinds = [str(field.type) for field in dataclasses.fields(kind)]
    held = {word for name in kinds if "Callable" not in name for word in re.findall(r"\w+", name)}
    assert not (made.eq and (has_arrays(kind) or alone & held))


def test_there_are_records_of_both_kinds() -> None:
    assert len(records()) > 20
    assert any(map(has_arrays, records()))
