"""Certified accuracy against radius, with the band that certificates of level alpha allow; and how radii are spread.

Each certificate errs with probability at most alpha, independently across inputs (inputs never share noise). So, with
probability at least ``1 - delta``, at most ``false_certificates(N, alpha, delta)`` of N are wrong, and the true
certified accuracy is above the observed one less that many inputs, for all radii at once (T19).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10

import numpy as np
from scipy.special import betainc

from buckler.certificate import Claim
from buckler.certificates import Certificates
from buckler.errors import (
    InvalidInput,
    check_alpha,
    check_float_array,
    check_positive,
    check_whole,
    check_whole_array,
    first_repeated,
    show,
)
from buckler.types import AnyArray, ArrayLike, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Certified accuracy at each of some ``radii``: the share observed among the ``inputs``, and its lower limit.

    The limits ``low`` hold at all radii together with probability ``1 - delta``. ``abstained`` is the share of the
    inputs without a certificate. ``norm`` is that of the radii; None where they are margins.
    """

    name: str
    radii: FloatArray
    accuracy: FloatArray
    low: FloatArray
    inputs: int
    abstained: float
    delta: float
    norm: str | None = None


def false_certificates(inputs: int, alpha: float, delta: float) -> int:
    """Return how many of ``inputs`` certificates may be wrong: more are with probability at most ``delta``.

    Each certificate errs with probability at most ``alpha``, independently. What is returned is the smallest k with
    ``P(Binomial(inputs, alpha) > k) <= delta``.

    >>> false_certificates(500, 0.001, 0.001)
    4
    """
    total, level = check_whole("inputs", inputs, 1), 0.0 if alpha == 0.0 else check_alpha(alpha)
    check_alpha(delta, "delta")
    few, enough = -1, total  # bisection: the tail falls with k
    while enough - few > 1:
        k = (few + enough) // 2
        if betainc(k + 1.0, total - k, level) <= delta * (1.0 - 1e-9):
            enough = k
        else:
            few = k
    return enough


def certified_accuracy(
    certificates: Sequence[Claim],
    labels: ArrayLike | None,
    radii: ArrayLike,
    *,
    delta: float = 1e-3,
    name: str | None = None,
) -> Curve:
    """Return as a ``Curve`` the share of inputs that are predicted right and certified to at least each of ``radii``.

    **Guarantee.** With probability at least ``1 - delta`` over all draws, at every radius r the smoothed classifier is
    right and constant on the open ball of radius r for at least the share ``Curve.low`` of the inputs. Abstentions stay
    in the denominator. ``labels`` holds the true class of each input, in the order of the certificates. With None the
    share certified comes back, right or not: the smoothed classifier is constantly the certified class there. ``name``
    is the curve's; by default it is the certificates' method.
    """
    if not certificates:
        raise InvalidInput("certificates must hold at least one certificate; got none")
    made = certificates if isinstance(certificates, Certificates) else Certificates.of(certificates)
    if (twice := first_repeated(made.ids)) is not None:
        # Copies of one input stand or fall together, and the guarantee counts independent ones.
        raise InvalidInput(f"certificates must be of different inputs; got {show(twice)} twice")
    grid = np.atleast_1d(check_float_array("radii", radii))
    if (grid < 0.0).any():
        raise InvalidInput(f"radii must be at least 0; got {grid.min()}")
    kinds = made.kinds
    if len(norms := sorted({c.noise.norm for c in kinds})) > 1:
        raise InvalidInput(f"certificates must measure radii in one norm; got {' and '.join(norms)}")
    if len(scales := {c.noise.parameters.get("scale") for c in kinds}) > 1:
        raise InvalidInput(f"certificates must have one scale of the noise; got {len(scales)} different scales")
    right = True if labels is None else made.predicted == _labels(labels, len(made))
    level = max(c.alpha for c in kinds) if all(c.sound for c in kinds) else None
    called, abstained = kinds[0].method if name is None else name, float(np.mean(made.radii == 0.0))
    reach = np.where(~made.abstained & right, made.radii, -1.0)
    return replace(_reaching(reach, grid, level, delta, called, abstained), norm=norms[0])


def margin_accuracy(
    low: ArrayLike, right: ArrayLike, margins: ArrayLike, *, alpha: float, delta: float = 1e-3, sound: bool, name: str
) -> Curve:
    """Return as a ``Curve`` the share of inputs that are right and whose lower limit reaches each of ``margins``.

    ``low[inputs]`` are lower limits of the inputs' margins, ``right[inputs]`` says whether their class is right. The
    curve, called ``name``, is that of the paper, which draws accuracy against the margin.

    **Guarantee.** Where the limits are ``sound``, each at level ``alpha`` and independent across inputs, then with
    probability at least ``1 - delta`` the true margin is at least each value for at least the share ``Curve.low`` of
    the inputs. Otherwise there is no guarantee, and ``Curve.low`` is the share itself.

    >>> margin_accuracy([0.3, 1.2, 2.0], [True, True, False], [0.0, 1.0], alpha=0.001, sound=True, name="").accuracy
    array([0.66666667, 0.33333333])
    """
    limits = np.asarray(low, dtype=np.float64)
    counted = np.asarray(right, dtype=np.bool_)
    if limits.ndim != 1 or limits.size == 0 or counted.shape != limits.shape or np.isnan(limits).any():
        raise InvalidInput(
            "low and right must hold one entry for each of at least one input, low without NaN; "
            f"got shapes {limits.shape} and {counted.shape}, {np.isnan(limits).sum()} NaN"
        )
    grid = np.atleast_1d(check_float_array("margins", margins))
    level = alpha if sound else None
    return _reaching(np.where(counted, limits, -np.inf), grid, level, delta, name, float(np.mean(limits <= 0.0)))


def _labels(labels: ArrayLike, inputs: int) -> AnyArray:
    texts = np.asarray(labels).dtype.kind == "U"
    truth: AnyArray = np.asarray(labels) if texts else check_whole_array("labels", labels)
    if truth.shape != (inputs,):
        raise InvalidInput(f"labels must hold one class for each of {inputs} inputs; got shape {truth.shape}")
    return truth


def _reaching(
    reach: FloatArray, grid: FloatArray, alpha: float | None, delta: float, name: str, abstained: float
) -> Curve:
    """Return the share of inputs that reach each value; claims without a promise have no alpha, and no band."""
    reached = reach.size - np.searchsorted(np.sort(reach), grid)
    wrong = 0 if alpha is None else false_certificates(reach.size, alpha, delta)
    share, low = reached / reach.size, np.maximum(reached - wrong, 0) / reach.size
    return Curve(name, grid, share, low, reach.size, abstained, delta)


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Numbers of certified inputs by radius, one for each cell ``[edges[i], edges[i+1])``; the last has no upper end.

    They are predicted ``right``, ``wrong``, or ``unlabelled``, without a known label; ``abstained`` inputs are in no
    cell.
    """

    edges: FloatArray
    right: IntArray
    wrong: IntArray
    unlabelled: IntArray
    abstained: int


def round_grid(top: float, cells: int) -> FloatArray:
    """Return the grid 0, step, 2 step, ... to just beyond ``top``, whose step is 1, 2 or 5 times a power of ten.

    The step is the smallest with which ``cells`` steps reach ``top``; one more goes beyond it where they end there.

    >>> round_grid(1.37, 4)
    array([0. , 0.5, 1. , 1.5])
    """
    rough = check_positive("top", top) / check_whole("cells", cells, 1)
    power = floor(log10(rough))
    # The quotient may round to just above a whole step, which is no reason to take a step five times as long.
    digit = next(d for d in (1, 2, 5, 10) if d >= rough / 10.0**power * (1.0 - 1e-9))
    count = floor(top / (digit * 10.0**power)) + 1
    # Rounding makes the grid the decimal numbers that are shown, not their neighbours.
    return np.array([round(i * digit * 10.0**power, max(0, ceil(-power))) for i in range(count + 1)])


def radius_histogram(made: Certificates, labels: ArrayLike | None, edges: ArrayLike) -> Histogram:
    """Return the ``Histogram`` of how many certificates have their radius in each cell between two ``edges``.

    ``edges`` rise from 0; the last cell holds every radius from its lower edge on. ``labels`` holds the true class of
    each input, or is None if they are not known. Abstentions are counted apart.
    """
    grid = check_float_array("edges", edges)
    if grid.ndim != 1 or grid.size < 2 or grid[0] != 0.0 or (np.diff(grid) <= 0.0).any():
        raise InvalidInput(f"edges must rise from 0; got {grid.tolist()}")
    kept = ~made.abstained
    cells = np.minimum(np.searchsorted(grid, made.radii, side="right") - 1, grid.size - 2)
    right = np.zeros_like(kept) if labels is None else made.predicted == _labels(labels, len(made))

    def counted(which: BoolArray) -> IntArray:
        return np.bincount(cells[kept & which], minlength=grid.size - 1).astype(np.int64)

    none = np.zeros(grid.size - 1, dtype=np.int64)
    if labels is None:
        return Histogram(grid, none, none, counted(~right), int((~kept).sum()))
    return Histogram(grid, counted(right), counted(~right), none, int((~kept).sum()))
