"""A noise for each input, through ``buckler.Routed``."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.errors import InvalidInput


def half_space(axis: int) -> Any:
    """Return a classifier that says class 1 where one value of the input is above 0."""
    return lambda batch: np.stack([0 * batch[:, axis], batch[:, axis]], axis=1)


@pytest.fixture
def routed() -> buckler.Routed:
    router = buckler.Smoothed(half_space(0), sigma=0.5, num_classes=2)
    return buckler.Routed(router, {1.0: half_space(1), 0.25: half_space(1)}, num_classes=2)


X = np.array([[3.0, 2.0], [0.3, 2.0], [-3.0, 0.4], [0.0, 2.0], [3.0, 0.0]])
LIMIT = np.array([2.0, 0.3, 0.4, 0.0, 0.0])


def test_radii_stay_below_the_distance_to_the_nearest_boundary(routed: buckler.Routed) -> None:
    made = routed.certify(X, n=2000, seed=1)
    assert made.predicted.tolist() == [1, 1, 1, -1, -1]
    assert (made.radii <= LIMIT).all()
    assert (made.radii[:3] > [1.3, 0.15, 0.25]).all()
    assert [one.sigma for one in made[:3]] == [1.0, 1.0, 0.25]


def test_certificates_name_the_router_and_its_draws(routed: buckler.Routed) -> None:
    made = routed.certify(X, n=500, router_n=300, seed=1)
    assert {one.router.n for one in made if one.router is not None} == {300}
    assert made[0].n == 500
    assert "smoothed router" in str(made[0])
    assert made[0].alpha == 1e-3
    assert made[0].router is not None
    assert made[0].router.alpha < 1e-3
    assert list(made.to_arrow()["router"].is_valid().to_pylist()) == [True] * 5


def test_a_certificate_promises_no_more_than_its_router(routed: buckler.Routed) -> None:
    one = next(one for one in routed.certify(np.array([[0.9, 0.8]]), n=1000) if not one.abstained)
    assert one.router is not None
    assert replace(one).router == one.router
    for router in (replace(one.router, alpha=one.alpha + 1e-6), buckler.certify_votes([[501, 499]], sigma=0.5)[0]):
        with pytest.raises(buckler.InvalidInput, match="radius must be at most, and alpha at least, the router's"):
            replace(one, router=router)


def test_until_decided_a_rung_needs_router_and_classifier(routed: buckler.Routed) -> None:
    made = routed.certify_until(X, radii=[0.1, 0.2, 1.0], max_n=20_000, seed=1)
    assert made.radii.tolist() == [1.0, 0.2, 0.2, 0.0, 0.0]
    given = routed.certify_until(X[:3], radii=[0.1, 0.2, 1.0], max_n=20_000, seed=1, labels=[1, 1, 0])
    assert given.radii.tolist() == [1.0, 0.2, 0.0]


def test_predictions_abstain_where_the_router_does(routed: buckler.Routed) -> None:
    assert routed.predict(X, n=1000).tolist() == [1, 1, 1, -1, -1]


def test_an_input_gets_what_it_gets_alone(routed: buckler.Routed) -> None:
    together = routed.certify(X, n=200, seed=3)
    alone = [routed.certify(x[None], n=200, seed=3)[0] for x in X]
    assert together.radii.tolist() == [one.radius for one in alone]


def plane(axis: int, offset: float = 0.0) -> Any:
    """Return a module that says class 1 where one of two values is above minus the offset."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.zero_()
        module.weight[:, axis] = torch.tensor([-1.0, 1.0])
        module.bias.copy_(torch.tensor([-offset, offset]))
    return module


def of_modules() -> buckler.Routed:
    return buckler.Routed(buckler.Smoothed(plane(0), 0.5, 2), {0.25: plane(1), 1.0: plane(1, 0.5)}, 2)


QUICK: Any = {"attack": buckler.DecoupledAttack(2, 30, 16), "max_n": 20_000}


def test_refutations_lie_just_beyond_the_boundary_of_the_chosen_level() -> None:
    routed, x = of_modules(), np.array([[-2.0, 0.5], [3.0, 0.5], [-2.0, -0.4]])
    certificates = routed.certify(x, n=2000)
    assert certificates.predicted.tolist() == [1, 1, 0]
    by_label = routed.refute(x, labels=[1, 1, 0], **QUICK)
    by_certificate = routed.refute(x, certificates, **QUICK)
    for made in (by_label, by_certificate):
        for one, certificate, truth in zip(made, certificates, (0.5, 1.0, 0.4), strict=True):
            assert one.radius is not None
            assert certificate.radius <= truth <= one.radius * (1 + 1e-6) <= 1.3 * truth
            assert (one.id, one.label, one.noise) == (certificate.id, certificate.predicted, certificate.noise)
    assert "a smoothed router, under Gaussian noise with sigma 0.5, was shown to choose this noise" in str(by_label[0])
    near = routed.refute(x[:1], labels=[1], within=0.45, **QUICK)[0]
    assert near.radius is None


def test_a_point_may_be_refuted_by_another_level_than_the_inputs() -> None:
    routed = buckler.Routed(buckler.Smoothed(plane(1, -0.3), 0.1, 2), {0.25: plane(1, -0.1), 0.5: plane(1)}, 2)
    made = routed.refute([[0.0, 1.0]], labels=[1], **QUICK)[0]
    assert made.radius is not None
    assert made.radius > 0.9  # from 0.7 on level 0 is chosen, which predicts class 0 from 0.9 on
    assert made.noise == buckler.noise.Gaussian(0.25)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "exactly one of certificates and labels"),
        ({"labels": [1, 1]}, "labels must be one for each of 1 inputs"),
        ({"certificates": "two"}, "certificates must be one for each of 1 inputs"),
        ({"certificates": "experts"}, "must be of this composition"),
        ({"labels": [1], "router": half_space(0)}, "router must be a torch module"),
        ({"labels": [1], "scores": buckler.Softmax()}, "router must count votes"),
    ],
)
def test_what_cannot_be_refuted_is_named(given: dict[str, Any], named: str) -> None:
    routed, x = of_modules(), np.array([[-2.0, 0.5]])
    if "certificates" in given:
        two = routed.certify(np.concatenate([x, x]), n=100)
        given = {"certificates": two if given["certificates"] == "two" else routed.experts[0].certify(x, n=100)}
    if "router" in given:
        router = buckler.Smoothed(given.pop("router"), 0.5, 2)
        routed = buckler.Routed(router, {0.25: plane(1), 1.0: plane(1)}, 2)
    if "scores" in given:
        router = buckler.Smoothed(plane(0), 0.5, 2, scores=given.pop("scores"))
        routed = buckler.Routed(router, {0.25: plane(1), 1.0: plane(1)}, 2)
    with pytest.raises(InvalidInput, match=named):
        routed.refute(x, **given)


@pytest.mark.parametrize(
    ("router", "experts", "named"),
    [
        (half_space(0), {0.25: half_space(1), 1.0: half_space(1)}, "router"),
        (buckler.Smoothed(half_space(0), 0.5, 2), {0.25: half_space(1)}, "experts"),
        (buckler.Smoothed(half_space(0), 0.5, 3), {0.25: half_space(1), 1.0: half_space(1)}, "router"),
        (buckler.Smoothed(half_space(0), 0.5, 2), {-0.25: half_space(1), 1.0: half_space(1)}, "sigma"),
        *(
            (buckler.Smoothed(half_space(0), None, 2, noise=noise), {0.25: half_space(1), 1.0: half_space(1)}, "router")
            for noise in (buckler.noise.GridGaussian(0.5), buckler.noise.Gaussian(0.5, scale=np.array([1.0, 9.0])))
        ),
    ],
)
def test_what_does_not_fit_is_refused(router: Any, experts: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        buckler.Routed(router, experts, num_classes=2)


def test_a_csv_names_the_router_and_parquet_which_commands_read_refuses_it(
    routed: buckler.Routed, tmp_path: Path
) -> None:
    made = routed.certify(X, n=100)
    with pytest.raises(InvalidInput, match=r"behind a router must be written to a file that ends in \.csv"):
        made.save(tmp_path / "made.parquet")
    assert list(tmp_path.iterdir()) == []
    made.save(tmp_path / "made.csv")
    with (tmp_path / "made.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["radius"]) for row in rows] == made.radii.tolist()
    routers = [json.loads(row["router"]) for row in rows]
    assert [one["predicted"] for one in routers] == [one.router and one.router.predicted for one in made]
    assert {one["sigma"] for one in routers} == {0.5}
