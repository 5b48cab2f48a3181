"""Limits of recorded runs: those of certificates where a method is sound, and marked where it is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.certify.published import published_margin_variable
from buckler.errors import InvalidInput
from buckler.runs.certify import CertifiedClass, certify_evidence
from buckler.runs.library import open_library
from buckler.runs.limits import Recorded, _full, is_sound
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
    limits = Recorded(evidence).limits(
        method, margin=margin, n=100, alpha=0.01, certified_class=chosen, temperature=temperature
    )
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
    assert not is_sound("published", "probability")
    assert is_sound("baseline/sequence", "quantile")
    for method in ("cited/sequence", "cited/bernstein", "published/sequence"):
        assert is_sound(method, "probability")
        assert not is_sound(method, "quantile")
    assert not is_sound("published/bernstein", "probability")
    assert not is_sound("estimate", "probability")


def test_kept_columns_make_rows_of_all_classes_with_the_same_runner_up(home: Path) -> None:
    whole = list(open_evidence(home / "digits-sigma0.25").scores(temperature=1.0))
    kept = list(open_evidence(home / "digits-sigma0.25-kept").scores())
    for (full, _, label), (part, _, _) in zip(whole, kept, strict=True):
        rows = _full(part)
        kept, rest = part.values.shape[2], 10 - part.values.shape[2]
        assert rows.shape == (200, kept + 1)
        assert np.abs(rows[:, :kept].sum(axis=1) + rest * rows[:, kept] - 1.0).max() < 1e-5
        assert label is not None
        position = part.columns[0].tolist().index(label)
        z, _ = published_margin_variable(rows, position, "probability")
        expected, _ = published_margin_variable(full.values[0], label, "probability")
        assert np.abs(z - expected).max() < 1e-5


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
            "pairwise/star", margin="quantile", n=100, alpha=0.01, temperature=0.1
        )
    run(str(tmp_path / "digits-sigma0.25"), spec=spec(**BASE), max_samples=1000)
    with pytest.raises(InvalidInput, match="not being finished"):
        open_library(tmp_path)
