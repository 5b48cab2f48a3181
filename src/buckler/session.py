"""Session: draws votes or scores for inputs, and passes each result to a function, the sink, once it is final.

Every method of ``Session`` is a generator that yields a ``Step``, its progress, after each group of batches. Whoever
stops early closes the generator, and the results known by then still go to the sink. So a deadline is a rule of the
loop outside (``run_steps``), and a sink is ``list.append`` or writes a file.
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
"""Batches that a group of inputs fills: an interrupt loses at most the group being drawn, and only the last batch of
a group may be short."""

MOST_SCORES = 1 << 25
"""Largest number of scores held in memory at a time, unless a single input has more."""

SAVE_SECONDS = 10.0
"""Seconds of drawing that an interrupt, a kill or a lost worker can cost: results are saved that often."""

SAVING_SHARE = 0.05
"""Largest share of the time that goes into saving results: large files are saved less often than above."""

Sink = Callable[[Any], None]
"""Function that a session calls with each result (a certificate, a class, a state) as soon as it has it."""


class Interrupted(KeyboardInterrupt):
    """Raised after an interrupt (Ctrl-C); ``done`` holds what was done by then: the results, or a summary of them."""

    def __init__(self, done: Any) -> None:
        super().__init__()
        self.done = done


class ResultFile:
    """Base class of sinks: keeps the result of each input by its name, and writes all to the file ``path`` if not None.

    The results that an earlier call left in the file count too. The file is written about every ten seconds and at the
    end, so that an interrupt costs no more. Subclasses define ``take`` and ``write``.
    """

    def __init__(self, path: Path | None, names: Sequence[str]) -> None:
        """Take the path of the file, None for no file, and the names of all inputs in their order."""
        self.path, self.names = path, names
        self.kept: dict[str, Any] = {}
        self._saved, self._took, self._changed = time.monotonic(), 0.0, False

    @property
    def done(self) -> int:
        """The number of inputs whose result is final."""
        return len(self.kept)

    def take(self, made: Any) -> None:
        """Keep a result that a worker computed (for subclasses to define)."""
        raise NotImplementedError

    def write(self, path: Path) -> None:
        """Write all results kept to the file ``path`` (for subclasses to define)."""
        raise NotImplementedError

    def keep(self, name: str, result: Any) -> None:
        """Keep ``result`` as that of the input called ``name``, and write the file if the last time was long ago."""
        self.kept[name], self._changed = result, True
        if time.monotonic() - self._saved > max(SAVE_SECONDS, self._took / SAVING_SHARE):
            self.save()

    def save(self) -> None:
        """Write the file now, if there is one and a result was kept since the last time."""
        if self.path is not None and self._changed:
            started = time.monotonic()
            self.write(self.path)
            self._saved, self._changed = time.monotonic(), False
            self._took = self._saved - started

    def in_order(self) -> list[Any]:
        """Return the results kept so far, in the order of the inputs."""
        return [self.kept[name] for name in self.names if name in self.kept]

    def fill(self, draws: Iterator[int], progress: Callable[[int, int], None]) -> list[Any]:
        """Run ``draws`` to its end and return all results in the order of the inputs.

        ``draws`` yields numbers of draws made, while its workers call ``take``. ``progress`` is called with the number
        of inputs done and of draws made. If an error or an interrupt ends the work, the file is written all the same;
        an interrupt raises ``Interrupted`` with the results.
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
    """Inputs ``x[inputs, ...]`` with their names.

    ``labels`` are the classes to certify, one an input, if they are fixed beforehand; None if the draws choose them.
    """

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
    """Progress of a session: draws made since the last step, and inputs done so far, of one half done a fraction."""

    drawn: int
    done: float


class Session:
    """Draws with one engine (model and noise) and judges the draws; call its methods inside of ``engine.session()``.

    Methods are generators of ``Step``; their results go to the argument ``sink``, a function of one result.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def certify(self, inputs: Inputs, settings: Settings, n: int, n0: int, sink: Sink) -> Iterator[Step]:
        """Pass to ``sink`` the ``Certificate`` of each input, from ``n`` draws each, and yield the progress.

        If ``n0`` is above 0, so many separate draws of each input choose its class, where it has no label.
        """
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
        """Draw until every radius of ``ladder`` is certified or given up for every input, and yield the progress.

        The sink gets a ``Decided`` record of each input once it is final, and of the others as they stand, every ten
        seconds and at the end. ``n0`` draws select the class, if the ladder does not take the winner and the inputs
        have no labels. ``before`` holds such a record of an earlier session for each input, to go on from, or None.
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
        """Draw scores until ``radii``, or a ``precision``, are decided for every input, and yield the progress.

        Decided means certified or given up, or ``max_n`` draws made. The sink gets the certificates in the order of the
        inputs. ``n0`` draws select the class where the inputs have no labels.
        """
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
        """Pass to ``sink`` the predicted class of each input, -1 for an abstention, and yield the progress.

        With ``n``, each prediction is from n draws; with ``max_n``, from as many as it takes, at most that many. The
        draws are those of the stream ``selection``, so that certificates, which use others, may take the predicted
        class as their label.
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
        """Search around each input for a point where its label is not predicted; yield the progress.

        The sink gets a ``Refutation`` for each input. ``refuting`` is an ``evaluate.refutations.RefutationSettings``;
        the search around input i begins at distance ``start[i]``.
        """
        for group, first in _groups(inputs, refuting.inputs_at_once(self.engine.rows)):
            rows = slice(first, first + len(group))
            steps = refuting.refute(self.attacked(group.ids), group.ids, group.x, group.labels, start[rows])
            for made in (yield from _as_steps(steps, first, refuting.draws, first + len(group))):
                sink(made)

    def attacked(self, ids: Sequence[str]) -> Any:
        """Return what ``refute`` attacks around the inputs called ``ids``: the engine's model, with gradients."""
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
    """Run a session's steps, call ``show`` with the inputs done at each, and return whether they came to their end.

    They are stopped after ``max_seconds`` and by an interrupt (Ctrl-C), and the session's sink then gets what is known.
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
