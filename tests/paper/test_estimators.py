"""The paper's estimators: they compute what it prints, fail the audits, and no certificate comes of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb, ndtr, ndtri

import buckler
from benchmarks import errata
from benchmarks.errata import score_limits
from buckler.bounds.means import bernstein_lower
from buckler.certify import votes as discrete
from buckler.certify.methods import ScoreDraws, Votes
from buckler.certify.votes import margin_from_limits, vote_margin_lower
from buckler.evaluate.audit import CountsBound, audit_discrete, outcomes
from buckler.paper.estimators import (
    METHODS,
    PRINTED_EPSILON,
    published_bernstein_lower,
    published_bisection,
    published_fast_bisection,
    published_margin_lower,
    published_margin_variable,
    published_sequence_lower,
)
from buckler.paper.signomial import (
    Signomial,
    SignomialProgram,
    curve_infimum,
    odd_series,
    published_counted,
    published_program,
    published_quantile,
    published_quantile_inverse,
    published_starts,
    series,
    upper_region,
)
from buckler.types import FloatArray, IntArray, MarginKind
from tests.simulation import judge

MARGINS: tuple[MarginKind, ...] = ("probability", "quantile")


def test_monomials_and_signomials_evaluate() -> None:
    """``3 x^2 y - 2 y^-1`` and its gradient at (2, 5)."""
    f = Signomial.of([(3.0, (2.0, 1.0)), (-2.0, (0.0, -1.0)), (0.0, (1.0, 1.0))])
    x = np.array([2.0, 5.0])
    assert f.value(x) == pytest.approx(60.0 - 0.4)
    assert f.gradient(x) == pytest.approx([60.0, 12.0 + 2.0 / 25.0])
    assert len(f) == 2


def test_a_programme_with_a_known_answer() -> None:
    """Minimise x + y subject to x y >= 1/16 on (0, 1]: 1/2, at x = y = 1/4."""
    total = Signomial.of([(1.0, (1.0, 0.0)), (1.0, (0.0, 1.0))])
    area = Signomial.of([(1.0, (1.0, 1.0)), (-1 / 16, (0.0, 0.0))])
    program = SignomialProgram(total, (area,))
    assert program.solve([np.array([0.9, 0.3]), np.array([0.2, 0.6])]) == pytest.approx(0.5, abs=1e-6)
    assert not program.feasible(np.array([0.1, 0.1]))


@pytest.mark.parametrize("kind", MARGINS)
def test_the_objective_is_the_law_of_the_estimate(kind: MarginKind) -> None:
    """``Pi(theta~ | q)`` by the signomial, by the region's complement and by a plain sum over outcomes."""
    n, q = 15, np.array([0.6, 0.15, 0.25])
    theta = float(published_quantile(10 / n) - published_quantile(2 / n)) if kind == "quantile" else 8 / n
    counted = published_counted(theta, n, kind, 10)
    program = published_program(counted, n, 0.3, kind)
    point = q if kind == "probability" else np.append(q, [2 * q[0] - 1, 1 - 2 * q[1]])
    x = outcomes(3, n)
    pmf = comb(n, x[:, 0]) * comb(n - x[:, 0], x[:, 1]) * (q**x).prod(axis=1)
    h = published_quantile(np.arange(n + 1) / n) if kind == "quantile" else np.arange(n + 1) / n
    inside = h[x[:, 0]] - h[x[:, 1]] <= theta + 1e-12
    assert (program.objective.signs > 0.0).all()
    assert len(program.objective) == inside.sum()
    assert program.objective.value(point) == pytest.approx(pmf[inside].sum(), rel=1e-12)
    below = program.above[0]
    g = q[0] - q[1] if kind == "probability" else float(published_quantile(q[0]) - published_quantile(q[1]))
    assert below.value(point) == pytest.approx(0.3 - g)
    assert [f.value(point) for f in program.zero] == pytest.approx([0.0] * len(program.zero), abs=1e-12)
    assert len(program.zero) == (1 if kind == "probability" else 3)
    step = 1e-6 * np.eye(len(point))
    slope = [(program.objective.value(point + d) - program.objective.value(point - d)) / 2e-6 for d in step]
    assert program.objective.gradient(point) == pytest.approx(slope, abs=1e-6)


def test_ties_of_the_first_margin_are_exact() -> None:
    """``x1 - x2 <= k`` in whole numbers, for every k: fractions such as .3 - .1 and .2 must tie."""
    n = 10
    for k in range(-n, n + 1):
        expected = [sum(x1 - x2 <= k for x1 in range(n - x2 + 1)) for x2 in range(n + 1)]
        assert published_counted(k / n, n, "probability", 0).tolist() == expected


@given(n=st.integers(1, 40), order=st.integers(0, 30), inclusive=st.booleans(), pick=st.integers(0, 10**6))
def test_counted_by_hand(n: int, order: int, inclusive: bool, pick: int) -> None:
    """Every outcome's estimate against the observed one's, computed alike."""
    h = odd_series((2 * np.arange(n + 1) - n) / n, order)
    x = outcomes(3, n)
    estimates = h[x[:, 0]] - h[x[:, 1]]
    theta = float(estimates[pick % len(x)])
    inside = estimates < theta if inclusive else estimates <= theta
    expected = np.bincount(x[inside, 1], minlength=n + 1)
    assert published_counted(theta, n, "quantile", order, inclusive=inclusive).tolist() == expected.tolist()


def test_taylor_quantile_against_the_exact_one() -> None:
    p = np.linspace(0.02, 0.98, 97)
    assert published_quantile(p, 400) == pytest.approx(ndtri(p), abs=1e-6)
    upper = np.linspace(0.5, 1.0 - 1e-9, 200)
    previous = np.zeros_like(upper)
    for order in (0, 1, 5, 10, 25, 50):
        value = published_quantile(upper, order)
        assert (value >= previous).all()
        assert (value <= ndtri(upper) + 1e-12).all()
        assert published_quantile(1.0 - upper, order) == pytest.approx(-value, abs=1e-12)
        previous = value
    assert list(series(0)) == pytest.approx([np.sqrt(np.pi / 2.0)])
    assert published_quantile([0.0, 0.5, 1.0]).round(4).tolist() == [-2.2812, 0.0, 2.2812]


@given(p=st.floats(0.0, 1.0), order=st.integers(0, 60))
def test_taylor_quantile_inverse(p: float, order: int) -> None:
    assert float(published_quantile_inverse(published_quantile(p, order), order)) == pytest.approx(p, abs=1e-12)


def test_exact_quantile_exceeds_its_series_by_more_as_p_rises() -> None:
    """So the Taylor margin is at most the true one whenever q1 >= q2, and the gate of Algorithm 6 is needless (E9)."""
    p = np.linspace(1e-4, 1.0 - 1e-4, 4000)
    for order in (0, 3, 10, 25):
        assert (np.diff(ndtri(p) - published_quantile(p, order)) >= -1e-12).all()


def test_bisections_are_the_printed_ones() -> None:
    """A solution that accepts up to .3: both find it; a fast one that accepts too much misleads Algorithm 5 alone."""

    def solve(L: float) -> float:
        return 1.0 if L <= 0.3 else 0.0

    assert published_bisection(solve, 1.0, 0.05, 1e-6) == pytest.approx(0.3, abs=2e-6)
    assert published_fast_bisection(solve, solve, 1.0, 0.05, 1e-6) == pytest.approx(0.3, abs=2e-6)
    assert published_fast_bisection(solve, lambda _: 1.0, 1.0, 0.05) == 0.5
    assert published_bisection(lambda _: 0.0, 1.0, 0.05) == 0.0
    assert published_bisection(solve, -0.4, 0.05) == 0.0


@pytest.mark.parametrize("kind", MARGINS)
def test_the_curve_finds_the_infimum_of_the_programme(kind: MarginKind) -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        n = int(rng.integers(5, 26))
        x1 = int(rng.integers((3 * n) // 5, n))
        x2 = int(rng.integers(0, n - x1 + 1))
        h = published_quantile(np.arange(n + 1) / n) if kind == "quantile" else np.arange(n + 1) / n
        theta = float(h[x1] - h[x2])
        counted = published_counted(theta, n, kind, 10)
        L = float(rng.uniform(0.1, 1.0)) * theta
        curve = curve_infimum(upper_region(counted, n), L, kind, 10)
        assert published_program(counted, n, L, kind).solve(published_starts(x1, x2, n, kind)) == pytest.approx(
            curve, abs=2e-6
        )


@pytest.mark.parametrize("kind", MARGINS)
def test_a_search_that_ends_early_has_decided(kind: MarginKind) -> None:
    terms = published_quantile(np.arange(41) / 40) if kind == "quantile" else np.arange(41) / 40
    region = upper_region(published_counted(float(terms[36] - terms[2]), 40, kind, 10), 40)
    ended = 0
    for L in np.linspace(0.05, 0.95, 10) * float(terms[36] - terms[2]):
        whole, early = curve_infimum(region, L, kind, 10), curve_infimum(region, L, kind, 10, below=0.99)
        assert (whole < 0.99) == (early < 0.99)
        assert early == whole or whole < early < 0.99
        ended += early != whole
    assert ended > 0


@pytest.mark.parametrize("kind", MARGINS)
def test_algorithm_5_is_algorithm_4_on_easy_cases(kind: MarginKind) -> None:
    for x1, x2 in [(12, 0), (11, 1), (10, 1)]:
        results = [
            float(published_margin_lower(x1, x2, 12, alpha=0.05, margin=kind, solver=solver, tolerance=1e-3))
            for solver in ("curve", "signomial", "fast")
        ]
        assert results == pytest.approx([results[0]] * 3, abs=2e-3)


def test_a_local_search_stops_on_a_plateau_that_many_starts_leave() -> None:
    """E7: at counts (64, 36) and L = .07 one start accepts, SolveSignomial refuses, and the curve agrees with it."""
    counted = published_counted(0.28, 100, "probability", 0)
    program = published_program(counted, 100, 0.07, "probability")
    starts = published_starts(64, 36, 100, "probability")
    infimum = curve_infimum(upper_region(counted, 100), 0.07, "probability", 0)
    assert program.fast_solve(starts[0]) > 0.999 > infimum
    assert program.solve(starts) == pytest.approx(infimum, abs=1e-6)


def test_the_top_outcome_returns_the_estimate() -> None:
    """E1: (n, 0) accepts every margin, at any n and any alpha."""
    for alpha in (0.05, 1e-9):
        for kind, estimate in zip(MARGINS, (1.0, 4.56235), strict=True):
            low = published_margin_lower(100, 0, 100, alpha=alpha, margin=kind)
            assert estimate - PRINTED_EPSILON <= float(low) <= estimate + 1e-5
    assert published_margin_lower([100, 90, 99], [0, 0, 1], 100, estimate="exact")[:2].tolist() == [np.inf, np.inf]


def test_below_the_gate_it_is_bonferroni() -> None:
    low = published_margin_lower([60, 30, 0], [20, 60, 0], 100)
    assert low.tolist() == discrete.vote_margin_lower([60, 30, 0], [20, 60, 0], 100, method="bonferroni").tolist()


def test_vectorised_equals_scalar_and_reaches_the_door() -> None:
    top, other = np.array([[99, 80], [70, 99]]), np.array([[0, 4], [20, 0]])
    for kind in MARGINS:
        table = published_margin_lower(top, other, 100, margin=kind)
        assert table.shape == (2, 2)
        assert table[0, 1] == published_margin_lower(80, 4, 100, margin=kind)
        assert np.array_equal(
            table, discrete.vote_margin_lower(top, other, 100, margin=kind, method=METHODS["published"])
        )


def test_no_certificate() -> None:
    with pytest.raises(buckler.InvalidInput, match="method must be one of"):
        buckler.certify_votes([[100, 0]], sigma=0.5, labels=[0], method="published")[0]


def test_printed_widths() -> None:
    """Against the formulas, written out plainly, and against the house's own limit where only the misprint differs."""
    rng = np.random.default_rng(0)
    x = rng.beta(4.0, 2.0, size=(60, 3))
    assert published_bernstein_lower(x, 0.01, corrected=True) == pytest.approx(bernstein_lower(x, 0.01), abs=1e-12)
    assert published_bernstein_lower(x, 0.01) == pytest.approx(bernstein_lower(x, 0.02), abs=1e-12)
    for column in range(3):
        y, mean, square = x[:, column], 0.5, 0.25
        bets, wins, spread, seen = 0.0, 0.0, 0.0, 0.5
        for i, value in enumerate(y, start=1):
            bet = min(0.5, np.sqrt(2 * np.log(2 / 0.01) / (square / i * i * np.log(1 + i))))
            spread += 4 * (value - mean) ** 2 * (-np.log(1 - bet) - bet) / 4
            bets, wins, seen = bets + bet, wins + bet * value, seen + value
            mean = seen / (i + 1)
            square += (value - mean) ** 2
        printed = wins / bets - np.sqrt((2 * np.log(2 / 0.01) + spread) / bets)
        stated = wins / bets - (np.log(2 / 0.01) + spread) / bets
        assert float(published_sequence_lower(y, 0.01)) == pytest.approx(printed, abs=1e-12)
        assert float(published_sequence_lower(y, 0.01, corrected=True)) == pytest.approx(stated, abs=1e-12)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 400), alpha=st.floats(1e-6, 0.5))
def test_the_printed_sequence_is_never_the_narrower_one_where_it_says_anything(seed: int, n: int, alpha: float) -> None:
    """E4: if the width of the theorem is at most 1, the printed one is larger."""
    x = np.random.default_rng(seed).beta(0.5, 0.5, n)
    stated = float(published_sequence_lower(x, alpha, corrected=True))
    if stated > x.mean() - 0.9:
        assert float(published_sequence_lower(x, alpha)) <= stated


def by_name(name: str, scores: Any, label: int, margin: MarginKind = "quantile") -> float:
    return float(score_limits(name, scores[None], [label], 1e-3, margin)[0])


def test_scores_take_z_or_fall_back() -> None:
    rng = np.random.default_rng(1)
    rows = rng.dirichlet([8.0, 1.0, 1.0], 300)
    z, bound = published_margin_variable(rows[:, 0], rows[:, 1:].max(axis=1))
    assert bound == pytest.approx(4.56235, abs=1e-5)
    second = float(by_name("published/bernstein", rows, 0))
    assert second == float(published_bernstein_lower(z, 1e-3, -bound, bound))
    first = float(by_name("published/bernstein", rows, 0, "probability"))
    assert first == float(published_bernstein_lower(rows[:, 0] - rows[:, 1:].max(axis=1), 1e-3, -1.0, 1.0))
    behind = rng.dirichlet([3.0, 1.0, 1.0, 1.0, 1.0], 2000)
    low = float(published_bernstein_lower(behind[:, 0], 1e-3 / 5))
    high = 1.0 - published_bernstein_lower(1.0 - behind[:, 1:], 1e-3 / 5)
    expected = float(ndtri(low) - ndtri(high.max()))
    assert behind[:, 0].mean() < 0.5
    assert float(by_name("published/bernstein", behind, 0)) == pytest.approx(expected)
    batch = [by_name("published/bernstein", rows, 0), by_name("published/bernstein", rows[::-1], 1)]
    assert batch[0] == second
    assert batch[1] < 0.0 < float(ndtr(batch[0]))


@pytest.mark.parametrize("kind", MARGINS)
def test_the_ways_from_scores_differ_in_what_their_names_say(kind: MarginKind) -> None:
    rows = np.random.default_rng(5).dirichlet([8.0, 1.0, 1.0], 120)
    z, bound = published_margin_variable(rows[:, 0], rows[:, 1:].max(axis=1), kind)
    for limit, lower in (("sequence", published_sequence_lower), ("bernstein", published_bernstein_lower)):
        for way, corrected in (("published", False), ("cited", True)):
            assert by_name(f"{way}/{limit}", rows, 0, kind) == lower(z, 1e-3, -bound, bound, corrected=corrected)
        low = lower(rows[:, 0], 1e-3 / 3, corrected=True)
        high = 1.0 - lower(1.0 - rows[:, 1:], 1e-3 / 3, corrected=True).min()
        assert by_name(f"baseline/{limit}", rows, 0, kind) == margin_from_limits(
            kind, np.maximum(low, 0.0), np.minimum(high, 1.0)
        )


@pytest.mark.parametrize("way", ["published", "cited", "baseline"])
@pytest.mark.parametrize("limit", ["sequence", "bernstein"])
def test_a_row_may_stand_for_many_classes(way: str, limit: str) -> None:
    """Where the maximum of the rest stands for four classes, alpha is still shared by all six; and none may certify."""
    kept = np.random.default_rng(6).dirichlet([6.0, 2.0, 1.0], 200) * [1.0, 1.0, 0.25]
    whole = np.hstack([kept, np.repeat(kept[:, 2:], 3, axis=1)])
    method = METHODS[f"{way}/{limit}"]
    for kind in MARGINS:
        draws = ScoreDraws(kept[:, 0], kept[:, 1:].T, np.zeros((2, 0)), 6)
        assert method.limit(draws, 1e-3, kind) == by_name(method.name, whole, 0, kind)
    assert not method.sound
    with pytest.raises(buckler.InvalidInput, match="method must be one of"):
        buckler.certify_scores(whole[None], sigma=0.5, labels=[0], method=method.name)


def test_published_has_one_tolerance() -> None:
    top, other = np.array([97, 80]), np.array([1, 10])
    for kind in MARGINS:
        fine = published_margin_lower(top, other, 100, margin=kind, tolerance=1e-7)
        for low in (
            published_margin_lower(top, other, 100, margin=kind),
            METHODS["published"].limit(Votes(top, other, np.array([100, 100])), 1e-3, kind),
        ):
            assert ((fine - PRINTED_EPSILON <= low) & (low <= fine)).all()
            assert (low < fine).all()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"margin": "third"}, "margin must"),
    ({"solver": "magic"}, "solver must"),
    ({"estimate": "best"}, "estimate must"),
    ({"order": -1}, "order must"),
    ({"tolerance": 0.0}, "tolerance must"),
    ({"top": 60, "runner_up": 50}, "top \\+ runner_up must"),
    ({"n": 0}, "n must"),
]


@pytest.mark.parametrize(("change", "named"), BAD)
def test_bad_counts_are_named(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"top": 50, "runner_up": 10, "n": 100}
    with pytest.raises(buckler.InvalidInput, match=named):
        published_margin_lower(**good | change)


@pytest.mark.parametrize(("n", "last", "first"), [(100, 0.6, 0.7), (300, 0.8, 0.9), (500, 0.9, 1.0)])
def test_the_baseline_of_table_2_turns_to_zero_where_it_must(n: int, last: float, first: float) -> None:
    rows = np.tile(np.eye(10)[0], (n, 1))
    ceiling = by_name("baseline/sequence", rows, 0, "probability")
    assert last < ceiling < first


def published(kind: MarginKind, alpha: float, *, inclusive: bool = False) -> CountsBound:
    """Return the published bound, its 0 read as an abstention: all that is left to fail is what it claims."""

    def bound(counts: IntArray) -> FloatArray:
        top, other, n = counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)
        lows = published_margin_lower(top, other, n, alpha=alpha, margin=kind, inclusive=inclusive)
        return np.where(lows > 0.0, lows, -np.inf)

    return bound


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize(("m", "n"), [(3, 40), (4, 20)])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_published_fails_the_audit(kind: MarginKind, m: int, n: int, alpha: float) -> None:
    found = audit_discrete(published(kind, alpha), margin=kind, num_classes=m, n=n, alpha=alpha, points=12)
    assert not found.passed, str(found)
    assert found.miss > 0.5


@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_the_strict_inequality_alone_is_why(kind: MarginKind) -> None:
    """With ties counted, the same algorithms pass: and reach alpha, so the audit looked where it matters."""
    found = audit_discrete(
        published(kind, 0.05, inclusive=True), margin=kind, num_classes=3, n=20, alpha=0.05, points=24
    )
    assert found.passed, str(found)
    assert found.miss > 0.04


def test_no_valid_bound_reaches_what_is_published_at_the_top_outcome() -> None:
    """At (100, 0) a bound above 3.00095 is false with probability above .001 at a truth just below it."""
    largest = float(vote_margin_lower(100, 0, 100, method="top_class"))
    assert largest == pytest.approx(3.00095, abs=1e-5)
    assert float(published_margin_lower(100, 0, 100)) > 1.5 * largest


def test_the_second_margin_from_scores_is_false_almost_surely() -> None:
    rows, weights = errata.over_claiming()
    truth = errata.true_margin(rows, weights)
    rng = np.random.default_rng(7)
    runs = rows[rng.choice(3, size=(30, 6000), p=weights)]
    labels = np.zeros(30, dtype=np.int64)
    for method in ("cited/sequence", "cited/bernstein"):
        assert (errata.score_limits(method, runs, labels, 0.001, "quantile") > truth).all()
    first = errata.score_limits("cited/sequence", runs, labels, 0.001, "probability")
    assert judge(int((first > (weights @ rows)[0] - (weights @ rows)[1]).sum()), 30, 0.001).passed
