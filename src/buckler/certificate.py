"""Certificates and refutations of single inputs, their sentences, and the names of the sound methods.

A certificate says that the smoothed prediction of one input does not change within a radius, with error probability at
most alpha. A claim says the same without a guarantee. A refutation says that the prediction is another one at a point.
An abstention is a certificate whose ``predicted`` is None; in integer arrays of classes it is -1 (``ABSTAINED``).
"""

import json
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import islice
from math import isfinite, isnan
from typing import Any, Literal, get_args

from buckler.errors import (
    InvalidInput,
    UnsoundMethod,
    check_alpha,
    check_choice,
    check_positive,
    check_real,
    check_whole,
    show,
)
from buckler.types import AnyArray, Label, Limit, MarginKind, Noise, ScoreDtype, SimplexMap

ABSTAINED = -1
"""Stands for an abstention in an integer array of classes; a single certificate has None there."""

Tie = Literal["radius", "margin"]
"""Which of a certificate's radius and margin is computed from the other: the ``radius``, from a lower limit of the
margin; or the ``margin``, which a radius fixed beforehand needs."""

VOTE_METHOD_NAMES = ("exact", "bonferroni", "top_class")
RANDOMISED = "pairwise/randomised_star"
"""Name of the method for scores that uses one more random number for each input, after its last draw (T15a)."""

LEAST_UNIFORM = 0.1
"""Lower clamp of that random number, so that the wealth from the draws alone must reach 0.1 / alpha to reject.
Heuristic: affects power, not validity."""

SCORE_METHOD_NAMES = (*(f"pairwise/{limit}" for limit in get_args(Limit)), RANDOMISED)
ANYTIME = "anytime"
ENUMERATED_METHOD = "all_copies"
"""Name of the method for noise whose copies are enumerated: vote shares are probabilities, so alpha is 0."""

OWN = "own:"
"""Prefix of the name of a user's sound method."""

_TIES: dict[str, Tie] = {
    **dict.fromkeys((*VOTE_METHOD_NAMES, *SCORE_METHOD_NAMES), "radius"),
    ANYTIME: "margin",
    ENUMERATED_METHOD: "radius",
}

OF_VOTES = frozenset((*VOTE_METHOD_NAMES, ANYTIME, ENUMERATED_METHOD))
SIMPLEX_MAPS, MARGIN_KINDS = get_args(SimplexMap), get_args(MarginKind)

_EXACT = Context(prec=1200)
"""Digits for every float in full: up to 309 before the point and 1,074 after it."""


ONE_FUNCTION = "exact in floating point if the model gives an input the same logits every time"
"""Clause in the sentence of a claim under noise that is computed without rounding (``Noise.idealised`` is None)."""


def tie_of(method: str) -> Tie | None:
    """Return "radius" or "margin", whichever a sound method computes from the other; None for other methods.

    >>> tie_of("exact"), tie_of("anytime"), tie_of("wald")
    ('radius', 'margin', None)
    """
    return _TIES.get(method)


def declare_sound(method: str) -> None:
    """Add the name of a user's method, which begins with ``own:``, to those that may make certificates (``tie_of``)."""
    if not method.startswith(OWN) or method == OWN:
        raise InvalidInput(f"the name of a sound method of your own must begin with {OWN!r}; got {show(method)}")
    _TIES[method] = "radius"


def rounded_down(value: float | Decimal, digits: int = 3) -> str:
    """Return ``value`` as a text with ``digits`` decimals, rounded down.

    **Guarantee.** ``float(text) <= value``. The shortest decimal of the float is truncated, so 0.58 is shown as 0.580
    and the float below it as 0.579.

    >>> rounded_down(0.37511), rounded_down(0.9999), rounded_down(0.58), rounded_down(-0.0001)
    ('0.375', '0.999', '0.580', '-0.001')
    """
    exact = value if isinstance(value, Decimal) else Decimal(repr(float(value) + 0.0))  # + 0.0: no negative zero
    if not isfinite(exact):
        return str(float(exact))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR, _EXACT):f}"


def rounded_up(value: float, digits: int = 3) -> str:
    """Return ``value`` as a text with ``digits`` decimals, rounded up.

    >>> rounded_up(0.37511), rounded_up(0.58), rounded_up(0.0)
    ('0.376', '0.580', '0.000')
    """
    return f"{-Decimal(rounded_down(-value, digits)):f}"


RADIUS_TOLERANCE = 2e-15
"""How far, relatively, a Gaussian radius may lie from the one recomputed from its margin: another machine's normal
quantile may differ in its last digits. Radii are rounded down by twice as much, so a radius within the tolerance
still holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Result of a method for one input: the smoothed prediction does not change within ``radius``; or an abstention.

    A claim has no guarantee and serves comparisons; a ``Certificate`` is a claim by a sound method. ``predicted`` is
    the class, None for an abstention, and ``margin`` the lower limit of its margin from ``n`` draws; fields are checked
    against one another, since radius or margin follows from the other (``tie_of``). ``n0`` separate draws selected the
    class; or, with ``winner_alpha`` above 0, it is the class with the most of the ``n`` votes, tested at that part of
    ``alpha``; with both 0 it was fixed beforehand (a given label). ``map``, ``temperature`` and ``score_dtype`` say how
    logits became scores and were kept (float16 scores are those of another classifier). ``seed`` is the seed of the
    noise if the call that made the claim drew it: the same call gives the same claim. ``router`` is the claim about the
    noise level, where a smoothed router chose it (``Routed``); its radius is not smaller.
    """

    id: str
    predicted: Label | None
    radius: float
    margin_kind: MarginKind
    margin: float
    alpha: float
    n: int
    n0: int
    noise: Noise
    map: SimplexMap
    temperature: float | None
    method: str
    sound: bool = True
    winner_alpha: float = 0.0
    score_dtype: ScoreDtype = "float32"
    seed: int | None = field(default=None, compare=False)
    router: "Claim | None" = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for fields that contradict one another, UnsoundMethod for a method that is not sound."""
        if self.sound and tie_of(self.method) is None:
            if isinstance(self.method, str) and self.method.startswith(OWN):
                raise UnsoundMethod(
                    f"method {show(self.method)} cannot issue a certificate, since it is not registered in this "
                    "process: import the module that makes it, or name it to a command, as --method package.module:NAME"
                )
            raise UnsoundMethod(f"method {show(self.method)} has no guarantee and cannot issue a certificate")
        if self.method != ENUMERATED_METHOD:
            check_alpha(self.alpha)
        elif self.alpha != 0.0:
            raise InvalidInput(f"alpha must be 0 for method {self.method!r}, which enumerates; got {show(self.alpha)}")
        check_whole("n", self.n, 1)
        every = self.noise.total
        if (self.method == ENUMERATED_METHOD) != (every is not None) or every not in {None, self.n}:
            raise InvalidInput(
                f"method must be {ENUMERATED_METHOD!r}, with n the number of all copies, if and only if the noise "
                f"enumerates them ({'it does not' if every is None else every}); got {self.method!r} and {self.n} "
                f"copies of {self.noise.describe()}"
            )
        check_whole("n0", self.n0, 0)
        if not 0.0 <= check_real("winner_alpha", self.winner_alpha) <= self.alpha or (self.winner_alpha and self.n0):
            raise InvalidInput(f"winner_alpha must be from 0 to alpha, and 0 with n0 > 0; got {self.winner_alpha}")
        check_choice("map", self.map, SIMPLEX_MAPS)
        check_choice("margin_kind", self.margin_kind, MARGIN_KINDS)
        if self.margin_kind not in self.noise.margins:
            raise InvalidInput(f"margin_kind must be one of {', '.join(self.noise.margins)}; got {self.margin_kind!r}")
        if self.map != "hardmax" and self.method in OF_VOTES:
            raise InvalidInput(f"map must be 'hardmax' for method {self.method!r}, which reads votes; got {self.map!r}")
        if check_choice("score_dtype", self.score_dtype, get_args(ScoreDtype)) != "float32" and self.map == "hardmax":
            raise InvalidInput(
                f"score_dtype must be 'float32' for map 'hardmax', which keeps no scores; got {self.score_dtype!r}"
            )
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if isnan(self.margin) or not isfinite(self.radius) or self.radius < 0.0:
            came = f"{self.radius} and {self.margin}"
            raise InvalidInput(f"radius must be finite and at least 0, and margin a number; got {came}")
        if self.margin_kind == "probability" and self.margin > 1.0:
            raise InvalidInput(f"margin must be at most 1 for margin_kind 'probability'; got {self.margin}")
        if (self.predicted is None) != (self.radius == 0.0):
            came = f"{self.predicted} and radius {self.radius}"
            raise InvalidInput(f"predicted must be None if and only if the radius is 0; got {came}")
        if self.predicted is not None and not isinstance(self.predicted, str):
            check_whole("predicted", self.predicted, 0)
        if self.router is not None and not (self.radius <= self.router.radius and self.router.alpha <= self.alpha):
            came = f"{self.radius} and {self.alpha}; the router has {self.router.radius} and {self.router.alpha}"
            raise InvalidInput(f"radius must be at most, and alpha at least, the router's; got {came}")
        self._check_tie()

    def _check_tie(self) -> None:
        off = RADIUS_TOLERANCE if "quantile" in self.noise.margins else 0.0  # only Gaussian radii are rounded
        if self.radius > 0.0 and tie_of(self.method) == "margin":
            needed = self.noise.margin(self.radius, self.margin_kind)
            # The quantile margin takes no special function, so every machine computes the same float.
            if not abs(self.margin - needed) <= (0.0 if self.margin_kind == "quantile" else off * needed):
                raise InvalidInput(
                    f"margin must be what radius {self.radius} needs under {self.noise.describe()}, {needed}; "
                    f"got {self.margin}"
                )
            return
        given = self.noise.radius(self.margin, self.margin_kind)
        if not abs(self.radius - given) <= off * given:
            raise InvalidInput(
                f"radius must be what margin {self.margin} gives under {self.noise.describe()}, {given}; "
                f"got {self.radius}"
            )

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise if it is Gaussian; InvalidInput for other noise."""
        if "sigma" not in self.noise.parameters:
            raise InvalidInput(f"sigma is a parameter of Gaussian noise; this is {self.noise.describe()}")
        return float(self.noise.parameters["sigma"])

    @property
    def class_from(self) -> str:
        """How the class was chosen, in a few words, as ``given`` or ``selected on 100 draws``."""
        if self.method == ENUMERATED_METHOD:
            return "all copies"
        if self.winner_alpha:
            return "winner of the same draws"
        return "given" if self.n0 == 0 else f"selected on {self.n0:,} draws"

    @property
    def abstained(self) -> bool:
        """Whether no class is certified: ``predicted`` is None and the radius 0."""
        return self.predicted is None

    def as_dict(self) -> dict[str, Any]:
        """Return the claim as a row of a table: its fields but ``router``, ``sigma``, and the noise as two texts.

        ``sigma`` is None if the noise is not Gaussian.
        """
        fields = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in {"noise", "seed", "router"}
        }
        before = dict(islice(fields.items(), list(self.__dataclass_fields__).index("noise")))
        sigma = {"sigma": self.noise.parameters.get("sigma")}
        noise = {"noise": self.noise.name, "noise_parameters": json.dumps(dict(self.noise.parameters), sort_keys=True)}
        return {**before, **sigma, **fields, **noise, "seed": self.seed}

    def __str__(self) -> str:
        return sentence(self)


@dataclass(frozen=True, slots=True)
class Certificate(Claim):
    """The certificate of one input: the smoothed prediction does not change within ``radius``; or an abstention.

    **Guarantee.** Over the noise draws, ``P(predicted is not None and the smoothed classifier is not constantly
    ``predicted`` on the ball of ``radius``) <= alpha``. The noise says which ball: its norm, open or closed, all points
    or those of a grid. Fields are those of ``Claim``; a method that is not sound raises UnsoundMethod (``tie_of``).
    """

    def __post_init__(self) -> None:
        if not self.sound:
            raise UnsoundMethod(f"method {self.method!r} has no guarantee and cannot issue a certificate")
        Claim.__post_init__(self)


def ball(noise: Noise, radius: str | None = None) -> str:
    """Return in words where certificates under ``noise`` hold: which points of which ball, open or closed.

    >>> from buckler.noise import Gaussian
    >>> ball(Gaussian(0.5), "0.25")
    'everywhere in the open l2 ball of radius 0.25, in the units of the input'
    """
    size = "" if radius is None else f" of radius {radius}"
    return f"{noise.holds_at} in the {'closed' if noise.closed else 'open'} {noise.norm} ball{size}, {noise.units}"


def sentence(claim: Claim) -> str:
    """Return a ``Claim`` as an English sentence: class, radius, error probability, draws, method and assumptions."""
    noise, exact = claim.noise, claim.method == ENUMERATED_METHOD
    level = "error probability" if claim.sound else "a promised, not proved, error probability"
    beside = f"; {ONE_FUNCTION}" if noise.idealised is None else f"; idealised: {noise.idealised}"
    if exact:
        basis = f"from all {claim.n} copies under {noise.describe()} ({claim.margin_kind} margin"
    else:
        scores = claim.map if claim.temperature is None else f"{claim.map} at temperature {claim.temperature:g}"
        scores += f" kept as {claim.score_dtype}" if claim.score_dtype != "float32" else ""
        chosen = "a class fixed beforehand" if claim.n0 == 0 else f"a class selected on {claim.n0} other draws"
        if claim.winner_alpha:
            chosen = f"the winner of the same draws, tested at {claim.winner_alpha:.2g}"
        once = ", randomised once after the last draw" if claim.method == RANDOMISED else ""
        basis = (
            f"for {chosen}, from {claim.n} draws of {noise.describe()} ({scores}, method {claim.method}{once}, "
            f"{claim.margin_kind} margin"
        )
    if claim.router is not None:
        way = claim.router
        beside = (
            f"; the noise level is chosen by a smoothed router, from {way.n} draws of {way.noise.describe()}{beside}"
        )
    if claim.predicted is None and exact:
        return f"{claim.id}: abstained; exact, without error probability, {basis} gives no radius above 0{beside})"
    if claim.predicted is None:
        # Under a noise that certifies whole pixels a positive margin may be too small for the first of them.
        few = f"at least {rounded_down(claim.margin, 4)}, too little for any radius"
        shown = few if claim.margin > 0.0 else "may be 0 or below"
        return f"{claim.id}: abstained at {level} {claim.alpha:g} {basis} {shown}{beside})"
    within = (
        f"{claim.id}: the smoothed classifier predicts class {claim.predicted} "
        f"{ball(noise, rounded_down(claim.radius, 4))}"
    )
    margin = rounded_down(claim.margin, 4)
    if exact:
        return f"{within}; exact, without error probability, {basis} {margin}{beside})"
    return f"{within}, with {level} at most {claim.alpha:g} {basis} at least {margin}{beside})"


@dataclass(frozen=True, slots=True)
class PairTest:
    """Test whether one point refutes a certificate: its distance ``radius`` from the input, and its ``n`` draws.

    Of these draws ``wins`` vote for the class ``rival``, ``losses`` for the certified class; ``refuted`` is the result.
    """

    radius: float
    rival: int
    n: int
    wins: int
    losses: int
    refuted: bool

    def __post_init__(self) -> None:
        for name in ("rival", "wins", "losses"):
            check_whole(name, getattr(self, name), 0)
        check_whole("n", self.n, 1)
        if self.wins + self.losses > self.n or not check_real("radius", self.radius) >= 0.0:
            raise InvalidInput(f"radius must be at least 0 and wins + losses at most n; got {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Refutation:
    """One input's refutation: at ``point``, ``radius`` away, the smoothed classifier does not predict ``label``.

    **Guarantee.** Over the draws at the candidates, which were fixed before, ``P(radius is not None and the smoothed
    classifier predicts label at point) <= alpha`` (theory T22). With a certificate of class ``label`` at its own alpha,
    the distance at which the prediction first changes lies between the two radii, with error at most the sum.
    A ``radius`` of None is an abstention: no point was found, which says nothing. The radius is rounded up. ``rival``
    is the class shown to have a larger probability at ``point`` than ``label``. ``tried`` are the tests of candidate
    points, in their order, up to the first that failed. ``router`` is the noise of the smoothed router, where there is
    one (``Routed``): that it chooses ``noise`` at the point was shown too (T36a).
    """

    id: str
    label: int
    radius: float | None
    rival: int | None
    point: AnyArray | None
    alpha: float
    noise: Noise
    tried: tuple[PairTest, ...] = ()
    router: Noise | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_whole("label", self.label, 0)
        won = [test for test in self.tried if test.refuted]
        found = None if not won else (won[-1].radius, won[-1].rival)
        if any(test.refuted for test in self.tried[len(won) :]) or found != (
            None if self.radius is None else (self.radius, self.rival)
        ):
            raise InvalidInput(
                "tried must be passes, then at most one failure, and radius and rival those of the last pass; got "
                f"radius {self.radius} and rival {self.rival}"
            )
        if (self.radius is None) != (self.point is None) or self.rival == self.label:
            raise InvalidInput(
                "radius and point must both be given or both None, and rival must differ from label; got "
                f"radius {self.radius}, {'no' if self.point is None else 'a'} point, rival and label "
                f"{self.rival} and {self.label}"
            )
        if self.radius is not None and not (isfinite(check_real("radius", self.radius)) and self.radius >= 0.0):
            raise InvalidInput(f"radius must be at least 0; got {self.radius}")

    @property
    def n(self) -> int:
        """The number of draws at all candidate points together."""
        return sum(test.n for test in self.tried)

    @property
    def margin(self) -> float | None:
        """The share of draws at ``point`` for ``rival`` less that for ``label``: an estimate; None without point."""
        won = [test for test in self.tried if test.refuted]
        return (won[-1].wins - won[-1].losses) / won[-1].n if won else None

    def contradicts(self, radius: float) -> bool:
        """Return whether ``point`` lies in a certified ball of this radius around the input; False if it is None."""
        if self.radius is None:
            return False
        return self.radius <= radius if self.noise.closed else self.radius < radius

    def __str__(self) -> str:
        basis = f"from {self.n} draws of {self.noise.describe()}"
        if self.radius is None:
            return f"{self.id}: no point was found where class {self.label} is not predicted, {basis}"
        way = ""
        if self.router is not None:
            way = f"; a smoothed router, under {self.router.describe()}, was shown to choose this noise there"
        return (
            f"{self.id}: the smoothed classifier does not predict class {self.label} at a point at {self.noise.norm} "
            f"distance {rounded_up(self.radius, 4)} {self.noise.units}, where class {self.rival} has more, with error "
            f"probability at most {self.alpha:g} {basis}{way}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Bracket:
    """What is known of the distance at which one input's prediction changes: a certified radius and a refutation.

    The class is certified up to radius ``certified`` with error probability ``certified_alpha``. ``truth`` is the true
    class, where it is known.
    """

    refutation: Refutation
    certified: float
    certified_alpha: float
    truth: int | None = None

    @property
    def contradicts(self) -> bool:
        """Whether the refutation lies inside of the certified ball, so that one of the two is wrong."""
        return self.refutation.contradicts(self.certified)

    @property
    def alpha(self) -> float:
        """The error probability of certificate and refutation together: the sum of both."""
        return self.refutation.alpha + self.certified_alpha
