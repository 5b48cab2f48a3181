"""One session: an engine draws, certify or evaluate judges, a sink takes the results.

Every method of ``Session`` is a generator. It hands each result to its sink once the result is final, and yields a
``Step`` after each group of batches. Whoever stops early closes the generator, and it hands over what stands. So a
deadline is a rule of the loop outside (``run``), and a list or a file is a sink.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.certify.ladder import Ladder
from buckler.certify.predictions import PredictionTest, predicted_class
from buckler.certify.scores import largest_mean_class, scores_to_certificates
from buckler.certify.sequential import AnytimeTest, Decided, ScoreTest
from buckler.certify.settings import Settings
from buckler.certify.votes import votes_to_certificates
from buckler.sampling.engine import Engine, draw_until_decided
from buckler.sampling.simplex import score_map
from buckler.types import Float32Array, FloatArray, IntArray

GROUP_BATCHES = 8
"""Batches that a group of inputs fills: an interrupt loses at most the group under way, and only its last batch may be
short."""

MOST_SCORES = 1 << 25
"""Scores held at a time, at most, unless those of a single input are more."""

SAVE_SECONDS = 10.0
"""Seconds of work that an interruption, a kill or a lost worker can cost."""

SAVING_SHARE = 0.05
"""Share of the time that may go into saving, where files are so large that this takes longer."""

Sink = Callable[[Any], None]
"""Function that a session calls with results as soon as it has them."""


class Interrupted(KeyboardInterrupt):
    """An interrupt (Ctrl-C), with what was done before it."""

    def __init__(self, done: Any) -> None:
        super().__init__()
        self.done = done


class ResultFile:
    """Sink that keeps results by the names of inputs, of earlier calls and of this one, also in a file at ``path``.

    The file is written about every ten seconds and at the end, so that an interruption costs no more.
    """

    def __init__(self, path: Path | None, names: Sequence[str]) -> None:
        """Name the file, and the inputs in their order."""
        self.path, self.names = path, names
        self.kept: dict[str, Any] = {}
        self._saved, self._took, self._changed = time.monotonic(), 0.0, False

    @property
    def done(self) -> int:
        """The number of inputs whose result is final."""
        return len(self.kept)

    def take(self, made: Any) -> None:
        """Keep what a worker hands over."""
        raise NotImplementedError

    def write(self, path: Path) -> None:
        """Write everything to the file."""
        raise NotImplementedError

    def keep(self, name: str, result: Any) -> None:
        """Keep the result of an input, and write the file from time to time."""
        self.kept[name], self._changed = result, True
        if time.monotonic() - self._saved > max(SAVE_SECONDS, self._took / SAVING_SHARE):
            self.save()

    def save(self) -> None:
        """Write the file, if there is one and anything changed."""
        if self.path is not None and self._changed:
            started = time.monotonic()
            self.write(self.path)
            self._saved, self._changed = time.monotonic(), False
            self._took = self._saved - started

    def in_order(self) -> list[Any]:
        """Return the results in the order of the inputs."""
        return [self.kept[name] for name in self.names if name in self.kept]

    def fill(self, draws: Iterator[int], progress: Callable[[int, int], None]) -> list[Any]:
        """Return all results once the draws are made, whose workers hand theirs to ``take``.

        ``progress`` is told how many inputs are done, and how many draws were made. Results are kept also where this
        ends by an error, or by an interrupt, which raises ``Interrupted`` with them.
        """
        drawn = 0
        progress(self.done, drawn)
        try:
            for more in draws:
                drawn += more
                progress(self.done, drawn)
        except KeyboardInterrupt:
            raise Interrupted(self.in_order()) from None
        finally:
            self.save()
            progress(self.done, drawn)
        return self.in_order()


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs ``x[inputs, ...]``, their names, and the class of each where it is fixed beforehand."""

    x: Float32Array
    ids: Sequence[str]
    labels: IntArray | None = None

    def __getitem__(self, rows: Any) -> "Inputs":
        """Return the inputs at ``rows``, a slice or positions, with their names and labels."""
        ids = self.ids[rows] if isinstance(rows, slice) else [self.ids[i] for i in rows]
        return Inputs(self.x[rows], ids, None if self.labels is None else self.labels[rows])

    def __len__(self) -> int:
        return len(self.ids)


class Step(NamedTuple):
    """Progress report: draws made since the last report, and inputs done so far, one under way as a fraction."""

    drawn: int
    done: float


class Session:
    """Draws for one engine; each method needs the classifier to be ready, inside ``engine.session()``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def certify(self, inputs: Inputs, settings: Settings, n: int, n0: int, sink: Sink) -> Iterator[Step]:
        """Certify inputs from ``n`` draws each, and ``n0`` selection draws where these choose the class."""
        engine, each = self.engine, n + n0
        most = (
            GROUP_BATCHES * engine.rows // each
            if settings.scores is None
            else MOST_SCORES // (each * engine.num_classes)
        )
        for group, first in _groups(inputs, max(1, most)):
            done = float(first)
            for drawn in self._certify(group, settings, n, n0, sink):
                done += drawn / each
                yield Step(drawn, min(done, len(inputs)))

    def _certify(self, group: Inputs, settings: Settings, n: int, n0: int, sink: Sink) -> Iterator[int]:
        if settings.scores is None:
            first = (yield from self.engine.vote_steps(group.x, group.ids, "selection", n0)) if n0 else None
            votes = yield from self.engine.vote_steps(group.x, group.ids, "estimation", n)
            made = votes_to_certificates(votes, settings, labels=group.labels, selection=first, ids=group.ids)
        else:
            earlier = (yield from self._scores(group, settings, "selection", n0)) if n0 else None
            scores = yield from self._scores(group, settings, "estimation", n)
            made = scores_to_certificates(scores, settings, labels=group.labels, selection=earlier, ids=group.ids)
        for certificate in made:
            sink(certificate)

    def _scores(
        self, group: Inputs, settings: Settings, stream: Any, n: int, start: int = 0
    ) -> Generator[int, None, FloatArray]:
        make = score_map(settings.map, settings.temperature)
        return (yield from self.engine.score_steps(group.x, group.ids, stream, n, make, start))

    def certify_until(
        self, inputs: Inputs, ladder: Ladder, sink: Sink, *, n0: int = 0, before: Sequence[Decided | None] = ()
    ) -> Iterator[Step]:
        """Draw until every radius of the ladder is decided for every input; hand over ``Decided`` records.

        Inputs under way are handed over every ten seconds and at the end, as they stand. ``before`` are states of an
        earlier session to go on from, one for each input or None.
        """
        engine, test = self.engine, self._sequential(inputs, ladder, n0, before)

        final = np.zeros(len(inputs), dtype=np.bool_)

        def hand_over(rows: IntArray) -> None:
            for row in rows.tolist():
                if test.n[row]:
                    sink(test.decided(row, inputs.ids[row], n0, engine.seed))

        def finish(rows: IntArray) -> None:
            hand_over(rows)
            final[rows] = True

        finish(np.setdiff1d(np.arange(len(inputs)), test.undecided))
        saved = time.monotonic()
        try:
            with closing(draw_until_decided(engine, inputs.x, inputs.ids, test)) as rounds:
                for made in rounds:
                    finish(made.finished)
                    if time.monotonic() - saved > SAVE_SECONDS:
                        hand_over(test.undecided)
                        saved = time.monotonic()
                    yield Step(made.drawn, len(inputs) - test.undecided.size)
        finally:
            hand_over(np.flatnonzero(~final))

    def _sequential(self, inputs: Inputs, ladder: Ladder, n0: int, before: Sequence[Decided | None]) -> AnytimeTest:
        """Return the test of inputs, at the states of an earlier session; ``n0`` selection draws choose new classes."""
        states = list(before) or [None] * len(inputs)
        if ladder.winner:
            test = AnytimeTest(ladder, len(inputs), self.engine.num_classes)
        elif inputs.labels is not None:
            test = AnytimeTest(ladder, inputs.labels, self.engine.num_classes)
        else:
            labels = np.array([-1 if state is None else state.label for state in states])
            if (new := np.flatnonzero(labels < 0)).size:
                part = inputs[new]
                labels[new] = self.engine.votes(part.x, part.ids, "selection", n0).argmax(axis=1)
            test = AnytimeTest(ladder, labels, self.engine.num_classes)
        for row, state in enumerate(states):
            if state is not None:
                test.restore(row, state)
        return test

    def certify_scores_until(
        self,
        inputs: Inputs,
        settings: Settings,
        sink: Sink,
        *,
        max_n: int,
        radii: Sequence[float] = (),
        precision: float | None = None,
        n0: int = 0,
    ) -> Iterator[Step]:
        """Draw scores until radii, or a precision, are decided for every input; hand over certificates in order."""
        m = self.engine.num_classes
        for group, first in _groups(inputs, max(1, MOST_SCORES // (max_n * m))):
            earlier = (yield from _as_steps(self._scores(group, settings, "selection", n0), first)) if n0 else None
            labels = group.labels if earlier is None or group.labels is not None else largest_mean_class(earlier)
            test = ScoreTest(
                settings, len(group), m, max_n=max_n, labels=labels, radii=radii, precision=precision, earlier=earlier
            )
            try:
                while (rows := test.undecided).size:
                    n = int(test.n[rows[0]])
                    steps = self._scores(group[rows], settings, "estimation", test.batch_size(n), n)
                    scores = yield from _as_steps(steps, first + len(group) - rows.size)
                    for row, drawn in zip(rows.tolist(), scores, strict=True):
                        test.update(row, drawn)
            finally:
                seen = int(np.argmin(np.append(test.n > 0, False)))  # the first inputs, up to one without draws
                for certificate in test.certificates(slice(0, seen), group.ids[:seen]) if seen else ():
                    sink(certificate)

    def predict(
        self, inputs: Inputs, alpha: float, sink: Sink, *, n: int | None = None, max_n: int | None = None
    ) -> Iterator[Step]:
        """Hand over the predicted class of each input, -1 for an abstention, from ``n`` draws or within ``max_n``.

        Draws are of the stream ``selection``, so that a certificate of the class predicted rests on others.
        """
        engine = self.engine
        if n is not None:
            for group, first in _groups(inputs, max(1, GROUP_BATCHES * engine.rows // n)):
                votes = yield from _as_steps(engine.vote_steps(group.x, group.ids, "selection", n), first, n)
                for predicted in predicted_class(votes, alpha=alpha).tolist():
                    sink(predicted)
        if max_n is not None:
            test = PredictionTest(len(inputs), engine.num_classes, alpha=alpha, max_n=max_n)
            for made in draw_until_decided(engine, inputs.x, inputs.ids, test, stream="selection"):
                yield Step(made.drawn, len(inputs) - test.undecided.size)
            for predicted in test.answers.tolist():
                sink(predicted)

    def refute(self, inputs: Inputs, refuting: Any, start: FloatArray, sink: Sink) -> Iterator[Step]:
        """Search around each input for a point that its label does not win, and hand over ``Refutation`` records.

        ``refuting`` is an ``evaluate.refutations.RefutationSettings``; each search begins at distance ``start``.
        """
        for group, first in _groups(inputs, refuting.inputs_at_once(self.engine.rows)):
            rows = slice(first, first + len(group))
            steps = refuting.refute(self.attacked(group.ids), group.ids, group.x, group.labels, start[rows])
            for made in (yield from _as_steps(steps, first, refuting.draws, first + len(group))):
                sink(made)

    def attacked(self, ids: Sequence[str]) -> Any:
        """Return what is attacked around inputs of these names: the engine's model, with gradients."""
        from buckler.sampling.modules import Gradients  # torch

        return Gradients(self.engine, ids)


def _groups(inputs: Inputs, most: int) -> Iterator[tuple[Inputs, int]]:
    """Yield the inputs in groups of about the same size, at most ``most``, and where each begins."""
    size = -(-len(inputs) // -(-len(inputs) // most))
    for first in range(0, len(inputs), size):
        yield inputs[first : first + size], first


def _as_steps(
    draws: Generator[int, None, Any], first: float, each: float = inf, last: float = inf
) -> Generator[Step, None, Any]:
    """Yield a step for each number of draws made, with the inputs done by then; return what ``draws`` returns.

    Inputs done begin at ``first``, grow by one for ``each`` draws (an estimate) and end at ``last``.
    """
    done = float(first)
    while True:
        try:
            drawn = next(draws)
        except StopIteration as end:
            return end.value
        done += drawn / each
        yield Step(drawn, min(done, last))


def run_steps(steps: Iterator[Step], show: Callable[[float], None], max_seconds: float | None = None) -> bool:
    """Go through the steps of a session, show the inputs done, and return whether it was finished.

    It stops after ``max_seconds`` and on an interrupt (Ctrl-C); the session then hands over what stands.
    """
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    try:
        with closing(steps) as going:  # type: ignore[type-var]
            for step in going:
                show(step.done)
                if deadline is not None and time.monotonic() > deadline:
                    return False
    except KeyboardInterrupt:
        return False
    return True
