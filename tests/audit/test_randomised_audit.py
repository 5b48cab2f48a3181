"""Limits randomised once after the last draw (T15a): exact enumeration, and every way to use the number wrongly."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import buckler
from buckler.bounds.betting import star_lower
from buckler.certificate import LEAST_UNIFORM
from buckler.certify import scores
from buckler.certify.scores import uniform_of
from buckler.types import FloatArray, IntArray
from tests.simulation import judge, score_margin_lower

N, ALPHA = 10, 0.2
NUMBERS: FloatArray = np.arange(1, 26) / 25
"""A uniform number on a grid: at most u with probability at most u, which is all that the theorem asks."""

VOTES: FloatArray = np.array(list(product((0.0, 1.0), repeat=N)))
TRUTHS = np.linspace(0.05, 0.95, 37)


def limits(draws: FloatArray) -> FloatArray:
    """Return the limit of each row of draws at each number, ``[numbers, rows]``."""
    return np.stack([star_lower(draws.T, ALPHA, uniform=u) for u in NUMBERS])


def worst(lows: FloatArray, size: int = N) -> float:
    """Return the largest error probability, draws being votes of probability p and numbers as likely as one another."""
    ones = VOTES[:, :size].sum(axis=1)
    half = 0.5 ** (N - size)  # each prefix stands there once for every continuation
    chances = [half * p**ones * (1.0 - p) ** (size - ones) for p in TRUTHS]
    return max(float(((lows > p).mean(axis=0) * chance).sum()) for p, chance in zip(TRUTHS, chances, strict=True))


def test_binary_draws_by_enumeration() -> None:
    randomised, plain = worst(limits(VOTES)), worst(star_lower(VOTES.T, ALPHA)[None])
    assert plain < randomised <= ALPHA
    assert randomised > 0.85 * ALPHA  # a number that were not used would show


def test_one_hot_rows_of_three_classes_by_enumeration() -> None:
    n, m, numbers = 5, 3, np.arange(1, 6) / 5
    votes = np.array(list(product(range(m), repeat=n)))
    counts = np.stack([(votes == k).sum(axis=1) for k in range(m)], axis=1)
    label, rows = np.zeros(len(votes), dtype=np.int64), np.eye(m)[votes]
    first, second = (
        np.stack([score_margin_lower(rows, label, ALPHA, kind, uniform=u) for u in numbers])
        for kind in ("probability", "quantile")
    )
    rng = np.random.default_rng(0)
    truths = np.concatenate([rng.dirichlet(np.full(m, 0.6), 200), [[0.5, 0.5, 0.0], [0.9, 0.1, 0.0]]])
    for p in truths:
        chance = np.prod(p**counts, axis=1)
        assert ((first > p[0] - p[1:].max()).mean(axis=0) * chance).sum() <= ALPHA
        if p[0] > 0.0 and p[1:].max() > 0.0:
            assert ((second > ndtri(p[0]) - ndtri(p[1:].max())).mean(axis=0) * chance).sum() <= ALPHA
    assert second.max() > 0.0


def test_a_number_used_again_at_a_later_look_is_caught() -> None:
    # Planted bug: the number at the end of 5 draws, and again after 10, the larger limit reported.
    early, late = limits(VOTES[:, :5]), limits(VOTES)
    assert worst(early, 5) <= ALPHA
    assert worst(late) <= ALPHA
    assert worst(np.maximum(early, late)) > 1.2 * ALPHA


def test_a_limit_that_goes_on_after_its_number_is_caught() -> None:
    # Planted bug: the number compared with the wealth after every draw, as if each were the last.
    share = 0.5
    stakes = np.full(N, 0.9)
    wealth = np.cumprod(1.0 + stakes * (VOTES - share) / share, axis=1)
    wealth = np.concatenate([np.ones((len(VOTES), 1)), wealth], axis=1)
    at_last = np.minimum(1.0, np.maximum(ALPHA * wealth[:, -1], ALPHA * wealth.max(axis=1) >= 1.0)).mean()
    at_any = np.minimum(1.0, ALPHA * wealth.max(axis=1)).mean()
    assert at_last <= ALPHA + 1e-12
    assert at_any > 1.5 * ALPHA


def test_a_number_read_off_the_draws_is_caught() -> None:
    # Planted bug: the number is small where the draws need it to be, though each of its values is as likely as before.
    lows = limits(VOTES)
    most = (NUMBERS[:, None] * (lows > 0.5)).max(axis=0)  # the largest number that rejects the truth, 1/2
    given = np.repeat(NUMBERS, len(VOTES) // len(NUMBERS)).tolist()
    missed = 0
    for needed in np.sort(most).tolist():
        if missed < len(given) and given[missed] <= needed:  # else this row of draws gets a number that is left over
            missed += 1
    assert missed / len(VOTES) > 1.1 * ALPHA  # at p = 1/2 every row of draws is as likely as another


def test_a_seed_chosen_after_looking_is_caught() -> None:
    # Planted bug: the better of two seeds.
    lows = limits(VOTES)
    both = np.maximum(lows[:, None], lows[None]).reshape(-1, len(VOTES))
    assert worst(both) > 1.2 * ALPHA


def test_numbers_of_inputs_are_uniform_above_the_least_and_follow_seed_and_id() -> None:
    numbers = np.array([uniform_of(3, str(i)) for i in range(20_000)])
    assert numbers.min() == LEAST_UNIFORM
    assert numbers.max() <= 1.0
    for u in (0.1, 0.2, 0.5, 0.9):
        below = int((numbers <= u).sum())
        assert judge(below, numbers.size, u).passed
        assert judge(numbers.size - below, numbers.size, 1.0 - u).passed
    assert uniform_of(3, "a") != uniform_of(4, "a")
    assert uniform_of(3, "a") != uniform_of(3, "b")


@pytest.mark.parametrize(
    ("word", "number"),
    [(2**64 - 1, 1.0), (2**63, 0.5 + 2.0**-53), (2**63 - 1, 0.5), (2**11 - 1, LEAST_UNIFORM), (0, LEAST_UNIFORM)],
)
def test_a_number_is_never_zero_and_no_digit_is_rounded(
    word: int, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hash:
        def __init__(self, *_: object, **__: object) -> None: ...

        def digest(self) -> bytes:
            return word.to_bytes(8, "little")

    monkeypatch.setattr(scores, "blake2b", Hash)
    assert uniform_of(0, "a") == number


def test_inputs_through_the_door_and_one_number_for_all_of_them() -> None:
    # Two classes with equal means: every certificate of class 0 is false, of the winner of the draws too.
    inputs, n, alpha = 4000, 30, 0.2
    votes = np.random.default_rng(8).random((inputs, n)) < 0.5
    rows = np.stack([votes, ~votes], axis=2).astype(np.float64)
    how = "pairwise/randomised_star"
    asked: dict[str, Any] = {"sigma": 1.0, "alpha": alpha, "margin": "probability", "seed": 5, "method": how}
    labels: IntArray = np.zeros(inputs, dtype=np.int64)
    ids = [f"image {i}" for i in range(inputs)]
    made = buckler.certify_scores(rows, labels=labels, ids=ids, **asked)
    assert judge(int((~made.abstained).sum()), inputs, alpha).passed
    winners = buckler.certify_scores(rows, ids=ids, **asked)
    assert judge(int((~winners.abstained).sum()), inputs, alpha).passed
    # Planted bug: every input has the number of one id, here a small one. Errors are no longer independent (T19).
    small = next(name for name in ids if uniform_of(5, name) == LEAST_UNIFORM)
    for numbers, holds in (([uniform_of(5, name) for name in ids], True), (uniform_of(5, small), False)):
        lows = score_margin_lower(rows[:, :5], labels, 0.05, uniform=numbers)
        assert judge(int((lows > 0.0).sum()), inputs, 0.05).passed == holds
