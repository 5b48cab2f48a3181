"""Array aliases, the names a user may pass as strings, and what a noise must offer."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
Batches = ArrayLike | Iterable[Any]
"""Inputs: an array, or an iterable of batches, such as a torch ``DataLoader``."""

AnyArray = npt.NDArray[Any]

Label = int | str
"""A class: the index of its column, or the label that a model of named classes has for it."""

MarginKind = Literal["probability", "quantile"]
SimplexMap = Literal["hardmax", "softmax", "sparsemax"]
ScoreDtype = Literal["float32", "float16"]
Limit = Literal["star", "sequence", "bernstein", "hoeffding"]
Decision = Literal["undecided", "certified", "given up", "precise"]


Float32Array = npt.NDArray[np.float32]
WordArray = npt.NDArray[np.uint64]

LARGEST_SEED = 2**53
"""Largest seed, the smallest being 0: every reader of a file holds these whole numbers exactly, also as floats."""

OTHERS = -1
"""Column of scores with the maximum, in each draw, over the classes that have no column of their own."""


DrawKind = Literal["gaussian", "words", "numbers"]


class Noise(Protocol):
    """What certificates and limits ask of a noise; ``noise.BaseNoise`` also draws copies."""

    @property
    def name(self) -> str:
        """The name in commands, manifests and tables."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters, as JSON can hold them."""

    @property
    def norm(self) -> str:
        """The norm in which radii are measured."""

    @property
    def units(self) -> str:
        """The units of radii, as the sentence of a certificate says them."""

    @property
    def holds_at(self) -> str:
        """The points of the ball at which certificates hold, as their sentence says it: ``everywhere``, for example."""

    @property
    def closed(self) -> bool:
        """Whether points at the radius itself are certified too."""

    @property
    def margins(self) -> tuple[MarginKind, ...]:
        """The margins that a radius follows from; the first is the default."""

    def radius(self, margin: float, kind: MarginKind) -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 for none."""

    def margin(self, radius: float, kind: MarginKind) -> float:
        """Return the margin that a radius fixed beforehand needs, rounded up."""

    def describe(self) -> str:
        """Return the noise in words."""

    @property
    def unit(self) -> float:
        """A length of the order of the certified radii, which scales tables and fine ladders."""

    @property
    def draws(self) -> DrawKind:
        """How copies are drawn: from normal numbers, from random words, or by their numbers."""

    @property
    def idealised(self) -> str | None:
        """What certificates idealise about drawing, as text; None if they hold for the computed floats."""

    @property
    def total(self) -> int | None:
        """The number of copies if they are enumerated; None if they are drawn."""
