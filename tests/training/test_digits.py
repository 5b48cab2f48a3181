"""The demo's classifier: good under noise, the same from the same seed, in seconds."""

import time
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.training.digits import train_digits

datasets = pytest.importorskip("sklearn.datasets")


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    data = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    return data.data[order] / 16.0, data.target[order]


def test_good_accuracy_under_noise_in_seconds(digits: tuple[Any, Any]) -> None:
    x, y = digits
    seen: list[tuple[int, int]] = []
    start = time.process_time()
    network = train_digits(
        x[:1297], y[:1297], sigma=0.25, seed=0, progress=lambda epoch, epochs, _: seen.append((epoch, epochs))
    )
    assert time.process_time() - start < 30.0
    noise = 0.25 * np.random.default_rng(1).standard_normal((8, 500, 64))
    accuracy = np.mean([np.mean(network.predict(x[1297:] + draw) == y[1297:]) for draw in noise])
    assert accuracy > 0.93
    assert seen == [(i + 1, 60) for i in range(60)]


def test_noise_in_training_pays(digits: tuple[Any, Any]) -> None:
    x, y = digits
    noisy = x[1297:] + 0.5 * np.random.default_rng(1).standard_normal((500, 64))
    hits = [
        np.mean(train_digits(x[:1297], y[:1297], sigma=s, seed=0, epochs=20).predict(noisy) == y[1297:])
        for s in (0.0, 0.5)
    ]
    assert hits[1] > hits[0] + 0.05


def test_same_seed_same_network(digits: tuple[Any, Any]) -> None:
    x, y = digits
    once, again, other = (train_digits(x[:300], y[:300], sigma=0.25, seed=s, epochs=3) for s in (7, 7, 8))
    for a, b in zip(once.coefs_, again.coefs_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(once.coefs_[0], other.coefs_[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.full((4, 3), 2.0)}, "inputs must lie in"),
        ({"inputs": np.zeros(4)}, "inputs must have shape"),
        ({"inputs": np.zeros((5, 3))}, "labels must be one class for each of the 5"),
        ({"labels": [0, 0, 0, 0]}, "at least 2 different classes"),
        ({"sigma": -0.1}, "sigma must be at least 0"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number from 0"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"inputs": np.zeros((4, 3)), "labels": [0, 1, 0, 1], "sigma": 0.1, "seed": 0, "epochs": 1}
    with pytest.raises(InvalidInput, match=message):
        train_digits(**(good | change))
