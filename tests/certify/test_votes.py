"""Votes -> limits and certificates: values known in closed form, the class that is certified, bad input."""

from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import multinomial

import buckler
from buckler.certificate import Certificate
from buckler.certify.budget import rest, winner_share
from buckler.certify.methods import sound_methods
from buckler.certify.votes import margin_from_limits, vote_margin_lower
from buckler.errors import InvalidInput
from buckler.noise import Gaussian
from buckler.types import MarginKind
from tests.balls import normal_cdf


def test_the_reference_radius() -> None:
    radius = buckler.certify_votes([[100, 0, 0]], sigma=0.25, alpha=1e-3, labels=[0], method="top_class")[0].radius
    assert f"{radius:.4f}" == "0.3751"
    assert normal_cdf(arb(radius) / arb(0.25)) ** 100 <= arb(1e-3)


@pytest.mark.parametrize("method", [m.name for m in sound_methods()])
@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_batch_equals_single(method: str, margin: Any) -> None:
    counts = np.array([[90, 5, 5], [30, 40, 30], [0, 0, 100]])
    batch = buckler.certify_votes(counts, sigma=0.5, labels=[0, 1, 2], method=method, margin=margin)
    for row, label, certificate in zip(counts, [0, 1, 2], batch, strict=True):
        single = buckler.certify_votes([row], sigma=0.5, labels=[label], method=method, margin=margin)[0]
        assert (single.radius, single.predicted) == (certificate.radius, certificate.predicted)
    assert batch[0].predicted == 0
    assert batch[1].predicted is None
    assert batch[1].radius == 0.0
    assert batch[2].predicted == 2


def test_selection_picks_the_class_and_is_recorded() -> None:
    certificate = buckler.certify_votes([[10, 985, 5]], sigma=0.5, selection=[[1, 19, 0]])[0]
    assert (certificate.predicted, certificate.n, certificate.n0) == (1, 1000, 20)
    wrong = buckler.certify_votes([[10, 985, 5]], sigma=0.5, selection=[[19, 1, 0]])[0]
    assert wrong.predicted is None


def test_invariant_to_permuting_the_other_classes() -> None:
    one = buckler.certify_votes([[80, 12, 5, 3]], sigma=1.0, labels=[0])[0]
    two = buckler.certify_votes([[80, 3, 12, 5]], sigma=1.0, labels=[0])[0]
    three = buckler.certify_votes([[12, 80, 3, 5]], sigma=1.0, labels=[1])[0]
    assert one.radius == two.radius == three.radius


def test_the_sentence() -> None:
    certificate = buckler.certify_votes([[100, 0, 0]], sigma=0.25, alpha=1e-3, labels=[0], method="top_class")[0]
    assert str(certificate) == (
        "input 0: the smoothed classifier predicts class 0 everywhere in the open l2 ball of radius 0.3751, in the "
        "units of the input, with error probability at most 0.001 for a class fixed beforehand, from 100 draws of "
        "Gaussian noise with sigma 0.25 (hardmax, method top_class, quantile margin at least 3.0009; "
        "idealised: real-valued noise, drawn and added in float32)"
    )
    abstention = buckler.certify_votes([[50, 50]], sigma=0.25, selection=[[3, 1]], method="top_class")[0]
    assert str(abstention) == (
        "input 0: abstained at error probability 0.001 for a class selected on 4 other draws, from 100 draws of "
        "Gaussian noise with sigma 0.25 (hardmax, method top_class, quantile margin may be 0 or below; "
        "idealised: real-valued noise, drawn and added in float32)"
    )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"counts": [[-1, 5]]}, "counts must hold whole numbers of at least 0; got -1"),
    ({"counts": [[1.5, 5]]}, "counts must hold whole numbers"),
    ({"counts": [[float("nan"), 5]]}, "counts must hold whole numbers"),
    ({"counts": [[float("inf"), 5]]}, "counts must hold whole numbers"),
    ({"counts": [[0, 0]]}, "got all zeros"),
    ({"counts": [[5, 5], [0, 0]], "labels": [0, 0]}, "all zeros in row 1"),
    ({"counts": [[5]]}, "shape"),
    ({"counts": [90, 10]}, r"counts must have shape \[inputs, classes\]"),
    ({"counts": []}, "shape"),
    ({"counts": [[[1, 2]]]}, "shape"),
    ({"counts": [[1, 2], [3]]}, "unequal length"),
    ({"counts": [["a", "b"]]}, "counts must hold whole numbers"),
    ({"counts": [[True, False]]}, "counts must hold whole numbers"),
    ({"alpha": 0}, "alpha must be at least 1e-200"),
    ({"alpha": 1}, "alpha must be at least 1e-200"),
    ({"alpha": -0.1}, "alpha must be at least 1e-200"),
    ({"alpha": float("nan")}, "alpha must be a finite number"),
    ({"sigma": None}, "exactly one of sigma and noise must be given; got neither"),
    ({"noise": Gaussian(0.5)}, "exactly one of sigma and noise must be given; got both"),
    ({"sigma": 0}, "sigma must be above 0; got 0"),
    ({"sigma": -1.0}, "sigma must be above 0"),
    ({"sigma": "x"}, "sigma must be a finite number"),
    ({"labels": [2]}, "labels must be a class from 0 to 1; got 2"),
    ({"labels": [-1]}, "labels must be a class from 0 to 1; got -1"),
    ({"labels": [0, 0]}, "labels must be one class"),
    ({"labels": 0}, "labels must be one class"),
    ({"labels": [0.5]}, "labels must hold whole numbers"),
    ({"selection": [[1, 2]]}, "labels and selection cannot both choose the class"),
    ({"labels": None, "selection": [[0, 0]]}, "selection must hold at least one draw"),
    ({"labels": None, "selection": [[1, 0, 0]]}, "selection must have the shape"),
    ({"labels": None, "selection": [[90, 10]]}, "selection must be counts of separate draws"),
    (
        {"counts": [[100, 0], [90, 10]], "labels": None, "selection": [[100, 0], [90, 10]]},
        "selection must be counts of separate draws",
    ),
    ({"method": "magic"}, "method must be one of"),
    ({"margin": "third"}, "margin must be one of"),
    ({"ids": ["a", "b"]}, "ids must be 1 different names"),
]


@pytest.mark.parametrize(("change", "named"), BAD)
def test_bad_input_is_named(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"counts": [[90, 10]], "sigma": 0.5, "labels": [0]}
    buckler.certify_votes(**good)
    with pytest.raises(ValueError, match=named) as raised:
        buckler.certify_votes(**good | change)
    assert isinstance(raised.value, buckler.InvalidInput)
    assert "\n" not in str(raised.value)


def test_a_certificate_refuses_an_unsound_method() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0])[0]
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(buckler.UnsoundMethod):
        Certificate(**values | {"sound": False})
    with pytest.raises(buckler.UnsoundMethod):
        Certificate(**values | {"method": "published"})


def test_two_classes_are_decided_by_clopper_pearson() -> None:
    exact = buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0])[0]
    assert exact.margin == buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0], method="top_class")[0].margin


def test_a_law_in_the_place_of_sigma() -> None:
    by_sigma = buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0])[0]
    assert buckler.certify_votes([[90, 10]], noise=Gaussian(0.5), labels=[0])[0] == by_sigma
    assert by_sigma.sigma == 0.5


def test_the_winner_is_certified_at_what_its_test_leaves_of_alpha() -> None:
    """The limit is that of the class at nine tenths of alpha, and an abstention where the lead may be chance."""
    clear, close = buckler.certify_votes([[5, 970, 25], [505, 490, 5]], sigma=0.5, alpha=0.01)
    share = winner_share(0.01)
    at_rest = buckler.certify_votes([[5, 970, 25]], sigma=0.5, alpha=rest(0.01, share), labels=[1])[0]
    assert (clear.predicted, clear.margin, clear.radius) == (1, at_rest.margin, at_rest.radius)
    assert (clear.alpha, clear.winner_alpha, clear.n0) == (0.01, share, 0)
    assert (close.predicted, close.radius, close.margin) == (None, 0.0, -np.inf)


@pytest.mark.parametrize("truth", [(0.5, 0.5, 0.0), (0.45, 0.45, 0.1), (0.34, 0.33, 0.33)])
def test_ties_are_seldom_won(truth: tuple[float, ...]) -> None:
    """All outcomes of 25 draws, with their probabilities: where two classes tie nothing may be certified."""
    n, alpha = 25, 0.2
    table = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    chances = multinomial.pmf(table, n, truth)
    made = buckler.certify_votes(table, sigma=0.5, alpha=alpha)
    top = max(truth)
    wrong = np.array([k >= 0 and (truth[k] < top or truth.count(top) > 1) for k in made.predicted.tolist()])
    assert chances[wrong].sum() <= alpha
    # The audit finds the leader certified as if it had been fixed beforehand, at a level where that matters.
    fixed = buckler.certify_votes(table, sigma=0.5, alpha=alpha, labels=table.argmax(axis=1), method="top_class")
    planted = np.array([not c.abstained for c in fixed])
    if truth[:2] == (0.5, 0.5):
        assert chances[planted].sum() > alpha


MARGINS: tuple[MarginKind, ...] = ("probability", "quantile")
SOUND = [method.name for method in sound_methods()]


def test_top_class_matches_the_closed_form() -> None:
    low = 0.001 ** (1 / 100)
    assert float(vote_margin_lower(100, 0, 100, method="top_class")) == pytest.approx(3.00095005, abs=1e-8)
    assert float(vote_margin_lower(100, 0, 100, method="top_class", margin="probability")) == pytest.approx(2 * low - 1)
    # Without a vote nothing is known: the margin's lowest value, rounded down once.
    assert float(vote_margin_lower(0, 0, 9, method="top_class", margin="probability")) == np.nextafter(-1.0, -np.inf)
    assert float(vote_margin_lower(0, 0, 9, method="top_class")) == -np.inf


@given(a=st.floats(1e-12, 1 - 1e-12), b=st.floats(1e-12, 1 - 1e-12))
def test_limits_round_down(a: float, b: float) -> None:
    """``Phi(z + low) < a`` at some z with ``Phi(z) >= b``, by ball arithmetic: so low is below the exact margin."""
    low = float(margin_from_limits("quantile", a, b))
    z = float(ndtri(b))
    z += 1e-15 * abs(z)
    assert normal_cdf(arb(z)) >= arb(b)
    assert normal_cdf(arb(z) + arb(low)) <= arb(a)
    assert arb(float(margin_from_limits("probability", a, b))) < arb(a) - arb(b)


@pytest.mark.parametrize("kind", MARGINS)
@pytest.mark.parametrize("method", SOUND)
def test_monotone_in_every_argument(kind: MarginKind, method: str) -> None:
    rng = np.random.default_rng(1)
    for n in (7, 60, 1000):
        top = rng.integers(0, n, 40)
        other = np.array([rng.integers(0, n - t) for t in top])

        def low(x1: Any, x2: Any, alpha: float = 0.01, n: int = n) -> Any:
            return vote_margin_lower(x1, x2, n, alpha=alpha, margin=kind, method=method, num_classes=5)

        base = low(top, other)
        rounding = 1e-12  # a limit found by search may differ in its last digits where two outcomes share it
        assert (low(np.minimum(top + 1, n - other), other) >= base - rounding).all()
        assert (low(top, np.minimum(other + 1, n - top)) <= base + rounding).all()
        if method != "exact":  # whose ordering of outcomes depends on alpha: a limit may fall as alpha rises
            assert (low(top, other, alpha=0.02) >= base - rounding).all()
        assert base.tolist() == [float(low(int(a), int(b))) for a, b in zip(top, other, strict=True)]


@pytest.mark.parametrize("method", SOUND)
def test_top_below_runner_up_proves_nothing(method: str) -> None:
    assert (vote_margin_lower([10, 0], [90, 100], 100, method=method, num_classes=3) <= 0).all()


BAD_LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"top": 60, "runner_up": 50}, "top \\+ runner_up must be at most n"),
    ({"n": 0}, "n must"),
    ({"top": 1.5}, "top must"),
    ({"top": float("nan")}, "top must"),
    ({"top": [1, 2], "runner_up": [1, 2, 3]}, "broadcast"),
    ({"runner_up": -1}, "runner_up must"),
    ({"alpha": 0.0}, "alpha must"),
    ({"alpha": 1.0}, "alpha must"),
    ({"alpha": float("nan")}, "alpha must"),
    ({"alpha": "small"}, "alpha must"),
    ({"margin": "third"}, "margin must"),
    ({"method": "magic"}, "method must"),
]


@pytest.mark.parametrize(("change", "named"), BAD_LIMITS)
def test_bad_limits_are_named(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"top": 50, "runner_up": 10, "n": 100, "method": "bonferroni"}
    vote_margin_lower(**good)
    with pytest.raises(InvalidInput, match=named):
        vote_margin_lower(**good | change)
