"""Limits by cells: equal to a plain reference, in which every candidate holds stakes of its own, made from the past."""

from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri_exp
from scipy.stats import skew

from buckler.bounds.bets import CAP, HURRIED, PACE, PRIOR
from buckler.bounds.betting import star_lower, wealth_goal
from buckler.bounds.cells import (
    COARSE,
    DOUBT,
    FINENESS,
    HAZARDS,
    HOPELESS,
    MOST,
    OPENING,
    TOLERANCE,
    _cut,
    _hazard,
    own_limit_compiled,
)
from buckler.types import FloatArray

ALPHA = 0.02
DRAWS = arrays(np.float64, st.integers(1, 80), elements=st.floats(0.0, 1.0))
LAWS: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "uniform": lambda rng, n: rng.random(n),
    "near one-hot": lambda rng, n: rng.beta(0.1, 0.1, n),
    "rare loss": lambda rng, n: (rng.random(n) < 0.97).astype(float),
    "rare gain": lambda rng, n: (rng.random(n) < 0.03).astype(float),
    "narrow": lambda rng, n: 0.7 + 0.01 * rng.random(n),
    "constant": lambda _, n: np.ones(n),
    "a turn for the worse": lambda rng, n: np.where(np.arange(n) < n // 3, 0.9, 0.2) + 0.1 * rng.random(n),
}


def limit(y: FloatArray, ceiling: float = 1.0, before: FloatArray | None = None, hurry: bool = False) -> float:
    seen = np.zeros(4) if before is None else before
    return float(own_limit_compiled(y, seen, -np.log(ALPHA), wealth_goal(ALPHA, y.size), ceiling, hurry, HAZARDS))


def moments(y: FloatArray) -> FloatArray:
    return np.array([y.size, y.sum(), (y**2).sum(), (y**3).sum()])


def wealth(y: FloatArray, stakes: list[float], m: float) -> FloatArray:
    factors = [1.0 + min(stake, CAP / m) * (value - m) for stake, value in zip(stakes, y, strict=True)]
    return np.asarray(np.cumprod([1.0, *factors]), dtype=np.float64)


def parts_of(low: float, high: float, bottom: float, top: float, width: float) -> list[float]:
    """Return the edges of a cell cut to a window."""
    left, right = min(max(low, bottom), high), max(min(high, top), low)
    edges = [low]
    if right > left:
        edges += list(np.linspace(left, right, max(int(np.ceil((right - left) / width)), 0) + 1))
    elif low < left:
        edges.append(left)
    return sorted({*edges, high})


def stakes_of(y: FloatArray, m: float, before: FloatArray | None = None, hurry: bool = False) -> list[float]:
    """Return the stakes that the candidate m holds: draw by draw, from the draws before it and the cell m lies in."""
    n, log_goal, goal = y.size, -np.log(ALPHA), wealth_goal(ALPHA, y.size)
    pace, fineness = (HURRIED, COARSE) if hurry else (PACE, FINENESS)
    head = np.zeros(4) if before is None else before
    stakes: list[float] = []
    low, high, stake, due = 0.0, 1.0, 0.0, 0
    opening = cutting = max(1, n // OPENING)
    for i in range(n):
        count, s1, s2, s3 = head + moments(y[:i]) + PRIOR * np.array([1.0, 0.5, 0.5, 0.5])
        mean = s1 / count
        deviation = np.sqrt(max(s2 / count - mean**2, 1e-12))
        history = wealth(y[:i], stakes, high)
        if i == cutting:
            cutting, due = 2 * cutting, i
            if i == opening or (history.min() > 1e-200 and history.max() < goal):
                error, doubt = deviation / np.sqrt(n), DOUBT * deviation * np.sqrt(1.0 / count + 1.0 / n)
                bottom, top = max(mean - doubt - 4.0 * error - log_goal / n, 0.0), min(mean + doubt - 2.5 * error, 1.0)
                edges = parts_of(low, high, bottom, top, max(fineness * error * n / i, (top - bottom) / MOST))
                k = int(np.searchsorted(edges, m))
                low, high = edges[k - 1], edges[k]
                history = wealth(y[:i], stakes, high)
        if i >= due:
            due = i + 1 + i // pace
            price = -log_goal + (np.log(max(history[-1], 1e-300)) if i >= opening else 0.0)
            done = i >= opening and (history.max() >= goal or history.min() < 1e-200 or price <= -log_goal - HOPELESS)
            if done:
                return stakes + [0.0] * (n - i)
            reach = _hazard(min(price, -1e-15), HAZARDS) / np.sqrt(n - i)
            skewness = (s3 / count - 3.0 * mean * s2 / count + 2.0 * mean**3) / deviation**3
            stake = reach / deviation * min(max(1.0 + skewness * reach / 6.0, 0.2), 1.5)
        stakes.append(stake)
    return stakes


def rejected(y: FloatArray, m: float, before: FloatArray | None = None, hurry: bool = False) -> bool:
    return bool(wealth(y, stakes_of(y, m, before, hurry), m).max() >= wealth_goal(ALPHA, y.size))


def near(y: FloatArray, m: float, before: FloatArray | None = None, hurry: bool = False) -> bool:
    """Return whether this candidate's verdict hangs on the last digits."""
    best = wealth(y, stakes_of(y, m, before, hurry), m).max() * ALPHA
    return bool(1.0 - 1e-6 < best < 1.0 + 1e-6)


@pytest.mark.parametrize("hurry", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 40, 150])
@pytest.mark.parametrize("law", LAWS)
def test_the_limit_is_the_end_of_what_the_reference_rejects(law: str, n: int, hurry: bool) -> None:
    y = LAWS[law](np.random.default_rng(n), n)
    found = limit(y, hurry=hurry)
    below = np.linspace(1e-6, found - 1e-6, 25 if found > 1e-5 else 0)
    assert all(rejected(y, m, hurry=hurry) or near(y, m, hurry=hurry) for m in below)
    above = found + 1e-8  # further above there may be rejected candidates again: the limit is below the first hole
    if above < 1.0:
        assert not rejected(y, above, hurry=hurry) or near(y, above, hurry=hurry)


@pytest.mark.parametrize("law", LAWS)
def test_residual_in_ball_arithmetic(law: str) -> None:
    # The wealth against the limit, multiplied out exactly from the candidate's own stakes, reaches 1/alpha.
    ctx.prec = 300
    y = LAWS[law](np.random.default_rng(3), 200)
    low = limit(y) - 1e-12  # not on an edge between two cells
    if low <= 0.0:
        return
    m, total, most = arb(low), arb(1), arb(0)
    for value, stake in zip(y.tolist(), stakes_of(y, low), strict=True):
        total *= 1 + min(arb(stake), arb(CAP) / m, key=lambda ball: float(ball.mid())) * (arb(value) - m)
        most = total if float(total.mid()) > float(most.mid()) else most
    assert float((most * arb(ALPHA)).mid()) > 1.0 - 1e-9  # stakes of kernel and reference differ by rounding


@given(y=DRAWS, share=st.floats(0.01, 0.99))
@settings(max_examples=80, deadline=None)
def test_a_ceiling_changes_nothing_below_it(y: FloatArray, share: float) -> None:
    full = limit(y)
    ceiling = max(share, 1e-3)
    assert limit(y, ceiling) == pytest.approx(min(full, ceiling), abs=2.0 * TOLERANCE)


@given(y=DRAWS, cut=st.integers(0, 79), other=st.floats(0.0, 1.0), m=st.floats(0.01, 0.99))
@settings(max_examples=40, deadline=None)
def test_stakes_are_predictable(y: FloatArray, cut: int, other: float, m: float) -> None:
    changed = y.copy()
    changed[cut:] = other
    assert stakes_of(y, m)[: cut + 1] == stakes_of(changed, m)[: cut + 1]


@given(
    low=st.floats(0.0, 1.0), size=st.floats(1e-6, 1.0), bottom=st.floats(0.0, 1.0), reach=st.floats(0.0, 1.0),
    width=st.floats(1e-3, 1.0),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_parts_make_up_the_cell(low: float, size: float, bottom: float, reach: float, width: float) -> None:
    high, top = low + size, bottom + reach
    ends = _cut(low, high, bottom, top, width)
    assert ends[-1] == high
    edges = np.concatenate([[low], ends])
    assert (np.diff(edges) > 0.0).all()
    inside = (edges[:-1] >= bottom) & (edges[1:] <= top)
    assert (np.diff(edges)[inside] <= width * (1.0 + 1e-9)).all()
    assert ends.size <= (min(high, top) - max(low, bottom)) / width + 4 if top > low and bottom < high else 2


def test_the_table_of_hazards() -> None:
    for price in (-1e-4, -0.01, -0.3, -1.0, -6.9, -50.0, -200.0, -700.0):
        d = ndtri_exp(price)
        exact = np.exp(-0.5 * d**2 - 0.5 * np.log(2.0 * np.pi) - price)
        assert _hazard(price, HAZARDS) == pytest.approx(exact, rel=0.02 if price > -1e-3 else 3e-3)


def test_draws_seen_beforehand_help_and_may_be_anything() -> None:
    rng = np.random.default_rng(4)
    y, earlier = 0.7 + 0.05 * rng.random(100), 0.7 + 0.05 * rng.random(100)
    helped, alone = limit(y, before=moments(earlier)), limit(y)
    misled = limit(y, before=moments(np.tile([0.0, 1.0], 50)))
    assert helped > alone > misled
    for found, before in ((helped, moments(earlier)), (misled, moments(np.tile([0.0, 1.0], 50)))):
        assert rejected(y, found - 1e-8, before)
        assert not rejected(y, found + 1e-8, before)


def test_cells_beat_one_path_for_all() -> None:
    # Half of what one path loses against the central limit theorem; see benchmarks/continuous_width.py.
    rng = np.random.default_rng(5)
    x = rng.beta(2.0, 1.0, (400, 60))
    ratio = np.median(2.0 / 3.0 - star_lower(x, 1e-3)) / np.median(
        2.0 / 3.0 - x.mean(axis=0) + 3.09 * x.std(axis=0) / 20
    )
    assert 0.95 < ratio < 1.12
    assert skew(x.ravel()) < 0.0


@pytest.mark.parametrize("n", [*range(1, 70), 127, 128, 129, 1023, 4097, 100_003])
def test_any_number_of_draws(n: int) -> None:
    y = np.random.default_rng(n).beta(3.0, 1.0, n)
    assert 0.0 <= limit(y) <= y.mean() + 1e-9
    assert limit(np.zeros(n)) == 0.0
    # n ones: nobody can do better than (1 + CAP (1 - m)/m)^n against m, or than alpha^(1/n) with all at stake.
    assert limit(np.ones(n)) <= ALPHA ** (1.0 / n)
