"""Drawing until decided: each decider sees its own stream, and device batches stay full."""

import threading
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, draw_until_decided, filling
from buckler.types import AnyArray, IntArray
from tests.sampling.test_engine import draw_counts

X = np.linspace(-2, 2, 12, dtype=np.float32)[:, None].repeat(3, axis=1)
IDS = [f"i{k}" for k in range(12)]


def sign(batch: AnyArray) -> AnyArray:
    return np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)


class Lead:
    """Decides once one class leads by a given number of votes, or after ``max_n`` draws."""

    def __init__(self, lead: int = 60, max_n: int = 1500) -> None:
        self.lead, self.max_n = lead, max_n
        self.votes = np.zeros((12, 2), dtype=np.int64)
        self.seen: list[list[list[int]]] = [[] for _ in IDS]

    @property
    def n(self) -> IntArray:
        return np.asarray(self.votes.sum(axis=1))

    @property
    def undecided(self) -> IntArray:
        return np.flatnonzero((np.abs(self.votes[:, 1] - self.votes[:, 0]) < self.lead) & (self.n < self.max_n))

    def batch_sizes(self, rows: IntArray) -> IntArray:
        return np.minimum(np.maximum(5, self.n[rows] // 4), self.max_n - self.n[rows])

    def update(self, rows: IntArray, counts: IntArray) -> None:
        assert (counts.sum(axis=1) == self.batch_sizes(rows)).all()
        for row, votes in zip(rows, counts.tolist(), strict=True):
            self.seen[row].append(votes)
        self.votes[rows] += counts


def decide(rows: int = 64, max_n: int = 1500) -> tuple[Lead, list[int]]:
    sizes: list[int] = []

    def spy(batch: AnyArray) -> AnyArray:
        sizes.append(len(batch))
        return sign(batch)

    engine, decider = Engine(as_classifier(spy, num_classes=2), sigma=1.0, batch_size=rows), Lead(max_n=max_n)
    finished: list[int] = []
    with engine.session():
        drawn = 0
        for round_ in draw_until_decided(engine, X, IDS, decider):
            drawn += round_.drawn
            assert not set(round_.finished) & set(decider.undecided)
            finished += round_.finished.tolist()
    assert sorted(finished) == list(range(12))
    assert drawn == decider.n.sum()
    return decider, sizes


def test_decisions_do_not_depend_on_the_schedule() -> None:
    one, many, some = decide(rows=1, max_n=300)[0], decide(max_n=300)[0], decide(rows=7, max_n=300)[0]
    assert one.seen == many.seen == some.seen
    assert len({int(k) for k in one.n}) > 3


def test_the_votes_are_a_prefix_of_the_stream() -> None:
    decider = decide()[0]
    for i, votes in enumerate(decider.votes):
        n = int(votes.sum())
        direct = draw_counts(sign, X[i], sigma=1.0, n=n, num_classes=2, seed=0, stream="estimation", input_id=IDS[i])
        assert (votes == direct).all()


def test_easy_inputs_stop_early_and_the_budget_is_kept() -> None:
    decider = decide(max_n=300)[0]
    assert decider.n.max() == 300
    assert decider.n[0] < 100


def test_it_goes_on_from_votes_that_are_there() -> None:
    whole, later = decide()[0], Lead()
    first = [votes[0] for votes in whole.seen]
    later.votes[:] = first
    engine = Engine(as_classifier(sign, num_classes=2), sigma=1.0)
    with engine.session():
        for _ in draw_until_decided(engine, X, IDS, later):
            pass
    assert (later.votes == whole.votes).all()
    assert [votes[1:] for votes in whole.seen] == later.seen


def test_batches_are_shared() -> None:
    decider, sizes = decide()
    assert np.mean(sizes) > 2 * np.mean([sum(votes) for seen in decider.seen for votes in seen])


def test_votes_are_looked_at_while_others_are_drawn() -> None:
    """The draws of the second group and the look at the first wait for one another: neither comes after the other."""
    looking, drawing = threading.Event(), threading.Event()
    looks: list[IntArray] = []
    batches: list[int] = []

    def spy(batch: AnyArray) -> AnyArray:
        batches.append(len(batch))
        if sum(batches) > 15:  # what fits of the first group's wants: three inputs of six
            drawing.set()
            assert looking.wait(60)
        return sign(batch)

    class Waits(Lead):
        def update(self, rows: IntArray, counts: IntArray) -> None:
            looks.append(rows)
            looking.set()
            assert drawing.wait(60)
            super().update(rows, counts)

    classifier: Any = as_classifier(spy, num_classes=2)
    classifier.compared = True  # no rows are run again
    engine, decider = Engine(classifier, sigma=1.0, batch_size=16), Waits()
    with engine.session():
        rounds = draw_until_decided(engine, X, IDS, decider)
        next(rounds)
        rounds.close()
    assert [look.tolist() for look in looks] == [[0, 1, 2], [6, 7, 8]]


def test_a_look_that_fails_ends_the_drawing() -> None:
    class Broken(Lead):
        def update(self, rows: IntArray, counts: IntArray) -> None:
            raise ZeroDivisionError(rows, counts)

    engine = Engine(as_classifier(sign, num_classes=2), sigma=1.0, batch_size=16)
    with engine.session(), pytest.raises(ZeroDivisionError):
        list(draw_until_decided(engine, X, IDS, Broken()))


def test_batches_are_full_where_there_is_enough_to_draw() -> None:
    _, sizes = decide(rows=20)
    assert np.mean(np.array(sizes) == 20) > 0.6
    for wanted in ([7], [50, 3], [3, 3, 3], [20, 20], [19, 2, 19]):
        now = filling(np.array(wanted), 20)
        assert now[0]
        assert now.sum() == len(wanted) or np.array(wanted)[now].sum() >= 20 or sum(wanted) < 20


def test_bad_deciders_are_refused() -> None:
    engine = Engine(as_classifier(sign, num_classes=2), sigma=1.0)

    class Lazy(Lead):
        def batch_sizes(self, rows: IntArray) -> IntArray:
            return 0 * rows

    with pytest.raises(InvalidInput, match="batch_sizes"):
        next(draw_until_decided(engine, X, IDS, Lazy()))
    with pytest.raises(InvalidInput, match="decider must be of the 3 inputs"):
        next(draw_until_decided(engine, X[:3], IDS[:3], Lead()))
