"""Aliases of array types, the names that a user may pass as strings, and the protocol of a noise."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
Batches = ArrayLike | Iterable[Any]
"""Inputs: one array ``[inputs, ...]``, or an iterable of such batches, for example a torch ``DataLoader``."""

AnyArray = npt.NDArray[Any]

Label = int | str
"""A class: the index of its column among the logits, or its name where the model names its classes."""

MarginKind = Literal["probability", "quantile"]
SimplexMap = Literal["hardmax", "softmax", "sparsemax"]
ScoreDtype = Literal["float32", "float16"]
Limit = Literal["star", "sequence", "bernstein", "hoeffding"]
Decision = Literal["undecided", "certified", "given up", "precise"]


Float32Array = npt.NDArray[np.float32]
WordArray = npt.NDArray[np.uint64]

LARGEST_SEED = 2**53
"""Largest seed; the smallest is 0. Up to it a float holds every whole number exactly, and so does any file format."""

OTHERS = -1
"""In a list of classes: the column shared by all without a column of their own, with the largest of their scores."""


DrawKind = Literal["gaussian", "words", "numbers"]


class Noise(Protocol):
    """What certificates and limits need of a noise; ``noise.BaseNoise``, the base class, also draws noisy copies."""

    @property
    def name(self) -> str:
        """The name of this kind of noise in commands, files and tables, as ``gaussian``."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the noise by name, of types that JSON can hold, as ``{"sigma": 0.5}``."""

    @property
    def norm(self) -> str:
        """The norm in which radii are measured, as ``l2``."""

    @property
    def units(self) -> str:
        """The units of radii in words, for a certificate's sentence: ``in the units of the input``, for example."""

    @property
    def holds_at(self) -> str:
        """At which points of the ball a certificate holds, in words for its sentence: ``everywhere``, for example."""

    @property
    def closed(self) -> bool:
        """Whether the certified ball is closed: it holds the points whose distance is exactly the radius."""

    @property
    def margins(self) -> tuple[MarginKind, ...]:
        """Kinds of margin (``probability``, ``quantile``) from which a radius follows; the first is the default."""

    def radius(self, margin: float, kind: MarginKind) -> float:
        """Return the radius certified by a margin of ``margin`` or more, rounded down; 0.0 if none is."""

    def margin(self, radius: float, kind: MarginKind) -> float:
        """Return the margin of this kind that certifies ``radius``, rounded up."""

    def describe(self) -> str:
        """Return the noise and its parameters in words, as ``Gaussian noise with sigma 0.5``."""

    @property
    def unit(self) -> float:
        """A length like those of certified radii, sigma for Gaussian noise: default radii are multiples of it."""

    @property
    def draws(self) -> DrawKind:
        """How noisy copies are made: from normal random numbers, from random words, or each by its number."""

    @property
    def idealised(self) -> str | None:
        """What certificates leave out of how a computer draws, in words; None if they hold for the computed floats."""

    @property
    def total(self) -> int | None:
        """The number of noisy copies of an input if each is made once; None if copies are drawn at random."""
