"""What a law whose copies are all there are fixes in a specification: how many there are, and that nothing is drawn."""

from collections.abc import Mapping
from typing import Any

from buckler.errors import InvalidInput, show
from buckler.laws import settled
from buckler.types import Law


def with_draws(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the numbers of draws that their law fixes, where they are left open."""
    if "law" not in settings:
        return dict(settings)
    total = settled(settings.get("sigma"), settings["law"], settings.get("law_parameters")).total
    return dict(settings) if total is None else {"n": total, "n0": 0, **settings}


def check_draws(law: Law, settings: Any) -> None:
    """Refuse settings, by their names as attributes, that ask for draws of a law that has none."""
    if law.total is None:
        return
    for name, value in {"n": law.total, "n0": 0, "seed": 0, "scores": "none", "checkpoints": (law.total,)}.items():
        given = getattr(settings, name)
        if name == "checkpoints":
            given = tuple(given) or value
        if given != value:
            raise InvalidInput(f"{name} must be {value} for {law.describe()}; got {show(given)}")
