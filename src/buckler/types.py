"""Array aliases, the names a user may pass as strings, and what a law of noise must offer."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
AnyArray = npt.NDArray[Any]

Label = int | str
"""A class: the index of its column, or the label that a model of named classes has for it."""

MarginKind = Literal["probability", "quantile"]
SimplexMap = Literal["hardmax", "softmax", "sparsemax"]
ScoreDtype = Literal["float32", "float16"]
Combine = Literal["pairwise", "bonferroni", "margin_variable", "published"]
Limit = Literal["star", "betting", "sequence", "bernstein", "hoeffding"]
Decision = Literal["undecided", "certified", "given up", "precise"]


Float32Array = npt.NDArray[np.float32]
WordArray = npt.NDArray[np.uint64]


Draws = Literal["gaussian", "words", "numbers"]


class Law(Protocol):
    """How noise is drawn, and what a margin under that noise certifies: see the room ``noise``."""

    @property
    def name(self) -> str:
        """The law's name in manifests and tables."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What makes the law again, as JSON."""

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
        """A length of the order of the radii that the law certifies: tables and fine ladders are scaled by it."""

    @property
    def draws(self) -> Draws:
        """How ``sampling`` draws: normals times ``spread``, ``noisy`` from random words, or ``numbered`` copies."""

    @property
    def idealised(self) -> str | None:
        """What a certificate idealises about the drawing; None where its sentence is true to the last bit."""

    @property
    def total(self) -> int | None:
        """How many copies are all that there are, each as likely as any other; None where copies are drawn."""

    def check_input(self, x: Float32Array) -> None:
        """Refuse an input that the law cannot take, and name what to do."""


class NormalLaw(Law, Protocol):
    """A law that is drawn as unit normals times a spread."""

    @property
    def spread(self) -> Float32Array:
        """What unit normals are multiplied by: one number, or an array that spreads over an input's shape."""


class NumberLaw(Law, Protocol):
    """A law whose copies are all run, each by its number from 0 to ``total - 1``."""

    def numbered(self, x: Float32Array, numbers: IntArray) -> Float32Array:
        """Return the copies ``[len(numbers), *shape]`` of one input that have these numbers."""
