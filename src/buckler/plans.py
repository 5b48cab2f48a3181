"""From the keywords of ``Smoothed.certify`` to what is drawn: a fixed number of draws, or a ladder of radii.

A keyword that does not apply to what is asked is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.certify.make_certificates import Terms, terms_of
from buckler.certify.registry import sound_method
from buckler.certify.score_stopping import SEQUENCE, ScorePlan
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.noise import default_margin
from buckler.types import ArrayLike, Law, MarginKind, SimplexMap

DRAWS, SELECTION_DRAWS, MAX_DRAWS = 1000, 100, 100_000
"""Draws unless told: for estimation, for selection, and for estimation at most where drawing ends when decided."""

DECIDING = ("target_radius", "radii", "precision")
UNTIL_DECIDED = ("max_n", "max_seconds")


class DecideOptions(TypedDict, total=False):
    """The keywords of ``Smoothed.decide`` that are about every input alike."""

    radii: ArrayLike | None
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
    scores = given.get("map", "hardmax") != "hardmax"
    unfit = [key for key in ("n", *(() if scores else ("method", "temperature"))) if key in given]
    if unfit:
        raise InvalidInput(f"{unfit[0]} is for a fixed number of draws; with {asked[0]} it does not apply")
    if len(asked) > 1:
        raise InvalidInput(f"{asked[1]} is another way to decide; with {asked[0]} it does not apply")
    kept = {key: value for key, value in given.items() if key in DecideOptions.__optional_keys__}
    if "target_radius" in given:
        kept["radii"] = (given["target_radius"],)
    return kept  # type: ignore[return-value]


def fixed_draws(law: Law, options: CertifyOptions, *, labelled: bool, seed: int) -> FixedDraws:
    """Return the plan of a fixed number of draws."""
    terms = replace(_terms(law, options, "exact", "pairwise/star"), seed=seed)
    n, n0 = options.get("n"), options.get("n0")
    if law.total is not None:
        for name, given, value in (("n", n, law.total), ("n0", n0, 0)):
            if given not in {None, value}:
                raise InvalidInput(f"{name} must be {value}, or left open, for {law.describe()}; got {given}")
        return FixedDraws(law.total, 0, replace(terms, seed=None))
    return FixedDraws(check_whole("n", DRAWS if n is None else n, 1), selection_draws(n0, labelled, terms.map), terms)


def check_drawn(law: Law) -> None:
    """Refuse a law whose copies are all run, once each: there is nothing to draw until decided or to predict from."""
    if law.total is not None:
        raise InvalidInput(f"law must be one that is drawn; {law.describe()} runs all its copies: call certify")


def scores_until(law: Law, options: CertifyOptions, *, labelled: bool, seed: int) -> ScorePlan:
    """Return the plan of drawing scores until radii, or a precision, are decided."""
    decide = to_decide(options) or {}
    check_drawn(law)
    terms = replace(_terms(law, options, "exact", SEQUENCE), seed=seed)
    radii, precision, max_n = decide.get("radii"), decide.get("precision"), decide.get("max_n")
    if (seconds := decide.get("max_seconds")) is not None:
        check_positive("max_seconds", seconds)
    return ScorePlan(
        terms,
        selection_draws(options.get("n0"), labelled, terms.map),
        check_whole("max_n", MAX_DRAWS if max_n is None else max_n, 1),
        () if radii is None else check_radii(radii),
        None if precision is None else check_precision(precision),
    )


def _terms(law: Law, options: CertifyOptions, by_votes: str, by_scores: str) -> Terms:
    given: Mapping[str, Any] = {key: value for key, value in options.items() if value is not None}
    map_: SimplexMap = given.get("map", "hardmax")
    if map_ == "hardmax" and "temperature" in given:
        raise InvalidInput(f"temperature is for softmax scores; got map {map_!r}")
    method = given.get("method", by_votes if map_ == "hardmax" else by_scores)
    return terms_of(
        sound_method(method, "votes" if map_ == "hardmax" else "scores"),
        law=law,
        alpha=given.get("alpha", 1e-3),
        margin=given.get("margin"),
        scores=(map_, given.get("temperature")),
    )


def ladder_of(law: Law, options: DecideOptions) -> Ladder:
    """Return the ladder that the keywords ask for."""
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
