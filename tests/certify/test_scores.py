"""Margins from scores: equivariance, combinations, kept columns, certificates, refusals."""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from scipy.special import ndtri

from buckler.bounds.betting import earlier_moments, star_lower
from buckler.bounds.means import bernstein_lower
from buckler.certify import scores as continuous
from buckler.certify.budget import rest, winner_share
from buckler.certify.scores import Scores, as_scores, certify_scores, draws_of, largest_mean_class, limit_of, uniform_of
from buckler.certify.settings import Sparsemax
from buckler.certify.tangents import SLOPES, best_slopes, estimate, margin_from_height
from buckler.errors import BucklerWarning, InvalidInput
from buckler.types import OTHERS, FloatArray, IntArray, Limit, MarginKind
from tests.simulation import score_margin_lower

LIMITS = get_args(Limit)


def softmax_rows(seed: int, n: int, m: int, gap: float = 3.0, spread: float = 1.0) -> FloatArray:
    z = np.random.default_rng(seed).normal(size=(n, m)) * spread
    z[:, 0] += gap
    weights = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


ROWS = softmax_rows(0, 300, 5)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("margin", get_args(MarginKind))
def test_relabelling_changes_nothing(limit: Limit, margin: MarginKind) -> None:
    order = np.array([3, 0, 4, 1, 2])
    before = score_margin_lower(ROWS, 0, 1e-3, margin, limit)
    after = score_margin_lower(ROWS[:, order], 1, 1e-3, margin, limit)
    if np.isfinite(before):
        assert float(after) == pytest.approx(float(before), abs=1e-8)
    else:
        assert after == before


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_the_limit_is_the_smallest_over_rivals_also_where_another_has_the_largest_mean(margin: MarginKind) -> None:
    rows = np.tile([[0.34, 0.22, 0.43, 0.005, 0.005], [0.34, 0.22, 0.0, 0.22, 0.22]], (500, 1))
    given = draws_of(as_scores("scores", rows[None]), 0, 0)
    alone = [
        limit_of("star", given._replace(rivals=given.rivals[j, None], earlier=given.earlier[j, None]), 1e-3, margin)
        for j in range(4)
    ]
    assert given.rivals.mean(axis=1).argmax() == 0
    assert np.argmin(alone) == 1
    assert float(score_margin_lower(rows, 0, 1e-3, margin)) == pytest.approx(alone[1], abs=1e-8)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("margin", get_args(MarginKind))
def test_never_above_the_sample_estimate(limit: Limit, margin: MarginKind) -> None:
    for seed in range(10):
        rows = softmax_rows(seed, 40 + 30 * seed, 4, gap=0.5 * seed)
        mean = rows.mean(axis=0)
        top, other = mean[0], mean[1:].max()
        plug_in = top - other if margin == "probability" else ndtri(top) - ndtri(other)
        assert float(score_margin_lower(rows, 0, 0.05, margin, limit)) <= plug_in


def test_pairwise_is_the_smallest_limit_over_pairs() -> None:
    pairs = np.clip(ROWS[:, :1] - ROWS[:, 1:], -1.0, 1.0)
    found = {limit: float(score_margin_lower(ROWS, 0, 0.01, limit=limit)) for limit in LIMITS}
    assert found["star"] == pytest.approx(float(star_lower(pairs, 0.01, -1.0, 1.0).min()), abs=2e-9)
    assert found["bernstein"] == pytest.approx(float(bernstein_lower(pairs, 0.01, -1.0, 1.0).min()), abs=1e-12)


@pytest.mark.parametrize("limit", ["hoeffding", "bernstein", "sequence", "star"])
def test_what_rounding_may_add_is_taken_away(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The allowance made large: each limit falls by as much of it as there are roundings, and none rises (F7, F9)."""
    large, rows = 1e-3, softmax_rows(4, 2000, 4, gap=4.0)
    before = float(score_margin_lower(rows, 0, 0.01, limit=limit))
    monkeypatch.setattr(continuous, "LIMIT_SLACK", large)
    assert before - float(score_margin_lower(rows, 0, 0.01, limit=limit)) == pytest.approx(large, rel=1e-9)


def test_draws_that_turn_are_not_certified_beyond_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wealth that was reached before the draws turned proves more than their mean; the limit is lowered to that."""
    rows = np.tile([[0.95, 0.05]], (4000, 1))
    rows[1500:] = [0.4, 0.6]
    mean = float(rows[:, 0].mean() - rows[:, 1].mean())
    assert float(score_margin_lower(rows[:1500], 0, 0.01)) > mean + 0.2
    monkeypatch.setattr(continuous, "LIMIT_SLACK", 1e-3)
    assert float(score_margin_lower(rows, 0, 0.01)) == pytest.approx(mean - 1e-3, rel=1e-9)


@pytest.mark.parametrize("limit", ["hoeffding", "bernstein", "sequence"])
def test_a_tangent_is_compared_with_a_mean_that_is_rounded_down(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rival has its own slope, the smallest margin counts, and the allowance grows with the range, 1 + c."""
    large, alpha = 1e-3, 0.01
    rows, before = softmax_rows(5, 3000, 6), softmax_rows(6, 500, 6)
    rows[:, 3], before[:, 3] = 0.02 * rows[:, 3], 0.02 * before[:, 3]
    rows, before = rows / rows.sum(axis=1)[:, None], before / before.sum(axis=1)[:, None]
    a, rivals = rows[:, 0], rows[:, 1:].T
    moments = np.stack([earlier_moments(before[:, 0].copy(), before[:, j].copy()) for j in range(1, 6)])
    chosen = SLOPES[best_slopes(moments, len(a), alpha)]
    assert len(set(chosen.tolist())) > 1
    monkeypatch.setattr(continuous, "LIMIT_SLACK", large)
    for selection, slopes in ((before, chosen), (None, np.ones(5))):
        expected = float(estimate(a, rivals).min())
        for c, rival in zip(slopes.tolist(), rivals, strict=True):
            low = float(continuous.LIMITS[limit](a - c * rival, alpha, -c, 1.0)) - large * (1.0 + c)
            expected = min(expected, float(margin_from_height(low, c)))
        found = score_margin_lower(rows, 0, alpha, "quantile", limit=limit, selection=selection)
        assert float(found) == pytest.approx(expected, abs=1e-10)
        assert found > 0.0


def test_rows_that_round_above_one_are_cut_there() -> None:
    """Scores kept in half precision may sum to a little more than one; none of them counts for more than one."""
    rows = np.tile([[1.003, 0.0], [0.0, 1.0]], (200, 1))
    for limit in LIMITS:
        assert score_margin_lower(rows, 0, 0.05, limit=limit) == score_margin_lower(
            np.minimum(rows, 1.0), 0, 0.05, limit=limit
        )


def test_two_draws_are_enough_for_every_limit() -> None:
    for limit in LIMITS:
        assert -1.0 <= float(score_margin_lower([[0.9, 0.1], [0.8, 0.2]], 0, 0.05, limit=limit)) < 0.75


def test_a_label_without_hope_has_the_lowest_margin_there_is() -> None:
    rows = np.tile([[0.0, 1.0]], (50, 1))
    for limit in ("hoeffding", "star"):
        assert float(score_margin_lower(rows, 0, 0.05, limit=limit)) == -1.0


def test_batches_equal_single_inputs() -> None:
    batch = np.stack([softmax_rows(seed, 120, 4) for seed in range(3)])
    labels = [0, 0, 2]
    for margin in get_args(MarginKind):
        together = score_margin_lower(batch, labels, 0.01, margin)
        assert together.shape == (3,)
        np.testing.assert_array_equal(
            together, [score_margin_lower(batch[i], labels[i], 0.01, margin) for i in range(3)]
        )
    assert together[2] == -np.inf


def test_a_constant_classifier() -> None:
    # One-hot and constant: no valid limit exceeds alpha^(1/n) for p_A, hence these margins.
    n, alpha = 500, 1e-3
    rows = np.zeros((n, 3))
    rows[:, 1] = 1.0
    best = 2.0 * alpha ** (1.0 / n) - 1.0
    first, second = (float(score_margin_lower(rows, 1, alpha, kind)) for kind in ("probability", "quantile"))
    # p_j = 0 too, so the margin variable is 1 and its limit is that of a variable in [-1, 1].
    assert 0.95 * best <= first <= best
    assert 0.9 * 2.0 * ndtri(alpha ** (1.0 / n)) <= second <= 2.0 * ndtri(alpha ** (1.0 / n))
    assert float(score_margin_lower(rows, 0, alpha)) == -1.0
    assert score_margin_lower(rows, 0, alpha, "quantile") == -np.inf


def test_slopes_prove_something_and_not_too_much() -> None:
    rows, before = softmax_rows(5, 800, 6), softmax_rows(6, 200, 6)
    mean = softmax_rows(7, 200000, 6).mean(axis=0)
    truth = float(ndtri(mean[0]) - ndtri(mean[1:].max()))
    assert 0.6 * truth < float(score_margin_lower(rows, 0, 1e-3, "quantile")) < truth
    assert 0.6 * truth < float(score_margin_lower(rows, 0, 1e-3, "quantile", selection=before)) < truth


@pytest.mark.parametrize("limit", ["sequence", "bernstein", "hoeffding"])
def test_closed_forms_take_the_slope_of_the_selection(limit: Limit) -> None:
    rows, before = softmax_rows(5, 3000, 6), softmax_rows(6, 500, 6)
    plain = score_margin_lower(rows, 0, 1e-3, "quantile", limit=limit)
    assert score_margin_lower(rows, 0, 1e-3, "quantile", limit=limit, selection=before) > plain > 0.0


def kept(rows: FloatArray, keep: list[int]) -> Scores:
    rest = np.delete(rows, keep, axis=2).max(axis=2, keepdims=True)
    values = np.concatenate([rows[:, :, keep], rest], axis=2)
    columns = np.tile([*keep, OTHERS], (len(rows), 1))
    ids = tuple(f"image {i}" for i in range(len(rows)))
    return Scores(ids, values, columns, rows.shape[2], "softmax", 0.5)


def test_kept_columns_and_the_rest() -> None:
    rows = np.stack([softmax_rows(seed, 200, 20) for seed in range(2)])
    record = kept(rows, [0, 3, 7])
    for margin in get_args(MarginKind):
        low = score_margin_lower(record, [0, 0], 0.01, margin)
        full = score_margin_lower(rows, [0, 0], 0.01, margin)
        assert low.shape == (2,)
        # The maximum over seventeen classes has a larger mean than each of them.
        assert (low <= full + 1e-9).all()
        everything = Scores(record.ids, rows, np.tile(np.arange(20), (2, 1)), 20, "softmax", 0.5)
        np.testing.assert_array_equal(score_margin_lower(everything, [0, 0], 0.01, margin), full)


def test_kept_columns_are_checked() -> None:
    rows = softmax_rows(1, 50, 6)[None]
    with pytest.raises(InvalidInput, match="column was kept"):
        score_margin_lower(kept(rows, [0, 1]), [4])
    with pytest.raises(InvalidInput, match="columns must hold every class or one of the rest"):
        Scores(("a",), rows[:, :, :3], np.array([[0, 1, 2]]), 6, "softmax")


def test_certificates() -> None:
    found = certify_scores([ROWS], sigma=0.5, labels=[0])[0]
    low = float(score_margin_lower(ROWS, 0, 1e-3, "quantile"))
    assert found.predicted == 0
    assert found.margin == low
    assert found.radius == pytest.approx(0.25 * low, rel=1e-12)
    assert found.radius <= 0.25 * low
    assert (found.n, found.n0, found.method, found.map, found.temperature) == (300, 0, "pairwise/star", "softmax", 1.0)
    first = certify_scores([ROWS], sigma=0.5, labels=[0], margin="probability", scoring=Sparsemax())[0]
    assert (first.margin_kind, first.map, first.temperature) == ("probability", "sparsemax", None)
    nothing = certify_scores([ROWS], sigma=0.5, labels=[3])[0]
    assert nothing.abstained
    assert nothing.radius == 0.0


def test_a_class_that_is_not_shown_to_win_abstains_though_its_limit_is_positive() -> None:
    rows = np.tile([[[1.0, 0.0]]], (1, 15, 1))
    assert not certify_scores(rows, sigma=0.5, labels=[0]).abstained[0]
    with pytest.warns(BucklerWarning, match="n must be at least 19"):
        assert certify_scores(rows, sigma=0.5).abstained[0]


def test_the_class_is_the_winner_of_the_same_scores() -> None:
    """Its limit is the one of the class at what the test leaves of alpha; without a clear lead it abstains."""
    even = np.tile([[0.5, 0.5], [0.45, 0.55], [0.55, 0.45]], (100, 1))
    swapped = ROWS[:, [2, 1, 0, 3, 4]]
    found = certify_scores([swapped], sigma=0.5, alpha=0.01)[0]
    share = winner_share(0.01)
    fixed = certify_scores([swapped], sigma=0.5, alpha=rest(0.01, share), labels=[2])[0]
    assert (found.predicted, found.margin, found.radius) == (2, fixed.margin, fixed.radius)
    assert (found.alpha, found.winner_alpha, found.n0) == (0.01, share, 0)
    undecided = certify_scores([even], sigma=0.5)[0]
    assert (undecided.predicted, undecided.margin) == (None, -np.inf)


def test_the_class_comes_from_the_selection() -> None:
    before = softmax_rows(9, 64, 5)[:, [2, 1, 0, 3, 4]]
    assert largest_mean_class([before]).tolist() == [2]
    swapped = ROWS[:, [2, 1, 0, 3, 4]]
    found = certify_scores([swapped], sigma=0.5, selection=[before])[0]
    assert (found.predicted, found.n0, found.winner_alpha) == (2, 64, 0.0)
    batch = certify_scores(np.stack([ROWS, ROWS]), sigma=0.5, selection=np.stack([before, softmax_rows(1, 64, 5)]))
    assert [c.predicted for c in batch] == [None, 0]
    given = certify_scores([swapped], sigma=0.5, labels=[2], selection=[before])[0]
    assert (given.predicted, given.n0) == (2, 0)


def test_a_record_brings_its_names_and_map() -> None:
    rows = np.stack([softmax_rows(seed, 200, 20) for seed in range(2)])
    separate = np.stack([softmax_rows(seed, 50, 20) for seed in (2, 3)])
    record, before = kept(rows, [0, 3, 7]), kept(separate, [0, 3, 7])
    found = certify_scores(record, sigma=0.5, selection=before)
    assert [(c.id, c.predicted, c.n0, c.temperature) for c in found] == [
        ("image 0", 0, 50, 0.5),
        ("image 1", 0, 50, 0.5),
    ]
    other = kept(separate, [0, 1])
    assert certify_scores(record, sigma=0.5, selection=other).predicted.tolist() == [0, 0]
    winners = certify_scores(record, sigma=0.5)
    assert [(c.id, c.predicted, c.n0) for c in winners] == [("image 0", 0, 0), ("image 1", 0, 0)]
    # Where the largest of the classes that were not kept leads, no class is known to win.
    assert certify_scores(kept(rows, [3, 7]), sigma=0.5).abstained.all()
    with pytest.raises(InvalidInput, match="scoring must be left out"):
        certify_scores(record, sigma=0.5, scoring=Sparsemax())


@pytest.mark.parametrize(
    ("scores", "word"),
    [
        ([[[0.5, 0.4], [0.5, 0.5]]], "scores must be nonnegative and sum to one.* input 0, draw 0"),
        ([[[0.5, 0.5], [1.1, -0.1]]], "draw 1"),
        ([[[0.5, 0.5], [0.9, 0.2]]], "input 0, draw 1"),
        ([[[0.5, np.nan]]], "finite"),
        ([[[1.0, 0.0], [0.5, 0.4], [0.5, 0.4]]], "draw 1"),
        ([0.5, 0.5], "shape"),
        ([[[1.0], [1.0]]], "two classes or more"),
        ([[[0.5, 0.5], [1.0]]], "rectangular"),
    ],
)
def test_bad_input_is_refused(scores: Any, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        as_scores("scores", scores)


def test_one_draw_is_too_few_for_a_variance() -> None:
    with pytest.raises(InvalidInput, match="at least 2 draws for limit 'bernstein'"):
        score_margin_lower([[0.5, 0.5]], 0, limit="bernstein")


COPIES: list[Callable[[FloatArray], Any]] = [
    lambda rows: rows[:, :10].copy(),
    lambda rows: rows[:, 7:8].copy(),
    lambda rows: rows[:, ::-1].copy(),
    lambda rows: rows.astype(np.float32),
    lambda rows: rows.astype(np.float32)[:, 100:],
    lambda rows: rows[:, [5, 5, 3]],
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("saturated", [False, True])
def test_a_selection_that_is_copied_from_the_evidence_is_refused(
    copied: Callable[[FloatArray], Any], saturated: bool
) -> None:
    rows = np.stack([softmax_rows(seed, 200, 4) for seed in range(2)])
    if saturated:
        rows[0] = [1.0, 0.0, 0.0, 0.0]
    with pytest.raises(InvalidInput, match="selection must be scores of separate draws"):
        certify_scores(rows, sigma=0.5, selection=copied(rows))
    with pytest.raises(InvalidInput, match="selection must be scores of separate draws"):
        certify_scores(rows.astype(np.float32), sigma=0.5, selection=copied(rows))


def test_separate_draws_may_have_equal_scores() -> None:
    """Saturated scores repeat, and so do those of few outcomes; one new row of one input is enough."""
    saturated = np.tile([[1.0, 0.0]], (1, 100, 1))
    for n0 in (10, 100):
        assert certify_scores(saturated, sigma=0.5, selection=saturated[:, :n0].copy())[0].predicted == 0, n0
    few = np.array([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2], [0.6, 0.4]])
    evidence, before = (few[np.random.default_rng(seed).integers(0, 4, (3, n))] for seed, n in ((0, 300), (1, 20)))
    assert certify_scores(evidence, sigma=0.5, selection=before).predicted.tolist() == [0, 0, 0]
    rows = np.stack([softmax_rows(seed, 200, 4) for seed in range(2)])
    before = rows[:, :10].copy()
    before[1, 9] = softmax_rows(5, 1, 4)[0]
    assert certify_scores(rows, sigma=0.5, selection=before).predicted.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"method": "exact"}, "'pairwise/star'"),
        ({"labels": [0, 0]}, "labels"),
        ({"labels": [9]}, "labels must be a class from 0 to 4"),
        ({"labels": [-1]}, "labels"),
        ({"labels": [0.5]}, "labels"),
        ({"labels": 0}, "labels"),
        ({"alpha": 0.0}, "alpha"),
        ({"margin": "third"}, "margin"),
        ({"selection": [[[0.5, 0.4, 0.0, 0.0, 0.0]]]}, "selection must be nonnegative"),
        ({"ids": ["a", "b"]}, "ids"),
        ({"scores": [ROWS * 0.9]}, "draw 0"),
        ({"scores": ROWS}, r"shape \[inputs, draws, classes\]"),
        ({"labels": None, "selection": [ROWS]}, "selection must be scores of separate draws"),
        ({"labels": None, "selection": ROWS}, r"selection must have shape"),
        ({"labels": None, "selection": [ROWS[:9], ROWS[:9]]}, "selection must match scores"),
        ({"labels": None, "selection": [ROWS[:9, :2] / ROWS[:9, :2].sum(1)[:, None]]}, "selection must match scores"),
    ],
)
def test_bad_certificates_are_refused(change: dict[str, Any], word: str) -> None:
    good: dict[str, Any] = {"scores": [ROWS], "labels": [0], "sigma": 0.5}
    with pytest.raises(InvalidInput, match=word):
        certify_scores(**good | change)


def test_inputs_without_names_are_numbered() -> None:
    options: Any = {"sigma": 0.5, "method": "pairwise/hoeffding", "margin": "probability"}
    made = certify_scores(np.stack([ROWS, ROWS]), labels=[0, 0], **options)
    assert made.ids == ("input 0", "input 1")


def test_with_a_seed_each_input_has_its_own_number_and_the_method_says_so() -> None:
    rng = np.random.default_rng(21)
    scores, ids = rng.dirichlet([4.0, 1.0, 1.0], (40, 100)), [f"image {i}" for i in range(40)]
    labels: IntArray = np.zeros(40, dtype=np.int64)
    plain = certify_scores(scores, sigma=0.5, labels=labels)
    made = certify_scores(scores, sigma=0.5, labels=labels, seed=5, ids=ids)
    assert {c.method for c in plain} == {"pairwise/star"}
    assert {(c.method, c.seed) for c in made} == {("pairwise/randomised_star", 5)}
    assert (made.radii >= plain.radii - 1e-9).all()
    assert made.radii.mean() > 1.02 * plain.radii.mean()
    uniform = [uniform_of(5, name) for name in ids]
    lows = score_margin_lower(scores, labels, margin="quantile", uniform=uniform)
    np.testing.assert_array_equal([c.margin for c in made], lows)
    # Switched off by name; the order of inputs, and their neighbours, do not matter.
    off = certify_scores(scores, sigma=0.5, labels=labels, seed=5, ids=ids, method="pairwise/star")
    np.testing.assert_array_equal(off.radii, plain.radii)
    turned = certify_scores(scores[::-1][:7], sigma=0.5, labels=labels[:7], seed=5, ids=ids[::-1][:7])
    np.testing.assert_array_equal(turned.radii, made.radii[::-1][:7])
    largest = certify_scores(scores[:1], sigma=0.5, labels=[0], seed=2**53, ids=["a"])
    assert largest[0].seed == 2**53
    first = certify_scores(scores, sigma=0.5, labels=labels, seed=5, ids=ids, margin="probability")
    np.testing.assert_array_equal([c.margin for c in first], score_margin_lower(scores, labels, uniform=uniform))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "pairwise/randomised_star"}, "seed must be given with method 'pairwise/randomised_star'"),
        ({"seed": 1}, "ids must be given with method 'pairwise/randomised_star'; got None"),
        ({"seed": -1, "ids": ["a"]}, "seed must be"),
        ({"seed": 2**53 + 1, "ids": ["a"]}, "seed must be"),
    ],
)
def test_a_number_needs_a_seed_and_an_id(options: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        certify_scores([np.tile([[0.9, 0.1]], (50, 1))], sigma=0.5, labels=[0], **options)


def record(**change: Any) -> Scores:
    given: dict[str, Any] = {
        "ids": ("a",),
        "values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]]]),
        "columns": np.array([[0, 1, 2]]),
        "num_classes": 3,
        "map": "softmax",
        "temperature": 1.0,
    }
    return Scores(**given | change)


def test_the_columns_of_a_record() -> None:
    assert record().n == 2
    for edge in (0.995, 1.005):  # exactly what rounding may leave of a row
        assert record(values=np.array([[[edge, 0.0, 0.0]]])).values.max() == min(edge, 1.0)
    kept = record(columns=np.array([[2, 0, OTHERS]]), num_classes=1000, values=np.array([[[0.3, 0.2, 0.001]]]))
    assert kept.columns.tolist() == [[2, 0, OTHERS]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"values": np.array([[[0.7, 0.2, 0.2], [0.5, 0.25, 0.25]]])}, "draw 0"),
        ({"values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.75, -0.25]]])}, "draw 1"),
        ({"values": np.array([[[0.7, 0.2, np.nan], [0.5, 0.25, 0.25]]])}, "finite"),
        ({"values": np.zeros((1, 0, 3))}, "shape"),
        ({"columns": np.array([[0, 1, 1]])}, "columns"),
        ({"columns": np.array([[0, 1, 3]])}, "columns"),
        ({"temperature": 0.0}, "temperature"),
        ({"map": "argmax"}, "map"),
        ({"ids": ("a", "b")}, "ids"),
    ],
)
def test_a_record_refuses(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        record(**change)
