"""AnytimeTest and ScoreTest: loop, batches, certificates; classes and batches are alike; limits hold at every look."""

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Lock, Semaphore
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, ndtr, ndtri

import buckler
from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.evalues import distance_to_null, tangent_mixture
from buckler.bounds.means import sequence_lower
from buckler.certificate import Certificate
from buckler.certify import sequential
from buckler.certify.budget import after_drawing
from buckler.certify.ladder import Ladder
from buckler.certify.methods import sound_methods
from buckler.certify.sequential import SEQUENCE, AnytimeTest, Decided, ScoreTest
from buckler.certify.settings import Settings, Softmax, make_settings
from buckler.certify.tangents import margin_from_height
from buckler.errors import InvalidInput
from buckler.noise import Gaussian
from buckler.types import AnyArray, ArrayLike, FloatArray, IntArray, MarginKind


class One:
    """The test of a single input and a single radius, or of a ladder, as a loop of one's own would use it."""

    def __init__(
        self,
        label: int = 0,
        m: int = 3,
        alpha: float = 1e-3,
        max_n: int = 100_000,
        target: float | tuple[float, ...] = 0.5,
    ) -> None:
        radii = target if isinstance(target, tuple) else (target,)
        self.test = AnytimeTest(Ladder(radii, Gaussian(0.5), alpha, max_n), [label], m)

    @property
    def n(self) -> int:
        return int(self.test.n[0])

    @property
    def decision(self) -> str:
        return "undecided" if self.n == 0 else self.test.decided(0, "x").decision

    def batch_size(self) -> int:
        return int(self.test.batch_sizes(np.array([0]))[0])

    def update(self, votes: ArrayLike) -> str:
        self.test.update([0], np.asarray(votes)[None])
        return self.decision

    def certificate(self, name: str, n0: int = 0) -> Certificate:
        return self.test.decided(0, name, n0).certificate


def play(test: One, truth: list[float], seed: int) -> One:
    rng = np.random.default_rng(seed)
    while test.decision == "undecided":
        test.update(rng.multinomial(test.batch_size(), truth))
    return test


def test_clear_success_and_clear_failure_take_few_draws() -> None:
    good = [play(One(), [0.99, 0.01, 0.0], seed) for seed in range(20)]
    assert all(test.decision == "certified" for test in good)
    assert max(test.n for test in good) <= 300  # for any seed: the largest of 1,000 runs is 155
    bad = [play(One(), [0.2, 0.5, 0.3], seed) for seed in range(20)]
    assert all(test.decision == "given up" for test in bad)
    assert max(test.n for test in bad) <= 64


def test_near_the_limit_where_it_certifies() -> None:
    for truth in ([0.95, 0.05, 0.0], [0.9, 0.05, 0.05], [0.87, 0.13, 0.0]):
        limit = math.log(1000) / (0.5 * float(distance_to_null(np.array(truth), 2.0)) ** 2)
        used = [play(One(), truth, seed).n for seed in range(61)]
        # For any seed: medians of 21 runs were at most 1.9 times the limit in 60 trials, their own median 1.54 times.
        assert np.median(used) <= 2.0 * limit


def test_certificate_states_the_target_and_the_draws_used() -> None:
    test = play(One(label=2), [0.01, 0.0, 0.99], 1)
    certificate = test.certificate("cat", n0=100)
    assert (certificate.predicted, certificate.radius, certificate.n, certificate.n0) == (2, 0.5, test.n, 100)
    assert certificate.margin >= 2.0
    assert certificate.margin == pytest.approx(2.0, rel=1e-15)
    assert (certificate.method, certificate.margin_kind, certificate.sound) == ("anytime", "quantile", True)
    abstention = play(One(), [0.3, 0.7, 0.0], 1).certificate("dog")
    assert abstention.abstained
    assert abstention.radius == 0.0


def test_undecided_test_abstains_and_an_empty_one_has_no_certificate() -> None:
    test = One()
    with pytest.raises(InvalidInput, match="number of draws"):
        test.certificate("x")
    test.update(np.array([5, 0, 0]))
    assert test.decision == "undecided"
    assert test.certificate("x").abstained


def test_batches_are_geometric_and_stay_within_the_budget() -> None:
    test, total = One(max_n=5000), 0
    rng = np.random.default_rng(5)
    while test.decision == "undecided":
        batch = test.batch_size()
        assert 1 <= batch <= max(16, total // 2)
        assert batch >= min(max(4, total // 16), 5000 - total)
        test.update(rng.multinomial(batch, [0.8415, 0.1585, 0.0]))
        total += batch
        assert test.n == total <= 5000
    assert test.batch_size() == 0


def test_a_spent_budget_is_hopeless_unless_the_final_test_is_passed() -> None:
    threshold = float(ndtr(1.0))
    for top in range(455, 480):
        test = One(max_n=520, alpha=0.05)
        test.update(np.array([top - 1, 520 - top, 0]))
        if test.decision != "undecided":
            continue
        test.update(np.array([1, 0, 0]))
        passed = float(clopper_pearson_lower(top, 520, 0.05 / 4)) > threshold
        wealth = float(tangent_mixture(np.nextafter(2.0, 3.0)).log_wealth(top, 520 - top, 520))
        assert test.decision == ("certified" if passed or wealth >= -math.log(0.75 * 0.05) else "given up")


def test_the_final_test_is_not_taken_early() -> None:
    test = One(max_n=1000, alpha=0.05)
    test.update(np.array([457, 63, 0]))
    assert float(clopper_pearson_lower(457, 520, 0.05 / 4)) > float(ndtr(1.0)) - 0.01
    assert test.decision == "undecided"


def test_a_thousand_classes_each_keep_their_wealth() -> None:
    truth = np.zeros(1000)
    truth[7], truth[8:] = 0.97, 0.03 / 992
    test = play(One(label=7, m=1000), truth.tolist(), 0)
    assert test.decision == "certified"
    assert test.n < 200  # for any seed: the largest of 300 runs is 104


@given(st.permutations([1, 2, 3]), st.integers(0, 2**32 - 1))
def test_order_of_the_other_classes_is_irrelevant(order: list[int], seed: int) -> None:
    rng, one, other = np.random.default_rng(seed), One(m=4), One(m=4)
    for _ in range(6):
        votes = rng.multinomial(one.batch_size(), [0.88, 0.06, 0.05, 0.01])
        assert one.batch_size() == other.batch_size()
        assert one.update(votes) == other.update(votes[[0, *order]])
        if one.decision != "undecided":
            break


def test_rivals_may_be_overcome_at_different_times() -> None:
    test, needed = One(alpha=0.01), -math.log(0.0075)
    test.update(np.array([60, 0, 5]))
    assert test.decision == "undecided"
    assert test.update(np.array([150, 20, 0])) == "certified"
    wealth = tangent_mixture(2.0).log_wealth
    assert wealth(60, 0, 65) > needed > wealth(210, 20, 235)
    assert wealth(210, 5, 235) > needed > wealth(60, 5, 65)


@pytest.mark.parametrize("target", [1.9, 5.0, 20.0, 1e6])
def test_an_impossible_target_is_known_at_once(target: float) -> None:
    test = One(max_n=100, target=target)
    assert test.batch_size() == 16
    assert test.update(np.array([16, 0, 0])) == "given up"


def test_a_tiny_target_can_be_certified() -> None:
    test = play(One(target=1e-9), [0.8, 0.2, 0.0], 0)
    assert test.decision == "certified"
    assert test.n < 200


def test_bad_input_is_named() -> None:
    for name, kwargs in [
        ("label", {"label": 3}),
        ("num_classes", {"m": 1}),
        ("alpha", {"alpha": 0.0}),
        ("radii", {"target": 0.0}),
        ("radii must rise", {"target": (0.5, 0.25)}),
        ("radii must be one or more", {"target": ()}),
        ("max_n", {"max_n": 0}),
    ]:
        with pytest.raises(InvalidInput, match=name):
            One(**kwargs)  # type: ignore[arg-type]
    test = One(max_n=50)
    for votes, problem in [
        ([1, 2], r"counts must have shape \[1, 3\], .*; got shape \[1, 2\]"),
        ([0, 0, 0], "counts must hold at least one draw of each input; got none of input 0"),
        ([-1, 2, 0], "counts"),
        ([60, 0, 0], "counts"),
    ]:
        with pytest.raises(InvalidInput, match=problem):
            test.update(np.array(votes))
    decided = play(One(), [0.2, 0.8, 0.0], 0)
    with pytest.raises(InvalidInput, match="undecided"):
        decided.update(np.array([1, 0, 0]))


RADII = (0.1, 0.3, 0.5, 0.9)
TRUTHS = np.random.default_rng(3).dirichlet([6.0, 1.0, 0.5, 0.2], 60)


def run_ladder(radii: tuple[float, ...], seed: int, max_n: int = 2000) -> AnytimeTest:
    rng = np.random.default_rng(seed)
    streams = [rng.choice(4, size=max_n, p=truth) for truth in TRUTHS]
    test = AnytimeTest(Ladder(radii, Gaussian(0.5), 1e-2, max_n), np.zeros(len(TRUTHS)), 4)

    def votes(row: int, size: int) -> IntArray:
        n = int(test.n[row])
        return np.bincount(streams[row][n : n + size], minlength=4)

    while (rows := test.undecided).size:
        sizes = test.batch_sizes(rows).tolist()
        test.update(rows, np.stack([votes(*pair) for pair in zip(rows.tolist(), sizes, strict=True)]))
    return test


def test_a_ladder_certifies_one_radius_after_the_other() -> None:
    test = run_ladder(RADII, 0)
    found = [test.decided(row, str(row)) for row in range(len(TRUTHS))]
    steps = [len(decided.certified_at) for decided in found]
    assert set(steps) == {0, 1, 2, 3, 4}
    for decided, count in zip(found, steps, strict=True):
        assert list(decided.certified_at) == sorted(decided.certified_at)
        assert decided.certificate.radius == (RADII[count - 1] if count else 0.0)
        assert decided.decision == ("certified" if count == 4 else "given up")
        assert sum(dict(decided.votes).values()) == decided.certificate.n <= 2000
    assert any(decided.by_final_test for decided in found)
    assert any(decided.certified_at and not decided.by_final_test for decided in found)


def test_inputs_of_a_group_do_not_meet() -> None:
    together = run_ladder(RADII, 1)
    for row in range(0, len(TRUTHS), 7):
        rng = np.random.default_rng(1)
        stream = [rng.choice(4, size=2000, p=truth) for truth in TRUTHS][row]
        alone = One(m=4, alpha=1e-2, max_n=2000, target=RADII)
        while alone.decision == "undecided":
            alone.update(np.bincount(stream[alone.n : alone.n + alone.batch_size()], minlength=4))
        assert alone.test.decided(0, "x") == together.decided(row, "x")


def test_no_rung_is_skipped() -> None:
    """Whatever e-values say higher up: a ladder whose lower rung is not certified certifies nothing."""
    test = One(m=3, alpha=0.05, max_n=60, target=(0.2, 0.6))
    test.test._overcome[0] = [True, False, False]
    test.update([16, 0, 0])
    first = test.test.decided(0, "x").certified_at
    blocked = One(m=3, alpha=0.05, max_n=60, target=(0.2, 0.6))
    blocked.test.ladder = dataclasses.replace(blocked.test.ladder)
    object.__setattr__(blocked.test.ladder, "mixtures", (tangent_mixture(9.0), blocked.test.ladder.mixtures[1]))
    blocked.update([16, 0, 0])
    assert len(first) >= 1
    assert blocked.test.decided(0, "x").certified_at == ()


class Door:
    """A lock that tells when somebody comes to it."""

    def __init__(self) -> None:
        self.lock, self.knocks = Lock(), Semaphore(0)

    def __enter__(self) -> None:
        self.knocks.release()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_what_is_asked_while_votes_come_in_is_of_before_or_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes that are added and a rung that is passed, but not yet written down, are nobody's to see."""
    inside, go_on, climb, door = Event(), Event(), AnytimeTest._climb, Door()

    def slowly(self: AnytimeTest, where: IntArray) -> None:
        inside.set()
        assert go_on.wait(60)
        climb(self, where)

    test = One(alpha=0.2, target=(1e-9, 0.5))
    test.update([5, 0, 0])
    before = test.test.decided(0, "x")
    monkeypatch.setattr(AnytimeTest, "_climb", slowly)
    monkeypatch.setattr(test.test, "_whole", door)
    with ThreadPoolExecutor(2) as threads:
        update = threads.submit(test.update, [40, 0, 0])
        assert door.knocks.acquire(timeout=60)
        assert inside.wait(60)
        asked = threads.submit(test.test.decided, 0, "x")
        knocked = door.knocks.acquire(timeout=60)
        go_on.set()
        update.result(60)
        after = test.test.decided(0, "x")
        assert asked.result(60) == after
    assert knocked
    assert (len(before.certified_at), len(after.certified_at)) == (1, 2)


def test_an_interrupt_anywhere_in_an_update_certifies_nothing_more_in_what_goes_on_from_there() -> None:
    """A rung that was passed, beside the classes that were overcome at it, would pass the next rung without a look."""
    for line in itertools.count(1):
        test = One(target=(1e-9, 1.0))
        if not interrupted(partial(test.update, [60, 6, 0]), AnytimeTest._climb, line):
            break
        after = One(target=(1e-9, 1.0)).test
        after.restore(0, test.test.decided(0, "x"))
        assert len(after.decided(0, "x").certified_at) <= 1
    assert line > 5
    assert line > 12
    assert len(test.test.decided(0, "x").certified_at) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"votes": ((0, 3),)}, "votes"),
        ({"votes": ((0, 2), (0, 3))}, "votes"),
        ({"certified_at": ()}, "certified_at"),
        ({"certified_at": (9,)}, "certified_at"),
        ({"certified_at": (0,)}, "certified_at"),
        ({"certified_at": (4, 2)}, "certified_at"),
        ({"decision": "perhaps"}, "decision"),
        ({"label": 1}, "label"),
        ({"by_final_test": 2}, "by_final_test"),
    ],
)
def test_a_decision_that_contradicts_itself_is_refused(change: dict[str, Any], named: str) -> None:
    test = One(alpha=0.2, target=1e-9)
    test.update([5, 0, 0])
    good: dict[str, Any] = {
        "certificate": test.certificate("x"), "label": 0, "decision": "certified", "votes": ((0, 5),),
        "certified_at": (5,), "by_final_test": 0,
    }  # fmt: skip
    assert Decided(**good) == test.test.decided(0, "x")
    with pytest.raises(InvalidInput, match=named):
        Decided(**good | change)


def settings(
    alpha: float = 1e-3, margin: MarginKind = "probability", method: str = SEQUENCE, seed: int | None = None
) -> Settings:
    return make_settings(sigma=1.0, alpha=alpha, margin=margin, method=method, scores=Softmax(), seed=seed)


def limits(test: ScoreTest, inputs: int) -> FloatArray:
    return np.array([c.margin for c in test.certificates(slice(0, inputs), [str(i) for i in range(inputs)])])


def misses(p: float, alpha: float, margin: MarginKind, runs: int, slope: float = 1.0) -> int:
    """Return how many of so many inputs ever have a limit above their true margin; scores are votes, of two classes."""
    labels: IntArray = np.zeros(runs, dtype=np.int64)
    test = ScoreTest(settings(alpha, margin), runs, 2, max_n=1500, labels=labels, precision=1e-12)
    test._slopes[:] = slope
    rng = np.random.default_rng(0)
    while (rows := test.undecided).size:
        size = test.batch_size(int(test.n[rows[0]]))
        for row in rows:
            test.update(row, np.eye(2)[(rng.random(size) > p).astype(int)])
    truth = 2 * p - 1 if margin == "probability" else 2 * float(ndtri(p))
    return int((limits(test, runs) > truth).sum())


ALPHA = 0.2


@pytest.mark.parametrize(("margin", "p", "slope", "runs"), [("probability", 0.5, 1.0, 400), ("quantile", 0.7, 2.0, 60)])
def test_the_limit_holds_whenever_one_looks(margin: MarginKind, p: float, slope: float, runs: int) -> None:
    missed = misses(p, ALPHA, margin, runs, slope)
    # The judge errs once in a million: the chance of so many misses or more at level alpha.
    assert betainc(missed or 1, runs - missed + 1, ALPHA) > 1e-6


def test_a_limit_for_a_fixed_number_of_draws_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the right level at any one look, looked at a dozen times: it misses more than twice as often."""

    def fixed(x: FloatArray, alpha: float, low: float, high: float) -> FloatArray:
        del low, high
        return np.asarray(x.mean(axis=0) + float(ndtri(alpha)) * x.std(axis=0) / np.sqrt(len(x)))

    monkeypatch.setattr(sequential, "sequence_lower", fixed)
    missed = misses(0.5, ALPHA, "probability", 400)
    assert betainc(missed, 400 - missed + 1, ALPHA) < 1e-6


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_each_rival_has_its_slope_and_range_and_what_rounding_may_add_is_taken_away(
    margin: MarginKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allowance made large: it is 1 + c for a slope c. The best limit of any look is kept, the least rival's."""
    monkeypatch.setattr(sequential, "LIMIT_SLACK", large := 1e-3)
    slopes = (1.0, 2.0) if margin == "quantile" else (1.0, 1.0)
    test = ScoreTest(settings(margin=margin), 1, 3, max_n=2000, labels=np.array([0]), precision=1e-12)
    test._slopes[0] = slopes
    shares = np.random.default_rng(1).integers(0, 2**10, (2000, 2)) / 2**13
    rows = np.stack([1.0 - shares[:, 0] - shares[:, 1], shares[:, 0], 0.5 * shares[:, 1]], axis=1)
    rows[900:, 0] = 0.0  # what was known before is not forgotten
    best = np.full(2, -np.inf)
    for start, stop in ((0, 300), (300, 900), (900, 1400)):
        test.update(0, rows[start:stop])
        for j, c in enumerate(slopes):
            draws = rows[:stop, 0] - c * rows[:stop, 1 + j]
            low = float(sequence_lower(draws, 1e-3, -c, 1.0)) - large * (1.0 + c)
            best[j] = max(best[j], low if margin == "probability" else float(margin_from_height(low, c)))
        assert float(limits(test, 1)[0]) == pytest.approx(best.min(), abs=1e-10)
        assert test.undecided.size == (stop < 1400), "until more is certified than all draws suggest"
    assert best.min() > 0.1


@pytest.mark.parametrize("method", [m.name for m in sound_methods("scores") if m.name != SEQUENCE])
def test_what_does_not_hold_at_any_time_is_refused_by_name(method: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=f"method must be 'pairwise/sequence'.*'{method}', which holds at a"):
        ScoreTest(settings(method=method, seed=0), 1, 2, max_n=100)


def half_space(batch: AnyArray) -> AnyArray:
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("n0", [0, 50])
def test_radii_are_decided_with_few_draws(margin: MarginKind, n0: int) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2, scores=Softmax(0.1))
    options: Any = {"max_n": 20_000, "margin": margin, "n0": n0}
    near = smoothed.certify_until([[1.0]], radii=[0.1, 0.25], **options)[0]
    assert (near.predicted, near.method, near.map, near.temperature) == (0, "pairwise/sequence", "softmax", 0.1)
    assert (near.n0, near.winner_alpha > 0.0) == (n0, n0 == 0)
    assert 0.25 <= near.radius < 1.0
    assert near.n < 1000
    far = smoothed.certify_until([[0.1]], radii=[0.5], **options)[0]
    assert far.radius < 0.5
    assert far.n < 5000
    rough, fine = (smoothed.certify_until([[0.8]], precision=share, **options)[0] for share in (0.3, 0.1))
    assert rough.n < fine.n < 20_000
    assert rough.radius < fine.radius < 0.8


def test_a_leader_that_changes_is_certified_from_all_draws_once_it_is_the_winner() -> None:
    test = ScoreTest(settings(0.05), 1, 3, max_n=4000, radii=[0.2])
    test.update(0, np.tile([[0.1, 0.85, 0.05]], (64, 1)))
    assert test.certificates(slice(0, 1), ["a"])[0].predicted == 1
    tied = ScoreTest(settings(0.05), 1, 3, max_n=4000, precision=0.3)
    rows = np.tile([[0.45, 0.5, 0.05], [0.5, 0.45, 0.05]], (32, 1))
    tied.update(0, rows)
    assert tied.certificates(slice(0, 1), ["a"])[0].abstained
    for _ in range(20):
        if not tied.undecided.size:
            break
        tied.update(0, np.tile([[0.9, 0.05, 0.05]], (64, 1)))
    found = tied.certificates(slice(0, 1), ["a"])[0]
    assert found.predicted == 0
    assert 0.0 < found.winner_alpha < 0.05


def test_drawing_takes_its_part_of_alpha() -> None:
    """Noise from words leaves less for the limit: it is the one of Gaussian noise at that smaller level."""
    law, alpha, rows = buckler.noise.GridGaussian(1.0), 1e-10, np.tile([[0.9, 0.1], [0.8, 0.2]], (40, 1))
    found = []
    for level, noise in ((alpha, law), (after_drawing(alpha, law), buckler.noise.Gaussian(1.0)), (alpha, None)):
        drawn = noise or buckler.noise.Gaussian(1.0)
        asked = make_settings(noise=drawn, alpha=level, margin="probability", method=SEQUENCE, scores=Softmax())
        test = ScoreTest(asked, 1, 2, max_n=4000, labels=np.array([0]), radii=(0.1,))
        test.update(0, rows)
        found.append(float(limits(test, 1)[0]))
    assert found[0] == found[1] < found[2]


def interrupted(call: Callable[[], object], function: Callable[..., object], line: int) -> bool:
    """Make a call, with an interrupt before the n-th line that ``function`` runs in it; return whether it came."""
    left, before, code = line, sys.gettrace(), function.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        left -= event == "line"
        if left == 0:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
