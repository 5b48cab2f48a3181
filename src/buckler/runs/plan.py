"""What a run will cost, before it is begun: draws, hours, bytes on disk, and what ``decide`` would save.

The speed of a model is measured on one input. The draws of ``decide`` are simulated: votes are drawn with the class
probabilities of a recorded run, or of a typical data set, and judged as ``decide`` judges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.errors import InvalidInput, check_positive, check_whole
from buckler.noise import Gaussian, default_margin
from buckler.runs.spec import IMPORTED, MOST_TOGETHER, RunSpec
from buckler.runs.store.evidence import open_evidence, refuse_log
from buckler.runs.store.tables import read_decisions
from buckler.session import SAVE_SECONDS
from buckler.types import FloatArray, Noise

FILE_BYTES, INPUT_BYTES, VOTE_ROW_BYTES = 3200, 25, 2.0
"""Bytes that a file of a run takes beside its rows; that an input's name and hash take, compressed; and that one row
of votes, mostly zeros, takes for each unit of the root of the number of classes. Read off files of made-up votes;
affects a forecast alone."""

TYPICAL_CENTRE, TYPICAL_SPREAD = 1.0, 1.2
"""Mean and standard deviation of ``Phi^-1(p)`` in a typical data set, p the probability of an input's top class
under noise, and Phi^-1 the normal quantile."""

SIMULATED = 1000
"""Smallest number of inputs simulated for a forecast; fewer recorded inputs are repeated."""

FORECAST_INPUTS = 200
"""Number of inputs that the command ``decide`` simulates for the forecast that it prints first."""

SIMULATED_CLASSES = 8
"""Number of classes simulated one by one; all other classes are merged into one more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of ``n`` draws for each input costs, and what ``decide`` costs for some radii in its place.

    ``samples`` are draws in all, ``gpu_hours`` the hours they take on one device, ``evidence_bytes`` their size on
    disk. ``anytime_samples`` and ``anytime_hours`` are those of ``decide``, and ``anytime_shares_certified`` the share
    of inputs that it certifies to each radius.
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
        """How many times fewer draws ``decide`` makes."""
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
    like: Path | None = None,
) -> Plan:
    """Return what ``n`` draws for each of ``inputs`` inputs cost at ``rate`` draws a second, and what ``decide`` costs.

    ``n0`` is the number of selection draws; ``noise``, ``radii`` and ``alpha`` are those to decide. ``like`` is a run,
    or a file of decisions, of inputs like those to come; without it they are a typical data set. Where its decisions
    were about the same radii, noise, alpha and n, their draws are taken as they are; otherwise decisions are simulated
    from its votes.
    """
    inputs, rate = check_whole("inputs", inputs, 1), check_positive("rate", rate)
    ladder = Ladder(tuple(radii), noise, alpha, n, default_margin(noise), winner=True)
    draws, reached = deciding_like(like, ladder)
    spec = RunSpec(model="plan", data="plan", noise=noise, num_classes=num_classes, n=n, n0=n0)
    samples = inputs * (spec.n + spec.n0)
    deciding = round(inputs * (float(draws.mean()) + spec.n0))
    in_shard = max(1.0, min(MOST_TOGETHER, SAVE_SECONDS * rate / (spec.n + spec.n0)))
    return Plan(
        inputs,
        samples,
        samples / rate / 3600.0,
        evidence_size(spec, inputs, files=ceil(inputs / in_shard)),
        deciding,
        deciding / rate / 3600.0,
        tuple(float((reached > step).mean()) for step in range(len(radii))),
    )


def deciding_like(like: Path | None, ladder: Ladder) -> tuple[FloatArray, FloatArray]:
    """Return two arrays, an entry an input: the draws it takes, and how many radii of ``ladder`` it is certified to.

    The inputs are like those of the run or file of decisions ``like``; if that is None, a typical data set's.
    """
    if like is None:
        return simulate_deciding(typical_shares(), ladder)
    if not like.exists():
        raise InvalidInput(f"like must be a folder of buckler sample or a file of buckler decide; got {str(like)!r}")
    if like.is_file():
        refuse_log(like)
        made = read_decisions(like)
        budget, settings = made.origin.get("final_n"), (made.origin.get("radii"), made.origin.get("alpha"))
        one = made.decided[0].certificate
        if settings == (list(ladder.radii), ladder.alpha) and (budget, one.noise) == (ladder.max_n, ladder.noise):
            ended = [decided for decided in made.decided if decided.decision != "undecided"] or made.decided
            draws = np.array([float(decided.certificate.n) for decided in ended])
            return draws, np.array([float(len(decided.certified_at)) for decided in ended])
    return simulate_deciding(recorded_shares(like), ladder)


def typical_draws(ladder: Ladder) -> float:
    """Return the mean number of draws that ``decide`` takes for an input of a typical data set (a quick forecast)."""
    draws, _ = simulate_deciding(typical_shares(FORECAST_INPUTS), ladder, FORECAST_INPUTS)
    return float(draws.mean())


def simulate_deciding(shares: FloatArray, ladder: Ladder, at_least: int = SIMULATED) -> tuple[FloatArray, FloatArray]:
    """Return the draws that each of some simulated inputs takes, and how many radii of ``ladder`` it is certified to.

    ``shares`` are class probabilities ``[inputs, classes]`` to draw votes with; its rows are repeated until there are
    ``at_least`` so many.
    """
    rng, ranked = np.random.default_rng(0), -np.sort(-shares, axis=1)
    truths = np.concatenate(
        [ranked[:, :SIMULATED_CLASSES], ranked[:, SIMULATED_CLASSES:].sum(axis=1, keepdims=True)], axis=1
    )
    truths = np.tile(truths, (ceil(at_least / len(truths)), 1))
    truths /= truths.sum(axis=1, keepdims=True)
    first = np.zeros(len(truths), dtype=np.int64)
    test = AnytimeTest(ladder, len(truths) if ladder.winner else first, truths.shape[1])
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), truths[rows]))
    reached = [len(test.decided(row, str(row)).certified_at) for row in range(len(truths))]
    return np.asarray(test.n, dtype=np.float64), np.array(reached, dtype=np.float64)


def typical_shares(inputs: int = SIMULATED) -> FloatArray:
    """Return class probabilities ``[inputs, 2]`` of a typical data set: the top class's, and all the rest.

    >>> print(typical_shares(5).round(3)[:, 0])
    [0.295 0.645 0.841 0.948 0.994]
    """
    top = ndtr(TYPICAL_CENTRE + TYPICAL_SPREAD * ndtri((np.arange(check_whole("inputs", inputs, 1)) + 0.5) / inputs))
    return np.stack([top, 1.0 - top], axis=1)


def recorded_shares(path: Path) -> FloatArray:
    """Return class probabilities ``[inputs, classes]``, most first, estimated by the votes of a run or of decisions.

    If all votes of an input are for one class, another has half a vote, so that no probability is 0 or 1.
    """
    if path.is_dir():
        evidence = open_evidence(path)
        if evidence.spec.model == IMPORTED:
            raise InvalidInput(f"like must be a run with votes of its own; {str(path)!r} was recovered from a log")
        votes = evidence.counts().values.astype(np.float64)
    else:
        made = read_decisions(path).decided
        votes = np.zeros((len(made), SIMULATED_CLASSES + 1))
        for row, decided in zip(votes, made, strict=True):
            counts = sorted((count for _, count in decided.votes), reverse=True)
            row[: min(len(counts), SIMULATED_CLASSES)] = counts[:SIMULATED_CLASSES]
            row[SIMULATED_CLASSES] = sum(counts[SIMULATED_CLASSES:])
    ranked = -np.sort(-votes, axis=1)[:, : SIMULATED_CLASSES + 1]
    ranked[:, 1] = np.maximum(ranked[:, 1], 0.5)
    return np.asarray(ranked / ranked.sum(axis=1, keepdims=True))


def evidence_size(spec: RunSpec, inputs: int, *, files: int) -> int:
    """Return about how many bytes the votes of ``inputs`` inputs take in ``files`` files, to a factor of two or so."""
    rows = len(spec.checkpoints) + (spec.n0 > 0)
    return round(FILE_BYTES * files + inputs * (INPUT_BYTES + VOTE_ROW_BYTES * rows * sqrt(spec.num_classes)))


def duration(seconds: float) -> str:
    """Return a number of seconds in words, to two digits.

    >>> duration(8.27), duration(312.0), duration(40_000.0), duration(2e6)
    ('8.3 seconds', '5.2 minutes', '11 hours', '23 days')
    """
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{float(f'{seconds / size:.2g}'):,g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} seconds"
