"""Sessions: groups of inputs, full batches, interrupts, deadlines, progress, and calls that overlap."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import buckler
from buckler import Smoothed, Softmax, session
from buckler.sampling.cpu import ROWS_RUN_ALONE
from buckler.types import AnyArray

POINTS = np.linspace(-1.0, 1.0, 41)[:, None]
LABELS = (POINTS[:, 0] < 0).astype(int)


class Counting:
    """A half-space, which counts its calls and the rows of each; it can interrupt at a call, or end a clock's time."""

    def __init__(self, interrupt_at: int = 0, time_up_at: int = 0) -> None:
        self.rows: list[int] = []
        self.interrupt_at, self.time_up_at = interrupt_at, time_up_at

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.rows.append(len(batch))
        if len(self.rows) == self.interrupt_at:
            raise KeyboardInterrupt
        return np.stack([batch[:, 0], -batch[:, 0]], axis=1)

    def monotonic(self) -> float:
        return 1e9 if self.time_up_at and len(self.rows) >= self.time_up_at else 0.0


def smoothed(model: Any = None, **options: Any) -> Smoothed:
    return Smoothed(model or Counting(), 0.5, 2, **options)


def test_batches_are_full_across_inputs() -> None:
    model = Counting()
    smoothed(model, batch_size=64).certify(POINTS, n=90, n0=10)
    draws, groups = len(POINTS) * 100, -(-len(POINTS) // (session.GROUP_BATCHES * 64 // 100))
    assert sum(model.rows) == draws + ROWS_RUN_ALONE
    assert max(model.rows) == 64
    assert len(model.rows) <= draws / 64 + 2 * groups + 1
    until, each = Counting(), Counting()
    smoothed(until, batch_size=64).certify_until(POINTS, radii=[0.25], max_n=1000)
    alone = smoothed(each)
    for point in POINTS:
        alone.certify_until(point[None], radii=[0.25], max_n=1000)
    assert sum(until.rows) == sum(each.rows)
    assert len(until.rows) < len(each.rows) / 2


def calls() -> dict[str, Any]:
    return {
        "certify": lambda s, **o: s.certify(POINTS, n=1000, **o),
        "until": lambda s, **o: s.certify_until(POINTS, radii=[0.25], max_n=1000, **o),
        "predict": lambda s, **o: s.predict(POINTS, n=1000, **o),
        "predict until": lambda s, **o: s.predict(POINTS, max_n=1000, **o),
    }


def test_an_interrupt_leaves_the_certificates_of_the_first_inputs() -> None:
    whole = smoothed(batch_size=16).certify(POINTS, n=1000)
    part = smoothed(Counting(interrupt_at=650), batch_size=16).certify(POINTS, n=1000)
    assert 0 < len(part) < len(whole) == part.asked
    assert part == whole[: len(part)]
    assert "of 41, interrupted" in repr(part)
    with pytest.raises(KeyboardInterrupt):
        smoothed(Counting(interrupt_at=1)).certify(POINTS, n=1000)


@pytest.mark.parametrize("call", ["predict", "predict until"])
def test_an_interrupted_prediction_has_no_answer(call: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        calls()[call](smoothed(Counting(interrupt_at=3), batch_size=100))


@pytest.mark.parametrize("asked", [{"precision": 0.05}, {"radii": [0.25, 0.84]}])
def test_an_interrupt_leaves_the_answer_so_far_without_a_final_test(asked: Any) -> None:
    x = [[0.85]]
    interrupted = smoothed(Counting(interrupt_at=10)).certify_until(x, **asked)
    assert interrupted.decided is not None
    assert [(d.decision, d.by_final_test) for d in interrupted.decided] == [("undecided", 0)]
    assert 0.0 < interrupted[0].radius < 0.85
    assert interrupted[0].n < 100_000
    for n0 in (0, 10):
        with pytest.raises(KeyboardInterrupt):  # before the first draws are made there is no answer
            smoothed(Counting(interrupt_at=1)).certify_until(x, n0=n0, **asked)


@pytest.mark.parametrize(
    ("scores", "at"), [*((None, at) for at in range(10, 60, 9)), *((Softmax(0.1), at) for at in (170, 200, 230))]
)
def test_an_interrupt_of_many_leaves_the_first_ones(scores: Any, at: int) -> None:
    options: Any = {"radii": [0.1, 0.4], "max_n": 2000}
    made = smoothed(Counting(interrupt_at=at), scores=scores, batch_size=16).certify_until(POINTS, **options)
    whole = smoothed(scores=scores, batch_size=16).certify_until(POINTS, **options)
    assert 0 < len(made) <= made.asked == 41
    assert made.ids == whole.ids[: len(made)]
    assert all(one.n <= full.n for one, full in zip(made, whole, strict=False))


@pytest.mark.parametrize("scores", [None, Softmax(0.1)])
def test_after_max_seconds_the_answer_so_far_is_a_certificate(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counting(time_up_at=12)
    monkeypatch.setattr(session, "time", model)
    stopped = smoothed(model, scores=scores).certify_until([[0.85]], radii=[0.05, 0.84], max_seconds=5.0)
    assert 0.05 <= stopped[0].radius < 0.84
    assert stopped[0].n < 100_000
    if stopped.decided is not None:
        assert (stopped.decided[0].decision, stopped.decided[0].by_final_test) == ("undecided", 0)


def test_time_that_is_up_at_once_leaves_nothing_or_abstentions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counting(time_up_at=1)
    monkeypatch.setattr(session, "time", model)
    stopped = smoothed(model).certify_until(POINTS, radii=[0.5], max_seconds=5.0)
    assert stopped.asked == 41
    assert all(c.n <= 16 for c in stopped)


def test_two_calls_that_overlap_have_the_answers_of_each_alone() -> None:
    one = smoothed()
    alone = [one.certify(POINTS, n=200, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda seed: one.certify(POINTS, n=200, seed=seed, progress=False), range(4)))
    assert found == alone

    class Nested(Counting):
        """Certifies by another object while it is asked itself."""

        inner: Any = None

        def __call__(self, batch: AnyArray) -> AnyArray:
            if self.inner is None:
                self.inner = ()
                self.inner = one.certify(POINTS, n=200, seed=1, progress=False)
            return super().__call__(batch)

    model = Nested()
    assert smoothed(model).certify(POINTS, n=200, seed=2) == alone[2]
    assert model.inner == alone[1]


def test_values_outside_of_the_range_are_refused_and_bytes_spread_over_it() -> None:
    ranged = smoothed(value_range=(-1.0, 1.0))
    with pytest.raises(buckler.InvalidInput, match="x must"):
        ranged.certify([[1.5]], n=10)
    ends = ranged.certify(np.array([[0], [255]], dtype=np.uint8), n=100)
    assert ends == smoothed().certify([[-1.0], [1.0]], n=100)


CENTRES = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]], dtype=np.float32)
ANGLES = np.linspace(0.1, 6.2, 24)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) * np.linspace(0.4, 1.5, 24)[:, None]
NEAREST = (CIRCLE @ CENTRES.T).argmax(axis=1)
SMALL = 16
"""So few rows at once that several hundred draws of each input make a group of one input."""


def linear(batch: AnyArray) -> AnyArray:
    return np.asarray(batch @ CENTRES.T)


def in_small_groups(model: Any, scores: Any = None) -> buckler.Smoothed:
    return buckler.Smoothed(model, sigma=0.4, num_classes=3, scores=scores, batch_size=SMALL)


SOFT = buckler.Softmax(0.5)
DOORS: dict[str, Callable[..., Any]] = {
    "certify": lambda x, model=linear, **o: list(in_small_groups(model).certify(x, n=300, **o)),
    "certify_until": lambda x, model=linear, **o: list(
        in_small_groups(model).certify_until(x, radii=[0.1, 0.3], max_n=400, **o)
    ),
    "certify_until, precise": lambda x, model=linear, **o: list(
        in_small_groups(model).certify_until(x, precision=0.3, max_n=400, n0=20, **o)
    ),
    "scores": lambda x, model=linear, **o: list(in_small_groups(model, SOFT).certify(x, n=200, n0=20, **o)),
    "scores until": lambda x, model=linear, **o: list(
        in_small_groups(model, SOFT).certify_until(x, radii=[0.05], max_n=300, n0=20, **o)
    ),
    "certify, selected": lambda x, model=linear, **o: list(in_small_groups(model).certify(x, n=300, n0=50, **o)),
    "predict": lambda x, model=linear, **o: in_small_groups(model).predict(x, n=300, **o).tolist(),
    "predict until": lambda x, model=linear, **o: in_small_groups(model).predict(x, max_n=300, **o).tolist(),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_input_gets_what_it_gets_alone(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_SCORES", 2000)  # groups of a few inputs, for scores as for votes
    together = DOORS[door](CIRCLE, seed=3)
    assert together == [DOORS[door](point[None], seed=3)[0] for point in CIRCLE]
    assert len({str(one) for one in together}) > 2


@pytest.mark.parametrize("door", ["certify", "certify_until", "scores", "scores until"])
def test_every_input_is_certified_for_its_own_label(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_SCORES", 2000)
    made = DOORS[door](CIRCLE, labels=NEAREST)
    certified = [(one.predicted, label) for one, label in zip(made, NEAREST.tolist(), strict=True) if one.radius > 0.0]
    assert [predicted for predicted, _ in certified] == [label for _, label in certified]
    assert {predicted for predicted, _ in certified} == {0, 1, 2}


def test_every_refutation_is_of_its_own_input_and_label() -> None:
    torch = pytest.importorskip("torch")
    from buckler import PGDAttack

    layer = torch.nn.Linear(2, 3, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor(CENTRES))
    model = buckler.Smoothed(layer, sigma=0.4, num_classes=3, batch_size=SMALL)
    points, labels = CIRCLE[::8], NEAREST[::8]
    assert len(set(labels)) == 3
    certificates = model.certify(points, n=300, labels=labels)
    assert len({one.radius for one in certificates}) == 3
    options: dict[str, Any] = {"max_n": 2000, "attack": PGDAttack(steps=16, draws=64)}
    together = model.refute(points, certificates, **options)
    alone = [model.refute(x[None], [one], **options)[0] for x, one in zip(points, certificates, strict=True)]
    assert [str(one) for one in together] == [str(one) for one in alone]
    assert [(one.label, one.tried) for one in together] == [(one.label, one.tried) for one in alone]
    assert [one.label for one in together] == labels.tolist()


@pytest.mark.parametrize("door", DOORS)
def test_the_seed_and_the_ids_decide_the_noise(door: str) -> None:
    seen: list[bytes] = []

    def watched(batch: AnyArray) -> AnyArray:
        seen.append(np.ascontiguousarray(batch).tobytes())
        return linear(batch)

    runs = []
    for options in ({"seed": 3}, {"seed": 3}, {"seed": 4}, {"seed": 3, "ids": ["a", "b", "c"]}):
        seen.clear()
        DOORS[door](CIRCLE[:3], watched, **options)
        runs.append(set(seen))
    assert runs[0] == runs[1]
    assert not runs[0] & (runs[2] | runs[3])


@pytest.mark.parametrize(("door", "n0"), [("certify", 50), ("certify_until", 50), ("scores", 20), ("scores until", 20)])
def test_selection_draws_are_others_than_those_of_the_limit(door: str, n0: int) -> None:
    seen: list[bytes] = []

    def watched(batch: AnyArray) -> AnyArray:
        seen.extend(np.ascontiguousarray(row).tobytes() for row in batch)
        return linear(batch)

    own = {"n0": n0} if door.startswith("certify") else {}
    made = DOORS[door](CIRCLE[:3], watched, seed=3, **own)
    assert {one.n0 for one in made} == {n0}
    assert len(set(seen)) >= sum(one.n + one.n0 for one in made)


def test_a_tie_of_logits_is_a_vote_for_the_first_of_the_classes() -> None:
    tied = np.array([0.0, 2.0, 2.0, 1.0], dtype=np.float32)
    models: list[Any] = [lambda batch: np.tile(tied, (len(batch), 1))]
    torch = pytest.importorskip("torch")
    constant = torch.nn.Linear(2, 4)
    torch.nn.init.zeros_(constant.weight)
    constant.bias = torch.nn.Parameter(torch.tensor(tied))
    for model in (*models, constant):
        made = buckler.Smoothed(model, sigma=0.4, num_classes=4).certify(CIRCLE, n=200)
        assert made.predicted.tolist() == [1] * len(CIRCLE)


def test_a_tie_of_votes_is_won_by_the_first_of_the_classes() -> None:
    selection = [[3, 40, 40, 17], [25, 25, 25, 25]]
    made = buckler.certify_votes([[0, 990, 5, 5], [990, 0, 5, 5]], sigma=0.5, selection=selection)
    assert made.predicted.tolist() == [1, 0]
