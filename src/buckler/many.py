"""Many inputs through one engine: batches are filled across inputs, and an interrupt leaves what is finished."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from buckler.certify import budget
from buckler.certify.anytime import AnytimeTest
from buckler.certify.counts import limits_of_counts
from buckler.certify.decision import Decided
from buckler.certify.ladder import Ladder
from buckler.certify.make_certificates import MarginLimits, issue
from buckler.certify.predictions import PredictionTest, predicted_class
from buckler.certify.score_stopping import ScorePlan, ScoreTest
from buckler.certify.scores import limits_of_scores, top_class
from buckler.errors import ClassifierError, InvalidInput, check_whole, show
from buckler.plans import FixedDraws
from buckler.progress import Show
from buckler.records import Certificate
from buckler.sampling.adaptive import draw_until_decided
from buckler.sampling.engine import Engine, ScoreMap, score_map
from buckler.sampling.streams import Stream, content_id
from buckler.types import AnyArray, ArrayLike, Float32Array, FloatArray, IntArray

BATCHES = 64
"""Batches whose inputs are drawn together: only the last of them may not be full."""

NUMBERS = 1 << 25
"""Scores that are held at a time, at most, unless those of a single input are more."""


class Inputs(NamedTuple):
    """Inputs ``x[inputs, ...]``, their names, the class of each where it is given, and an engine to draw with."""

    x: Float32Array
    ids: Sequence[str]
    labels: IntArray | None
    engine: Engine

    def part(self, rows: slice) -> "Inputs":
        """Return some of the inputs."""
        return Inputs(self.x[rows], self.ids[rows], None if self.labels is None else self.labels[rows], self.engine)

    def votes(self, stream: Stream, n: int, **options: Any) -> IntArray:
        """Return the votes ``[inputs, m]`` of the first ``n`` draws of every input."""
        return self.engine.votes(self.x, self.ids, stream, n, **options)

    def scores(self, stream: Stream, n: int, make: ScoreMap, **options: Any) -> FloatArray:
        """Return their scores ``[inputs, n, m]``."""
        return self.engine.scores(self.x, self.ids, stream, n, make, **options)


def certify_each(inputs: Inputs, plan: FixedDraws, tell: Show) -> list[Certificate]:
    """Return the certificates of inputs from fixed numbers of draws; on an interrupt those of the first inputs.

    Those that are left out were not looked at, so each certificate holds as if there had been no interrupt.
    """
    engine, total = inputs.engine, len(inputs.ids)
    votes = plan.terms.map == "hardmax"
    most = max(1, BATCHES * engine.rows // plan.n if votes else NUMBERS // ((plan.n + plan.n0) * engine.num_classes))
    step = -(-total // -(-total // most))  # groups of about the same size
    made: list[Certificate] = []
    with engine.session():
        try:
            for start in range(0, total, step):
                watch = _Watch(tell, start, total, plan.n + plan.n0)
                group = inputs.part(slice(start, start + step))
                limits = _vote_limits(group, plan, watch) if votes else _score_limits(group, plan, watch)
                made += issue(plan.terms, limits)
                tell(len(made), total)
        except KeyboardInterrupt:
            if not made:
                raise
        return made


class _Watch:
    """Turns draws of a group that begins at input ``start`` into inputs that are done."""

    def __init__(self, tell: Show, start: int, inputs: int, draws: int) -> None:
        self._tell, self._done, self._inputs, self._draws = tell, float(start), inputs, draws

    def __call__(self, drawn: int) -> None:
        self._done += drawn / self._draws
        self._tell(min(self._done, self._inputs), self._inputs)


def _vote_limits(group: Inputs, plan: FixedDraws, watch: _Watch) -> MarginLimits:
    first = group.votes("selection", plan.n0, progress=watch) if plan.n0 else None
    votes = group.votes("estimation", plan.n, progress=watch)
    return limits_of_counts(votes, plan.terms, label=group.labels, selection=first, ids=group.ids)


def _score_limits(group: Inputs, plan: FixedDraws, watch: _Watch) -> MarginLimits:
    make = score_map(plan.terms.map, plan.terms.temperature)
    first = group.scores("selection", plan.n0, make, progress=watch) if plan.n0 else None
    scores = group.scores("estimation", plan.n, make, progress=watch)
    return limits_of_scores(scores, plan.terms, label=group.labels, selection=first, ids=group.ids)


def certify_scores_each(inputs: Inputs, plan: ScorePlan, tell: Show, seconds: float | None = None) -> list[Certificate]:
    """Return the certificates of inputs by scores, drawn until decided; on an interrupt of the first inputs so far."""
    deadline = None if seconds is None else time.monotonic() + seconds
    total = len(inputs.ids)
    step = max(1, NUMBERS // (plan.max_n * inputs.engine.num_classes))
    made: list[Certificate] = []
    make = score_map(plan.terms.map, plan.terms.temperature)
    with inputs.engine.session():
        for start in range(0, total, step):
            group, test = inputs.part(slice(start, start + step)), None
            try:
                first = group.scores("selection", plan.n0, make) if plan.n0 else None
                labels = top_class(first) if group.labels is None and first is not None else group.labels
                test = ScoreTest(plan, labels, inputs.engine.num_classes, first)  # type: ignore[arg-type]
                while (rows := test.undecided).size and (deadline is None or time.monotonic() <= deadline):
                    n = int(test.n[rows[0]])
                    _draw_scores(group, test, rows, range(n, n + test.batch_size(n)), make)
                    tell(start + len(group.ids) - test.undecided.size, total)
                stopped = bool(test.undecided.size)
            except KeyboardInterrupt:
                if not made and (test is None or not test.n.any()):
                    raise
                stopped = True
            seen = 0 if test is None else int(np.argmin(np.append(test.n > 0, False)))
            if seen and test is not None:
                made += issue(plan.terms, test.limits(range(seen), tuple(group.ids[:seen])))
            if stopped:
                break
        return made


def _draw_scores(group: Inputs, test: ScoreTest, rows: IntArray, span: range, make: ScoreMap) -> None:
    """Draw the next scores of some inputs, all of the same draws, and hand them to the test."""
    ids = [group.ids[i] for i in rows]
    scores = group.engine.scores(group.x[rows], ids, "estimation", len(span), make, span.start)
    for row, drawn in zip(rows.tolist(), scores, strict=True):
        test.update(row, drawn)


def decide_each(inputs: Inputs, ladder: Ladder, n0: int, tell: Show, seconds: float | None = None) -> list[Decided]:
    """Return how far up the ladder each input gets; after ``seconds`` or on an interrupt, of the first inputs so far.

    Where inputs have no label, ``n0`` draws select it. Any stopping is valid (T18); the exam of an input that is
    stopped early is forfeited.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    x, ids, labels, engine = inputs
    with engine.session():
        chosen = inputs.votes("selection", n0).argmax(axis=1) if labels is None else labels
        test = AnytimeTest(ladder, chosen, engine.num_classes)
        try:
            with closing(draw_until_decided(engine, x, ids, test)) as rounds:
                for _ in rounds:
                    tell(len(ids) - test.undecided.size, len(ids))
                    if deadline is not None and time.monotonic() > deadline:
                        break
        except KeyboardInterrupt:
            if not test.n[0]:
                raise
    unseen = np.flatnonzero(test.n == 0)
    standing = (test.decided(i, ids[i], n0) for i in range(unseen[0] if unseen.size else len(ids)))
    return [replace(one, certificate=replace(one.certificate, seed=engine.seed)) for one in standing]


def predict_each(inputs: Inputs, n: int, max_n: int | None, alpha: float, tell: Show) -> IntArray:
    """Return the predicted class of each input, -1 for none, from ``n`` draws or until decided within ``max_n``.

    Draws are of the selection stream, so that a certificate of the class predicted rests on others.
    """
    x, ids, _, engine = inputs
    draws = check_whole("n", n, 1) if max_n is None else check_whole("max_n", max_n, 1)
    level = budget.after_drawing(alpha, engine.law)
    with engine.session():
        if max_n is None:
            watch = _Watch(tell, 0, len(ids), draws)
            return predicted_class(inputs.votes("selection", draws, progress=watch), alpha=level)
        test = PredictionTest(len(ids), engine.num_classes, alpha=level, max_n=draws)
        for _ in draw_until_decided(engine, x, ids, test, stream="selection"):
            tell(len(ids) - test.undecided.size, len(ids))
        return test.answers


def names_of(ids: Sequence[str] | None, x: AnyArray) -> Sequence[str]:
    """Return the names of inputs, all different, since noise follows them; without ids they are made of the values.

    An input that comes again has a name, and noise, of its own.
    """
    if ids is not None:
        if len(ids) != len(x) or len(set(ids)) != len(x) or not all(isinstance(name, str) for name in ids):
            raise InvalidInput(
                f"ids must be {len(x)} different names, each a text, one for each input; got {show(list(ids))}"
            )
        return ids
    seen: dict[str, int] = {}
    names = []
    for point in x:
        name = content_id(point)
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


@contextmanager
def axes_explained(inputs: Inputs) -> Iterator[None]:
    """Let a model's failure say that the inputs have an axis too many or too few, where that is what it is."""
    x, engine = inputs.x, inputs.engine
    try:
        yield
    except ClassifierError:
        if x.ndim > 2 and _runs(engine, x[0][:1]):
            raise InvalidInput(
                f"x must be one input, without a batch axis; got one of shape {x.shape[1:]}, which the model takes for "
                f"a batch of {x.shape[1]}: certify_many, decide_many and predict_many take all of them, and certify, "
                "decide and predict one, x[0]"
            ) from None
        if _runs(engine, x[None]):
            raise InvalidInput(
                f"x must be inputs as the model takes them; got inputs of shape {x.shape[1:]}, where it takes one of "
                f"shape {x.shape}: certify, decide and predict take that one, or add the axis with x[None]"
            ) from None
        raise


def _runs(engine: Engine, x: ArrayLike) -> bool:
    try:
        with engine.session():
            engine.votes(x, ["probe"], "selection", 1)
    except (ClassifierError, InvalidInput):
        return False
    return True
