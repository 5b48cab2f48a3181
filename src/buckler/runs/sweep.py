"""Runs and a grid -> one table: every cell certified from the evidence at hand, no model needed.

Each certificate of each cell holds alone, at the level of its cell. The best of several cells, picked after a look at
them, does not: ``certify.budget.split_alpha`` says what it costs.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

from buckler.certificates import Certificates
from buckler.certify.methods import Method
from buckler.errors import (
    BucklerWarning,
    InvalidInput,
    UnsoundMethod,
    check_alpha,
    check_choice,
    check_positive,
    check_whole,
)
from buckler.noise import default_margin
from buckler.runs.certify import CertifiedClass, certified_class_of, certify_evidence, claim_evidence
from buckler.runs.plugins import method_named
from buckler.runs.results import short_names
from buckler.runs.spec import IMPORTED, NO_RIVALS, RunSpec, distinct_values
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.sealed import read_sealed
from buckler.runs.store.tables import SweepTable
from buckler.session import SAVE_SECONDS
from buckler.types import MarginKind, SimplexMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way to certify a run; ``map`` and ``temperature`` are those that its certificates will record."""

    n: int
    alpha: float
    method: str
    margin: MarginKind
    certified_class: CertifiedClass
    map: SimplexMap = "hardmax"
    temperature: float | None = None

    def id(self, run: str) -> str:
        """Return a name for this cell of the run with this hash."""
        text = json.dumps({"run": run, **asdict(self)}, sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=8, person=b"buckler-cell-1").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values of each axis, in the order they are shown; ``n`` empty is all draws, ``None`` every checkpoint.

    ``margin`` empty is the first that the noise of a run has a radius for, ``method`` empty the run's usual one.
    """

    n: tuple[int, ...] | None = ()
    alpha: tuple[float, ...] = (1e-3,)
    method: tuple[str, ...] = ()
    margin: tuple[MarginKind, ...] = ()
    map: tuple[SimplexMap, ...] = ()
    temperature: tuple[float, ...] = ()
    certified_class: CertifiedClass | None = None

    def __post_init__(self) -> None:
        """Check every value, so that a long sweep does not end at its last cell."""
        if not self.alpha:
            raise InvalidInput("alpha must have at least one value")
        for alpha in self.alpha:
            check_alpha(alpha)
        reads = {_usable(method).reads for method in self.method}
        for margin in self.margin:
            check_choice("margin", margin, get_args(MarginKind))
        for chosen in self.map:
            check_choice("map", chosen, ("softmax", "sparsemax"))
        for temperature in self.temperature:
            check_positive("temperature", temperature)
        for n in self.n or ():
            check_whole("n", n, 1)
        if self.certified_class is not None:
            check_choice("class", self.certified_class, get_args(CertifiedClass))
        if (self.map or self.temperature) and "scores" not in reads:
            raise InvalidInput("map and temperature are for scores, with a method such as pairwise/star")
        if self.temperature and self.map and "softmax" not in self.map:
            raise InvalidInput("temperature is for softmax scores, and map has no 'softmax'")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Grid":
        """Return the grid of settings by name, as they come from a file or a command line; others are not looked at."""
        kinds = {"n": int, "alpha": float, "method": str, "margin": str, "map": str, "temperature": float}
        every = settings.get("n") == "all"
        given = {name for name in kinds if settings.get(name) is not None} - ({"n"} if every else set())
        axes: dict[str, Any] = {name: distinct_values(name, settings[name], kinds[name]) for name in given}
        if every:
            axes["n"] = None
        return cls(certified_class=settings.get("class"), **axes)

    def as_dict(self) -> dict[str, Any]:
        """Return the axes, for the record."""
        return asdict(self)

    def cells(self, spec: RunSpec) -> list[Cell]:
        """Return the cells of a run, methods innermost so that neighbours are comparable; or say what it cannot do."""
        chosen = certified_class_of(spec, self.certified_class)
        draws = spec.checkpoints if self.n is None else (self.n or (spec.n,))
        methods = [_usable(method) for method in self.method or (spec.default_method,)]
        made = [
            Cell(
                n=k,
                alpha=alpha,
                method=method.name,
                margin=margin,
                certified_class=chosen,
                map=kind,
                temperature=temperature,
            )
            for n, alpha, margin in product(draws, self.alpha, self.margin or (default_margin(spec.noise),))
            for method in methods
            # A default n is cut to the draws whose scores are kept. Duplicate cells are dropped below.
            for k in [min(n, spec.kept_draws or n) if method.reads == "scores" and not self.n else n]
            for kind, temperature in self._maps(spec, method)
        ]
        for cell in made:
            _check_draws(cell, spec)
        return list(dict.fromkeys(made))

    def _maps(self, spec: RunSpec, method: Method) -> Sequence[tuple[SimplexMap, float | None]]:
        if method.reads == "votes":
            return [("hardmax", None)]
        if spec.scores == "none":
            raise InvalidInput(
                f"method {method.name!r} needs scores, and this run has votes alone: sample it with scores"
            )
        if spec.scores != "logits":
            if set(self.map) - {spec.scores} or set(self.temperature) - {spec.temperature}:
                raise InvalidInput(
                    f"map and temperature can be chosen for stored logits; this run holds {spec.scores} scores"
                )
            return [(spec.scores, spec.temperature)]
        temperatures: tuple[float | None, ...] = self.temperature or (None,)
        maps: tuple[SimplexMap, ...] = self.map or ("softmax",)
        return [(kind, value) for kind in maps for value in (temperatures if kind == "softmax" else (None,))]


def _usable(name: str) -> Method:
    """Return a method that a sweep may use: a sound one, or a user's own, whose cells hold claims without a promise."""
    method = method_named(name)
    if not method.sound and not method.own:
        raise UnsoundMethod(f"method {name!r} has no guarantee and cannot issue a certificate")
    return method


def _check_draws(cell: Cell, spec: RunSpec) -> None:
    if method_named(cell.method).reads == "scores":
        check_whole("n", cell.n, 1, spec.kept_draws)
    elif cell.n not in spec.checkpoints:
        points = ", ".join(map(str, spec.checkpoints))
        raise InvalidInput(f"n must be one of the checkpoints {points} for votes; got {cell.n}")


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


class SweptCell(NamedTuple):
    """A run by its short name, and its certificates under one combination of settings."""

    run: str
    certificates: Certificates


def run_hash(evidence: Evidence) -> str:
    """Return a hash of a run's specification, classifier and data; it does not depend on the folder's name."""
    text = json.dumps([evidence.manifest["owner"], evidence.manifest["drawn_by"][0]["answers"]], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-run-1").hexdigest()


def drawn_hash(evidence: Evidence) -> str:
    """Return a hash of the shards that a run has, as their seals state them."""
    files = [read_sealed(place.path(evidence.root, "seal"))["files"] for place in evidence.shards]
    text = json.dumps([evidence.manifest["owner"], files], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-drawn-2").hexdigest()


def tasks_of(runs: Sequence[Evidence], grid: Grid) -> list[Task]:
    """Return a task for every cell of every run; raise before any work if a run cannot answer a cell."""
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
) -> list[SweptCell]:
    """Certify runs in every cell of a grid, keep all certificates in the table ``out``, and return the cells.

    Cells that the table has already are read from it; ``progress`` is told how many are there, of how many.
    """
    if not folders:
        raise InvalidInput("a sweep needs at least one run, a folder with evidence; got none")
    runs = [open_evidence(folder) for folder in folders]
    for evidence in runs:
        if caution := evidence.provenance().sentence():
            warnings.warn(f"{str(evidence.root)!r}: {caution}", BucklerWarning, stacklevel=2)
        if evidence.spec.model == IMPORTED:
            warnings.warn(f"{str(evidence.root)!r}: {NO_RIVALS}", BucklerWarning, stacklevel=2)
    tasks = tasks_of(runs, grid)
    table = SweepTable(out)
    sweep(tasks, grid, table, progress=None if progress is None else lambda done: progress(done, len(tasks)))
    roots = list(dict.fromkeys(task.evidence.root for task in tasks))
    names = dict(zip(roots, short_names(roots), strict=True))
    cells = []
    for task in tasks:
        certificates, labels = table.read(task.id)
        cells.append(SweptCell(names[task.evidence.root], Certificates.of(certificates, labels=labels)))
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
            if time.monotonic() - saved > SAVE_SECONDS:
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
