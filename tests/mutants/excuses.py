"""Mutants that may live, and why.

Each excuse in ``excuses.toml`` names a function (a method with its class), or a constant at the top of a module, the
changes in it that it speaks of, its kind and the reason. *equivalent*: no input tells the mutant from the original, or
the mutant is sound and as tight. *heuristic*: it changes speed or power, never validity. A change is given with its
expression, and no file, so that functions and lines may move. ``python -m tests.mutants`` names excuses that fit no
mutant.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant

KINDS = ("equivalent", "heuristic")
LIST = Path(__file__).with_name("excuses.toml")


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why some mutants of one function may live."""

    function: str
    changes: list[str]
    kind: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Return whether this excuse is of that mutant."""
        return self.function == mutant.function and mutant.change in self.changes


def read_excuses(path: Path = LIST) -> list[Excuse]:
    """Return the excuses of the list."""
    return [Excuse(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("excuse", [])]
