"""What a run will cost, before it is begun: draws, hours, bytes on disk, and what deciding any-time would save."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.errors import InvalidInput, check_float_array, check_positive, check_whole, show
from buckler.noise import Gaussian
from buckler.runs.sample import SECONDS
from buckler.runs.spec import RunSpec
from buckler.runs.store.tables import read_certificates
from buckler.types import ArrayLike, FloatArray, Noise

FILE_BYTES, INPUT_BYTES, ROW_BYTES = 2700, 25, 2.0
"""Bytes of a shard's frame and seal; of an input's name and hash, compressed; and of one row of votes, which are mostly
zeros, in units of the root of the number of classes. Read off shards of made-up votes; affects a forecast alone."""

CENTRE, SPREAD = 1.0, 1.2
"""A typical data set: normal quantiles of the top class's probability are spread like Normal(CENTRE, SPREAD)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run costs; ``anytime_samples`` and ``anytime_hours`` are for deciding radii instead.

    ``anytime_shares_certified`` are the shares of inputs that have the margin of each radius.
    """

    inputs: int
    samples: int
    gpu_hours: float
    evidence_bytes: int
    anytime_samples: int
    anytime_hours: float
    anytime_shares_certified: tuple[float, ...]

    @property
    def times_fewer(self) -> float:
        """How many times fewer draws deciding takes."""
        return self.samples / self.anytime_samples


def plan(
    *,
    inputs: int,
    num_classes: int,
    n: int,
    rate: float,
    n0: int = 0,
    noise: Noise = Gaussian(0.5),  # noqa: B008  (a frozen record)
    radii: Sequence[float] = (0.5,),
    alpha: float = 1e-3,
    top: FloatArray | None = None,
) -> Plan:
    """Return what ``n`` draws for each input cost at ``rate`` draws a second of one device.

    ``top`` are probabilities of the top class, one for each input of a pilot or of a typical data set; a plan built on
    them is as good as they are.
    """
    inputs = check_whole("inputs", inputs, 1)
    rate = check_positive("rate", rate)
    probabilities = typical_top() if top is None else top
    ladder = Ladder(tuple(radii), noise, alpha=alpha, max_n=n)
    draws = simulated_draws(probabilities, ladder)
    reached = 2.0 * ndtri(probabilities) if ladder.margin == "quantile" else 2.0 * probabilities - 1.0
    spec = RunSpec(model="plan", data="plan", noise=noise, num_classes=num_classes, n=n, n0=n0)
    samples = inputs * (spec.n + spec.n0)
    deciding = round(inputs * (float(draws.mean()) + spec.n0))
    return Plan(
        inputs,
        samples,
        samples / rate / 3600.0,
        evidence_size(spec, inputs, files=ceil(samples / rate / SECONDS)),
        deciding,
        deciding / rate / 3600.0,
        tuple(float((reached > margin).mean()) for margin in ladder.margins),
    )


def typical_top(inputs: int = 500) -> FloatArray:
    """Return top-class probabilities at the middles of ``inputs`` equal shares of a typical data set.

    >>> print(typical_top(5).round(3))
    [0.295 0.645 0.841 0.948 0.994]
    """
    middles = (np.arange(check_whole("inputs", inputs, 1)) + 0.5) / inputs
    return np.asarray(ndtr(CENTRE + SPREAD * ndtri(middles)), dtype=np.float64)


def simulated_draws(top: ArrayLike, ladder: Ladder) -> FloatArray:
    """Return how many draws the ladder takes for simulated votes of inputs of these top-class probabilities.

    The runner-up holds all other votes, the hardest case.

    >>> ladder = Ladder((0.5,), Gaussian(0.5))
    >>> simulated_draws([0.3, 0.999], ladder).tolist()
    [16.0, 48.0]
    """
    p = check_float_array("top", top)
    if ((p < 0.0) | (p > 1.0)).any():
        raise InvalidInput(f"top must hold probabilities; got {show(top)}")
    test, rng = AnytimeTest(ladder, np.zeros(p.size), 2), np.random.default_rng(0)
    while (rows := test.undecided).size:
        votes = rng.binomial(wanted := test.batch_sizes(rows), p[rows])
        test.update(rows, np.stack([votes, wanted - votes], axis=1))
    return test.n.astype(np.float64)


def pilot_top(path: Path) -> FloatArray:
    """Return about the top class's probability of each input of a pilot, from its certificates in a Parquet file."""
    kept = read_certificates(path)
    margins = np.array([max(c.margin, 0.0) for c in kept])
    quantile = np.array([c.margin_kind == "quantile" for c in kept])
    return np.where(quantile, ndtr(margins / 2.0), (1.0 + margins) / 2.0)


def evidence_size(spec: RunSpec, inputs: int, *, files: int) -> int:
    """Return about how many bytes the votes of ``inputs`` inputs take in so many shards, to a factor of two or so."""
    rows = len(spec.checkpoints) + (spec.n0 > 0)
    return round(FILE_BYTES * files + inputs * (INPUT_BYTES + ROW_BYTES * rows * sqrt(spec.num_classes)))
