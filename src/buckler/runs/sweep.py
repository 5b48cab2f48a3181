"""Runs and a grid -> one table: every cell certified from the evidence at hand, no model needed.

Each certificate of each cell holds alone, at the level of its cell. The best of several cells, picked after a look at
them, does not: ``certify.budget.split`` says what it costs.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from buckler.certificate import Claim
from buckler.certificates import Certified
from buckler.errors import BucklerWarning, InvalidInput
from buckler.runs.certify import certify_evidence, claim_evidence
from buckler.runs.grid import Cell, Grid
from buckler.runs.plugins import method_named
from buckler.runs.results import short_names
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.sealed import read_sealed
from buckler.runs.store.sweeps import SweepTable

SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell of one run, its name in the table, and a hash of what was drawn."""

    evidence: Evidence
    cell: Cell
    run: str
    drawn: str

    @property
    def id(self) -> str:
        """The name of the cell in the table."""
        return self.cell.id(self.run)

    @property
    def own(self) -> bool:
        """Whether its rows are by a method of the user's own, which may have been changed since."""
        return method_named(self.cell.method).own


def run_hash(evidence: Evidence) -> str:
    """Return what a run is: its specification, classifier and data, whatever its folder is called."""
    text = json.dumps([evidence.manifest["owner"], evidence.manifest["drawn_by"][0]["answers"]], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-run-1").hexdigest()


def drawn_hash(evidence: Evidence) -> str:
    """Return a hash of the shards that a run has, as their seals state them."""
    files = [read_sealed(place.path(evidence.root, "seal"))["files"] for place in evidence.shards]
    text = json.dumps([evidence.manifest["owner"], files], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-drawn-2").hexdigest()


def tasks_of(runs: Sequence[Evidence], grid: Grid) -> list[Task]:
    """Return all cells of all runs, or name the run that cannot answer one: before any work is done."""
    made: dict[str, Task] = {}
    if len(norms := sorted({evidence.spec.noise.norm for evidence in runs})) > 1:
        raise InvalidInput(f"the runs of a sweep must measure radii in one norm; got {' and '.join(norms)}")
    for evidence in runs:
        try:
            cells = grid.cells(evidence.spec)
        except InvalidInput as problem:
            raise type(problem)(f"{evidence.root}: {problem}") from None
        run, drawn = run_hash(evidence), drawn_hash(evidence)
        for cell in cells:
            task = Task(evidence, cell, run, drawn)
            made.setdefault(task.id, task)
    return list(made.values())


def sweep_runs(
    folders: Sequence[str | Path], grid: Grid, out: Path, *, progress: Callable[[int, int], None] | None = None
) -> list[Certified[Claim]]:
    """Certify runs in every cell of a grid, keep all certificates in the table ``out``, and return the cells.

    Cells that the table has already are read from it; ``progress`` is told how many are there, of how many.
    """
    if not folders:
        raise InvalidInput("a sweep needs at least one run, a folder with evidence; got none")
    runs = [open_evidence(folder) for folder in folders]
    for evidence in runs:
        if caution := evidence.drawers().sentence():
            warnings.warn(f"{str(evidence.root)!r}: {caution}", BucklerWarning, stacklevel=2)
    tasks = tasks_of(runs, grid)
    table = SweepTable(out)
    sweep(tasks, grid, table, progress=None if progress is None else lambda done: progress(done, len(tasks)))
    roots = list(dict.fromkeys(task.evidence.root for task in tasks))
    names = dict(zip(roots, short_names(roots), strict=True))
    cells = []
    for task in tasks:
        certificates, labels = table.read(task.id)
        cells.append(Certified(names[task.evidence.root], tuple(certificates), labels))
    return cells


def sweep(
    tasks: Sequence[Task], grid: Grid, table: SweepTable, *, progress: Callable[[int], None] | None = None
) -> int:
    """Certify the cells that are missing from ``table``, save it, and return how many those were.

    A cell that is there is kept, unless other draws are in its folder since or the method is a user's function, which
    may have been changed since. What is done is saved on the way and when interrupted.
    """
    settings = {"grid": grid.as_dict(), "runs": {str(t.evidence.root): t.drawn for t in tasks}}
    missing = [task for task in tasks if table.drawn(task.id) != task.drawn or task.own]
    saved = time.monotonic()
    try:
        for done, task in enumerate(missing):
            if progress is not None:
                progress(len(tasks) - len(missing) + done)
            _fill(task, table)
            if time.monotonic() - saved > SAVE_EVERY:
                table.save(settings)
                saved = time.monotonic()
    finally:
        table.save(settings)
    return len(missing)


def _fill(task: Task, table: SweepTable) -> None:
    cell, method = task.cell, method_named(task.cell.method)
    certify = certify_evidence if method.sound else claim_evidence
    how = asdict(cell) | {"map": cell.map if method.reads == "scores" else None}
    certificates, labels = certify(task.evidence, **how)
    table.put(
        task.id,
        certificates,
        labels,
        run=task.drawn,
        folder=str(task.evidence.root),
        certified_class=cell.certified_class,
    )
