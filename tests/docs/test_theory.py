"""Theory and errata: numbers that the code cites exist, and the figures on both pages are computed again."""

import re
from collections.abc import Callable
from itertools import product
from math import log, log2, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import binom

from benchmarks.errata import ERRATA, Figures, main
from buckler.bounds.betting import CAP
from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.means import sequence_lower
from buckler.certify.predictions import PredictionTest
from buckler.types import FloatArray
from tests.docs.test_pages import missing

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
STATED = re.compile(r"^### ([TF]\d+[a-z]?) \(", re.MULTILINE)
CITED = re.compile(r"\b([TF]\d+[a-z]?)\b")
CITING = ("src/buckler", "benchmarks")


def citations() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for room in CITING:
        for path in sorted((ROOT / room).rglob("*.py")):
            for number in CITED.findall(path.read_text(encoding="utf-8")):
                found.setdefault(number, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_every_number_is_stated_once_and_in_order() -> None:
    numbers = STATED.findall(PAGE)
    assert len(set(numbers)) == len(numbers) >= 30
    for letter in "TF":
        own = [n for n in numbers if n.startswith(letter)]
        assert own == sorted(own, key=lambda n: (int(re.sub(r"\D", "", n)), n))


def test_every_citation_exists_and_every_statement_is_cited() -> None:
    numbers, cited = set(STATED.findall(PAGE)), citations()
    assert {n: places for n, places in cited.items() if n not in numbers} == {}
    assert numbers - cited.keys() == set()
    assert set(CITED.findall(PAGE)) == numbers


def test_a_missing_number_is_noticed() -> None:
    assert STATED.findall("### T1 (a)\nx\n### F2b (b)\ny") == ["T1", "F2b"]
    assert CITED.findall("as T99 and T18c say, not T or T9bc") == ["T99", "T18c"]


def test_names_in_the_table_are_there() -> None:
    table = PAGE.partition("## Notation")[2].partition("\n## ")[0]
    cells = [line.split("|")[3] for line in table.splitlines() if line.startswith("| $") and "docstrings" not in line]
    names = {n for cell in cells for n in re.findall(r"`([A-Za-z_]\w+(?:\.\w+)*)`", cell)}
    assert len(names) > 10
    assert missing(names - {"num_classes", "counts", "scores", "model", "step"}) == []


def test_formulas_are_closed_and_survive_markdown() -> None:
    """A backslash before punctuation would be removed by GitHub before it typesets the formula."""
    text = re.sub(r"`[^`\n]*`", "", PAGE)
    assert text.count("$") % 2 == 0
    assert re.findall(r"\\[^A-Za-z\s]", text) == []


def largest(f: Callable[[FloatArray], FloatArray]) -> float:
    return float(f(np.exp(np.linspace(-80, 0, 2_000_001))).max())


def test_figures_of_floating_error() -> None:
    u = 2.0**-53
    # F1
    assert largest(lambda p: p * (10 - 6 * np.log(p))) <= 10
    rooted = largest(lambda p: np.sqrt(p) * (10 - 6 * np.log(p)))
    assert rooted <= 10.2
    assert 4 * sqrt(56) * rooted <= 310
    assert log(1e12) <= 28
    assert 28 * (10 + 6 * log(1e27)) <= 1.1e4
    # F2
    n = 1e6
    assert (77 * n + 310 * sqrt(n) + 5e4) * u < 1e-8
    # F3, n = 1 and n = 1e6; and the step along the edge against twice the error
    for n in (1, 1e6):
        a = n + 1.5
        assert 6 * a + 113.2 * a + 600 + 12 * (50 + 0.74 * a) <= 129 * a + 2500 <= 150 * (n + 200)
        assert 6 * a + 94.8 * a + 1800 + 12 * (50 + 0.74 * a) <= 129 * a + 2500
    assert 2 * 150 * 1200 * u < 1 / (4 * 1001.5)
    # F4
    assert 1 + 2 / pi * log(141) < 4.2
    assert 0.8 * 56 * 1e6 * u < 5.1e-9
    assert 4 * 140**2 * u < 1e-11
    assert 4.2 * (1e-8 + 5.1e-9) + 1e-11 < 1e-7
    # F6, F12
    assert CAP == 0.99
    assert 302 * u < 4e-14
    assert 41 * 3 * 1000 * u < 1.4e-11


def test_figures_of_drawing() -> None:
    """T24: thresholds of one value, and what all draws of a statement take from alpha."""
    assert log_ndtr(-13.1) / log(2) < -128
    assert log2(2 * 13.1 * 2**19 + 2) < 24
    assert 33 + 28 + 24 - 128 == -43
    assert 33 + 55 - 128 == -40


def test_figures_of_what_is_not_valid() -> None:
    # T14a: predictable bets and a running maximum, on means that differ
    n, y = 1000, np.repeat([1.0, 0.0], 500)
    means = (0.5 + np.cumsum(y)) / (np.arange(n) + 2)
    spread = (0.25 + np.cumsum((y - means) ** 2)) / (np.arange(n) + 2)
    bets = np.sqrt(2 * log(1000) / (n * np.concatenate([[0.25], spread[:-1]])))
    rejected = [np.log1p(np.minimum(bets, CAP / m) * (y - m)).cumsum().max() >= log(1000) for m in (0.985, 0.986)]
    assert rejected == [True, False]
    # T18d: the class with the most votes, certified without the winner's test
    tails = binom.sf(np.arange(1760) - 1, 1760, 0.5)
    assert round(float(2 * tails[tails <= 0.05].max() / 0.05), 5) == 1.99999
    # T21: the rival read off the draws it is tested on; the standard error is .002
    votes = np.random.default_rng(0).multinomial(1000, np.full(10, 0.1), size=40_000)
    top = votes[:, 1:].max(axis=1)
    assert abs(float(np.mean(binom.sf(top - 1, top + votes[:, 0], 0.5) <= 0.05)) - 0.204) < 0.008


@pytest.mark.parametrize("p", [(1 / 3, 1 / 3, 1 / 3), (0.4, 0.3, 0.3), (0.5, 0.5, 0.0)])
def test_any_time_prediction_by_enumeration(p: tuple[float, ...]) -> None:
    """T18b, all 3^9 sequences of votes, a look after each; and with bets on the class that was just drawn."""
    alpha, n = 0.4, 9
    draws = np.array(list(product(range(3), repeat=n)))
    chance = np.array(p)[draws].prod(axis=1)
    test = PredictionTest(len(draws), 3, alpha=alpha, max_n=n)
    for i in range(n):
        rows = test.undecided
        test.update(rows, np.eye(3, dtype=np.int64)[draws[rows, i]])
    assert 0.005 < chance[test.answers > 0].sum() <= alpha
    if p[1] == p[2]:
        lost = (draws != 0).cumsum(axis=1)
        wealth = 1.5**lost * 0.5 ** (np.arange(1, n + 1) - lost)
        assert chance[(wealth >= 1 / alpha).any(axis=1)].sum() > alpha


@pytest.mark.parametrize("p", [0.5, 0.7])
def test_sequential_limits_of_scores_by_enumeration(p: float) -> None:
    """T18c, all 2^12 sequences of X_A - X_j in {-1, 1}, a look after each; and with a limit of one fixed n."""
    alpha, n = 0.3, 12
    draws = np.array(list(product((-1.0, 1.0), repeat=n)))
    chance = np.where(draws > 0, p, 1 - p).prod(axis=1)
    looks = range(1, n + 1)
    above = [sequence_lower(draws[:, :k].T, alpha, -1.0, 1.0) > 2 * p - 1 for k in looks]
    assert 0.03 < chance[np.any(above, axis=0)].sum() <= alpha
    above = [clopper_pearson_lower((draws[:, :k] > 0).sum(axis=1), k, alpha) > p for k in looks]
    assert chance[np.any(above, axis=0)].sum() > alpha


def figures_on_the_page() -> dict[str, Figures]:
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (?:(E\d+)\. )?.*$", text, flags=re.MULTILINE)[1:]
    return {
        name: {m[1]: m[2] for m in re.finditer(r"^\| (?!figure )(.+) \| (.+) \|$", body, flags=re.MULTILINE)}
        for name, body in zip(sections[::2], sections[1::2], strict=True)
        if name
    }


def test_every_erratum_has_a_section() -> None:
    assert list(figures_on_the_page()) == list(ERRATA) == [f"E{i}" for i in range(1, 11)]


@pytest.mark.parametrize("name", list(ERRATA))
def test_the_page_says_what_is_computed(name: str) -> None:
    assert figures_on_the_page()[name] == ERRATA[name]()


def test_the_command_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["E8"])
    assert "| true radius | 0.100 |" in capsys.readouterr().out


def test_the_figures_make_the_case() -> None:
    """What the prose concludes from the figures, so that a change of both would be seen."""
    page = figures_on_the_page()
    e1, e2, e7, e8 = page["E1"], page["E2"], page["E7"], page["E8"]
    assert e1["miss probability at p = (.995, .005, 0), M = 25"] == "0.606"
    assert e1["smallest M whose bound at (100, 0) exceeds that"] == "25"
    assert float(e1["published bound at (100, 0), M = 10"]) > float(
        e1["largest valid bound at (100, 0), second margin"]
    )
    assert float(e2["mean of Z, M = 10"]) > float(e2["near-one-hot scores: true second margin"])
    assert float(e7["Algorithm 5"]) > float(e7["Algorithm 4"]) == 0.0
    assert float(e7["FastSolveSignomial at L = .07"]) > 0.999 > float(e7["the infimum at L = .07"])
    assert float(e8["R1 with the constant of the logits"]) > float(e8["true radius"])
    assert float(e8["R1 with the constant of the soft classifier"]) <= float(e8["true radius"])
