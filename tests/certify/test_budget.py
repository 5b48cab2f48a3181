"""Shares of alpha: never more than alpha in sum, made in one place, and right down to the smallest alpha allowed."""

import ast
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import buckler
from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.bounds.buehler import LARGEST_EXACT_N, SMALLEST_EXACT_ALPHA
from buckler.certify import budget
from buckler.certify.budget import (
    DRAWING_DISTANCE,
    MOST_STATEMENT_DRAWS,
    SMALLEST_DRAWN,
    after_drawing,
    rest,
    split_alpha,
)
from buckler.certify.ladder import Ladder
from buckler.certify.predictions import PredictionTest, predicted_class
from buckler.errors import InvalidInput, check_alpha
from buckler.evaluate.refutations import PairTests
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.noise.ablation import MOST_PIXELS
from buckler.noise.grid import MOST_SIGMA_STEPS
from buckler.noise.splitting import MOST_OFFSETS
from buckler.noise.uniform import MOST_LAMBDA_STEPS as LARGEST_LAMBDA
from buckler.sampling.engine import MOST_VALUES
from buckler.sampling.streams import MOST_INPUT_DRAWS as DRAWS_OF_AN_INPUT

SOURCE = Path(__file__).parents[2] / "src" / "buckler"


@given(alpha=st.floats(1e-200, 1.0, exclude_max=True), parts=st.integers(1, 10**6))
def test_shares_never_exceed_alpha(alpha: float, parts: int) -> None:
    share = split_alpha(alpha, parts)
    assert parts * Fraction(share) <= Fraction(alpha)
    assert parts * Fraction(share) >= Fraction(alpha) * (1 - Fraction(1, 2**51)), "no more than a rounding is lost"


@given(alpha=st.floats(SMALLEST_DRAWN, 1.0, exclude_max=True))
def test_what_drawing_takes_is_rounded_up(alpha: float) -> None:
    left = after_drawing(alpha, Splitting(0.5))
    exact = Fraction(alpha) - Fraction(1, 2**40)
    assert Fraction(left) <= exact < Fraction(float(np.nextafter(left, 1.0)))


def test_noise_drawn_from_words_takes_a_part_of_alpha_and_no_other_does() -> None:
    for noise in (GridGaussian(0.5), Uniform(0.5), Splitting(0.5), Ablation(2, 9)):
        assert after_drawing(1e-10, noise) < 1e-10
        with pytest.raises(InvalidInput, match="alpha must be at least 1e-10"):
            after_drawing(float(np.nextafter(1e-10, 0.0)), noise)
    assert after_drawing(1e-12, Gaussian(0.5)) == after_drawing(1e-12, DerandomizedSplitting(0.5)) == 1e-12
    assert after_drawing(0.1, GridGaussian(0.5), 2**33) == after_drawing(0.1, GridGaussian(0.5))
    with pytest.raises(InvalidInput, match="draws of all inputs must be at most 8,589,934,592 together"):
        after_drawing(0.1, GridGaussian(0.5), 2**33 + 1)


def test_the_constant_covers_every_noise_at_its_largest() -> None:
    """T24: total variation of all draws of a statement, from the largest numbers that are accepted."""
    assert Fraction(1, 2**40) == DRAWING_DISTANCE
    assert 8 * DRAWS_OF_AN_INPUT == MOST_STATEMENT_DRAWS == 2**33
    values = MOST_STATEMENT_DRAWS * MOST_VALUES
    # Phi(-13.1) < 2^-128, so the noise of the grid has at most 2 * 13.1 sigma / step + 2 thresholds.
    assert ndtr(-13.1) < 2.0**-128
    assert values * (2 * 13.1 * MOST_SIGMA_STEPS + 2) * 2.0**-128 <= DRAWING_DISTANCE
    assert Fraction(values * (2 * LARGEST_LAMBDA + 1), 2**130) <= DRAWING_DISTANCE
    assert Fraction(values * MOST_OFFSETS, 2**130) <= DRAWING_DISTANCE
    assert Fraction(MOST_STATEMENT_DRAWS * comb(MOST_PIXELS, 2), 2**128) <= DRAWING_DISTANCE
    with pytest.raises(InvalidInput, match="sigma must be at most"):
        GridGaussian(1.01 * MOST_SIGMA_STEPS, 1.0)
    with pytest.raises(InvalidInput, match="pixels"):
        Ablation(1, MOST_PIXELS + 1)


@given(alpha=st.floats(1e-150, 1.0, exclude_max=True), parts=st.integers(2, 1000))
def test_the_rest_is_rounded_down(alpha: float, parts: int) -> None:
    share = split_alpha(alpha, parts)
    left = rest(alpha, share)
    assert Fraction(left) <= Fraction(alpha) - Fraction(share) < Fraction(float(np.nextafter(left, 1.0)))


def is_level(node: ast.expr) -> bool:
    """Return whether an expression is a name, or an attribute, with alpha or delta in it."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return "alpha" in name.lower() or "delta" in name.lower()


def is_fraction(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 0.0 < node.value < 1.0


def divisions_of_alpha(source: str) -> list[int]:
    """Return the lines where something called alpha or delta is divided, or multiplied by a number below 1."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            shared = isinstance(node.op, ast.Div | ast.FloorDiv) and is_level(left)
            scaled = isinstance(node.op, ast.Mult) and {is_level(left), is_level(right)} == {True, False}
            if shared or (scaled and (is_fraction(left) or is_fraction(right))):
                found.append(node.lineno)
    return found


def test_alpha_is_divided_only_in_the_budget() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name != "budget.py":
            assert divisions_of_alpha(path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.parametrize(
    "line", ["alpha / 2", "self.alpha / 2", "0.5 * alpha", "alpha * 0.5", "delta / 3", "a.delta // 2", "alpha /= 2"]
)
def test_a_division_of_alpha_is_found(line: str) -> None:
    assert divisions_of_alpha(line) == [1]
    assert divisions_of_alpha("alpha * (1.0 - ERROR) + 2.0 / alpha") == []


def test_the_share_of_the_final_test_depends_on_its_draw_alone_and_falls_with_it() -> None:
    draws = [1, 1000, 10_000, 10_001, 100_000, 10**6]
    shares = [budget.final_share(1e-3, n) for n in draws]
    assert shares == [budget.split_alpha(1e-3, parts) for parts in (4, 4, 4, 8, 40, 400)]
    # Where the exact limit takes neither the draws nor the level there is no final test.
    assert (budget.LARGEST_FINAL, budget.SMALLEST_FINAL) == (LARGEST_EXACT_N, SMALLEST_EXACT_ALPHA)
    assert budget.final_share(1e-3, 10**6 + 1) == 0.0
    assert budget.final_share(1e-10, 100_000) > 1e-12 > budget.split_alpha(1e-10, 400)
    assert budget.final_share(1e-10, 10**6) == 0.0


SMALLEST, BELOW = 1e-200, float(np.nextafter(1e-200, 0.0))
REFUSED = "alpha must be at least 1e-200 and below 1"


def half_space(batch: Any) -> Any:
    return np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)


SMOOTHED = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
DOORS: list[Any] = [
    check_alpha,
    lambda alpha: clopper_pearson_lower(90, 100, alpha),
    lambda alpha: clopper_pearson_upper(90, 100, alpha),
    lambda alpha: buckler.certify_votes([[90, 10]], sigma=1.0, alpha=alpha),
    lambda alpha: buckler.certify_scores(np.tile([[0.9, 0.1]], (1, 50, 1)), sigma=1.0, alpha=alpha),
    lambda alpha: predicted_class([[90, 10]], alpha=alpha),
    lambda alpha: PredictionTest(1, 2, alpha=alpha),
    lambda alpha: PairTests(np.array([0]), np.array([1]), alpha, 100),
    lambda alpha: Ladder((0.1,), Gaussian(0.5), alpha=alpha),
    lambda alpha: SMOOTHED.certify([[1.0]], n=20, alpha=alpha),
    lambda alpha: SMOOTHED.certify_until([[1.0]], radii=[0.1], max_n=20, alpha=alpha),
    lambda alpha: SMOOTHED.predict([[1.0]], n=20, alpha=alpha),
    lambda alpha: SMOOTHED.predict([[1.0]], max_n=20, alpha=alpha),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore:n = ", "ignore:max_n = ")
def test_alpha_below_the_smallest_is_refused(door: Any) -> None:
    for alpha in (0.0, 1e-250, BELOW):
        with pytest.raises(buckler.InvalidInput, match=REFUSED):
            door(alpha)
    door(100 * SMALLEST)  # some doors split it


@pytest.mark.parametrize(("k", "n"), [(36270, 36306), (999_000, 1_000_000), (5000, 10_000), (90, 100), (700, 1000)])
def test_a_limit_at_the_smallest_alpha_has_its_tail(k: int, n: int) -> None:
    """The limit back into its tail, in balls; at 1e-250 SciPy's tail underflows and this fails."""
    ctx.prec = 400
    successes, failures = arb(k), arb(n - k + 1)
    lower, upper = clopper_pearson_lower(k, n, SMALLEST), clopper_pearson_upper(n - k, n, SMALLEST)
    for p in (arb(float(lower)), 1 - arb(float(upper))):
        tail = p.beta_lower(successes, failures, True)
        assert tail <= arb(SMALLEST)
        assert tail > arb(SMALLEST) * 0.999
