"""The usual log of certified radii, ``idx label predict radius correct time``: read, written, and turned into votes.

Abstentions have class -1 and radius 0. Other tools print a radius with three significant digits, rounded to nearest, so
about half of the printed radii are larger than what was certified; ``write_log`` rounds down. It adds six columns,
``method margin alpha n sigma noise``, which tools that read columns by name skip.

The usual tool prints ``radius = sigma Phi^-1(p)`` with p the lower Clopper-Pearson limit from k votes out of n at level
alpha, so the printed digits leave only a few k, and near the top, where neighbouring counts are far apart, one or none.
A log fits (alpha, n, sigma) if every radius in it has such a k. The largest possible radius is
``sigma Phi^-1(alpha^(1/n))``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np

from buckler.certificate import ABSTAINED, Certificate, rounded_down
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole, first_repeated, show
from buckler.files import atomic_write, read_text
from buckler.noise import Gaussian, GridGaussian, text_of
from buckler.runs.identity import Identity
from buckler.runs.spec import IMPORTED, RunSpec
from buckler.runs.store.evidence import LOG_COLUMNS
from buckler.runs.store.folder import open_writer
from buckler.runs.store.shard import Shard
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

USUAL_ALPHA, USUAL_DRAWS = 0.001, 100_000
"""The alpha, and the number of draws, that most papers state for their logs of radii."""

LOG_SETTINGS = ("method", "margin", "alpha", "n", "sigma", "noise")
"""Columns that ``write_log`` adds to those of the usual log."""

DECIMALS = 6
"""Digits after the point of the radii that ``write_log`` writes."""

LARGEST_LOG = 64 << 20
"""Largest size of a log in bytes: about a million lines."""

LARGEST_RADIUS, LARGEST_CLASS = Decimal(10) ** 300, 10**6
"""A line with a radius or a class from these on is refused: the ends of a rounded radius must be finite numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The lines of a log of radii: each one's id, true label, predicted class (-1: abstained) and radius.

    A printed radius stands for an interval of numbers, from ``low`` to ``high``. ``settings`` are the different values
    in the columns LOG_SETTINGS; none for logs of other tools.
    """

    ids: tuple[str, ...]
    labels: IntArray
    predicted: IntArray
    low: FloatArray
    high: FloatArray
    settings: tuple[tuple[str, ...], ...] = ()

    @property
    def certified(self) -> BoolArray:
        """Boolean mask of the lines that are not abstentions."""
        return np.asarray(self.predicted != ABSTAINED)


def read_log(path: Path) -> Log:
    """Return a log of radii from its file; a line that is not an input's raises InvalidInput with its number.

    Radii are taken as rounded down if the log has the columns of ``write_log``, else as rounded to nearest. If another
    tool in fact truncated its radii, fewer votes are recovered from the log than there were, never more.
    """
    try:
        lines = read_text(path, LARGEST_LOG).splitlines()
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"the log must be a readable text file; got {str(path)!r} ({problem})") from None
    header = tuple(lines[0].split("\t")) if lines else ()
    if not set(LOG_COLUMNS[:4]) <= set(header):
        raise InvalidInput(f"the log must begin with the line {' '.join(LOG_COLUMNS)}; got {show(' '.join(header))}")
    place = [header.index(name) for name in LOG_COLUMNS[:4]]
    rows = [_parse(line, place, number) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise InvalidInput(f"the log must hold at least one line; {str(path)!r} has none")
    ids = tuple(row[0] for row in rows)
    twice = first_repeated(ids)
    if twice is not None:
        raise InvalidInput(f"each input must have one line in the log; {show(twice)} has several")
    settings: tuple[tuple[str, ...], ...] = ()
    if set(LOG_SETTINGS) <= set(header):
        at = [header.index(name) for name in LOG_SETTINGS]
        cells = [(*line.split("\t"), *[""] * len(header)) for line in lines[1:] if line.strip()]
        settings = tuple(dict.fromkeys(tuple(row[i].strip() for i in at) for row in cells))
    low, high = _ends([row[3] for row in rows], down=bool(settings))
    return Log(ids, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), low, high, settings)


def _parse(line: str, place: Sequence[int], number: int) -> tuple[str, int, int, Decimal]:
    cells = line.split("\t")
    try:
        name, label, predicted, radius = (cells[i].strip() for i in place)
        row = name, int(label), int(predicted), Decimal(radius)
        classes_fit = 0 <= row[1] < LARGEST_CLASS and ABSTAINED <= row[2] < LARGEST_CLASS
        if not (name and classes_fit and row[3].is_finite() and 0 <= row[3] < LARGEST_RADIUS):
            raise ValueError
    except (ValueError, ArithmeticError, IndexError):
        raise InvalidInput(
            f"line {number} of the log must hold a name, a label and a class or -1, below {LARGEST_CLASS:,}, and a "
            f"radius from 0 to below {LARGEST_RADIUS:.0e}; got {show(line)}"
        ) from None
    return row


def _ends(radii: Sequence[Decimal], *, down: bool) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the interval that each printed radius stands for.

    Trailing zeros may have been dropped, so the number of digits is that of the longest radius; they may be significant
    digits or decimals, so the coarser of the two is taken for each radius.
    """
    shown = [radius.normalize() for radius in radii if radius > 0]
    significant = max((len(radius.as_tuple().digits) for radius in shown), default=3)
    decimals = max((-int(radius.as_tuple().exponent) for radius in shown), default=3)
    finest = 10.0**-decimals
    unit = [max(10.0 ** (r.adjusted() - max(significant, 3) + 1), finest) if r > 0 else finest for r in radii]
    value, step = np.array([float(radius) for radius in radii]), np.array(unit)
    below, above = (0.0, 1.0) if down else (0.5, 0.5)
    # A little more on each side: the digits are decimal, the ends binary.
    return np.maximum(0.0, (value - below * step) * (1.0 - 1e-9)), (value + above * step) * (1.0 + 1e-9)


def write_log(path: Path, certificates: Sequence[Certificate], labels: ArrayLike) -> None:
    """Write certificates as the usual log, with the true classes ``labels``; radii are rounded down.

    The columns LOG_SETTINGS are added. The file is written whole or not at all. Radii must be of the l2 norm.
    """
    numbered = all(c.id.isascii() and c.id.isdigit() for c in certificates)
    lines = ["\t".join((*LOG_COLUMNS, *LOG_SETTINGS))]
    for i, (certificate, label) in enumerate(zip(certificates, np.asarray(labels).tolist(), strict=True)):
        predicted = ABSTAINED if certificate.predicted is None else certificate.predicted
        name = certificate.id if numbered else str(i)
        if certificate.noise.norm != "l2":
            raise InvalidInput(
                f"a log is of l2 radii; got {certificate.noise.norm} ones under {certificate.noise.describe()}"
            )
        if certificate.radius >= LARGEST_RADIUS:
            raise InvalidInput(f"the radii of a log must be below {LARGEST_RADIUS:.0e}; got {certificate.radius:g}")
        radius = rounded_down(certificate.radius, DECIMALS)
        made = (certificate.method, certificate.margin_kind, certificate.alpha, certificate.n)
        noise = (certificate.noise.parameters.get("sigma", "-"), text_of(certificate.noise, sigma=False))
        cells = (name, label, predicted, radius, int(predicted == label), 0.0, *made, *noise)
        lines.append("\t".join(map(str, cells)))
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


TRIED_ALPHAS = (0.1, 0.05, 0.025, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 1e-4, 1e-5, 1e-6)
TRIED_SIGMAS = (0.12, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""The alphas and the sigmas that ``find_fits`` tries where none is given."""

RECOVERABLE = {("top_class", "quantile", noise) for noise in (Gaussian.name, GridGaussian.name)}
"""(method, margin, noise) of logs whose radii follow from the certified class's votes alone, so that these can be
found."""

SELECTION_DRAWS = 100
"""Number of selection draws written with recovered votes, all for the logged class: as many as the usual tool makes."""

IN_A_SHARD = 1000
"""Number of a log's lines in one file of the run that ``write_evidence`` writes."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a log of radii agrees with the settings ``alpha``, ``n`` and ``sigma``; it fits if ``misfits`` is 0.

    ``misfits`` counts certified lines whose radius follows from no number of votes; ``largest`` is the radius of n
    votes.
    """

    alpha: float
    n: int
    sigma: float
    misfits: int
    largest: float


def radius_of(k: ArrayLike, n: int, alpha: float, sigma: float) -> FloatArray:
    """Return the radius that the usual tool certifies for ``k`` votes out of ``n``; a negative one is an abstention.

    >>> radius_of([100_000, 60_000], 100_000, 0.001, 0.5).round(3)
    array([1.906, 0.12 ])
    """
    votes = np.asarray(k, dtype=np.int64)
    limits = vote_margin_lower(votes, n - votes, n, alpha=alpha, margin="quantile", method="top_class")
    return np.asarray(sigma / 2.0 * limits)


def fewest_votes(log: Log, n: int, alpha: float, sigma: float) -> tuple[IntArray, BoolArray]:
    """Return for each line of a log the smallest number of votes that gives its radius, and a mask: is there one?

    Where there is none, the number is the smallest with a larger radius, or ``n + 1``.
    """
    low, first = np.unique(log.low, return_index=True)
    few, enough = np.zeros(low.size, dtype=np.int64), np.full(low.size, n + 1, dtype=np.int64)
    while (enough - few > 1).any():
        middle = (few + enough) // 2
        reached = radius_of(np.minimum(middle, n), n, alpha, sigma) >= low
        few, enough = np.where(reached, few, middle), np.where(reached, middle, enough)
    possible = (enough <= n) & (radius_of(np.minimum(enough, n), n, alpha, sigma) <= log.high[first])
    back = np.searchsorted(low, log.low)
    return enough[back], possible[back]


def fit(log: Log, alpha: float, n: int, sigma: float) -> Fit:
    """Return how well a log of radii agrees with the settings ``alpha``, ``n`` and ``sigma``."""
    check_alpha(alpha)
    check_whole("n", n, 1, 10**9)
    check_positive("sigma", sigma)
    _, possible = fewest_votes(log, n, alpha, sigma)
    largest = float(radius_of(n, n, alpha, sigma))
    return Fit(alpha, n, sigma, int((~possible & log.certified).sum()), largest)


def find_fits(log: Log, *, alpha: float | None = None, n: int | None = None, sigma: float | None = None) -> list[Fit]:
    """Return the settings (alpha, n, sigma) that a log fits: each certified radius follows from some number of votes.

    An ``alpha`` or ``sigma`` that is not given is searched for among the usual values. An ``n`` that is not given is
    100,000: its radii have the finest usual steps, so a log of fewer draws fits them as well. The smallest sigma comes
    first, since any larger one fits a log of small radii; for each sigma the largest alpha comes first, with which a
    radius needs the fewest votes.
    """
    tried = [
        fit(log, some_alpha, USUAL_DRAWS if n is None else n, some_sigma)
        for some_sigma in (TRIED_SIGMAS if sigma is None else (sigma,))
        for some_alpha in (TRIED_ALPHAS if alpha is None else (alpha,))
    ]
    return [one for one in tried if not one.misfits]


def write_evidence(log: Log, made: Fit, folder: str | Path, *, source: str) -> RunSpec:
    """Write the votes behind a log to ``folder``, as evidence of a run, and return the run's specification.

    **Guarantee.** If the log was made with the settings of ``made``, certificates from this evidence are at most those
    from the true votes: unknown counts are taken at their worst. A radius stands for the smallest count that gives it;
    all other votes are in one class after the last; an abstention is a tie between its label and that class. The
    selection holds the class that was logged.

    ``source`` is the name of the log, which the run names as its data.
    """
    others = int(max(log.labels.max(), log.predicted.max())) + 1
    found, possible = fewest_votes(log, made.n, made.alpha, made.sigma)
    if not possible[log.certified].all():
        raise InvalidInput(f"the log does not fit alpha {made.alpha:g}, n {made.n}, sigma {made.sigma:g}")
    held = np.where(log.certified, found, made.n // 2)
    chosen = np.where(log.certified, log.predicted, log.labels)
    spec = RunSpec(
        model=IMPORTED, data=source, sigma=made.sigma, num_classes=others + 1, n=made.n,
        n0=SELECTION_DRAWS, checkpoints=(made.n,), shard_inputs=IN_A_SHARD,
    )  # fmt: skip
    record = {"answers": f"log {source}, read at alpha {made.alpha:g}", "weights": {}, "environment": {}}
    with open_writer(folder, spec, Identity(record, _hash(log)), inputs=len(log.ids)) as writer:
        for start in [start for first, stop in writer.missing() for start in range(first, stop, IN_A_SHARD)]:
            part = slice(start, start + IN_A_SHARD)
            ids, rows = log.ids[part], np.arange(len(log.ids[part]))
            counts, selection = np.zeros((2, len(ids), others + 1), dtype=np.int64)
            counts[rows, chosen[part]] = held[part]
            counts[:, others] = made.n - held[part]
            selection[rows, chosen[part]] = SELECTION_DRAWS
            hashes = ("",) * len(ids)
            shard = Shard(ids, log.labels[part], hashes, selection, counts[:, None], None, drawn_by=record)
            writer.append(start, shard)
    return spec


def _hash(log: Log) -> str:
    digest = hashlib.blake2b(digest_size=16, person=b"buckler-log-1")
    digest.update("\0".join(log.ids).encode())
    for values in (log.labels, log.predicted, log.low, log.high):
        digest.update(values.tobytes())
    return digest.hexdigest()


class Imported(NamedTuple):
    """Result of ``import_log``: the log, and the settings that it fits."""

    log: Log
    fits: list[Fit]


def import_log(
    path: Path, *, alpha: float | None = None, n: int | None = None, sigma: float | None = None, out: Path | None = None
) -> Imported:
    """Return the log of radii at ``path`` with the settings that it fits, and write its votes to the folder ``out``.

    ``alpha``, ``n`` and ``sigma`` are what the log is claimed to be made with; those not given are searched for.
    Nothing is written if ``out`` is None. Writing votes needs all three: a log fits many settings, and certificates
    from votes of others than its own do not hold. A log of ``buckler certify --tsv`` states its settings, and another
    claim is refused.
    """
    log = read_log(path)
    if not log.certified.any():
        raise InvalidInput(f"the log must hold a certified line; {str(path)!r} holds abstentions alone")
    if log.settings:
        stated = _stated(log)
        for name, claimed, found_there in zip(("alpha", "n", "sigma"), (alpha, n, sigma), stated, strict=True):
            if claimed not in {None, found_there}:
                raise InvalidInput(f"{name} must be {found_there:g}, as the log says; got {claimed:g}")
        alpha, n, sigma = stated
    if out is not None and (alpha is None or n is None or sigma is None):
        raise InvalidInput("alpha, n and sigma of the log must be given for votes to be written: it fits many")
    found = find_fits(log, alpha=alpha, n=n, sigma=sigma)
    if not found:
        tried = fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or TRIED_SIGMAS[-1])
        others = "" if alpha and sigma else ", nor any other alpha and sigma that were tried"
        raise InvalidInput(
            f"the log does not fit alpha {tried.alpha:g}, n {tried.n:,}, sigma {tried.sigma:g}{others}: there no count "
            f"of votes gives {tried.misfits} of its {int(log.certified.sum())} radii, and the largest possible is "
            f"{rounded_down(tried.largest, 4)} (radii of other limits than Clopper-Pearson's fit nothing)"
        )
    if out is not None:
        write_evidence(log, found[0], out, source=path.name)
    return Imported(log, found)


def _stated(log: Log) -> tuple[float, int, float]:
    """Return alpha, n and sigma of a log that states them; others than the usual tool's radii are refused."""
    try:
        ((method, margin, alpha, n, sigma, noise),) = log.settings
        if (method, margin, noise.partition(":")[0]) in RECOVERABLE and "scale" not in noise:
            return check_alpha(float(alpha)), check_whole("n", int(n), 1, 10**9), check_positive("sigma", float(sigma))
    except ValueError:
        pass
    columns = [list(dict.fromkeys(column)) for column in zip(*log.settings, strict=True)]
    listed = (f"{name} {show(' or '.join(column[:3]))}" for name, column in zip(LOG_SETTINGS, columns, strict=True))
    raise InvalidInput(
        "the log must be of one alpha, n and sigma, method top_class, the quantile margin and Gaussian noise for its "
        f"votes to be recovered; it says {', '.join(listed)}"
    )
