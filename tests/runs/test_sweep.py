"""Grids: what a run can answer, and a table that holds what certify says."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.certificates import Certificates
from buckler.errors import InvalidInput, StoreError
from buckler.runs.certify import certify_evidence
from buckler.runs.store.evidence import open_evidence
from buckler.runs.sweep import Grid, sweep_runs
from tests.runs.victim import run, spec


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("votes") / "run"
    run(str(folder), spec=spec(scores="none", runner_ups=None, limit=12, n=100))
    return folder


@pytest.fixture(scope="module")
def logits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("logits") / "run"
    run(str(folder), spec=spec(scores="logits", runner_ups=None, limit=6, n=100))
    return folder


def cells(grid: Grid, folder: Path) -> list[tuple[Any, ...]]:
    return [
        (how["n"], method.name, how.get("map"), how.get("temperature"))
        for method, how in grid.cells(open_evidence(folder).spec)
    ]


def test_cells_of_votes_and_of_logits(votes: Path, logits: Path) -> None:
    grid = Grid(n=(10, 100), alpha=(0.01, 0.001), method=("exact", "top_class"), margin=("quantile", "probability"))
    assert len(cells(grid, votes)) == 16
    assert [cell[0] for cell in cells(Grid(n=None), votes)] == [10, 20, 50, 100]
    assert cells(Grid(), votes) == [(100, "exact", None, None)]
    grid = Grid(method=("exact", "pairwise/star"), map=("softmax", "sparsemax"), temperature=(0.5, 1.0), n=(100, 20))
    assert cells(grid, logits)[:4] == [
        (100, "exact", None, None),
        (100, "pairwise/star", "softmax", 0.5),
        (100, "pairwise/star", "softmax", 1.0),
        (100, "pairwise/star", "sparsemax", None),
    ]
    assert len(cells(grid, logits)) == 8
    assert [cell[0] for cell in cells(Grid(method=("pairwise/star",), n=(37,)), logits)] == [37]


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        ({"alpha": (0.0,)}, InvalidInput, "alpha"),
        ({"alpha": ()}, InvalidInput, "at least one"),
        ({"method": ("best",)}, InvalidInput, "method must be"),
        ({"margin": ("third",)}, InvalidInput, "margin"),
        ({"n": (0,)}, InvalidInput, "n must be"),
        ({"temperature": (1.0,)}, InvalidInput, "for scores"),
        ({"map": ("sparsemax",), "temperature": (1.0,), "method": ("pairwise/star",)}, InvalidInput, "no 'softmax'"),
    ],
)
def test_a_grid_is_checked_first(axes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Grid(**axes)


def test_a_run_that_cannot_answer_is_named_before_any_cell_is_certified(
    votes: Path, logits: Path, tmp_path: Path
) -> None:
    def too_soon(done: int, total: int) -> None:
        pytest.fail(f"{done} of {total} are certified")

    scored = ("pairwise/star",)
    for grid, text in (
        (Grid(n=(33,)), "checkpoints"),
        (Grid(method=scored), "votes alone"),
        (Grid(method=scored, n=(101,)), "n must be"),
        (Grid(method=scored, temperature=(-1.0,)), "temperature"),
        (Grid(method=scored, map=("hardmax",)), "map must be"),
        (Grid(certified_class="best"), "class must be"),  # type: ignore[arg-type]
    ):
        with pytest.raises((InvalidInput, StoreError), match=text):
            sweep_runs([logits, votes], grid, tmp_path / "s.parquet", progress=too_soon)
    assert not (tmp_path / "s.parquet").exists()


def test_the_table_holds_what_certify_says(votes: Path, logits: Path, tmp_path: Path) -> None:
    path, told = tmp_path / "sweep.parquet", list[tuple[int, int]]()
    grid = Grid(method=("top_class", "exact"), n=(50, 100))
    made = sweep_runs([votes, logits], grid, path, progress=lambda *state: told.append(state))
    assert told == [(done, 8) for done in range(8)]
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == 4 * (12 + 6)
    expected: list[Certificates] = []
    for folder in (votes, logits):
        for method, n in (("top_class", 50), ("exact", 50), ("top_class", 100), ("exact", 100)):
            certificates = certify_evidence(open_evidence(folder), method=method, n=n)
            cell = made[len(expected)]
            assert cell.certificates == certificates
            assert certificates.labels is not None
            np.testing.assert_array_equal(cell.certificates.labels, certificates.labels)
            expected.append(certificates)
    flat = [certificate for certificates in expected for certificate in certificates]
    assert [(row["id"], row["radius"], row["n"], row["method"]) for row in rows] == [
        (c.id, c.radius, c.n, c.method) for c in flat
    ]
    assert {row["folder"] for row in rows} == {str(votes), str(logits)}
    assert {row["class"] for row in rows} == {"selection"}
    assert len(sweep_runs([logits], Grid(method=("pairwise/star",), n=None), path)) == 4
