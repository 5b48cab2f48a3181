"""Drawing until decided: each decider sees its own stream, and device batches stay full."""

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.sampling.adaptive import Outcome, draw_until_decided
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, draw_counts
from buckler.types import AnyArray, Decision, IntArray

X = np.linspace(-2, 2, 12, dtype=np.float32)[:, None].repeat(3, axis=1)
IDS = [f"i{k}" for k in range(12)]


def sign(batch: AnyArray) -> AnyArray:
    return np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)


class Lead:
    """Decides once one class leads by a given number of votes; gives up after some draws."""

    def __init__(self, lead: int, patience: int = 10**9) -> None:
        self.lead, self.patience = lead, patience
        self.votes = np.zeros(2, dtype=np.int64)
        self.seen: list[list[int]] = []

    def batch_size(self) -> int:
        return max(5, int(self.votes.sum()) // 4)

    def update(self, counts: IntArray) -> Decision:
        assert counts.sum() == self.batch_size() or counts.sum() > 0
        self.seen.append(counts.tolist())
        self.votes += counts
        if abs(int(self.votes[1] - self.votes[0])) >= self.lead:
            return "certified"
        return "hopeless" if self.votes.sum() >= self.patience else "undecided"


def outcomes(width: int | None, rows: int = 64, max_n: int = 2000) -> tuple[list[Outcome], list[Lead], list[int]]:
    sizes: list[int] = []

    def spy(batch: AnyArray) -> AnyArray:
        sizes.append(len(batch))
        return sign(batch)

    engine = Engine(as_classifier(spy, num_classes=2), sigma=1.0, batch_size=rows)
    deciders = [Lead(60, patience=1500) for _ in IDS]
    with engine.session():
        return draw_until_decided(engine, X, IDS, deciders, max_n=max_n, width=width), deciders, sizes


def test_decisions_do_not_depend_on_the_schedule() -> None:
    one, first, _ = outcomes(width=1)
    many, second, _ = outcomes(width=None)
    some, third, _ = outcomes(width=5, rows=7)
    for a, b, c in zip(one, many, some, strict=True):
        assert a.decision == b.decision == c.decision
        assert a.n == b.n == c.n
        assert (a.counts == b.counts).all()
        assert (a.counts == c.counts).all()
    assert [d.seen for d in first] == [d.seen for d in second] == [d.seen for d in third]
    assert {o.decision for o in one} >= {"certified"}


def test_the_votes_are_a_prefix_of_the_stream() -> None:
    for i, outcome in enumerate(outcomes(width=None)[0]):
        direct = draw_counts(
            sign, X[i], sigma=1.0, n=outcome.n, num_classes=2, seed=0, stream="estimation", input_id=IDS[i]
        )
        assert (outcome.counts == direct).all()


def test_easy_inputs_stop_early_and_the_budget_is_kept() -> None:
    found, _, _ = outcomes(width=None, max_n=300)
    assert max(o.n for o in found) == 300
    assert found[0].n < 100
    assert {o.decision for o in found if o.n == 300 and abs(int(o.counts[0] - o.counts[1])) < 60} == {"undecided"}


def test_batches_are_shared() -> None:
    _, _, alone = outcomes(width=1)
    _, _, shared = outcomes(width=None)
    assert len(shared) < len(alone) / 3
    assert np.mean(shared) > 2 * np.mean(alone)


def test_bad_deciders_are_refused() -> None:
    engine = Engine(as_classifier(sign, num_classes=2), sigma=1.0)

    class Strange(Lead):
        def update(self, _: IntArray) -> Decision:
            return "perhaps"  # type: ignore[return-value]

    class Lazy(Lead):
        def batch_size(self) -> int:
            return 0

    for deciders in ([Lead(3)], [Strange(3)] * 12, [Lazy(3) for _ in IDS]):
        with pytest.raises(InvalidInput):
            draw_until_decided(engine, X, IDS, deciders, max_n=10)
