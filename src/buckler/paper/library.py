"""A folder of runs: which of them can answer a question of the paper.

Folders are called ``DATA-sigma...``, and what comes before ``-sigma`` says which data a run is about. Everything else
is read from the runs themselves: sigma, draws, temperature. A run that is not finished is left out and named.
"""

from dataclasses import dataclass
from pathlib import Path

from buckler.errors import InvalidInput
from buckler.paper.limits import Recorded
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import MANIFEST


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The finished runs of a folder by name, and the names of those that are not finished."""

    root: Path
    runs: dict[str, Recorded]
    unfinished: tuple[str, ...]

    def of(self, data: str) -> list[Recorded]:
        """Return the runs about these data under Gaussian noise, the fewest draws first."""
        runs = {name: run for name, run in self.runs.items() if run.evidence.spec.law is None}
        mine = [run for name, run in runs.items() if name.partition("-sigma")[0] == data]
        return sorted(mine, key=lambda run: (run.evidence.spec.n, run.evidence.root.name))

    def find(self, data: str, sigma: float, n: int, temperature: float | None) -> Recorded | None:
        """Return the smallest run that holds n votes, or n draws of softmax scores, at this sigma."""
        for run in self.of(data):
            if run.evidence.spec.sigma == sigma and run.answers(n, temperature):
                return run
        return None

    def nearest_truth(self, data: str, sigma: float, least: int) -> Recorded | None:
        """Return the run with the most votes at this sigma, if it has at least ``least``."""
        mine = [run for run in self.of(data) if run.evidence.spec.sigma == sigma and run.evidence.spec.n >= least]
        return mine[-1] if mine else None

    def sigmas(self, data: str) -> tuple[float, ...]:
        """Return the sigmas that were drawn, in rising order."""
        return tuple(sorted({run.evidence.spec.sigma or 0.0 for run in self.of(data)}))


def open_library(root: Path) -> Library:
    """Return the runs in a folder, or say that there are none."""
    folders = sorted(path.parent for path in root.glob(f"*/{MANIFEST}")) if root.is_dir() else []
    found = {folder.name: open_evidence(folder) for folder in folders}
    runs = {name: Recorded(evidence) for name, evidence in found.items() if evidence.complete}
    unfinished = tuple(name for name in found if name not in runs)
    if not runs:
        also = f", {', '.join(unfinished)} not being finished" if unfinished else ""
        raise InvalidInput(f"evidence must be a folder of runs called DATA-sigma...; {str(root)!r} has none{also}")
    return Library(root, runs, unfinished)
