"""Grids: what a run can answer, cells that are kept, and a table that is whole or not there."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.errors import InvalidInput, UnsoundMethod
from buckler.runs import sweep as sweeping
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import SweepTable
from buckler.runs.sweep import Grid, sweep, sweep_runs, tasks_of
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
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


def test_cells_of_votes(votes: Path) -> None:
    chosen = open_evidence(votes).spec
    grid = Grid(n=(10, 100), alpha=(0.01, 0.001), method=("exact", "top_class"), margin=("quantile", "probability"))
    assert len(grid.cells(chosen)) == 16
    assert len({cell.id("a") for cell in grid.cells(chosen)} | {cell.id("b") for cell in grid.cells(chosen)}) == 32
    assert [cell.n for cell in Grid(n=None).cells(chosen)] == [10, 20, 50, 100]
    assert [cell.n for cell in Grid().cells(chosen)] == [100]


def test_cells_of_logits(logits: Path) -> None:
    chosen = open_evidence(logits).spec
    grid = Grid(method=("exact", "pairwise/star"), map=("softmax", "sparsemax"), temperature=(0.5, 1.0), n=(100, 20))
    found = [(c.n, c.method, c.map, c.temperature) for c in grid.cells(chosen)]
    assert found[:4] == [
        (100, "exact", "hardmax", None),
        (100, "pairwise/star", "softmax", 0.5),
        (100, "pairwise/star", "softmax", 1.0),
        (100, "pairwise/star", "sparsemax", None),
    ]
    assert len(found) == 8
    assert [c.n for c in Grid(method=("pairwise/star",), n=(37,)).cells(chosen)] == [37]


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        ({"alpha": (0.0,)}, InvalidInput, "alpha"),
        ({"alpha": ()}, InvalidInput, "at least one"),
        ({"method": ("best",)}, InvalidInput, "method must be"),
        ({"method": ("published/sequence",)}, UnsoundMethod, "no guarantee"),
        ({"margin": ("third",)}, InvalidInput, "margin"),
        ({"n": (0,)}, InvalidInput, "n must be"),
        ({"temperature": (1.0,)}, InvalidInput, "for scores"),
        ({"temperature": (-1.0,), "method": ("pairwise/star",)}, InvalidInput, "temperature"),
        ({"map": ("hardmax",), "method": ("pairwise/star",)}, InvalidInput, "map must be"),
        ({"certified_class": "best"}, InvalidInput, "class must be"),
    ],
)
def test_a_grid_is_checked_first(axes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Grid(**axes)


def test_a_run_that_cannot_answer_is_named(votes: Path, logits: Path) -> None:
    runs = [open_evidence(logits), open_evidence(votes)]
    for grid, text in (
        (Grid(n=(33,)), "checkpoints"),
        (Grid(method=("pairwise/star",)), "votes alone"),
        (Grid(method=("pairwise/star",), n=(101,)), "n must be"),
    ):
        with pytest.raises(InvalidInput, match=text):
            tasks_of(runs, grid)


def test_the_table_holds_what_certify_says_and_keeps_it(
    votes: Path, logits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sweep.parquet"
    runs = [open_evidence(votes), open_evidence(logits)]
    first = Grid(method=("top_class",), n=(50, 100))
    assert sweep(tasks_of(runs, first), first, SweepTable(path)) == 4
    tasks = tasks_of(runs, first)
    again = SweepTable(path)
    for task in tasks:
        certificates, labels = again.read(task.id)
        expected, truth = certify_evidence(task.evidence, method="top_class", n=task.cell.n)
        assert certificates == expected
        assert truth is not None
        assert labels is not None
        assert (labels == truth).all()
    tidy = pq.read_table(path)
    assert tidy.num_rows == 2 * (12 + 6)
    assert {"cell", "run", "folder", "label", "id", "radius", "alpha", "n", "sigma"} <= set(tidy.column_names)
    # More cells are added, and those that are there are not certified again.
    called = []

    def counted(*arguments: Any, **options: Any) -> Any:
        called.append(options["alpha"])
        return certify_evidence(*arguments, **options)

    monkeypatch.setattr(sweeping, "certify_evidence", counted)
    more = Grid(method=("top_class",), n=(50, 100), alpha=(0.001, 0.01))
    assert sweep(tasks_of(runs, more), more, SweepTable(path)) == 4
    assert set(called) == {0.01}
    before = path.read_bytes()
    assert sweep(tasks_of(runs, more), more, SweepTable(path)) == 0
    assert path.read_bytes() == before


def rows_in(path: Path, cell: str) -> int:
    return int(pq.read_table(path)["cell"].to_pylist().count(cell))


def test_a_run_that_has_grown_is_certified_again(tmp_path: Path) -> None:
    small = spec(scores="none", runner_ups=None, limit=12, n=100)
    assert not run(str(tmp_path / "run"), spec=small, max_samples=1000).complete
    grid, path = Grid(method=("top_class",)), tmp_path / "sweep.parquet"
    tasks = tasks_of([open_evidence(tmp_path / "run")], grid)
    assert sweep(tasks, grid, SweepTable(path)) == 1
    few = rows_in(path, tasks[0].id)
    assert 0 < few < 12
    assert run(str(tmp_path / "run"), spec=small).complete
    assert sweep(tasks_of([open_evidence(tmp_path / "run")], grid), grid, SweepTable(path)) == 1
    assert rows_in(path, tasks[0].id) == 12


def test_an_interrupt_keeps_what_is_done(votes: Path, tmp_path: Path) -> None:
    grid, path = Grid(method=("top_class",), n=(10, 50, 100)), tmp_path / "sweep.parquet"
    tasks = tasks_of([open_evidence(votes)], grid)

    def stop(done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tasks, grid, SweepTable(path), progress=stop)
    assert [rows_in(path, task.id) for task in tasks] == [12, 12, 0]
    assert sweep(tasks, grid, SweepTable(path)) == 1


def test_an_interrupt_before_the_first_cell_leaves_nothing(votes: Path, tmp_path: Path) -> None:
    grid, path = Grid(method=("top_class",)), tmp_path / "sweep.parquet"

    def stop(done: int) -> None:
        raise KeyboardInterrupt(done)

    with pytest.raises(KeyboardInterrupt):
        sweep(tasks_of([open_evidence(votes)], grid), grid, SweepTable(path), progress=stop)
    assert not path.exists()


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"not a table")
    pq.write_table(pq.read_table(_other(tmp_path)), tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(InvalidInput, match="not a table of buckler sweep"):
            SweepTable(tmp_path / name)


def _other(folder: Path) -> Path:
    import pyarrow as pa

    pq.write_table(pa.table({"x": np.arange(3)}), folder / "other.parquet")
    return folder / "other.parquet"


def test_a_run_drawn_anew_from_other_inputs_is_certified_anew(tmp_path: Path) -> None:
    """The same names, labels and settings, and a model that answers alike where it is asked: other votes."""
    x = np.linspace(0.0, 1.0, 20, dtype=np.float32)[:, None]
    how = RunSpec(model="m", data="d", sigma=0.25, num_classes=2, n=100)
    classifier = as_classifier(lambda batch: np.stack([batch[:, 0] - 0.5, 0.5 - batch[:, 0]], axis=1), num_classes=2)
    grid, found = Grid(method=("top_class",)), []
    for value in (0.0, 1.0):  # of an input that is not among those asked about
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        x[1] = value
        sample(how, classifier, from_arrays(x.copy()), tmp_path / "run")
        (cell,) = sweep_runs([tmp_path / "run"], grid, tmp_path / "sweep.parquet")
        assert list(cell.certificates) == certify_evidence(open_evidence(tmp_path / "run"), method="top_class")[0]
        found.append(cell.certificates[1].predicted)
    assert found == [1, 0]
    assert pq.read_table(tmp_path / "sweep.parquet").num_rows == 20  # those of the first are gone
