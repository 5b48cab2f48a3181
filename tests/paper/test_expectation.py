"""Expected accuracy against the sum over all outcomes, and what the paper prints against its own table."""

from math import comb

import numpy as np
import pytest

from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput
from buckler.evaluate.curves import false_certificates, margin_accuracy
from buckler.paper.peers import expected_accuracy, votes_needed
from buckler.paper.printed import FIGURES, TABLES
from buckler.types import MarginKind


@pytest.mark.parametrize("method", ["exact", "bonferroni", "top_class"])
@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_expectation_is_the_sum_over_outcomes(method: str, margin: MarginKind) -> None:
    n, p, goals = 30, np.array([0.97, 0.8, 0.5, 1.0, 0.0]), [0.05, 0.3, 0.7, 1.5]
    x = np.arange(n + 1)
    limits = vote_margin_lower(x, n - x, n, alpha=0.01, margin=margin, method=method, num_classes=4)
    pmf = np.array([[comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)] for q in p])
    direct = [float((pmf * (limits >= goal)).sum(axis=1).mean()) for goal in goals]
    found = expected_accuracy(p, goals, n, alpha=0.01, margin=margin, method=method, num_classes=4)
    assert np.abs(found - direct).max() < 1e-12
    needed = votes_needed(goals, n, alpha=0.01, margin=margin, method=method, num_classes=4)
    for k, goal in zip(needed, goals, strict=True):
        assert k == n + 1 or limits[k] >= goal
        assert k == 0 or limits[k - 1] < goal


def test_p_must_be_probabilities() -> None:
    with pytest.raises(InvalidInput, match="p must hold probabilities"):
        expected_accuracy([0.5, 1.2], [1.0], 10, num_classes=3)


def test_margin_accuracy_counts_right_inputs_and_bands_sound_ones() -> None:
    low, right = np.linspace(-1.0, 3.0, 1000), np.arange(1000) % 2 == 0
    sound = margin_accuracy(low, right, [0.0, 1.0, 3.0], alpha=0.001, sound=True, name="a")
    assert sound.accuracy == pytest.approx([0.375, 0.25, 0.0], abs=2e-3)
    assert (sound.accuracy[:2] - sound.low[:2]) * 1000 == pytest.approx(false_certificates(1000, 0.001, 1e-3))
    unsound = margin_accuracy([np.inf, 1.0], [True, True], [4.0], alpha=0.001, sound=False, name="b")
    assert unsound.accuracy == unsound.low == [0.5]
    with pytest.raises(InvalidInput, match="one number for each input"):
        margin_accuracy([np.nan], [True], [0.0], alpha=0.001, sound=True, name="c")


def test_what_the_paper_prints_hangs_together() -> None:
    for table in TABLES.values():
        for baseline, own in table.rows.values():
            assert len(baseline) == len(own) == len(table.margins) == 9
            assert all(a <= b for a, b in zip(baseline, own, strict=True))
            for row in (baseline, own):
                assert list(row) == sorted(row, reverse=True)
    assert len({figure.label for figure in FIGURES}) == len(FIGURES) == 9
    assert [figure.number for figure in FIGURES] == list(range(3, 12))
    assert FIGURES[1].at(500).n == 500
