"""The door from counts to certificates."""

from typing import Any

import numpy as np
import pytest
from flint import arb

import buckler
from buckler.certify.registry import sound_methods
from buckler.noise import Gaussian
from buckler.records import Certificate, Counts
from tests.balls import normal_cdf


def test_the_reference_radius() -> None:
    radius = buckler.certify_counts([100, 0, 0], sigma=0.25, alpha=1e-3, label=0, method="top_class").radius
    assert f"{radius:.4f}" == "0.3751"
    assert normal_cdf(arb(radius) / arb(0.25)) ** 100 <= arb(1e-3)


@pytest.mark.parametrize("method", [m.name for m in sound_methods()])
@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_batch_equals_single(method: str, margin: Any) -> None:
    counts = np.array([[90, 5, 5], [30, 40, 30], [0, 0, 100]])
    batch = buckler.certify_counts(counts, sigma=0.5, label=[0, 1, 2], method=method, margin=margin)
    assert isinstance(batch, list)
    for row, label, certificate in zip(counts, [0, 1, 2], batch, strict=True):
        single = buckler.certify_counts(row.tolist(), sigma=0.5, label=label, method=method, margin=margin)
        assert (single.radius, single.predicted) == (certificate.radius, certificate.predicted)
    assert batch[0].predicted == 0
    assert batch[1].predicted is None
    assert batch[1].radius == 0.0
    assert batch[2].predicted == 2


def test_selection_picks_the_class_and_is_recorded() -> None:
    certificate = buckler.certify_counts([10, 985, 5], sigma=0.5, selection=[1, 19, 0])
    assert (certificate.predicted, certificate.n, certificate.n0) == (1, 1000, 20)
    wrong = buckler.certify_counts([10, 985, 5], sigma=0.5, selection=[19, 1, 0])
    assert wrong.predicted is None


def test_invariant_to_permuting_the_other_classes() -> None:
    one = buckler.certify_counts([80, 12, 5, 3], sigma=1.0, label=0)
    two = buckler.certify_counts([80, 3, 12, 5], sigma=1.0, label=0)
    three = buckler.certify_counts([12, 80, 3, 5], sigma=1.0, label=1)
    assert one.radius == two.radius == three.radius


def test_the_sentence() -> None:
    certificate = buckler.certify_counts([100, 0, 0], sigma=0.25, alpha=1e-3, label=0, method="top_class")
    assert str(certificate) == (
        "input: the smoothed classifier predicts class 0 everywhere within l2 distance 0.3751 in the units of the "
        "input, with error probability at most 0.001 for a class fixed beforehand, from 100 draws of Gaussian noise "
        "with sigma 0.25 (hardmax, method top_class, quantile margin at least 3.0009; "
        "idealised: real-valued noise, drawn and added in float32)"
    )
    abstention = buckler.certify_counts([50, 50], sigma=0.25, selection=[3, 1], method="top_class")
    assert str(abstention) == (
        "input: abstained at error probability 0.001 for a class selected on 4 other draws, from 100 draws of Gaussian "
        "noise with sigma 0.25 (hardmax, method top_class, quantile margin not shown to be positive; "
        "idealised: real-valued noise, drawn and added in float32)"
    )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"counts": [-1, 5]}, "counts must hold whole numbers of at least 0; got -1"),
    ({"counts": [1.5, 5]}, "counts must hold whole numbers"),
    ({"counts": [float("nan"), 5]}, "counts must hold whole numbers"),
    ({"counts": [float("inf"), 5]}, "counts must hold whole numbers"),
    ({"counts": [0, 0]}, "got all zeros"),
    ({"counts": [[5, 5], [0, 0]], "label": [0, 0]}, "all zeros in row 1"),
    ({"counts": [5]}, "shape"),
    ({"counts": []}, "shape"),
    ({"counts": [[[1, 2]]]}, "shape"),
    ({"counts": [[1, 2], [3]]}, "unequal length"),
    ({"counts": ["a", "b"]}, "counts must hold whole numbers"),
    ({"counts": [True, False]}, "counts must hold whole numbers"),
    ({"alpha": 0}, "alpha must be at least 1e-200"),
    ({"alpha": 1}, "alpha must be at least 1e-200"),
    ({"alpha": -0.1}, "alpha must be at least 1e-200"),
    ({"alpha": float("nan")}, "alpha must be a finite number"),
    ({"sigma": None}, "exactly one of sigma and law must be given; got neither"),
    ({"law": Gaussian(0.5)}, "exactly one of sigma and law must be given; got both"),
    ({"sigma": 0}, "sigma must be above 0; got 0"),
    ({"sigma": -1.0}, "sigma must be above 0"),
    ({"sigma": "x"}, "sigma must be a finite number"),
    ({"label": 2}, "label must be a class from 0 to 1; got 2"),
    ({"label": -1}, "label must be a class from 0 to 1; got -1"),
    ({"label": [0]}, "label must be one class"),
    ({"label": 0.5}, "label must hold whole numbers"),
    ({"label": None}, "exactly one of label and selection .* got neither"),
    ({"selection": [1, 2]}, "got both"),
    ({"label": None, "selection": [0, 0]}, "selection must hold at least one draw"),
    ({"label": None, "selection": [1, 0, 0]}, "selection must have the shape"),
    ({"method": "magic"}, "method must be one of"),
    ({"margin": "third"}, "margin must be one of"),
    ({"ids": ["a", "b"]}, "ids must hold one name"),
]


@pytest.mark.parametrize(("change", "named"), BAD)
def test_bad_input_is_named(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"counts": [90, 10], "sigma": 0.5, "label": 0}
    buckler.certify_counts(**good)
    with pytest.raises(ValueError, match=named) as raised:
        buckler.certify_counts(**good | change)
    assert isinstance(raised.value, buckler.InvalidInput)
    assert "\n" not in str(raised.value)


def test_a_certificate_refuses_an_unsound_method() -> None:
    good = buckler.certify_counts([90, 10], sigma=0.5, label=0)
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(buckler.UnsoundMethod):
        Certificate(**values | {"sound": False})
    with pytest.raises(buckler.UnsoundMethod):
        Certificate(**values | {"method": "published"})


def test_two_classes_are_decided_by_clopper_pearson() -> None:
    exact = buckler.certify_counts([90, 10], sigma=0.5, label=0)
    assert exact.margin == buckler.certify_counts([90, 10], sigma=0.5, label=0, method="top_class").margin


def test_a_law_in_the_place_of_sigma() -> None:
    by_sigma = buckler.certify_counts([90, 10], sigma=0.5, label=0)
    assert buckler.certify_counts([90, 10], law=Gaussian(0.5), label=0) == by_sigma
    assert by_sigma.sigma == 0.5


def test_records_of_counts_are_certified_under_their_ids() -> None:
    counts = Counts(("a", "b"), np.array([[90, 5, 5], [30, 40, 30]]))
    selection = Counts(("a", "b"), np.array([[9, 1, 0], [3, 4, 3]]))
    made = buckler.certify_counts(counts, sigma=0.5, selection=selection)
    plain = buckler.certify_counts(counts.values, sigma=0.5, selection=selection.values, ids=["a", "b"])
    assert made == plain
    assert [certificate.id for certificate in made] == ["a", "b"]
    with pytest.raises(buckler.InvalidInput, match="its ids differ"):
        buckler.certify_counts(counts, sigma=0.5, selection=Counts(("b", "a"), selection.values))
