"""Recorded logs of other tools -> what each discrete method would certify on the networks behind them.

On average, from each input's known probability, without drawing anything. Votes for class A out of n are binomial; with
all other votes in one runner-up class, the outcome is (x, n - x), the limit of the margin rises with x, and the chance
that it reaches a margin is one binomial tail.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import betainc

from buckler.certificate import rounded_down
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput
from buckler.paper.estimators import method_of
from buckler.paper.printed import ALPHA, TABLES
from buckler.paper.reproduced import INVALID
from buckler.report.tables import TextTable
from buckler.runs.logs import fewest_votes, find_fits, read_log
from buckler.types import FloatArray, MarginKind

PEER_DRAWS = 100
PEER_MARGINS = TABLES["table1"].margins
PEER_METHODS = ("exact", "top_class", "bonferroni", "published")


def expected_accuracy(
    p: FloatArray,
    margins: Sequence[float],
    n: int,
    *,
    alpha: float = ALPHA,
    margin: MarginKind = "quantile",
    method: str,
    num_classes: int,
) -> FloatArray:
    """Return the expected share of inputs certified to at least each margin by n votes, ``p`` being each one's p_A.

    Exact for the ``p`` given and the worst split of the other votes: all of them in one class. An input whose class A
    is not the true one has p = 0. A forecast, not a certificate.

    >>> p = np.array([0.99, 0.9, 0.0])
    >>> expected_accuracy(p, [1.0, 3.0], 100, method="top_class", num_classes=10).round(3)
    array([0.66 , 0.122])
    """
    rule = method_of(method)

    @cache  # neighbouring margins share most of the way
    def limit(x: int) -> float:
        return float(vote_margin_lower(x, n - x, n, alpha=alpha, margin=margin, method=rule, num_classes=num_classes))

    x = np.array([bisect_left(range(n + 1), goal, key=limit) for goal in margins])
    inside = np.clip(x, 1, n)[:, None]
    tail = np.where(x[:, None] > n, 0.0, betainc(inside, n - inside + 1.0, p))
    return np.asarray(np.where(x <= 0, 1.0, tail.mean(axis=1)), dtype=np.float64)


def log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the logs that were named: files, and the ``.tsv`` files of folders."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.tsv")) if path.is_dir() else [path]
    if not found:
        raise InvalidInput(
            f"log must name logs, or folders with .tsv files; found none in {', '.join(map(str, paths))}"
        )
    return found


def frequencies(path: Path) -> tuple[FloatArray, int]:
    """Return p_A of each line of a log, 0 where it abstained or was wrong, and the number of classes.

    p_A is the share of votes that the printed radius stands for, the smallest that fits.
    """
    log = read_log(path)
    named = re.search(r"sigma_?(\d+\.?\d*)", path.stem)
    fits = find_fits(log, sigma=float(named[1].rstrip(".")) if named else None)
    if not fits:
        raise InvalidInput(f"the log {str(path)!r} fits no alpha, n and sigma that were tried")
    votes, _ = fewest_votes(log, fits[0].n, fits[0].alpha, fits[0].sigma)
    right = log.certified & (log.predicted == log.labels)
    return np.where(right, votes / fits[0].n, 0.0), int(max(log.labels.max(), log.predicted.max())) + 1


def networks_table(logs: Sequence[Path]) -> TextTable:
    """Return the expected certified accuracy of every discrete method on the network behind each log.

    All other votes go to one runner-up, since a log does not say how they were spread, and that is the least that can
    be certified. Methods that show the same numbers share a line.
    """
    rows: list[tuple[str, ...]] = []
    for path in logs:
        p, classes = frequencies(path)
        alike: dict[tuple[str, ...], list[str]] = {}
        for method in PEER_METHODS:
            shares = expected_accuracy(p, PEER_MARGINS, PEER_DRAWS, method=method, num_classes=classes)
            standing = "expected" if method_of(method).sound else f"expected; {INVALID}"
            alike.setdefault((standing, *map(rounded_down, shares)), []).append(method)
        rows += [(path.stem, ", ".join(names), *cells) for cells, names in alike.items()]
    caption = f"Expected certified accuracy at the second margin with {PEER_DRAWS} draws, alpha {ALPHA:g}."
    return TextTable(("network", "row", "standing", *(f"{m:g}" for m in PEER_MARGINS)), tuple(rows), caption, names=3)
