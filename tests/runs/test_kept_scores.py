"""Scores of the first draws alone, and in half precision: what is kept is what was drawn, and no vote is lost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.certify.scores import certify_scores
from buckler.errors import InvalidInput
from buckler.runs.certify import certify_evidence
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.sweep import Grid, sweep_runs
from buckler.types import AnyArray
from tests.runs.victim import run, spec

BASE: dict[str, Any] = {"scores": "logits", "runner_ups": None, "limit": 6, "n": 400, "n0": 50}


def made(home: Path, **changes: Any) -> Evidence:
    run(str(home), spec=spec(**{**BASE, **changes}))
    return open_evidence(home)


def rows(evidence: Evidence, n: int) -> AnyArray:
    return np.concatenate([scores.values for scores, _, _ in evidence.scores(n, temperature=1.0)])


def test_first_draws_are_those_of_a_run_that_keeps_all(tmp_path: Path) -> None:
    whole, part = made(tmp_path / "whole"), made(tmp_path / "part", score_draws=150)
    assert part.spec.kept_draws == 150
    for n in (10, 100, 400):
        assert (whole.counts(n)[0].values == part.counts(n)[0].values).all()
    assert np.abs(rows(whole, 150) - rows(part, 150)).max() < 1e-5
    for (_, a, label), (_, b, other) in zip(whole.scores(), part.scores(), strict=True):
        assert label == other
        assert a is not None
        assert b is not None
        assert b.n == 50
        assert np.abs(a.values - b.values).max() < 1e-5
    assert next(iter(part.scores()))[0].n == 150
    with pytest.raises(InvalidInput, match="from 1 to 150"):
        next(iter(part.scores(151)))
    certificates, _ = certify_evidence(part, method="pairwise/star", certified_class="label")
    assert {c.n for c in certificates} == {150}
    randomised, labels = certify_evidence(part, method="pairwise/randomised_star", certified_class="label")
    assert {(c.method, c.seed) for c in randomised} == {("pairwise/randomised_star", part.spec.seed)}
    given, ids = rows(part, 150), [c.id for c in randomised]
    again = certify_scores(given, sigma=part.spec.sigma, labels=labels, seed=part.spec.seed, ids=ids)
    np.testing.assert_array_equal([c.radius for c in randomised], again.radii)


def test_half_precision_is_half_the_bytes_and_close(tmp_path: Path) -> None:
    full, half = made(tmp_path / "full"), made(tmp_path / "half", score_dtype="float16")
    sizes = [sum(p.stat().st_size for p in e.root.rglob("*.scores.parquet")) for e in (full, half)]
    assert sizes[1] < 0.6 * sizes[0]
    assert (full.counts()[0].values == half.counts()[0].values).all()
    assert 0.0 < np.abs(rows(full, 400) - rows(half, 400)).max() < 5e-3


def test_the_largest_logit_stays_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runs import victim

    monkeypatch.setattr(victim, "WEIGHTS", victim.WEIGHTS * np.float32(1e5))
    evidence = made(tmp_path / "huge", score_dtype="float16", limit=2)
    assert np.isfinite(rows(evidence, 400)).all()


def test_a_sweep_stops_where_the_scores_do(tmp_path: Path) -> None:
    made(tmp_path / "run", score_draws=150, limit=2)
    cells = sweep_runs([tmp_path / "run"], Grid(method=("exact", "pairwise/star"), n=None), tmp_path / "s.parquet")
    found = [(cell.certificates.first.method, cell.certificates.first.n) for cell in cells]
    assert [n for method, n in found if method == "exact"] == [10, 20, 50, 100, 200, 400]
    assert [n for method, n in found if method != "exact"] == [10, 20, 50, 100, 150]
    with pytest.raises(InvalidInput, match="from 1 to 150"):
        sweep_runs([tmp_path / "run"], Grid(method=("pairwise/star",), n=(200,)), tmp_path / "s.parquet")


def test_the_specification_is_as_before_unless_asked() -> None:
    assert not {"score_draws", "score_dtype"} & spec(**BASE).as_dict().keys()
    for wrong in ({"score_draws": 401}, {"score_dtype": "int8"}, {"scores": "none", "score_draws": 5}):
        with pytest.raises(InvalidInput, match="score_d"):
            spec(**{**BASE, **wrong})
