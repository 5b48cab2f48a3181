"""How one input ended, or stands, on its way up a ladder of radii: all that is needed to report it and to go on."""

from dataclasses import dataclass
from typing import get_args

from buckler.errors import InvalidInput, check_choice, check_whole, show
from buckler.records import Certificate
from buckler.types import Decision, Label


@dataclass(frozen=True, slots=True)
class Decided:
    """How one input ended, or stands: its certificate, and the votes and looks behind it.

    ``decision`` is ``certified`` (every radius is), ``hopeless`` (the next one was given up), ``precise`` (what is
    certified is as close to the estimate as was asked) or ``undecided`` (drawing was stopped from outside; the
    certificate holds all the same). ``votes`` are pairs (class, votes) of every class that got any. ``certified_at``
    holds, for each radius that is certified, lowest first, the number of draws at which it was; the last ``by_exam`` of
    them were certified by the exam, the others by e-values. ``overcome`` marks the classes that have been overcome at
    the next radius, one bit a class, first class first; without it going on is valid too, but forgets that.
    """

    certificate: Certificate
    label: Label
    decision: Decision
    votes: tuple[tuple[int, int], ...]
    certified_at: tuple[int, ...]
    by_exam: int = 0
    overcome: bytes = b""

    def __post_init__(self) -> None:
        check_choice("decision", self.decision, get_args(Decision))
        n, looks = self.certificate.n, (0, *self.certified_at, self.certificate.n)
        if not isinstance(self.label, str):
            check_whole("label", self.label, 0)
        if self.certificate.predicted not in {None, self.label}:
            raise InvalidInput(f"label must be the class predicted; got {self.label}")
        counts = [check_whole("votes", count, 1) for _, count in self.votes]
        if sum(counts) != n or len({check_whole("votes", k, 0) for k, _ in self.votes}) != len(counts):
            raise InvalidInput(f"votes must be of different classes and those of {n} draws; got {show(self.votes)}")
        if list(looks) != sorted(looks) or 0 in self.certified_at:
            raise InvalidInput(f"certified_at must rise within 1 and {n}; got {show(self.certified_at)}")
        if bool(self.certified_at) == self.certificate.abstained:
            raise InvalidInput("certified_at must hold a look if and only if a radius is certified")
        check_whole("by_exam", self.by_exam, 0, len(self.certified_at))
