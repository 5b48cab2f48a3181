"""The file in which decisions are kept as they are made, and which knows what they were drawn from.

Its record says what was asked, who drew (``admission``) and from which inputs, so that the same call goes on where it
ended, and another one is refused and overwrites nothing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certify.decision import Decided
from buckler.errors import InvalidInput, show
from buckler.runs.admission import NAMES, Allowed, admit, check_data, entries
from buckler.runs.identity import Identity, found_again
from buckler.runs.spec import difference
from buckler.runs.store.certificates import read_origin
from buckler.runs.store.decisions import Drawing, read_decisions, read_drawings, write_decisions
from buckler.runs.store.folder import replayed_of
from buckler.sampling.datasets import Dataset
from buckler.sampling.streams import content_id
from buckler.types import Float32Array

SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost."""

SAVING_SHARE = 0.05
"""Share of the time that may go into saving, where files are so large that this takes longer."""


class DecidedFile:
    """The decisions of earlier calls, and the place of new ones."""

    def __init__(self, path: Path, asked: Mapping[str, Any], identity: Identity, allowed: Allowed) -> None:
        """Name the place; ``asked`` holds ``spec`` and whatever else decisions depend on. Others are refused."""
        self._path, self._asked, self._data = path, dict(asked), identity.data
        self._entry: Mapping[str, Any] = identity.as_dict()
        self._known: list[dict[str, Any]] = []
        self._contents: dict[str, str] = {}
        self._drawings: dict[str, Drawing] = {}
        self._labels: dict[str, int] = {}
        self._replayed = 0, 0
        self._saved, self._took, self._grown = time.monotonic(), 0.0, False
        self._found = (read_origin(path) or {}) if path.exists() else None
        if self._found is not None:
            self._go_on(self._found, identity, allowed)

    @property
    def exam_n(self) -> int:
        """The draw of the exam: the budget that was fixed before the first draw."""
        return int(self._asked["exam_n"])

    def _go_on(self, found: Mapping[str, Any], identity: Identity, allowed: Allowed) -> None:
        asked = {key: value for key, value in self._asked.items() if key != "exam_n"}
        changed = [key for key, value in asked.items() if _unnamed(found.get(key)) != _unnamed(value)]
        first, before, now = found.get("exam_n"), _budget(found.get("spec")), _budget(asked["spec"])
        if changed or type(first) is not int or not 1 <= first <= before or now < before:
            old, alone = found.get("spec"), changed in ([], ["spec"])
            what = difference(old, asked["spec"]) if alone and isinstance(old, dict) else ", ".join(changed)
            raise InvalidInput(f"{str(self._path)!r} holds certificates of another run (another {what})")
        self._asked["exam_n"], self._grown = first, now > before
        owner = found.get("owner")
        if "drawn_by" not in found or not isinstance(owner, dict) or "data" not in owner:
            raise InvalidInput(f"{str(self._path)!r} does not say what it was drawn from, so it cannot be gone on with")
        check_data(self._path, found, identity)
        self._known, self._replayed = entries(found), replayed_of(found)
        self._entry = admit(self._path, self._known, identity, allowed, str(self._asked["spec"]["dtype"]))

    def read(self, radii: Sequence[float], dataset: Dataset) -> dict[str, Decided]:
        """Return the decisions that are there, by id, after comparing their inputs with those of the data.

        Where the budget has grown, what was hopeless within the old one is undecided again. An input that is under way
        by the votes of another model is left out: votes of two models are no test of either.
        """
        if dataset.labels is not None:
            self._labels = dict(zip(dataset.ids, dataset.labels.tolist(), strict=True))
        if self._found is None:
            return {}
        kept = {d.certificate.id: d for d in read_decisions(self._path)}
        known = set(dataset.ids)
        for name, decided in kept.items():
            steps = len(decided.certified_at)
            radius = radii[steps - 1] if 0 < steps <= len(radii) else 0.0
            if name not in known or decided.certificate.radius != radius:
                raise InvalidInput(f"{str(self._path)!r} holds a decision that is not of this run: {show(name)}")
        drawings = read_drawings(self._path, len(self._known))
        for _ in found_again(dataset, list(kept), [drawing.input for drawing in drawings], self._path):
            pass
        self._drawings = dict(zip(kept, drawings, strict=True))
        for name, decided in list(kept.items()):
            if self._grown and decided.decision == "hopeless":
                kept[name] = replace(decided, decision="undecided")
            drawn_by = self._known[self._drawings[name].drawn_by]
            if kept[name].decision == "undecided" and drawn_by["classifier"] != self._entry["classifier"]:
                del kept[name]
        return kept

    def loaded(self, ids: Sequence[str], x: Float32Array) -> None:
        """Take note of the values that inputs are drawn from."""
        self._contents.update(zip(ids, map(content_id, x), strict=True))

    def sign(self, name: str) -> None:
        """Take note that the decision about an input was made now, and so by whom."""
        if self._entry not in self._known:
            self._known.append(dict(self._entry))
        self._drawings[name] = Drawing(self._contents[name], self._known.index(dict(self._entry)))

    def ran_again(self, compared: int, differed: int) -> None:
        """Add to the numbers of rows that were run a second time, and of those that gave other bits."""
        self._replayed = self._replayed[0] + compared, self._replayed[1] + differed

    def is_due(self) -> bool:
        """Return whether enough time has passed since the last time, in proportion to what writing takes."""
        return time.monotonic() - self._saved > max(SAVE_EVERY, self._took / SAVING_SHARE)

    def write(self, decisions: Sequence[Decided]) -> None:
        """Replace the file."""
        started = time.monotonic()
        owner = {"classifier": self._known[0]["classifier"], "data": self._data}
        drawings = [self._drawings[decided.certificate.id] for decided in decisions]
        replayed = dict(zip(("compared", "differed"), self._replayed, strict=True))
        origin = {**self._asked, "owner": owner, "drawn_by": self._known, "replayed": replayed}
        truth = [self._labels[decided.certificate.id] for decided in decisions] if self._labels else None
        write_decisions(self._path, decisions, drawings, origin, None if truth is None else np.array(truth))
        self._saved = time.monotonic()
        self._took = self._saved - started


def _unnamed(value: Any) -> Any:
    """Return a specification without its mere names and its budget, and anything else as it is."""
    left_out = {*NAMES, "n", "checkpoints"}
    return {k: v for k, v in value.items() if k not in left_out} if isinstance(value, dict) else value


def _budget(spec: Any) -> int:
    n = spec.get("n") if isinstance(spec, dict) else None
    return n if type(n) is int else 0
