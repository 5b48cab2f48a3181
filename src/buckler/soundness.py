"""Which methods may stand in a certificate, and how a certificate's radius and margin follow from one another.

The record of a certificate asks this table, so the table is here and not with the methods: ``certify`` holds what each
name computes, and adds to the table the methods that a user declares sound by name.
"""

from typing import Literal

from buckler.errors import InvalidInput, UnsoundMethod, show

Tie = Literal["radius", "margin"]
"""What follows from the other: the radius from a limit of the margin, or, for a radius that was fixed beforehand, the
margin that had to be shown for it."""

VOTES = ("exact", "bonferroni", "bonferroni_all", "top_class")
SCORES = tuple(
    f"{combine}/{limit}"
    for combine in ("pairwise", "bonferroni", "margin_variable")
    for limit in ("star", "betting", "sequence", "bernstein", "hoeffding")
)
ANYTIME = "anytime"
ENUMERATED_METHOD = "all_copies"
"""Votes of all copies that a law has: probabilities, not estimates, so the error probability is 0."""

OWN = "own:"
"""What the name of a user's method begins with, if it may issue certificates: nobody takes it for one of ours."""

_TIES: dict[str, Tie] = {**dict.fromkeys((*VOTES, *SCORES), "radius"), ANYTIME: "margin", ENUMERATED_METHOD: "radius"}


def tie_of(method: str) -> Tie | None:
    """Return how radius and margin are tied under a method that may issue certificates; None for any other.

    >>> tie_of("exact"), tie_of("anytime"), tie_of("wald")
    ('radius', 'margin', None)
    """
    return _TIES.get(method)


def check_sound(method: str) -> Tie:
    """Return the tie of a method, refusing one that may not issue certificates."""
    tie = _TIES.get(method)
    if tie is None:
        raise UnsoundMethod(f"method {show(method)} has no guarantee that is known here and cannot issue a certificate")
    return tie


def declare_sound(method: str) -> None:
    """Let certificates carry the name of a user's own method, which begins with ``own:``."""
    if not method.startswith(OWN) or method == OWN:
        raise InvalidInput(f"the name of a sound method of your own must begin with {OWN!r}; got {show(method)}")
    _TIES[method] = "radius"
