"""From the keywords of ``Smoothed.certify`` to what is drawn: a fixed number of draws, or a ladder of radii.

A keyword that does not apply to what is asked is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from buckler.certify.issue import Terms, terms_of
from buckler.certify.ladder import Ladder, radii_for
from buckler.certify.registry import sound_method
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.laws import default_margin
from buckler.types import Law, MarginKind, RadiusKind, SimplexMap

DRAWS, SELECTION_DRAWS, MAX_DRAWS = 1000, 100, 100_000
"""Draws unless told: for estimation, for selection, and for estimation at most where drawing ends when decided."""

DECIDING = ("target_radius", "radii", "precision")
UNTIL_DECIDED = ("max_n", "max_seconds")


class DecideOptions(TypedDict, total=False):
    """The keywords of ``Smoothed.decide`` that are about every input alike."""

    radii: Sequence[float] | None
    precision: float | None
    max_n: int | None
    max_seconds: float | None
    n0: int | None
    alpha: float
    seed: int | None
    margin: MarginKind | None


class CertifyOptions(DecideOptions, total=False):
    """The keywords of ``Smoothed.certify`` that are about every input alike."""

    n: int | None
    method: str | None
    radius: RadiusKind | None
    map: SimplexMap
    temperature: float | None
    target_radius: float | None


@dataclass(frozen=True, slots=True)
class FixedDraws:
    """How many draws each input gets, and what is made of them; ``n0`` is 0 where nothing is selected."""

    n: int
    n0: int
    terms: Terms


def check_keywords(options: Mapping[str, object], known: frozenset[str]) -> None:
    """Refuse a keyword that is none, as a function with a plain signature does."""
    if unknown := sorted(options.keys() - known):
        raise TypeError(f"{unknown[0]!r} is not a keyword here; there are {', '.join(sorted(known))}")


def to_decide(options: CertifyOptions) -> DecideOptions | None:
    """Return the keywords of ``decide`` that these ask for; None for a fixed number of draws."""
    given = {key: value for key, value in options.items() if value is not None}
    asked = [key for key in DECIDING if key in given]
    if not asked:
        for key in UNTIL_DECIDED:
            if key in given:
                raise InvalidInput(f"{key} is for drawing until decided; without radii or precision it does not apply")
        return None
    unfit = [key for key in ("n", "method", "radius", "temperature") if key in given]
    if unfit or given.get("map", "hardmax") != "hardmax":
        raise InvalidInput(f"{[*unfit, 'map'][0]} is for a fixed number of draws; with {asked[0]} it does not apply")
    if len(asked) > 1:
        raise InvalidInput(f"{asked[1]} is another way to decide; with {asked[0]} it does not apply")
    kept = {key: value for key, value in given.items() if key in DecideOptions.__optional_keys__}
    if "target_radius" in given:
        kept["radii"] = (given["target_radius"],)
    return kept  # type: ignore[return-value]


def fixed_draws(law: Law, options: CertifyOptions, *, labelled: bool, dimension: int, seed: int) -> FixedDraws:
    """Return the plan of a fixed number of draws for inputs of ``dimension`` values."""
    given: Mapping[str, Any] = {key: value for key, value in options.items() if value is not None}
    map_: SimplexMap = given.get("map", "hardmax")
    if map_ == "hardmax" and "temperature" in given:
        raise InvalidInput(f"temperature is for softmax scores; got map {map_!r}")
    method = given.get("method", "exact" if map_ == "hardmax" else "pairwise/star")
    terms = terms_of(
        sound_method(method, "votes" if map_ == "hardmax" else "scores"),
        law=law,
        alpha=given.get("alpha", 1e-3),
        margin=given.get("margin"),
        radius=given.get("radius"),
        scores=(map_, given.get("temperature")),
        dimension=dimension,
    )
    if law.total is not None:
        for name, value in (("n", law.total), ("n0", 0)):
            if given.get(name, value) != value:
                raise InvalidInput(f"{name} must be {value}, or left open, for {law.describe()}; got {given[name]}")
        return FixedDraws(law.total, 0, terms)
    n0 = selection_draws(given.get("n0"), labelled, map_)
    return FixedDraws(check_whole("n", given.get("n", DRAWS), 1), n0, replace(terms, seed=seed))


def ladder_of(law: Law, options: DecideOptions, dimension: int) -> Ladder:
    """Return the ladder that the keywords ask for, for inputs of ``dimension`` values."""
    radii, precision = options.get("radii"), options.get("precision")
    if (radii is None) == (precision is None):
        raise InvalidInput("radii or precision must be given, and not both")
    if (seconds := options.get("max_seconds")) is not None:
        check_positive("max_seconds", seconds)
    margin, budget = options.get("margin") or default_margin(law), options.get("max_n")
    return Ladder(
        radii_for(law, precision, margin) if precision is not None else radii,  # type: ignore[arg-type]
        alpha=check_alpha(options.get("alpha", 1e-3)),
        max_n=MAX_DRAWS if budget is None else budget,
        margin=margin,
        precision=precision,
        law=law,
        dimension=dimension,
    )


def selection_draws(n0: int | None, labelled: bool, map_: SimplexMap) -> int:
    """Return how many selection draws to make: they select the class, and for scores tune the limit as well."""
    if labelled and map_ == "hardmax":
        if n0:
            raise InvalidInput(f"n0 is for a class that is selected, and label is given; got {n0}")
        return 0
    draws = check_whole("n0", SELECTION_DRAWS if n0 is None else n0, 0)
    if not labelled and draws == 0:
        raise InvalidInput("n0 must be at least 1 when no label is given; got 0")
    return draws
