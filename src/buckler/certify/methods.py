"""Methods: from a name to a function that turns votes or scores into a lower limit of a margin.

Buckler's methods are known here; ``register`` adds a user's own. Only sound ones can issue a certificate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from buckler.certificate import ENUMERATED_METHOD, RANDOMISED, SCORE_METHOD_NAMES, declare_sound
from buckler.errors import InvalidInput, UnsoundMethod, check_choice, show
from buckler.types import FloatArray, IntArray, MarginKind

Reads = Literal["votes", "scores"]


class Votes(NamedTuple):
    """Votes as a method reads them, one entry an input: those of the class to certify, the most of any other, draws.

    ``counts[input, class]`` are the votes of all classes, the class to certify first; None where only ``top``,
    ``runner_up`` and ``n`` are known.
    """

    top: IntArray
    runner_up: IntArray
    n: IntArray
    num_classes: int | None = None
    counts: IntArray | None = None


class ScoreDraws(NamedTuple):
    """Scores of one input, in draw order, as a method reads them.

    ``a[draw]`` is the score of the class to certify, ``rivals[rival, draw]`` that of another class, or the maximum over
    several. ``earlier[rival]`` holds sums over the selection draws' scores of that class and that rival
    (``earlier_moments``), zeros if there are no such draws. ``num_classes`` counts all classes. ``uniform``, of (0, 1],
    lowers by this factor the wealth at which bets reject after the last draw (T15a); 1 changes nothing.
    """

    a: FloatArray
    rivals: FloatArray
    earlier: FloatArray
    num_classes: int
    uniform: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """A named function from votes or scores to a lower limit of a margin.

    ``limit(votes, alpha, margin)`` returns one limit an input from ``Votes``; ``limit(draws, alpha, margin)`` returns
    one number from the ``ScoreDraws`` of one input.

    ``sound`` says that there is a proof: for a class fixed beforehand and independent draws, the limit exceeds the
    margin with probability at most alpha; one-sided, fixed n, rounding included. ``margins`` are the margins it bounds.
    """

    name: str
    reads: Reads
    limit: Callable[..., Any] = field(repr=False)
    summary: str = ""
    sound: bool = False
    margins: tuple[MarginKind, ...] = get_args(MarginKind)

    def __post_init__(self) -> None:
        check_choice("reads", self.reads, get_args(Reads))
        if not isinstance(self.name, str) or not self.name or any(c.isspace() or c == "," for c in self.name):
            raise InvalidInput(f"the name of a method must be one word without commas; got {show(self.name)}")
        if not callable(self.limit):
            raise InvalidInput(f"the limit of method {self.name!r} must be callable; got {show(self.limit)}")
        kinds = get_args(MarginKind)
        if not isinstance(self.margins, tuple) or not self.margins or any(kind not in kinds for kind in self.margins):
            raise InvalidInput(
                f"margins of method {self.name!r} must be a tuple of {' or '.join(map(repr, kinds))}, or of both; "
                f"got {show(self.margins)}"
            )

    def __call__(self, *evidence: Any) -> Any:
        """Return ``limit(*evidence)``, a lower limit of the margin."""
        return self.limit(*evidence)

    @property
    def randomised(self) -> bool:
        """Whether ``limit`` uses a random number for each input, from a seed and its id: ``ScoreDraws.uniform``."""
        return self.name == RANDOMISED

    @property
    def own(self) -> bool:
        """Whether the method is a user's own, by its name: ``own:NAME``, or the path ``package.module:function``."""
        return ":" in self.name

    def check_margin(self, margin: MarginKind) -> None:
        """Raise InvalidInput if the method has no limit of this kind of margin."""
        if margin not in self.margins:
            raise InvalidInput(f"margin must be {self.margins[0]!r} for method {self.name!r}; got {margin!r}")


def own_method(
    name: str,
    function: Callable[..., Any],
    *,
    margins: tuple[MarginKind, ...] = get_args(MarginKind),
    sound: bool = False,
) -> Method:
    """Return a user's ``function(counts, alpha)`` as a method for votes, without a guarantee unless ``sound``.

    ``counts[inputs, classes]`` are votes, those of the class to certify first; the function returns for each input a
    lower limit of that class's margin over the best other class. An exception or a wrong result of the function becomes
    an InvalidInput that names the method.
    """

    def limit(votes: Votes, alpha: float, _: MarginKind) -> FloatArray:
        if votes.counts is None:
            raise InvalidInput(f"method {name} needs the counts of all classes; got those of two classes alone")
        try:
            lows = np.asarray(function(votes.counts.copy(), alpha), dtype=np.float64)
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 160)
            raise InvalidInput(f"method {name} failed: {type(problem).__name__}: {text}") from problem
        k = len(votes.top)
        if lows.shape != (k,) or np.isnan(lows).any():
            came = "NaN among them" if lows.shape == (k,) else f"shape {lows.shape}"
            raise InvalidInput(f"method {name} must return {k} limits, one an outcome, no NaN; got {came}")
        return lows

    return Method(name, "votes", limit, "a bound of the user's own", sound, margins)


def _of_votes(name: str, summary: str) -> Method:
    def limit(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
        from buckler.certify import votes as limits

        found: FloatArray = getattr(limits, name)(votes, alpha, margin)
        return found

    return Method(name, "votes", limit, summary, sound=True)


def _of_scores(name: str) -> Method:
    kind = name.removeprefix("pairwise/").removeprefix("randomised_")

    def limit(draws: ScoreDraws, alpha: float, margin: MarginKind) -> float:
        from buckler.certify.scores import limit_of  # compiled code, loaded only where it is used

        return limit_of(kind, draws, alpha, margin)  # type: ignore[arg-type]

    summary = f"limit {kind} against each other class, and the smallest of them"
    return Method(name, "scores", limit, summary + (", randomised" if name == RANDOMISED else ""), sound=True)


_OURS = (
    _of_votes("exact", "Buehler's limit under the likelihood-ratio ordering of outcomes: the tightest here"),
    _of_votes("bonferroni", "Clopper-Pearson at alpha/2 for the class and alpha/2 for the runner-up"),
    _of_votes(
        "top_class", "Clopper-Pearson at alpha for the class, all else being the runner-up's (Cohen et al. 2019)"
    ),
    *map(_of_scores, SCORE_METHOD_NAMES),
)
_METHODS: dict[str, Method] = {method.name: method for method in _OURS}


def enumerated(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the probability margin itself, from votes of all copies that the noise can make (T29); alpha is unused."""
    del alpha, margin
    return np.asarray((votes.top - votes.runner_up) / votes.n)


ENUMERATED = Method(
    ENUMERATED_METHOD, "votes", enumerated, "the margin itself, from all copies", sound=True, margins=("probability",)
)
"""The one method for noise whose copies are all enumerated; ``make_settings`` takes it by itself."""


def register(method: Method) -> Method:
    """Make a method known by its name, and return it; a name can be registered once.

    Unless its ``sound`` is true, a method can be audited, compared and swept, but issues no certificate. Whoever
    registers a sound one vouches for its proof: its name begins with ``own:``, and certificates carry that name.
    """
    known = _METHODS.get(method.name)
    if known is None:
        if method.sound:
            declare_sound(method.name)
        _METHODS[method.name] = method
    elif known != method:
        raise InvalidInput(f"there is already a method {method.name!r}")
    return method


def methods(reads: Reads | None = None) -> tuple[Method, ...]:
    """Return every known method, or those that read "votes" or "scores": Buckler's own, then registered ones."""
    return tuple(method for method in _METHODS.values() if reads in {None, method.reads})


def find(name: str, reads: Reads | None = None) -> Method:
    """Return the method of that name, among those that read "votes" or "scores", or all; else raise InvalidInput.

    >>> find("exact").reads, find("pairwise/star").reads
    ('votes', 'scores')
    """
    if not isinstance(name, str):
        raise InvalidInput(f"method must be a name; got {show(name)}")
    method = _METHODS.get(name)
    if method is not None and reads in {None, method.reads}:
        return method
    votes, scores = (", ".join(repr(m.name) for m in methods(kind) if m.sound) for kind in get_args(Reads))
    allowed = {
        "votes": f"one of {votes}",
        "scores": f"one of {scores}",
        None: f"one of {votes}, or for scores {scores}",
    }
    raise InvalidInput(f"method must be {allowed[reads]}; got {show(name)}")


def sound_method(name: str, reads: Reads | None = None) -> Method:
    """Return the method of that name, as ``find``; raise UnsoundMethod for one without a guarantee."""
    method = find(name, reads)
    if not method.sound:
        raise UnsoundMethod(f"method {show(name)} has no guarantee and cannot issue a certificate")
    return method


def sound_methods(reads: Reads = "votes") -> tuple[Method, ...]:
    """Return Buckler's own methods with a guarantee that read "votes" or "scores"; registered ones are left out."""
    return tuple(method for method in methods(reads) if method.sound and not method.own)
