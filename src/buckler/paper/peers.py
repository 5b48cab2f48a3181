"""Recorded logs of other tools -> what each discrete method would certify on the networks behind them."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from buckler.certify.margins import margin
from buckler.certify.registry import methods
from buckler.errors import InvalidInput
from buckler.paper.expectation import expected_accuracy
from buckler.paper.figures import DATA
from buckler.paper.printed import ALPHA, TABLES
from buckler.paper.tables import ESTIMATE, INVALID, Line, Reproduced, summary_table
from buckler.report.tables import TextTable
from buckler.runs.interop import read_log
from buckler.runs.recovery import fewest_votes, find_fits
from buckler.types import FloatArray

DRAWS = (100, 1000, 10_000)
PRINTED_AT = (100, 1000)
"""Where the printed method is shown as well: its search takes minutes beyond."""

FORECAST = "expected"
MARGINS = TABLES["table1"].margins
ON_THE_PAGE = 100
ROWS = ("exact", "top_class", "bonferroni", "published")
NETWORK = re.compile(
    r"(?P<data>cifar10|imagenet)_(?P<net>\w+?)_noise_(?P<noise>[\d.]+)_(?P<part>\w+)_sigma_(?P<sigma>.+)"
)
"""How the logs of Cohen, Rosenfeld and Kolter are called here: trained with ``noise``, certified with ``sigma``."""


def log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the logs that were named: files, and the ``.tsv`` files of folders."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.tsv")) if path.is_dir() else [path]
    if not found:
        raise InvalidInput(f"log must name logs, or folders with .tsv files; got {', '.join(map(str, paths))}")
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
    for n in DRAWS:
        for method in methods("votes"):
            if not method.own and (method.sound or n in PRINTED_AT):
                share = expected_accuracy(p, MARGINS, n, alpha=ALPHA, method=method.name, num_classes=classes)
                standing = FORECAST if method.sound else f"{FORECAST}; {INVALID}"
                lines.append(Line(n, method.name, method.name, standing, tuple(share.tolist())))
    truth = margin("quantile", p, 1.0 - p)
    reached = (truth[:, None] >= np.asarray(MARGINS)).mean(axis=0)
    lines.append(Line(made.n, "estimate", "margin of the frequencies", ESTIMATE, tuple(reached.tolist())))
    caption = (
        f"{path.stem}: {len(p)} inputs, {made.n:,} draws, read at alpha {made.alpha:g} (the largest level it fits) and "
        f"sigma {made.sigma:g}; expected certified accuracy at the second margin, alpha {ALPHA:g}."
    )
    return Reproduced(path.stem, caption, MARGINS, tuple(lines), "bonferroni", "exact")


def peer_summary(tables: Sequence[Reproduced]) -> tuple[TextTable | None, list[str]]:
    """Return the one table that the page shows of logs, and the names of the logs it leaves out.

    Left out are networks certified with another sigma than they were trained with, and other images than the usual 500
    of the test set, as far as the names of the logs tell.
    """
    shown: dict[str, Reproduced] = {}
    others = []
    for table in tables:
        named = NETWORK.search(table.name)
        if named is None:
            shown[table.name] = table
        elif named["part"] == "test" and named["noise"] == named["sigma"]:
            network = named["net"].replace("resnet", "ResNet-")
            shown[f"{DATA[named['data']]}, {network}, sigma {named['sigma']}"] = table
        else:
            others.append(table.name)
    caption = f"Expected certified accuracy at the second margin with {ON_THE_PAGE} draws, alpha {ALPHA:g}."
    return (summary_table(shown, ON_THE_PAGE, ROWS, caption) if shown else None), others
