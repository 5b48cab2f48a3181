"""A seed from the operating system: drawn after the model is there, recorded, gone on with, and not to be given."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.runs.decide import Target, decide
from buckler.runs.open_run import open_run
from buckler.runs.results import read_result
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence

EVENTS: list[str] = []
"""What happened, in order: the factory of the model, and the drawing of a seed."""


def make() -> Any:
    EVENTS.append("model")
    return lambda batch: np.stack([batch[:, 0], 0 * batch[:, 0]], axis=1)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    np.save(tmp_path / "x.npy", np.full((2, 3), 0.25, dtype=np.float32))
    EVENTS.clear()
    seeds = iter([11, 22, 33, 44])

    def drawn(_: int) -> int:
        EVENTS.append("seed")
        return next(seeds)

    monkeypatch.setattr("secrets.randbelow", drawn)
    return {
        "model": f"{__name__}:make", "data": str(tmp_path / "x.npy"), "sigma": 0.5, "n": 50, "num_classes": 2,
        "fresh_seed": True,
    }  # fmt: skip


def test_it_is_drawn_after_the_model_and_recorded(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with open_run(settings, out=folder) as run:
        assert EVENTS.index("model") < EVENTS.index("seed")
        assert run.spec.seed == 11
        sample(run.spec, run.executor, run.dataset, folder)
    kept = open_evidence(folder).spec
    assert (kept.seed, kept.fresh_seed) == (11, True)
    with open_run(settings, out=folder) as again:
        assert again.spec == run.spec
        assert sample(again.spec, again.executor, again.dataset, folder).samples == 0
    with open_run(settings, out=tmp_path / "another") as other:
        assert other.spec.seed == 22


def test_what_a_report_says_makes_the_same_draws_again(settings: dict[str, Any], tmp_path: Path) -> None:
    for folder in ("run", "again"):
        with open_run(settings, out=tmp_path / folder) as run:
            sample(run.spec, run.executor, run.dataset, tmp_path / folder)
        found = read_result(tmp_path / folder)
        assert found.spec_toml is not None
        settings = tomllib.loads(found.spec_toml)
    first, second = (open_evidence(tmp_path / folder) for folder in ("run", "again"))
    assert (first.spec.seed, second.spec.seed) == (11, 11)
    assert first.spec.fresh_seed
    assert not second.spec.fresh_seed
    assert first.digest() == second.digest()


def test_decisions_go_on_with_it(settings: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    with open_run(settings, out=out) as run:
        first = decide(run.spec, Target((0.1,)), run.executor, run.dataset, out)
    with open_run(settings, out=out) as run:
        assert run.spec.seed == 11
        assert decide(run.spec, Target((0.1,)), run.executor, run.dataset, out) == first


def test_a_seed_that_is_known_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    known = open_run({**settings, "seed": 3}, out=tmp_path / "run")
    with pytest.raises(buckler.InvalidInput, match="seed and fresh_seed exclude one another"), known:
        pass
    plain = {key: value for key, value in settings.items() if key != "fresh_seed"}
    folder = tmp_path / "run"
    with open_run({**plain, "seed": 3}, out=folder) as run:
        sample(run.spec, run.executor, run.dataset, folder)
    # A run begun with a known seed is not gone on with as if it were fresh.
    with open_run(settings, out=folder) as run, pytest.raises(buckler.BucklerError, match="fresh_seed"):
        sample(run.spec, run.executor, run.dataset, folder)
