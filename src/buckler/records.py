"""Frozen records: ``Counts`` and ``Scores`` (evidence), ``Claim`` and ``Certificate``.

A certificate says that the smoothed prediction of one input does not change within a radius, with error probability at
most alpha. A claim says the same without a guarantee.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite, isnan
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
from buckler.types import FloatArray, IntArray, Label, MarginKind, Noise, ScoreDtype, SimplexMap

OF_VOTES = frozenset((*VOTES, ANYTIME, ENUMERATED_METHOD))
MAPS, MARGINS = get_args(SimplexMap), get_args(MarginKind)

OTHERS = -1
"""Class index of the column with the maximum, in each draw, over the classes that have no column."""

ROW_SUM_TOLERANCE = 5e-3
"""Largest difference of the sum of a full row of scores from 1; ten scores in float16 stay well below it."""


def _check_ids(ids: Sequence[str], inputs: int) -> None:
    if len(ids) != inputs or len(set(ids)) != len(ids):
        raise InvalidInput(f"ids must be {inputs} different names, one for each input; got {show(list(ids))}")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Votes of noisy copies, ``values[input, class]``, with an id for each input."""

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
        """The number of draws of each input."""
        return np.asarray(self.values.sum(axis=1), dtype=np.int64)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of noisy copies in the simplex, ``values[input, draw, column]``, in the order of the draws.

    ``columns[input, column]`` is the class of each column; ``OTHERS`` marks the column with the maximum over all other
    classes. The choice of columns must be fixed beforehand or come from the selection stream.
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
        """The number of draws of each input."""
        return int(self.values.shape[1])


def check_level(alpha: float, method: str) -> None:
    """Check alpha: 0 for enumerated copies, and at least 1e-200 and below 1 otherwise."""
    if method != ENUMERATED_METHOD:
        check_alpha(alpha)
    elif alpha != 0.0:
        raise InvalidInput(f"alpha must be 0 for method {ENUMERATED_METHOD!r}, which enumerates; got {show(alpha)}")


RADIUS_TOLERANCE = 2e-15
"""Relative tolerance of a Gaussian radius against the one recomputed from its margin, for the last digits of another
machine's normal quantile. Radii are rounded down by twice as much, so one within it still holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Result of a method for one input: the smoothed prediction does not change within ``radius``; or an abstention.

    A claim has no guarantee and serves comparisons; a ``Certificate`` is a claim by a sound method. Fields are checked
    against one another: the radius must be the noise's for the margin, or the margin the one that a radius fixed
    beforehand needs. ``n0`` separate draws selected the class; or, with ``winner_alpha`` above 0, it is the winner of
    the same draws, tested at that part of ``alpha``; with both 0 it was fixed beforehand (a given label). Scores that
    were kept as float16 are those of another classifier, so ``score_dtype`` is a field. ``seed`` is the seed of the
    noise if it was drawn here: the same call with it gives the same claim.
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

    def __post_init__(self) -> None:
        """Raise InvalidInput for fields that contradict one another, UnsoundMethod for a method that is not sound."""
        if self.sound:
            check_sound(self.method)
        check_level(self.alpha, self.method)
        check_whole("n", self.n, 1)
        every = self.noise.total
        if (self.method == ENUMERATED_METHOD) != (every is not None) or every not in {None, self.n}:
            raise InvalidInput(
                f"method must be {ENUMERATED_METHOD!r} if and only if all copies of the noise were counted; got "
                f"{self.method!r} and {self.n} copies of {self.noise.describe()}"
            )
        check_whole("n0", self.n0, 0)
        if not 0.0 <= check_real("winner_alpha", self.winner_alpha) <= self.alpha or (self.winner_alpha and self.n0):
            raise InvalidInput(f"winner_alpha must be from 0 to alpha, and 0 with n0 > 0; got {self.winner_alpha}")
        check_choice("map", self.map, MAPS)
        check_choice("margin_kind", self.margin_kind, MARGINS)
        if self.margin_kind not in self.noise.margins:
            raise InvalidInput(f"margin_kind must be one of {', '.join(self.noise.margins)}; got {self.margin_kind!r}")
        if self.map != "hardmax" and self.method in OF_VOTES:
            raise InvalidInput(f"map must be 'hardmax' for method {self.method!r}, which reads votes; got {self.map!r}")
        if check_choice("score_dtype", self.score_dtype, get_args(ScoreDtype)) != "float32" and self.map == "hardmax":
            raise InvalidInput(f"score_dtype is for scores; got {self.score_dtype!r} and map 'hardmax'")
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
        """The standard deviation of Gaussian noise; other noise raises InvalidInput."""
        if "sigma" not in self.noise.parameters:
            raise InvalidInput(f"sigma is a parameter of Gaussian noise; this is {self.noise.describe()}")
        return float(self.noise.parameters["sigma"])

    @property
    def class_from(self) -> str:
        """How the class was chosen, in a few words."""
        if self.method == ENUMERATED_METHOD:
            return "all copies"
        if self.winner_alpha:
            return "winner of the same draws"
        return "given" if self.n0 == 0 else f"selected on {self.n0:,} draws"

    @property
    def abstained(self) -> bool:
        """Whether this is an abstention."""
        return self.predicted is None

    def as_dict(self) -> dict[str, Any]:
        """Return the columns of a table: the fields, with sigma or None in place of the noise, and the noise last."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in {"noise", "seed"}}
        before = dict(islice(fields.items(), list(self.__dataclass_fields__).index("noise")))
        sigma = {"sigma": self.noise.parameters.get("sigma")}
        noise = {"law": self.noise.name, "law_parameters": json.dumps(dict(self.noise.parameters), sort_keys=True)}
        seed = {} if self.seed is None else {"seed": self.seed}
        return {**before, **sigma, **fields, **noise, **seed}

    def __str__(self) -> str:
        return sentence(self)


@dataclass(frozen=True, slots=True)
class Certificate(Claim):
    """The certificate of one input: the smoothed prediction does not change within ``radius``; or an abstention.

    **Guarantee.** Over the noise draws, ``P(predicted is not None and the smoothed classifier is not constantly
    ``predicted`` on the ball of ``radius``) <= alpha``. The noise says which ball: its norm, open or closed, all points
    or those of a grid. A method that is not sound raises UnsoundMethod (``buckler.soundness``).
    """

    def __post_init__(self) -> None:
        if not self.sound:
            raise UnsoundMethod(f"method {self.method!r} has no guarantee and cannot issue a certificate")
        Claim.__post_init__(self)
