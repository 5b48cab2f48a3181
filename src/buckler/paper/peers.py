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

from buckler.certify.methods import sound_methods
from buckler.certify.votes import margin as true_margin
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput, check_float_array
from buckler.paper.estimators import METHODS, method_of
from buckler.paper.printed import ALPHA, TABLES
from buckler.paper.reproduced import DATA, ESTIMATE, INVALID, Line, Reproduced, summary_table
from buckler.report.tables import TextTable
from buckler.runs.logs import fewest_votes, find_fits, read_log
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

FORECAST_DRAWS = (100, 1000, 10_000)
PRINTED_AT = (100, 1000)
"""Numbers of draws at which the printed method is shown too: at more, its search takes minutes."""

EXPECTED = "expected"
PEER_MARGINS = TABLES["table1"].margins
ON_THE_PAGE = 100
PEER_METHODS = ("exact", "top_class", "bonferroni", "published")
LOG_NAME = re.compile(
    r"(?P<data>cifar10|imagenet)_(?P<net>\w+?)_noise_(?P<noise>[\d.]+)_(?P<part>\w+)_sigma_(?P<sigma>.+)"
)
"""How the logs of Cohen, Rosenfeld and Kolter are called here: trained with ``noise``, certified with ``sigma``."""


def votes_needed(
    margins: ArrayLike, n: int, *, alpha: float, margin: MarginKind, method: str, num_classes: int
) -> IntArray:
    """Return, for each margin, the least x for which the limit at votes (x, n - x) reaches it; ``n + 1`` if none does.

    >>> votes_needed([0.5, 3.0, 3.5], 100, alpha=1e-3, margin="quantile", method="top_class", num_classes=10)
    array([ 76, 100, 101])
    """

    rule = method_of(method)

    @cache  # neighbouring margins share most of the way
    def limit(x: int) -> float:
        return float(vote_margin_lower(x, n - x, n, alpha=alpha, margin=margin, method=rule, num_classes=num_classes))

    goals = np.atleast_1d(check_float_array("margins", margins)).tolist()
    return np.array([bisect_left(range(n + 1), goal, key=limit) for goal in goals], dtype=np.int64)


def expected_accuracy(
    p: ArrayLike,
    margins: ArrayLike,
    n: int,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    method: str = "exact",
    num_classes: int,
) -> FloatArray:
    """Return the expected share of inputs certified to at least each margin by n votes, ``p`` being each one's p_A.

    Exact for the ``p`` given and the worst split of the other votes: all of them in one class. An input whose class A
    is not the true one has p = 0. A forecast, not a certificate.

    >>> expected_accuracy([0.99, 0.9, 0.0], [1.0, 3.0], 100, method="top_class", num_classes=10).round(3)
    array([0.66 , 0.122])
    """
    truth = check_float_array("p", p)
    if truth.ndim != 1 or truth.min() < 0.0 or truth.max() > 1.0:
        raise InvalidInput(f"p must hold probabilities, one an input; got shape {truth.shape}")
    x = votes_needed(margins, n, alpha=alpha, margin=margin, method=method, num_classes=num_classes)
    inside = np.clip(x, 1, n)[:, None]
    tail = np.where(x[:, None] > n, 0.0, betainc(inside, n - inside + 1.0, truth))
    return np.asarray(np.where(x <= 0, 1.0, tail.mean(axis=1)), dtype=np.float64)


def log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the logs that were named: files, and the ``.tsv`` files of folders."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.tsv")) if path.is_dir() else [path]
    if not found:
        raise InvalidInput(
            f"log must name logs, or folders with .tsv files; found none in {', '.join(map(str, paths)) or 'no path'}"
        )
    return found


def peer_table(path: Path) -> Reproduced:
    """Return the expected certified accuracy of every discrete method on the network behind a log.

    Each line's p_A is the share of votes that its printed radius stands for, the smallest that fits; all other votes go
    to one runner-up, since a log does not say how they were spread, and that is the least that can be certified. A
    line that abstained or was wrong counts as nothing.
    """
    log = read_log(path)
    named = re.search(r"sigma_?(\d+\.?\d*)", path.stem)
    found = find_fits(log, sigma=float(named[1].rstrip(".")) if named else None)
    if not found:
        raise InvalidInput(f"the log {str(path)!r} fits no alpha, n and sigma that were tried")
    made = found[0]
    votes, _ = fewest_votes(log, made.n, made.alpha, made.sigma)
    right = log.certified & (log.predicted == log.labels)
    p: FloatArray = np.where(right, votes / made.n, 0.0)
    classes = int(max(log.labels.max(), log.predicted.max())) + 1
    lines = []
    for n in FORECAST_DRAWS:
        for method in (*sound_methods(), METHODS["published"]):
            if method.sound or n in PRINTED_AT:
                share = expected_accuracy(p, PEER_MARGINS, n, alpha=ALPHA, method=method.name, num_classes=classes)
                standing = EXPECTED if method.sound else f"{EXPECTED}; {INVALID}"
                lines.append(Line(n, method.name, method.name, standing, tuple(share.tolist())))
    truth = true_margin("quantile", p, 1.0 - p)
    reached = (truth[:, None] >= np.asarray(PEER_MARGINS)).mean(axis=0)
    lines.append(Line(made.n, "estimate", "margin of the frequencies", ESTIMATE, tuple(reached.tolist())))
    caption = (
        f"{path.stem}: {len(p)} inputs, {made.n:,} draws, read at alpha {made.alpha:g} (the largest level it fits) and "
        f"sigma {made.sigma:g}; expected certified accuracy at the second margin, alpha {ALPHA:g}."
    )
    return Reproduced(path.stem, caption, PEER_MARGINS, tuple(lines), "bonferroni", "exact")


def peer_summary(tables: Sequence[Reproduced]) -> tuple[TextTable | None, list[str]]:
    """Return the one table that the page shows of logs, and the names of the logs it leaves out.

    Left out are networks certified with another sigma than they were trained with, and other images than the usual 500
    of the test set, as far as the names of the logs tell.
    """
    shown: dict[str, Reproduced] = {}
    others = []
    for table in tables:
        named = LOG_NAME.search(table.name)
        if named is None:
            shown[table.name] = table
        elif named["part"] == "test" and named["noise"] == named["sigma"]:
            network = named["net"].replace("resnet", "ResNet-")
            shown[f"{DATA[named['data']]}, {network}, sigma {named['sigma']}"] = table
        else:
            others.append(table.name)
    caption = f"Expected certified accuracy at the second margin with {ON_THE_PAGE} draws, alpha {ALPHA:g}."
    return (summary_table(shown, ON_THE_PAGE, PEER_METHODS, caption) if shown else None), others
