"""A model with random numbers of its own is certified correctly if they are fresh and independent, and only then.

The truth is a tie: class 1 has half of the votes at every input, so any certificate of it is false. With fresh numbers
from the operating system the share of false certificates is at most alpha. Each planted mistake of guarantees.md (the
same numbers in every row, or in every batch) makes it far larger.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import bdtrc

from buckler.smoothed import Smoothed

pytestmark = pytest.mark.filterwarnings("ignore:the model gave some inputs other logits")

TRIALS, DRAWS, ALPHA = 300, 64, 0.05
MOST = next(k for k in range(TRIALS) if bdtrc(k, TRIALS, ALPHA) < 1e-6)
"""False certificates that a valid procedure exceeds with probability below 1e-6."""


def fresh() -> Callable[[int], Any]:
    generator = np.random.default_rng()
    return generator.random


def one_for_the_batch() -> Callable[[int], Any]:
    generator = np.random.default_rng()
    return lambda rows: np.full(rows, generator.random())


def seeded_anew() -> Callable[[int], Any]:
    """Begin each batch with one seed, whose few numbers are favourable to class 1."""
    seed = next(s for s in range(10**4) if (np.random.default_rng(s).random(DRAWS) < 0.5).sum() >= 44)
    return lambda rows: np.random.default_rng(seed).random(rows)


def false_certificates(draw: Callable[[int], Any]) -> int:
    def model(batch: Any) -> Any:
        votes = (draw(len(batch)) < 0.5).astype(np.float32)
        return np.stack([1.0 - votes, votes], axis=1)

    smoothed = Smoothed(model, sigma=1.0, num_classes=2)
    settings: dict[str, Any] = {"n": DRAWS, "alpha": ALPHA, "labels": [1], "method": "top_class"}
    made = [smoothed.certify([[0.0]], ids=[str(trial)], **settings)[0] for trial in range(TRIALS)]
    return sum(certificate.predicted is not None for certificate in made)


def test_fresh_numbers_keep_alpha() -> None:
    assert false_certificates(fresh()) <= MOST


@pytest.mark.parametrize("plant", [one_for_the_batch, seeded_anew], ids=lambda plant: plant.__name__)
def test_numbers_that_repeat_are_found(plant: Callable[[], Callable[[int], Any]]) -> None:
    # One number for a batch: a false certificate in half of the trials. A seed: in all of them.
    assert false_certificates(plant()) > 2 * MOST
