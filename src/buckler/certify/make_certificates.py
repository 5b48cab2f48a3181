"""The one place where certificates are made: limits of margins, and what they are about -> certificates.

``Terms`` are what all certificates of one call share; ``MarginLimits`` what each input has of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeVar, get_args

from buckler.certify import budget
from buckler.certify.method import Method
from buckler.certify.vote_limits import WITHOUT_CHANCE
from buckler.errors import InvalidInput, check_alpha, check_choice, check_positive
from buckler.noise import default_margin, law_of
from buckler.records import MAPS, Certificate, Claim, MarginBound
from buckler.soundness import ANYTIME
from buckler.types import FloatArray, IntArray, Law, MarginKind, SimplexMap

DEFAULT_METHOD = "exact"

Kind = TypeVar("Kind", bound=Claim)


@dataclass(frozen=True, slots=True)
class Terms:
    """The law of the noise, the level, the method and the margin.

    ``seed`` is the noise's, where the draws are made here.
    """

    law: Law
    alpha: float
    method: Method
    margin: MarginKind
    map: SimplexMap = "hardmax"
    temperature: float | None = None
    seed: int | None = None

    @property
    def level(self) -> float:
        """The level of limits: alpha, less what drawing takes; 0 where all copies are run."""
        return 0.0 if self.law.total is not None else budget.after_drawing(self.alpha, self.law)

    def check_draws(self, n: IntArray) -> None:
        """Refuse another number of draws than all copies, where the law has so many."""
        other = n[n != self.law.total]
        if self.law.total is not None and other.size:
            raise InvalidInput(
                f"counts must be of all {self.law.total} copies of {self.law.describe()}; got {other[0]}"
            )


def terms_of(
    method: Method,
    *,
    sigma: float | None = None,
    law: Law | None = None,
    alpha: float,
    margin: MarginKind | None = None,
    scores: tuple[SimplexMap, float | None] = ("hardmax", None),
) -> Terms:
    """Return checked terms; the margin is the law's first unless told. ``scores``: map, temperature.

    For a law whose copies are all there are, alpha is 0 whatever was allowed, and the method is the default.
    """
    map_, temperature = scores
    noise = law_of(sigma, law)
    margin = check_choice("margin", margin or default_margin(noise), get_args(MarginKind))
    check_choice("map", map_, MAPS)
    if temperature is not None:
        check_positive("temperature", temperature)
    if margin not in noise.margins:
        raise InvalidInput(f"margin must be one that {noise.describe()} has a radius for; got {margin!r}")
    level = check_alpha(alpha)
    if noise.total is not None:
        if method.name != DEFAULT_METHOD:
            raise InvalidInput(f"method must be left open for {noise.describe()}: votes are exact; got {method.name!r}")
        level, method = 0.0, WITHOUT_CHANCE
    return Terms(noise, level, method, margin, map_, temperature)


class MarginLimits(NamedTuple):
    """Lower limits ``low`` of the margins of classes ``chosen``, an entry an input, and what they rest on.

    ``n0`` is 0 where the class was given.
    """

    ids: Sequence[str]
    chosen: IntArray
    low: FloatArray
    n: IntArray
    n0: IntArray


def issue(terms: Terms, limits: MarginLimits) -> list[Certificate]:
    """Return what sound limits certify; an abstention where a limit gives no radius.

    **Guarantee.** Each certificate is wrong with probability at most ``terms.alpha``, as its limit is. The radius is
    the law's for the limit, rounded down. A method without a guarantee is refused.
    """
    return _made(Certificate, terms, limits)


def claim(terms: Terms, limits: MarginLimits) -> list[Claim]:
    """Return the same for any method, without a promise: for comparisons."""
    return _made(Claim, terms, limits)


def _made(kind: type[Kind], terms: Terms, limits: MarginLimits) -> list[Kind]:
    # Python numbers all at once, and one radius for all inputs that share a limit: a million inputs are not rare.
    lows, name, sound = limits.low.tolist(), terms.method.name, terms.method.sound
    radii = {}
    for low in set(lows):
        bound = MarginBound(kind=terms.margin, low=low, alpha=terms.alpha, method=name, sound=sound)
        radii[low] = terms.law.radius(bound.low, terms.margin)
    numbers = (limits.chosen, limits.n, limits.n0)
    each = zip(limits.ids, lows, *(of.tolist() for of in numbers), strict=True)
    return [
        kind(
            id=name_,
            predicted=chosen if radii[low] > 0.0 else None,
            radius=radii[low],
            margin_kind=terms.margin,
            margin=low,
            alpha=terms.alpha,
            n=n,
            n0=n0,
            law=terms.law,
            map=terms.map,
            temperature=terms.temperature,
            method=name,
            sound=sound,
            seed=terms.seed,
        )
        for name_, low, chosen, n, n0 in each
    ]


def issue_target(
    law: Law,
    radius: float,
    *,
    id: str,  # noqa: A002  (the record's own name for it)
    label: int | None,
    alpha: float,
    n: int,
    n0: int,
    kind: MarginKind = "quantile",
) -> Certificate:
    """Return the certificate of a radius fixed beforehand that an any-time test decided; None is an abstention."""
    certified = label is not None
    return Certificate(
        id=id,
        predicted=label,
        radius=radius if certified else 0.0,
        margin_kind=kind,
        margin=law.margin(radius, kind) if certified else -inf,
        alpha=alpha,
        n=n,
        n0=n0,
        law=law,
        map="hardmax",
        temperature=None,
        method=ANYTIME,
    )
