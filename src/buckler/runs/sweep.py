"""Recorded runs and a grid of settings -> one table: runs certified under every combination, without a model.

A combination of settings for a run is a cell. Each certificate of a cell holds alone, at the alpha of its cell. The
best of several cells, picked after a look at them, does not: ``certify.budget.split_alpha`` says what it costs.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

from buckler.certificates import Certificates
from buckler.certify.methods import Method
from buckler.errors import BucklerWarning, InvalidInput, UnsoundMethod, check_alpha, check_choice, check_whole
from buckler.runs.certify import CertifyKeywords, certified_class_of, claim_by_each, method_named, settings_for
from buckler.runs.results import short_names
from buckler.runs.spec import IMPORTED, NO_RIVALS, CertifiedClass, RunSpec, distinct_values
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.tables import write_sweep
from buckler.types import MarginKind, SimplexMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values of each setting of a sweep, in the order they are shown; a cell is one combination of them.

    ``n`` empty stands for all draws of a run, ``None`` for every checkpoint; ``margin`` empty for the default of a
    run's noise, and ``method`` empty for the run's default. ``map`` and ``temperature`` are for scores.
    """

    n: tuple[int, ...] | None = ()
    alpha: tuple[float, ...] = (1e-3,)
    method: tuple[str, ...] = ()
    margin: tuple[MarginKind, ...] = ()
    map: tuple[SimplexMap, ...] = ()
    temperature: tuple[float, ...] = ()
    certified_class: CertifiedClass | None = None

    def __post_init__(self) -> None:
        """Check what does not depend on a run; InvalidInput names the setting that is wrong."""
        if not self.alpha:
            raise InvalidInput("alpha must have at least one value")
        for alpha in self.alpha:
            check_alpha(alpha)
        reads = {_usable(method).reads for method in self.method}
        for margin in self.margin:
            check_choice("margin", margin, get_args(MarginKind))
        for n in self.n or ():
            check_whole("n", n, 1)
        if (self.map or self.temperature) and "scores" not in reads:
            raise InvalidInput("map and temperature are for scores, with a method such as pairwise/star")
        if self.temperature and self.map and "softmax" not in self.map:
            raise InvalidInput("temperature is for softmax scores, and map has no 'softmax'")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Grid":
        """Return the grid of settings by name, from a file or a command line; other names are ignored."""
        kinds = {"n": int, "alpha": float, "method": str, "margin": str, "map": str, "temperature": float}
        every = settings.get("n") == "all"
        given = {name for name in kinds if settings.get(name) is not None} - ({"n"} if every else set())
        axes: dict[str, Any] = {name: distinct_values(name, settings[name], kinds[name]) for name in given}
        if every:
            axes["n"] = None
        return cls(certified_class=settings.get("class"), **axes)

    def cells(self, spec: RunSpec) -> Iterator[tuple[Method, CertifyKeywords]]:
        """Yield the method and the keywords of each cell for a run; methods vary fastest, to stand side by side."""
        draws = spec.checkpoints if self.n is None else self.n or (spec.n,)
        methods = [_usable(method) for method in self.method or (spec.default_method,)]
        margins: tuple[MarginKind | None, ...] = self.margin or (None,)
        for n, alpha, margin, method in product(draws, self.alpha, margins, methods):
            how = CertifyKeywords(n=n, alpha=alpha, margin=margin, certified_class=self.certified_class)
            if method.reads == "votes":
                yield method, how
                continue
            if not self.n:  # of all draws, those whose scores are kept
                how["n"] = min(n, spec.kept_draws or n)
            for chosen in self.map or (None,):
                softmax = chosen == "softmax" or (chosen is None and spec.scores != "sparsemax")
                for temperature in (softmax and self.temperature) or (None,):
                    yield method, CertifyKeywords(**how, map=chosen, temperature=temperature)


def _usable(name: str) -> Method:
    """Return a method that a sweep may use: a sound one, or a user's own, whose cells hold claims without a promise."""
    method = method_named(name)
    if not method.sound and not method.own:
        raise UnsoundMethod(f"method {name!r} has no guarantee and cannot issue a certificate")
    return method


class SweptCell(NamedTuple):
    """Result of one cell: the run by its short name, and its certificates under the cell's settings."""

    run: str
    certificates: Certificates


def sweep_runs(
    folders: Sequence[str | Path], grid: Grid, out: Path, *, progress: Callable[[int, int], None] = lambda *_: None
) -> list[SweptCell]:
    """Certify the runs in ``folders`` in every cell of a grid, write all certificates to ``out``, and return the cells.

    All cells are checked before the first is certified. ``progress`` is called with the number of cells done, and of
    all. The table ``out`` is a Parquet file.
    """
    if not folders:
        raise InvalidInput("a sweep needs at least one run, a folder with evidence; got none")
    runs = [open_evidence(folder) for folder in folders]
    if len(norms := sorted({evidence.spec.noise.norm for evidence in runs})) > 1:
        raise InvalidInput(f"the runs of a sweep must measure radii in one norm; got {' and '.join(norms)}")
    names = short_names([evidence.root for evidence in runs])
    tasks = [
        (name, evidence, *cell) for name, evidence in zip(names, runs, strict=True) for cell in _cells(evidence, grid)
    ]
    for evidence in runs:
        if caution := evidence.provenance().caution:
            warnings.warn(f"{str(evidence.root)!r}: {caution}", BucklerWarning, stacklevel=2)
        if not evidence.complete:
            done = f"{evidence.inputs_done} of {evidence.inputs} inputs"
            warnings.warn(f"{str(evidence.root)!r} is not finished: {done}", BucklerWarning, stacklevel=2)
        if evidence.spec.model == IMPORTED:
            warnings.warn(f"{str(evidence.root)!r}: {NO_RIVALS}", BucklerWarning, stacklevel=2)
    cells, origins = list[SweptCell](), list[tuple[str, str]]()
    for name, evidence, method, how in tasks:
        progress(len(cells), len(tasks))
        made = claim_by_each(evidence, [method], **how)
        cells.append(SweptCell(name, made.certificates[0]))
        origins.append((str(evidence.root), certified_class_of(evidence.spec, how["certified_class"])))
    write_sweep(out, [cell.certificates for cell in cells], origins, {"grid": asdict(grid)})
    return cells


def _cells(evidence: Evidence, grid: Grid) -> list[tuple[Method, CertifyKeywords]]:
    """Return the cells of a run, each once; raise if it cannot answer one."""
    made = []
    for method, how in grid.cells(evidence.spec):
        try:
            settings_for(evidence, method, **how)
        except InvalidInput as problem:
            raise type(problem)(f"{evidence.root}: {problem}") from None
        if (method, how) not in made:
            made.append((method, how))
    return made
