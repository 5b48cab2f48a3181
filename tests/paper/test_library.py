"""Limits of recorded runs: those of certificates where a method is sound, and marked where it is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.paper.estimators import ESTIMATES, is_limit, method_of
from buckler.paper.library import Recorded, open_library
from buckler.runs.certify import CertifiedClass, certify_evidence
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


@pytest.mark.parametrize("method", ["exact", "bonferroni", "pairwise/star"])
@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("chosen", ["label", "selection"])
def test_sound_limits_are_those_of_certificates(
    home: Path, method: str, margin: MarginKind, chosen: CertifiedClass
) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    temperature = 0.5 if "/" in method else None
    limits = Recorded(evidence).limits(method_of(method), 0.01, margin, 100, chosen, temperature)
    certificates, labels = certify_evidence(
        evidence, alpha=0.01, method=method, margin=margin, n=100, certified_class=chosen, temperature=temperature
    )
    assert limits.sound
    assert limits.low.tolist() == [c.margin for c in certificates]
    assert labels is not None
    assert (limits.labels == labels).all()
    for i, c in enumerate(certificates):
        assert c.predicted in {None, limits.chosen[i]}


def test_which_of_the_papers_are_limits() -> None:
    assert not is_limit(method_of("published"), "probability")
    assert is_limit(method_of("baseline/sequence"), "quantile")
    for method in ("cited/sequence", "cited/bernstein", "published/sequence"):
        assert is_limit(method_of(method), "probability")
        assert not is_limit(method_of(method), "quantile")
    assert not is_limit(method_of("published/bernstein"), "probability")
    for estimate in ESTIMATES.values():
        assert not is_limit(estimate, "probability")


@pytest.mark.parametrize("name", ["cited/sequence", "baseline/bernstein", "published/sequence"])
def test_kept_columns_and_all_classes_give_the_same(home: Path, name: str) -> None:
    """The maximum of the rest is the runner-up of the classes left out, and alpha is shared by all ten of them."""
    whole, kept = (
        Recorded(open_evidence(home / f"digits-sigma0.25{end}")).limits(
            method_of(name), 0.01, "probability", 200, "label", 1.0
        )
        for end in ("", "-kept")
    )
    assert np.isfinite(whole.low).all()
    assert kept.low == pytest.approx(whole.low, abs=1e-4)


def test_estimates_are_margins_of_means(home: Path) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    found = Recorded(evidence).limits(ESTIMATES["votes"], 0.01, "probability", 200, "label", None)
    counts, _, labels = evidence.counts()
    assert labels is not None
    rows = counts.values / 200
    own = rows[np.arange(len(rows)), labels]
    rows[np.arange(len(rows)), labels] = -1.0
    assert found.low.tolist() == (own - rows.max(axis=1)).tolist()
    assert not found.sound
    means = [scores.values[0].mean(axis=0) for scores, _, _ in evidence.scores(temperature=1.0)]
    seems = Recorded(evidence).limits(ESTIMATES["scores"], 0.01, "probability", 200, "label", 1.0)
    for low, mean, label in zip(seems.low, means, labels, strict=True):
        assert low == pytest.approx(mean[label] - np.delete(mean, label).max(), abs=1e-12)


def test_a_library_finds_the_smallest_run_that_answers(home: Path, tmp_path: Path) -> None:
    library = open_library(home)
    assert library.sigmas("digits") == (0.25,)
    found = library.find("digits", 0.25, 100, 0.1)
    assert found is not None
    assert found.evidence.root.name == "digits-sigma0.25"
    assert library.find("digits", 0.25, 100, None) is not None
    assert library.find("digits", 0.5, 100, None) is None
    assert library.find("digits", 0.25, 150, None) is None
    assert library.nearest_truth("digits", 0.25, 201) is None
    with pytest.raises(InvalidInput, match="does not hold"):
        Recorded(open_evidence(home / "digits-sigma0.25-kept")).limits(
            method_of("pairwise/star"), 0.01, "quantile", 100, "label", 0.1
        )
    run(str(tmp_path / "digits-sigma0.25"), spec=spec(**BASE), max_samples=1000)
    with pytest.raises(InvalidInput, match="not being finished"):
        open_library(tmp_path)
