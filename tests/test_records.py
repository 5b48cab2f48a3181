"""Records are frozen, slotted, and refuse what they cannot mean."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from flint import arb

import buckler
from buckler.certificate import Claim
from buckler.certify.ladder import Ladder
from buckler.certify.scores import Scores
from buckler.certify.sequential import AnytimeTest
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, Splitting, Uniform
from buckler.types import OTHERS, MarginKind
from tests.balls import normal_cdf


def scores(**change: Any) -> Scores:
    given: dict[str, Any] = {
        "ids": ("a",),
        "values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]]]),
        "columns": np.array([[0, 1, 2]]),
        "num_classes": 3,
        "map": "softmax",
        "temperature": 1.0,
    }
    return Scores(**given | change)


def test_frozen_and_slotted() -> None:
    certificate = buckler.certify_votes([[90, 10]], sigma=1.0, labels=[0])[0]
    for record in (scores(), certificate):
        assert not hasattr(record, "__dict__")
        with pytest.raises(FrozenInstanceError):
            setattr(record, next(iter(record.__dataclass_fields__)), "other")


def test_scores() -> None:
    assert scores().n == 2
    kept = scores(columns=np.array([[2, 0, OTHERS]]), num_classes=1000, values=np.array([[[0.3, 0.2, 0.001]]]))
    assert kept.columns.tolist() == [[2, 0, OTHERS]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"values": np.array([[[0.7, 0.2, 0.2], [0.5, 0.25, 0.25]]])}, "draw 0"),
        ({"values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.75, -0.25]]])}, "draw 1"),
        ({"values": np.array([[[0.7, 0.2, np.nan], [0.5, 0.25, 0.25]]])}, "finite"),
        ({"values": np.zeros((1, 0, 3))}, "shape"),
        ({"columns": np.array([[0, 1, 1]])}, "columns"),
        ({"columns": np.array([[0, 1, 3]])}, "columns"),
        ({"temperature": 0.0}, "temperature"),
        ({"map": "argmax"}, "map"),
        ({"ids": ("a", "b")}, "ids"),
    ],
)
def test_scores_refuse(change: dict[str, Any], named: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=named):
        scores(**change)


def test_a_certificate_cannot_contradict_itself() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=1.0, labels=[0])[0]
    for change in ({"predicted": None}, {"radius": 0.0}, {"radius": np.inf}, {"margin": -1.0}, {"margin_kind": "wide"}):
        with pytest.raises(buckler.InvalidInput):
            replace(good, **change)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("factor", [100.0, 1.0 + 1e-14, 1.0 - 1e-14, 0.5])
def test_a_radius_is_tied_to_its_margin(margin: MarginKind, factor: float) -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin=margin)[0]
    assert replace(good) == good
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, radius=factor * good.radius)
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, noise=Gaussian(0.7 / factor))


def test_the_last_digits_of_another_machine_are_allowed() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin="probability")[0]
    near = replace(good, radius=float(np.nextafter(good.radius, np.inf)))
    # Still below the radius that the margin gives in exact arithmetic.
    assert normal_cdf(arb(near.radius) / arb(0.7)) <= (1 + arb(near.margin)) / 2


@pytest.mark.parametrize("noise", [Uniform(0.5), Splitting(0.5), DerandomizedSplitting(0.5), Ablation(2, 9)])
def test_a_law_of_whole_numbers_has_no_last_digits(noise: Any) -> None:
    """Its radius is the largest float that holds: the next one above may reach a point of the ball's edge."""
    good = buckler.certify_votes([[noise.total or 1000, 0, 0]], noise=noise, labels=[0])[0]
    assert replace(good) == good
    for towards in (0.0, np.inf):
        with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
            replace(good, radius=float(np.nextafter(good.radius, towards)))


def test_an_abstention_hides_no_margin_that_certifies() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, predicted=None, radius=0.0)


def test_a_probability_margin_is_at_most_one() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin="probability")[0]
    with pytest.raises(buckler.InvalidInput, match="at most 1"):
        replace(good, margin=5.0, radius=good.radius)


def test_a_target_is_tied_to_the_margin_it_needs() -> None:
    test = AnytimeTest(Ladder((0.1,), Gaussian(0.3), alpha=0.01), [0, 1], 2)
    test.update([0, 1], [[100, 0], [100, 0]])
    good = test.decided(0, "a").certificate
    assert test.decided(1, "b").certificate.abstained
    assert good.radius == 0.1
    for change in ({"radius": 0.2}, {"radius": float(np.nextafter(0.1, 1.0))}, {"margin": 9.0}, {"method": "exact"}):
        with pytest.raises(buckler.InvalidInput, match="must be what"):
            replace(good, **change)


@pytest.mark.parametrize("method", ["wald", "Published", "published", "published/star", "pairwise", "own:mine", ""])
def test_a_certificate_names_a_method_that_is_known_to_be_sound(method: str) -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.UnsoundMethod, match="cannot issue a certificate"):
        replace(good, method=method)


def test_votes_are_no_scores() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.InvalidInput, match="which reads votes"):
        replace(good, map="softmax", temperature=1.0)


def test_a_claim_promises_nothing_and_says_so() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    claim = Claim(**values | {"method": "mine:wald", "sound": False})
    assert "a promised, not proved, error probability at most 0.001" in str(claim)
    assert not isinstance(claim, buckler.Certificate)
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(claim, radius=2.0 * claim.radius)
    with pytest.raises(buckler.UnsoundMethod):
        replace(claim, sound=True)


def test_fields_as_columns() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    assert list(good.as_dict()) == [
        *("id", "predicted", "radius", "margin_kind", "margin", "alpha", "n", "n0", "sigma"),
        *("map", "temperature", "method", "sound", "winner_alpha", "score_dtype", "noise", "noise_parameters"),
    ]


def test_a_winner_is_tested_at_a_part_of_alpha_on_the_same_draws() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7)[0]
    assert good.class_from == "winner of the same draws"
    assert "for the winner of the same draws, tested at 0.0001, from 100 draws" in str(good)
    for change in ({"winner_alpha": 0.01}, {"winner_alpha": -0.1}, {"n0": 5}):
        with pytest.raises(buckler.InvalidInput, match="winner_alpha"):
            replace(good, **change)
