"""Names of the sound methods, and whether each computes the radius from a margin or the margin of a given radius.

``records`` checks certificates against this table. ``certify`` implements the methods, and adds to the table those
that a user declares sound.
"""

from typing import Literal

from buckler.errors import InvalidInput, UnsoundMethod, show

Tie = Literal["radius", "margin"]
"""``radius``: computed from a limit of the margin. ``margin``: the margin that a radius fixed beforehand needs."""

VOTES = ("exact", "bonferroni", "bonferroni_all", "top_class")
SCORES = tuple(
    f"{combine}/{limit}"
    for combine in ("pairwise", "bonferroni", "margin_variable")
    for limit in ("star", "betting", "sequence", "bernstein", "hoeffding")
)
ANYTIME = "anytime"
ENUMERATED_METHOD = "all_copies"
"""The method for noise whose copies are enumerated: votes are probabilities, so alpha is 0."""

OWN = "own:"
"""Prefix of the name of a user's sound method."""

_TIES: dict[str, Tie] = {**dict.fromkeys((*VOTES, *SCORES), "radius"), ANYTIME: "margin", ENUMERATED_METHOD: "radius"}


def tie_of(method: str) -> Tie | None:
    """Return whether a sound method computes the radius or the margin from the other; None for any other method.

    >>> tie_of("exact"), tie_of("anytime"), tie_of("wald")
    ('radius', 'margin', None)
    """
    return _TIES.get(method)


def check_sound(method: str) -> Tie:
    """Return ``tie_of`` a method; one that is not sound raises UnsoundMethod."""
    tie = _TIES.get(method)
    if tie is None:
        raise UnsoundMethod(f"method {show(method)} has no guarantee and cannot issue a certificate")
    return tie


def declare_sound(method: str) -> None:
    """Add a user's method, whose name begins with ``own:``, to the sound methods."""
    if not method.startswith(OWN) or method == OWN:
        raise InvalidInput(f"the name of a sound method of your own must begin with {OWN!r}; got {show(method)}")
    _TIES[method] = "radius"
