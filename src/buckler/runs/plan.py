"""What a run will cost, before it is begun: draws, hours, bytes on disk, and what deciding any-time would save."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from buckler.certify.forecast import expected_draws, typical_top
from buckler.certify.ladder import Ladder
from buckler.errors import check_positive, check_whole
from buckler.noise import Gaussian
from buckler.runs.sample import SECONDS
from buckler.runs.spec import RunSpec
from buckler.runs.store.tables import read_certificates
from buckler.types import FloatArray, Noise

FILE_BYTES, INPUT_BYTES, ROW_BYTES = 2700, 25, 2.0
"""Bytes of a shard's frame and seal; of an input's name and hash, compressed; and of one row of votes, which are mostly
zeros, in units of the root of the number of classes. Read off shards of made-up votes; affects a forecast alone."""


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
    draws = expected_draws(probabilities, radii=radii, noise=noise, alpha=alpha, max_n=n)
    needed = Ladder(tuple(radii), noise, alpha=alpha, max_n=n).thresholds
    spec = RunSpec(model="plan", data="plan", noise=noise, num_classes=num_classes, n=n, n0=n0)
    samples = inputs * (spec.n + spec.n0)
    deciding = round(inputs * (float(draws.mean()) + spec.n0))
    # A run at n certifies a radius where the top probability exceeds what the final test asks, give or take the noise.
    return Plan(
        inputs,
        samples,
        samples / rate / 3600.0,
        evidence_size(spec, inputs, files=ceil(samples / rate / SECONDS)),
        deciding,
        deciding / rate / 3600.0,
        tuple(float((probabilities > least).mean()) for least in needed),
    )


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
