"""What a method is: a name, what it reads, and a function from evidence to a lower limit of a margin.

A bound of one's own becomes a method by ``own_method``, or by making a ``Method`` and giving it to ``register``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from buckler.errors import InvalidInput, check_choice, show
from buckler.types import FloatArray, IntArray, MarginKind

Reads = Literal["votes", "scores"]


class Votes(NamedTuple):
    """What a method that reads votes is given, an entry an input: the class's count, the largest other one, the draws.

    ``counts[input, class]`` are all of them, the certified class first; None where no more than these are known.
    """

    top: IntArray
    runner_up: IntArray
    n: IntArray
    num_classes: int | None = None
    counts: IntArray | None = None


class Draws(NamedTuple):
    """What a method that reads scores is given of one input, in draw order.

    ``a[draw]`` are the scores of the certified class, ``rivals[rival, draw]`` those of the other classes or of the
    maximum over several of them, ``earlier[rival]`` moments of each pair from the selection sample, zeros if none.
    ``num_classes`` counts all classes, whether they have a row of their own or not.
    """

    a: FloatArray
    rivals: FloatArray
    earlier: FloatArray
    num_classes: int


@dataclass(frozen=True, slots=True)
class Method:
    """A way from evidence to a lower limit of a margin.

    ``limit(votes, alpha, margin)`` returns one limit an input from ``Votes``; ``limit(draws, alpha, margin)`` returns
    one number from the ``Draws`` of one input. Both may take the keywords named in ``options``.

    ``sound`` says that there is a proof: for a class fixed beforehand and independent draws, the limit exceeds the
    margin with probability at most alpha; one-sided, fixed n, rounding included. Nothing is sound unless it says so.
    ``margins`` are the kinds it bounds, ``parameters`` what its name stands for.
    """

    name: str
    reads: Reads
    limit: Callable[..., Any] = field(repr=False)
    summary: str = ""
    sound: bool = False
    margins: tuple[MarginKind, ...] = get_args(MarginKind)
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("reads", self.reads, get_args(Reads))
        if not isinstance(self.name, str) or not self.name or any(c.isspace() or c == "," for c in self.name):
            raise InvalidInput(f"the name of a method must be one word without commas; got {show(self.name)}")
        if not callable(self.limit):
            raise InvalidInput(f"the limit of method {self.name!r} must be callable; got {show(self.limit)}")

    def __call__(self, *evidence: Any, **options: Any) -> Any:
        """Return what ``limit`` returns."""
        return self.limit(*evidence, **options)

    @property
    def own(self) -> bool:
        """Whether it is a user's: ``own:name`` where it was registered, ``package.module:function`` where it is one."""
        return ":" in self.name

    def check_margin(self, margin: MarginKind) -> None:
        """Refuse a margin that the method does not bound."""
        if margin not in self.margins:
            raise InvalidInput(f"method {self.name!r} bounds the {self.margins[0]} margin alone; got margin {margin!r}")


def own_method(
    name: str,
    function: Callable[..., Any],
    *,
    margins: tuple[MarginKind, ...] = get_args(MarginKind),
    sound: bool = False,
    pairs: bool = False,
) -> Method:
    """Return a user's bound ``(counts, alpha) -> lows`` as a method, without a guarantee unless it is said to be sound.

    ``counts[k, m]`` are k outcomes, the certified class first; ``lows`` k lower limits of its margin over the best
    other class. With ``pairs`` it is a function ``(top, runner_up, n, alpha) -> lows`` instead. Whatever the function
    raises or returns amiss is an InvalidInput that names it.
    """

    def limit(votes: Votes, alpha: float, _: MarginKind) -> FloatArray:
        if votes.counts is None and not pairs:
            raise InvalidInput(f"method {name} reads the counts of all classes; only two of them are known here")
        given = votes[:3] if pairs or votes.counts is None else (votes.counts,)
        try:
            lows = np.asarray(function(*(each.copy() for each in given), alpha), dtype=np.float64)
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 160)
            raise InvalidInput(f"method {name} failed: {type(problem).__name__}: {text}") from problem
        k = len(votes.top)
        if lows.shape != (k,) or np.isnan(lows).any():
            came = "NaN among them" if lows.shape == (k,) else f"shape {lows.shape}"
            raise InvalidInput(f"method {name} must return {k} limits, one an outcome, no NaN; got {came}")
        return lows

    return Method(name, "votes", limit, "a bound of the user's own", sound, margins)
