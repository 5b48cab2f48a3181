"""The demo: real training, draws and files; its classifier is good under noise and the same from the same seed."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.certify.methods import sound_methods
from buckler.cli.app import run
from buckler.cli.terminal import DONE
from buckler.errors import InvalidInput
from buckler.runs.store.tables import read_certificates
from buckler.training.digits import train_digits


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--images", "40", "--n", "200", "--epochs", "8", "--out", str(tmp_path / "d")]
    assert run(["demo", *options]) == DONE
    shown = capsys.readouterr().out
    names = [method.name for method in sound_methods()]
    assert all(name in shown for name in names)
    assert (tmp_path / "d" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    certificates = read_certificates(tmp_path / "d" / "certificates.parquet")
    assert len(certificates) == 40 * len(names)
    assert run(["certify", str(tmp_path / "d" / "evidence"), "--out", str(tmp_path / "again.parquet")]) == DONE
    again = read_certificates(tmp_path / "again.parquet")
    assert again == certificates[:40]
    assert {(c.n, c.n0) for c in again} == {(200, 0)}
    assert np.mean([c.predicted is not None for c in again]) > 0.5
    # The same again: nothing is drawn anew, and the same comes out.
    assert run(["demo", *options]) == DONE
    assert read_certificates(tmp_path / "d" / "certificates.parquet") == certificates


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
        ({"inputs": np.zeros((0, 64)), "labels": []}, "neither of length 0"),
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
