"""The frozen records that cross rooms: Counts and Scores (evidence), MarginBound, Claim and Certificate.

Evidence says what was seen; a MarginBound says what follows about the margin with error probability alpha; a
Certificate says it in terms of the input: *this prediction does not change within this radius*. A Claim says the same
without a promise.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf, isfinite, isnan
from typing import Any, get_args

import numpy as np

from buckler.errors import (
    InvalidInput,
    UnsoundMethod,
    check_alpha,
    check_choice,
    check_counts,
    check_float_array,
    check_positive,
    check_real,
    check_whole,
    check_whole_array,
    show,
)
from buckler.soundness import ANYTIME, ENUMERATED_METHOD, VOTES, check_sound, tie_of
from buckler.text import sentence
from buckler.types import FloatArray, IntArray, Label, Law, MarginKind, ScoreDtype, SimplexMap

OF_VOTES = frozenset((*VOTES, ANYTIME, ENUMERATED_METHOD))
MAPS, MARGINS = get_args(SimplexMap), get_args(MarginKind)

OTHERS = -1
"""The class index of the column that holds, draw by draw, the maximum over all classes that were not kept."""

ROW_SUM_TOLERANCE = 5e-3
"""How far a full row of scores may be from summing to one: float16 storage of ten scores stays well inside."""


def _check_ids(ids: Sequence[str], inputs: int) -> None:
    if len(ids) != inputs or len(set(ids)) != len(ids):
        raise InvalidInput(f"ids must be {inputs} different names, one for each input; got {show(list(ids))}")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Class votes of noisy copies: ``values[input, class]``, one row for each id."""

    ids: tuple[str, ...]
    values: IntArray

    def __post_init__(self) -> None:
        values = check_counts("counts", self.values)
        if values.ndim != 2:
            raise InvalidInput(f"counts must have shape [inputs, m]; got shape {values.shape}")
        _check_ids(self.ids, values.shape[0])
        object.__setattr__(self, "values", values)

    @property
    def n(self) -> IntArray:
        """Draws behind each input."""
        return np.asarray(self.values.sum(axis=1), dtype=np.int64)

    @property
    def num_classes(self) -> int:
        """Classes, the length of a row."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Simplex scores of noisy copies in draw order: ``values[input, draw, column]``.

    ``columns[input, column]`` names the class of each column; ``OTHERS`` marks the one column that holds the maximum
    over the classes not kept. Which columns are kept must be fixed beforehand or come from the selection stream.
    """

    ids: tuple[str, ...]
    values: FloatArray
    columns: IntArray
    num_classes: int
    map: SimplexMap
    temperature: float | None = None

    def __post_init__(self) -> None:
        values = check_float_array("scores", self.values)
        columns = check_whole_array("columns", self.columns, low=OTHERS)
        num_classes = check_whole("num_classes", self.num_classes, 2)
        if values.ndim != 3 or 0 in values.shape or columns.shape != (values.shape[0], values.shape[2]):
            raise InvalidInput(
                f"scores must have shape [inputs, draws, columns] and columns [inputs, columns]; "
                f"got {values.shape} and {columns.shape}"
            )
        check_choice("map", self.map, MAPS)
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if (columns >= num_classes).any() or any(len(set(row.tolist())) != row.size for row in columns):
            raise InvalidInput(f"columns must be different classes from 0 to {num_classes - 1}, or {OTHERS}")
        _check_ids(self.ids, values.shape[0])
        sums = values.sum(axis=2)
        full = ~(columns == OTHERS).any(axis=1) & (columns.shape[1] == num_classes)
        wrong = (values < 0.0).any(axis=2) | (values > 1.0 + ROW_SUM_TOLERANCE).any(axis=2)
        wrong |= np.where(full[:, None], np.abs(sums - 1.0) > ROW_SUM_TOLERANCE, sums > 1.0 + ROW_SUM_TOLERANCE)
        if wrong.any():
            i, draw = (int(k) for k in np.argwhere(wrong)[0])
            raise InvalidInput(
                f"scores must be nonnegative and sum to one within {ROW_SUM_TOLERANCE}; "
                f"got {show(values[i, draw].tolist())} at input {i} ({self.ids[i]}), draw {draw}"
            )
        object.__setattr__(self, "values", np.minimum(values, 1.0))
        object.__setattr__(self, "columns", columns)

    @property
    def n(self) -> int:
        """Draws behind each input."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True)
class MarginBound:
    """A lower limit of a margin: ``P(low > margin) <= alpha`` when ``sound``; may be negative or -inf."""

    kind: MarginKind
    low: float
    alpha: float
    method: str
    sound: bool = True

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, MARGINS)
        check_level(self.alpha, self.method)
        if isnan(self.low) or self.low == inf:
            raise InvalidInput(f"low must be a number below +inf; got {self.low}")


def check_level(alpha: float, method: str) -> None:
    """Refuse an error probability outside of (0, 1), but for 0 where nothing was left to chance."""
    if method != ENUMERATED_METHOD:
        check_alpha(alpha)
    elif alpha != 0.0:
        raise InvalidInput(f"alpha must be 0 for method {ENUMERATED_METHOD!r}, which enumerates; got {show(alpha)}")


RADIUS_TOLERANCE = 2e-15
"""How far, relatively, a radius may be from what its margin gives here: another machine's normal quantile may differ in
its last digits. Gaussian laws round down by twice as much, so a radius within it still holds; others compute in whole
numbers, and every machine finds the same."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a method says about one input: the smoothed prediction does not change within ``radius``, or an abstention.

    Nothing is promised: a method of one's own that is compared with others says no more than this, and a
    ``Certificate`` is a claim by a sound method. What follows from other fields is recomputed: the radius is the one
    that the law gives for the margin, or the margin the one that a radius fixed beforehand needs. The class was
    selected on ``n0`` separate draws; or, with ``winner_alpha`` above 0, it is the winner of the same draws, tested at
    that part of ``alpha``; with both 0 it was fixed beforehand (a given label). Scores that were kept as float16
    are those of another classifier, so ``score_dtype`` tells. ``seed`` is the noise's, where it was drawn here: with it
    the same call gives the same claim.
    """

    id: str
    predicted: Label | None
    radius: float
    margin_kind: MarginKind
    margin: float
    alpha: float
    n: int
    n0: int
    law: Law
    map: SimplexMap
    temperature: float | None
    method: str
    sound: bool = True
    winner_alpha: float = 0.0
    score_dtype: ScoreDtype = "float32"
    seed: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse fields that contradict one another, and ``sound`` of a method that is not known to be."""
        if self.sound:
            check_sound(self.method)
        check_level(self.alpha, self.method)
        check_whole("n", self.n, 1)
        every = self.law.total
        if (self.method == ENUMERATED_METHOD) != (every is not None) or every not in {None, self.n}:
            raise InvalidInput(
                f"method {ENUMERATED_METHOD!r} is for a law of which all copies were looked at, and for it alone; got "
                f"{self.method!r} and {self.n} copies of {self.law.describe()}"
            )
        check_whole("n0", self.n0, 0)
        if not 0.0 <= check_real("winner_alpha", self.winner_alpha) <= self.alpha or (self.winner_alpha and self.n0):
            raise InvalidInput(f"winner_alpha must be from 0 to alpha, and 0 with n0 > 0; got {self.winner_alpha}")
        check_choice("map", self.map, MAPS)
        check_choice("margin_kind", self.margin_kind, MARGINS)
        if self.margin_kind not in self.law.margins:
            raise InvalidInput(f"{self.law.describe()} has no radius for a {self.margin_kind} margin")
        if self.map != "hardmax" and self.method in OF_VOTES:
            raise InvalidInput(f"map must be 'hardmax' for method {self.method!r}, which reads votes; got {self.map!r}")
        if check_choice("score_dtype", self.score_dtype, get_args(ScoreDtype)) != "float32" and self.map == "hardmax":
            raise InvalidInput(f"score_dtype is for scores; got {self.score_dtype!r} and map 'hardmax'")
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if isnan(self.margin) or not isfinite(self.radius) or self.radius < 0.0:
            raise InvalidInput(f"radius must be finite and at least 0, and margin not NaN; got {self.radius}")
        if self.margin_kind == "probability" and self.margin > 1.0:
            raise InvalidInput(f"a probability margin is at most 1; got {self.margin}")
        if (self.predicted is None) != (self.radius == 0.0):
            raise InvalidInput("an abstention has no prediction and radius 0; nothing else has either")
        if self.predicted is not None and not isinstance(self.predicted, str):
            check_whole("predicted", self.predicted, 0)
        self._check_tie()

    def _check_tie(self) -> None:
        off = RADIUS_TOLERANCE if "quantile" in self.law.margins else 0.0  # Gaussian radii alone are rounded
        if self.radius > 0.0 and tie_of(self.method) == "margin":
            needed = self.law.margin(self.radius, self.margin_kind)
            # The quantile margin needs no special function: every machine finds the same number.
            if not abs(self.margin - needed) <= (0.0 if self.margin_kind == "quantile" else off * needed):
                raise InvalidInput(
                    f"margin must be what radius {self.radius} needs under {self.law.describe()}, {needed}; "
                    f"got {self.margin}"
                )
            return
        given = self.law.radius(self.margin, self.margin_kind)
        if not abs(self.radius - given) <= off * given:
            raise InvalidInput(
                f"radius must be what margin {self.margin} gives under {self.law.describe()}, {given}; "
                f"got {self.radius}"
            )

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise, where the law has one."""
        if "sigma" not in self.law.parameters:
            raise InvalidInput(f"sigma is a parameter of Gaussian noise; this is {self.law.describe()}")
        return float(self.law.parameters["sigma"])

    @property
    def class_from(self) -> str:
        """Where the class comes from, in a few words."""
        if self.method == ENUMERATED_METHOD:
            return "all copies"
        if self.winner_alpha:
            return "winner of the same draws"
        return "given" if self.n0 == 0 else f"selected on {self.n0:,} draws"

    @property
    def abstained(self) -> bool:
        """Whether nothing is claimed."""
        return self.predicted is None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in order; in the place of the law its sigma, None without one, and last the whole of it."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in {"law", "seed"}}
        before = dict(islice(fields.items(), list(self.__dataclass_fields__).index("law")))
        sigma = {"sigma": self.law.parameters.get("sigma")}
        law = {"law": self.law.name, "law_parameters": json.dumps(dict(self.law.parameters), sort_keys=True)}
        seed = {} if self.seed is None else {"seed": self.seed}
        return {**before, **sigma, **fields, **law, **seed}

    def __str__(self) -> str:
        return sentence(self)


@dataclass(frozen=True, slots=True)
class Certificate(Claim):
    """One input's certificate: the smoothed prediction does not change within ``radius``, or an abstention.

    **Guarantee.** Over the noise draws, ``P(predicted is not None and the smoothed classifier is not constantly
    ``predicted`` on the ball of ``radius`` in the law's norm) <= alpha``; the ball is open unless the law says closed.
    A method that may not issue certificates is refused (``buckler.soundness``).
    """

    def __post_init__(self) -> None:
        if not self.sound:
            raise UnsoundMethod(f"method {self.method!r} has no guarantee and cannot issue a certificate")
        Claim.__post_init__(self)
