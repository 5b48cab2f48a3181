"""The number that breaks ties: uniform, the input's own, and the same for ever."""

import numpy as np
import pytest
from scipy.stats import kstest

from buckler.certify.ties import tie_breaker
from buckler.errors import InvalidInput


def test_numbers_are_uniform_on_the_unit_interval() -> None:
    """4,000 of them, fixed by their names; a uniform law would fail this once in a million."""
    found = np.array([tie_breaker(seed, f"input {i}") for seed in (0, 1) for i in range(2000)])
    assert kstest(found, "uniform").pvalue > 1e-6
    assert len(set(found.tolist())) == 4000
    assert 0.0 <= found.min() < 0.01
    assert 0.99 < found.max() < 1.0
    assert ((found * 2.0**53) % 1.0 == 0.0).all()


def test_a_certificate_can_be_made_again() -> None:
    assert (tie_breaker(0, "a").hex(), tie_breaker(7, "é").hex()) == ("0x1.68e638fde6795p-1", "0x1.f8d8193589cfcp-2")


def test_seeds_from_both_sides() -> None:
    assert 0.0 <= tie_breaker(2**53, "a") < 1.0
    for seed in (-1, 2**53 + 1):
        with pytest.raises(InvalidInput, match="seed"):
            tie_breaker(seed, "a")
