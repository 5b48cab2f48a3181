"""Mutants that may live, and why.

Each excuse in ``excuses.toml`` names a file, the text of a line, the changes of that line it speaks of (all of them if
none is named), its kind and the reason. *equivalent*: no input tells the mutant from the original, or the mutant is
sound and as tight. *heuristic*: it changes speed or power, never validity. An excuse whose line has changed has lapsed,
and ``tests/mutants/test_mutants.py`` asks for it to be removed.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.making import Mutant

KINDS = ("equivalent", "heuristic")
LIST = Path(__file__).with_name("excuses.toml")


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why mutants of one line may live."""

    file: str
    line: str
    kind: str
    reason: str
    changes: list[str] = field(default_factory=list)

    def covers(self, mutant: Mutant) -> bool:
        """Return whether this excuse is of that mutant."""
        same = (self.file, self.line) == (mutant.file, mutant.text)
        return same and (not self.changes or mutant.change in self.changes)


def read_excuses(path: Path = LIST) -> list[Excuse]:
    """Return the excuses of the list."""
    return [Excuse(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("excuse", [])]
