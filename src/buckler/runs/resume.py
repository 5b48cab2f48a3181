"""Checks before a run goes on, and the file that decisions are kept in.

A run goes on if its finished inputs are still those of the data and if one of them, drawn again in full, gives the
votes that were sealed: two models may give the same answers to the probe of ``runs.identity``, two hard-label models
above all. The input with the least unanimous votes is drawn, where another model differs most.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, StoreError, show
from buckler.runs.executor import Executor, Job, Step
from buckler.runs.identity import NOT_REPEATABLE, Identity, Lookup, admit, is_same, records_in, replayed_in
from buckler.runs.spec import NAMES, RunSpec, difference
from buckler.runs.store.tables import Drawing, read_decisions, read_origin, write_decisions
from buckler.runs.store.writer import Writer
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.streams import Request, Stream, content_id
from buckler.types import Float32Array, IntArray

SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost."""

SAVING_SHARE = 0.05
"""Share of the time that may go into saving, where files are so large that this takes longer."""

ROUNDING_SHARE = 0.01
"""Share of the draws that may vote otherwise when drawn again, for a decided input, whose batches are not the same, or
on a device, whose kernels need not repeat their sums. On the host, votes of a finished shard must be equal."""


@dataclass(frozen=True, slots=True, eq=False)
class _DrawAgain:
    """The work of drawing one input again: estimation and selection draws ``[0, n)`` and ``[0, n0)``.

    ``row`` is the position of the input among those that shared its batches; the same batches are made, and of them
    only those with a draw of this input.
    """

    spec: RunSpec
    ids: tuple[str, ...]
    row: int
    segments: tuple[tuple[Stream, int, int], ...]

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that returns the votes of each segment."""
        engine = self.spec.engine(classifier, threads)

        def votes(x: Float32Array, stream: Stream, start: int, stop: int) -> IntArray:
            n, size = stop - start, self.spec.batch_size
            first = self.row * n // size * size
            last = min(-(-(self.row + 1) * n // size) * size, len(self.ids) * n)
            spans = [(i, max(first - i * n, 0), min(last - i * n, n)) for i in range(first // n, -(-last // n))]
            requests = [Request(i, start + low, start + high) for i, low, high in spans]
            drawn: IntArray = engine.draw(x, self.ids, stream, requests).counts[self.row, 0]
            return drawn

        with engine.session():
            yield lambda x, context: context.send_result([votes(x, *segment) for segment in self.segments])


def _draw_again(executor: Executor, dataset: Dataset, first: int, work: _DrawAgain) -> list[IntArray]:
    """Return the votes of each segment of one input; ``first`` is the position of the first input of its batches."""
    found: list[list[IntArray]] = []
    x = dataset.load(first, first + len(work.ids))
    executor.run(Job(work.begin, [0], lambda _: x, lambda _, votes: found.append(votes)))
    return found[0]


def check_finished(writer: Writer, executor: Executor, dataset: Dataset, identity: Identity) -> None:
    """Refuse data or a model that the finished shards were not drawn from.

    Values and labels of all finished inputs are compared. One finished input, drawn by a model with this identity, is
    drawn again in the batches of its first time.
    """
    spec, lookup = writer.spec, Lookup(dataset, writer.root)
    least, chosen = np.inf, None
    for place in writer.done:
        drawn = writer.read(place)
        for _ in lookup.inputs(drawn.ids, drawn.input_hashes):
            pass
        labels = None if dataset.labels is None else dataset.labels[lookup.places(drawn.ids)].tolist()
        if labels != (None if drawn.labels is None else drawn.labels.tolist()):
            raise InvalidInput(f"data has other labels than {str(writer.root)!r}; use another folder")
        for part in writer.parts(place):
            if part["rows"] != spec.batch_size or not is_same(part["drawn_by"], identity.as_dict()):
                continue
            rows = slice(part["first"] - place.first, part["first"] - place.first + part["count"])
            top = drawn.counts[rows, -1].max(axis=1)
            if top.min() < least:
                least, at = float(top.min()), rows.start + int(top.argmin())
                chosen = (place.first + at, None if drawn.selection is None else drawn.selection[at],
                          drawn.counts[at, -1])  # fmt: skip
    if chosen is None or identity.answers == NOT_REPEATABLE:
        return
    position, selection, counts = chosen
    group = spec.drawn_together
    first, kept = position // group * group, spec.kept_draws
    segments: list[tuple[Stream, int, int]] = [("selection", 0, spec.n0), ("estimation", 0, kept),
                                               ("estimation", kept, spec.n)]  # fmt: skip
    segments = [segment for segment in segments if segment[1] < segment[2]]
    ids = dataset.ids[first : first + group]
    again = _draw_again(executor, dataset, first, _DrawAgain(spec, ids, position - first, tuple(segments)))
    now = sum(votes for votes, segment in zip(again, segments, strict=True) if segment[0] == "estimation")
    share = 0.0 if spec.device == "cpu" else ROUNDING_SHARE
    _check_votes(writer.root, dataset.ids[position], np.asarray(now), counts, share)
    if selection is not None:
        _check_votes(writer.root, dataset.ids[position], again[0], selection, share)


def _check_votes(where: Path, name: str, now: IntArray, before: IntArray, share: float) -> None:
    """Refuse votes of an input drawn again that differ in more than a share of the draws."""
    moved = int(np.abs(now - before).sum()) // 2
    if moved > share * before.sum():
        raise StoreError(
            f"{str(where)!r} was drawn by another model, or with another number of threads: {moved:,} of "
            f"{before.sum():,} draws of input {name!r}, drawn again, have other votes; use another folder"
        )


class DecidedFile:
    """The decisions of earlier calls, and the file of new ones.

    Its metadata say what was asked, which models drew and from which inputs, so that the same call goes on where it
    ended, and another one is refused and overwrites nothing.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any], identity: Identity, allow_other_model: bool) -> None:
        """Name the file; ``asked`` holds ``spec`` and whatever else decisions depend on. Another file is refused."""
        self._path, self._asked, self._data = path, dict(asked), identity.data
        self._record = identity.as_dict()
        self._known: list[dict[str, Any]] = []
        self._contents: dict[str, str] = {}
        self._drawings: dict[str, Drawing] = {}
        self._labels: dict[str, int] = {}
        self._replayed = 0, 0
        self._saved, self._took, self._grown = time.monotonic(), 0.0, False
        self._found = read_origin(path) if path.exists() else None
        if self._found is not None:
            self._go_on(self._found, allow_other_model)

    @property
    def final_n(self) -> int:
        """The draw of the final test: the budget that was fixed before the first draw."""
        return int(self._asked["final_n"])

    def _go_on(self, found: Mapping[str, Any], allow_other_model: bool) -> None:
        asked = {key: value for key, value in self._asked.items() if key != "final_n"}
        changed = [key for key, value in asked.items() if _unnamed(found.get(key)) != _unnamed(value)]
        first, before, now = found.get("final_n"), _budget(found.get("spec")), _budget(asked["spec"])
        if changed or type(first) is not int or not 1 <= first <= before or now < before:
            old, alone = found.get("spec"), changed in ([], ["spec"])
            what = difference(old, asked["spec"]) if alone and isinstance(old, dict) else ", ".join(changed)
            raise InvalidInput(f"{str(self._path)!r} holds certificates of another run (another {what})")
        self._asked["final_n"], self._grown = first, now > before
        owner = found.get("owner")
        if not isinstance(owner, dict) or owner.get("data") != self._data:
            raise StoreError(
                f"{str(self._path)!r} was begun with other data: ids, labels or values of inputs differ; use another "
                "file"
            )
        self._known, self._replayed = records_in(found), replayed_in(found)
        self._record = admit(self._path, self._known, self._record, allow_other_model)

    def read(self, radii: Sequence[float], dataset: Dataset) -> dict[str, Decided]:
        """Return the decisions of earlier calls by id, after comparing their inputs with those of the data.

        Where the budget has grown, what was given up within the old one is undecided again. An undecided input with
        votes of another model is left out, and begun anew: a test needs the votes of one model.
        """
        if dataset.labels is not None:
            self._labels = dict(zip(dataset.ids, dataset.labels.tolist(), strict=True))
        if self._found is None:
            return {}
        found = read_decisions(self._path)
        kept = {d.certificate.id: d for d in found.decided}
        known = set(dataset.ids)
        for name, decided in kept.items():
            steps = len(decided.certified_at)
            allowed = {radii[steps - 1] if 0 < steps <= len(radii) else 0.0}
            if decided.certificate.winner_alpha:  # a radius is passed, and the class is not known to be the winner yet
                allowed.add(0.0)
            if name not in known or decided.certificate.radius not in allowed:
                raise InvalidInput(f"{str(self._path)!r} holds a decision that is not of this run: {show(name)}")
            kept[name] = replace(decided, radii=tuple(radii))
        for _ in Lookup(dataset, self._path).inputs(list(kept), [drawing.input for drawing in found.drawings]):
            pass
        self._drawings = dict(zip(kept, found.drawings, strict=True))
        for name, decided in list(kept.items()):
            if self._grown and decided.decision == "given up":
                kept[name] = replace(decided, decision="undecided")
            if kept[name].decision == "undecided" and not is_same(self._drawer(name), self._record):
                del kept[name]
        return kept

    def _drawer(self, name: str) -> Mapping[str, Any]:
        return self._known[self._drawings[name].drawn_by]

    def draw_again(self, kept: Sequence[Decided], spec: RunSpec, executor: Executor, dataset: Dataset) -> None:
        """Refuse a model that, drawing one input of an earlier call again, gives other votes."""
        own = [d for d in kept if is_same(self._drawer(d.certificate.id), self._record)]
        if not own or self._record["answers"] == NOT_REPEATABLE:
            return
        chosen = min(own, key=lambda d: (max(dict(d.votes).values()) / d.certificate.n, -d.certificate.n))
        name, n = chosen.certificate.id, chosen.certificate.n
        position = Lookup(dataset, self._path).places([name])[0]
        work = _DrawAgain(spec, (name,), 0, (("estimation", 0, n),))
        (now,) = _draw_again(executor, dataset, position, work)
        before = np.zeros(spec.num_classes, dtype=np.int64)
        for k, count in chosen.votes:
            before[k] = count
        _check_votes(self._path, name, now, before, ROUNDING_SHARE)

    def loaded(self, ids: Sequence[str], x: Float32Array) -> None:
        """Take note of the values that inputs are drawn from."""
        self._contents.update(zip(ids, map(content_id, x), strict=True))

    def sign(self, name: str) -> None:
        """Take note that this model made the decision about an input."""
        if self._record not in self._known:
            self._known.append(self._record)
        self._drawings[name] = Drawing(self._contents[name], self._known.index(self._record))

    def ran_again(self, compared: int, differed: int) -> None:
        """Add to the numbers of rows that were run a second time, and of those that gave other bits."""
        self._replayed = self._replayed[0] + compared, self._replayed[1] + differed

    def is_due(self) -> bool:
        """Return whether enough time has passed since the last time, in proportion to what writing takes."""
        return time.monotonic() - self._saved > max(SAVE_EVERY, self._took / SAVING_SHARE)

    def write(self, decisions: Sequence[Decided]) -> None:
        """Replace the file."""
        started = time.monotonic()
        owner = {"classifier": self._known[0]["answers"], "data": self._data}
        drawings = [self._drawings[decided.certificate.id] for decided in decisions]
        origin = {**self._asked, "owner": owner, "drawn_by": self._known, "replayed": list(self._replayed)}
        truth = [self._labels[decided.certificate.id] for decided in decisions] if self._labels else None
        write_decisions(self._path, decisions, drawings, origin, None if truth is None else np.array(truth))
        self._saved = time.monotonic()
        self._took = self._saved - started


def _unnamed(value: Any) -> Any:
    """Return a specification without its names and its budget, and anything else as it is."""
    left_out = {*NAMES, "n", "checkpoints"}
    return {k: v for k, v in value.items() if k not in left_out} if isinstance(value, dict) else value


def _budget(spec: Any) -> int:
    n = spec.get("n") if isinstance(spec, dict) else None
    return n if type(n) is int else 0
