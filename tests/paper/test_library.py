"""Limits of recorded runs, those of certificates where a method is sound; and the accuracy expected behind a log."""

import os
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput
from buckler.paper.estimators import ESTIMATES, is_limit, method_of
from buckler.paper.library import open_library, recorded_limits
from buckler.paper.peers import expected_accuracy, networks_table
from buckler.paper.printed import ALPHA
from buckler.runs.certify import certify_evidence
from buckler.runs.logs import read_log
from buckler.runs.store.evidence import open_evidence
from buckler.types import MarginKind
from tests.runs.victim import run, spec

BASE: dict[str, Any] = {"scores": "logits", "runner_ups": None, "limit": 6, "n": 200, "n0": 30}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("limits")
    run(str(folder / "digits-sigma0.25"), spec=spec(**BASE))
    run(str(folder / "digits-sigma0.25-kept"), spec=spec(**{**BASE, "scores": "softmax", "runner_ups": 2}))
    return folder


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("chosen", ["label", None])
def test_sound_limits_are_those_of_certificates(home: Path, margin: MarginKind, chosen: str | None) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    for methods, temperature in ((("exact", "bonferroni"), None), (("pairwise/star",), 0.5)):
        limits = recorded_limits(evidence, [method_of(name) for name in methods], margin, 100, temperature, chosen)
        for name, found in zip(methods, limits, strict=True):
            certificates, labels = certify_evidence(
                evidence, alpha=ALPHA, method=name, margin=margin, n=100, certified_class=chosen,
                temperature=temperature,
            )  # fmt: skip
            assert found.sound, name
            assert found.low.tolist() == [c.margin for c in certificates], name
            assert labels is not None
            for right, c, label in zip(found.right, certificates, labels, strict=True):
                assert right or c.predicted != label, name
                assert chosen is None or right, name


def test_which_of_the_papers_are_limits() -> None:
    assert not is_limit(method_of("published"), "probability")
    assert is_limit(method_of("baseline/sequence"), "quantile")
    for method in ("cited/sequence", "cited/bernstein", "published/sequence"):
        assert is_limit(method_of(method), "probability")
        assert not is_limit(method_of(method), "quantile")
    assert not is_limit(method_of("published/bernstein"), "probability")
    for estimate in ESTIMATES.values():
        assert not is_limit(estimate, "probability")


def test_kept_columns_and_all_classes_give_the_same(home: Path) -> None:
    """The maximum of the rest is the runner-up of the classes left out, and alpha is shared by all ten of them."""
    names = ("cited/sequence", "baseline/bernstein", "published/sequence")
    both = (
        recorded_limits(
            open_evidence(home / f"digits-sigma0.25{end}"), [method_of(name) for name in names], "probability", 200, 1.0
        )
        for end in ("", "-kept")
    )
    for name, whole, kept in zip(names, *both, strict=True):
        assert np.isfinite(whole.low).all(), name
        assert kept.low == pytest.approx(whole.low, abs=1e-4), name


def test_estimates_are_margins_of_means(home: Path) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    (found,) = recorded_limits(evidence, [ESTIMATES["votes"]], "probability", 200, None)
    counts, _, labels = evidence.counts()
    assert labels is not None
    rows = counts.values / 200
    own = rows[np.arange(len(rows)), labels]
    rows[np.arange(len(rows)), labels] = -1.0
    assert found.low.tolist() == (own - rows.max(axis=1)).tolist()
    assert not found.sound
    means = [scores.values[0].mean(axis=0) for scores, _, _ in evidence.scores(temperature=1.0)]
    (seems,) = recorded_limits(evidence, [ESTIMATES["scores"]], "probability", 200, 1.0)
    for low, mean, label in zip(seems.low, means, labels, strict=True):
        assert low == pytest.approx(mean[label] - np.delete(mean, label).max(), abs=1e-12)


def test_a_library_finds_the_smallest_run_that_answers(home: Path, tmp_path: Path) -> None:
    library = open_library(home)
    assert library.sigmas("digits") == (0.25,)
    found = library.find("digits", 0.25, 100, 0.1)
    assert found is not None
    assert found.root.name == "digits-sigma0.25"
    assert library.find("digits", 0.25, 100, None) is not None
    assert library.find("digits", 0.5, 100, None) is None
    assert library.find("digits", 0.25, 150, None) is None
    assert library.nearest_truth("digits", 0.25, 201) is None
    with pytest.raises(InvalidInput, match="does not hold"):
        recorded_limits(
            open_evidence(home / "digits-sigma0.25-kept"), [method_of("pairwise/star")], "quantile", 100, 0.1
        )
    run(str(tmp_path / "digits-sigma0.25"), spec=spec(**BASE), max_samples=1000)
    with pytest.raises(InvalidInput, match="not being finished"):
        open_library(tmp_path)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_expectation_is_the_sum_over_outcomes(margin: MarginKind) -> None:
    n, p, goals = 30, np.array([0.97, 0.8, 0.5, 1.0, 0.0]), [-1e9, 0.05, 0.3, 0.7, 1.5]
    x = np.arange(n + 1)
    pmf = np.array([[comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)] for q in p])
    for method in ("exact", "bonferroni", "top_class"):
        limits = vote_margin_lower(x, n - x, n, alpha=0.01, margin=margin, method=method, num_classes=4)
        direct = [float((pmf * (limits >= goal)).sum(axis=1).mean()) for goal in goals]
        found = expected_accuracy(p, goals, n, alpha=0.01, margin=margin, method=method, num_classes=4)
        assert np.abs(found - direct).max() < 1e-12, method


@pytest.mark.skipif("BUCKLER_RECORDED_LOGS" not in os.environ, reason="needs the folder of recorded logs")
def test_the_logs_of_others() -> None:
    path = Path(os.environ["BUCKLER_RECORDED_LOGS"]) / "cohen2019_cifar10_resnet110_noise_0.12_test_sigma_0.12.tsv"
    log, margins = read_log(path), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    # An independent computation took Phi(radius / sigma), a lower limit, for p_A; its figures come out to the digit.
    right = log.certified & (log.predicted == log.labels)
    p = np.where(right, ndtr((log.low + log.high) / 2.0 / 0.12), 0.0)
    known: dict[str, list[float]] = {
        "bonferroni": [0.742, 0.714, 0.679, 0.633, 0.573, 0.0],
        "top_class": [0.744, 0.718, 0.687, 0.643, 0.573, 0.515],
    }
    rows = {row[1]: [float(cell) for cell in row[3:]] for row in networks_table([path]).rows}
    for method, name in (("bonferroni", "bonferroni"), ("top_class", "exact, top_class")):
        lower = expected_accuracy(p, margins, 100, method=method, num_classes=10)
        assert np.abs(lower - known[method]).max() < 6e-4, method
        # The table takes the share of votes itself, which is a little more; it is rounded down.
        assert all(a >= b - 1e-3 for a, b in zip(rows[name], lower, strict=False)), method
    assert all(a >= b for a, b in zip(rows["exact, top_class"], rows["bonferroni"], strict=True))
