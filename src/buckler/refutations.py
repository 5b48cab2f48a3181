"""The record of a refutation: a point near an input at which the smoothed classifier does not predict its class."""

from dataclasses import dataclass
from math import isfinite

from buckler.errors import InvalidInput, check_alpha, check_real, check_whole
from buckler.rounding import rounded_up
from buckler.types import AnyArray, Noise


@dataclass(frozen=True, slots=True)
class PairTest:
    """One candidate, judged: its distance and rival, draws, votes for the rival and for the class, and the verdict."""

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
            raise InvalidInput(f"a candidate has a distance of at least 0 and at most n votes; got {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Refutation:
    """One input's refutation: at ``point``, ``radius`` away, the smoothed classifier does not predict ``label``.

    **Guarantee.** Over the draws at the candidates, which were fixed before, ``P(radius is not None and the smoothed
    classifier predicts label at point) <= alpha`` (theory T22). With a certificate of class ``label`` at its own alpha,
    the distance at which the prediction first changes lies between the two radii, with error at most the sum.
    A ``radius`` of None is an abstention: nothing was found, which says nothing. The radius is rounded up; ``tried``
    are the candidates in the order in which they were judged, up to the first that failed.
    """

    id: str
    label: int
    radius: float | None
    rival: int | None
    point: AnyArray | None
    alpha: float
    noise: Noise
    tried: tuple[PairTest, ...] = ()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_whole("label", self.label, 0)
        won = [test for test in self.tried if test.refuted]
        found = None if not won else (won[-1].radius, won[-1].rival)
        if any(test.refuted for test in self.tried[len(won) :]) or found != (
            None if self.radius is None else (self.radius, self.rival)
        ):
            raise InvalidInput("a refutation is the last of its candidates that passed, none of them after a failure")
        if (self.radius is None) != (self.point is None) or self.rival == self.label:
            raise InvalidInput(
                "a refutation has a radius, a point and a rival other than the class; an abstention none"
            )
        if self.radius is not None and not (isfinite(check_real("radius", self.radius)) and self.radius >= 0.0):
            raise InvalidInput(f"radius must be at least 0; got {self.radius}")

    @property
    def n(self) -> int:
        """Draws at all candidates."""
        return sum(test.n for test in self.tried)

    @property
    def margin(self) -> float | None:
        """The rival's share of the draws less the class's, as seen at the point: an estimate, not a bound."""
        won = [test for test in self.tried if test.refuted]
        return (won[-1].wins - won[-1].losses) / won[-1].n if won else None

    def contradicts(self, radius: float) -> bool:
        """Return whether the point lies inside of a certified ball of that radius."""
        if self.radius is None:
            return False
        return self.radius <= radius if self.noise.closed else self.radius < radius

    def __str__(self) -> str:
        basis = f"from {self.n} draws of {self.noise.describe()}"
        if self.radius is None:
            return f"{self.id}: no point was found where class {self.label} is not predicted, {basis}"
        return (
            f"{self.id}: the smoothed classifier does not predict class {self.label} at a point at {self.noise.norm} "
            f"distance {rounded_up(self.radius, 4)} {self.noise.units}, where class {self.rival} has more, with error "
            f"probability at most {self.alpha:g} {basis}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Bracket:
    """What is known of one input: certified up to ``certified`` at its own alpha, refuted at the refutation's radius.

    ``truth`` is the true class where that is known.
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
        """The error probability of both together."""
        return self.refutation.alpha + self.certified_alpha
