"""How often a limit misses, by seeded simulation, and an any-time test under the worst of all stopping rules.

A simulation never proves a limit valid; the judge says when it is shown to be invalid, with a chance of a false alarm
that is stated. Of any-time tests no rule certifies more often than the one that looks after every draw and stops at the
first success. For three classes its chance is found exactly, by dynamic programming over the lattice of vote counts:
two bits per state, for each rung of a ladder, remember which of the two rivals has already been overcome there. At
sizes beyond the lattice, by simulation. Class 0 is the label.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import betainc, ndtr

from buckler.certify.scores import Scores, as_scores, draws_of, limit_of
from buckler.errors import InvalidInput, check_alpha, check_choice, check_float_array, check_positive, check_whole, show
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray, Limit, MarginKind

FALSE_ALARM = 1e-6
"""How rarely a valid limit may be called invalid."""


def score_margin_lower(
    scores: ArrayLike | Scores,
    label: ArrayLike,
    alpha: float = 1e-3,
    margin: MarginKind = "probability",
    limit: Limit = "star",
    selection: ArrayLike | Scores | None = None,
    *,
    uniform: ArrayLike = 1.0,
) -> FloatArray:
    """Return the lower limit of the margin of class ``label``: of one input's rows one number, else one an input.

    ``scores`` are ``[draws, classes]``, ``[inputs, draws, classes]`` or a ``Scores``, ``selection`` likewise.
    """
    single = not isinstance(scores, Scores) and np.ndim(scores) == 2

    def record(name: str, given: ArrayLike | Scores) -> Scores:
        return as_scores(name, np.asarray(given)[None] if single else given)

    rows, earlier = record("scores", scores), None if selection is None else record("selection", selection)
    labels = np.broadcast_to(np.asarray(label), len(rows.values)).tolist()
    numbers = np.broadcast_to(np.asarray(uniform, dtype=np.float64), len(labels)).tolist()
    found = [
        limit_of(limit, draws_of(rows, i, k, earlier, u), alpha, margin)
        for i, (k, u) in enumerate(zip(labels, numbers, strict=True))
    ]
    return np.asarray(found[0] if single else found)


def first_by_default(values: Iterable[Any]) -> list[Any]:
    """Return parameters of a test, of which the default run takes the first alone and ``make test-all`` every one."""
    first, *others = values
    return [first, *(pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in others)]


class Verdict(NamedTuple):
    """What a simulation says of a limit: misses out of replicates, and the chance of so many at level alpha."""

    misses: int
    replicates: int
    alpha: float
    chance: float

    @property
    def passed(self) -> bool:
        """Whether the misses are compatible with a miss probability of alpha."""
        return self.chance > FALSE_ALARM


def simulate_misses(
    bound: Callable[[FloatArray], ArrayLike],
    law: Callable[[np.random.Generator, int, int], FloatArray],
    truth: float,
    n: int,
    replicates: int,
    seed: int,
    batch: int = 2000,
) -> tuple[int, int]:
    """Return how many of the replicates give a lower limit above the truth, and the number of replicates.

    ``law(rng, n, replicates)`` draws data with the replicates on the last axis, ``bound`` returns one limit for each.

    >>> from buckler.bounds.means import hoeffding_lower
    >>> uniform = lambda rng, n, replicates: rng.random((n, replicates))
    >>> simulate_misses(lambda x: hoeffding_lower(x, 0.05), uniform, 0.5, 20, 1000, seed=0)
    (0, 1000)
    """
    rng = np.random.default_rng(seed)
    misses, left = 0, check_whole("replicates", replicates, 1)
    while left > 0:
        size = min(left, batch)
        misses += int(np.sum(np.asarray(bound(law(rng, n, size))) > truth))
        left -= size
    return misses, replicates


def judge(misses: int, replicates: int, alpha: float) -> Verdict:
    """Return the verdict of a one-sided binomial test of ``miss probability <= alpha``.

    The chance of at least k misses in N is ``betainc(k, N - k + 1, alpha)``.

    >>> judge(60, 1000, 0.05).passed, judge(100, 1000, 0.05).passed
    (True, False)
    """
    replicates = check_whole("replicates", replicates, 1)
    misses = check_whole("misses", misses, 0, replicates)
    alpha = check_alpha(alpha)
    chance = 1.0 if misses == 0 else float(betainc(misses, replicates - misses + 1, alpha))
    return Verdict(misses, replicates, alpha, chance)


LogWealth = Callable[[IntArray, IntArray, int], FloatArray]
"""Votes of the label, votes of one rival, draws -> the logarithm of the e-value against that rival."""

Exam = Callable[[IntArray, IntArray], BoolArray]
"""Votes of the label and of one rival at the last draw -> whether that rival is overcome by the final test."""


@dataclass(frozen=True, slots=True)
class StoppingAudit:
    """The worst chance of ever certifying a false target, promised to be at most alpha, and the truth that shows it."""

    alpha: float
    max_n: int
    miss: float
    truth: tuple[float, ...]
    truths: int

    @property
    def passed(self) -> bool:
        """Whether no truth was found with a chance above alpha (1e-9 is the error of the sums)."""
        return self.miss <= self.alpha * (1.0 + 1e-9)

    def __str__(self) -> str:
        """Return the finding in one line."""
        p = ", ".join(f"{x:.6g}" for x in self.truth)
        return (
            f"{'passed' if self.passed else 'FAILED'}: certifies a false target within {self.max_n} draws with "
            f"probability {self.miss:.6g} at a promised {self.alpha:g} (p=({p}), {self.truths} truths)"
        )


def boundary_truths(L: float, points: int = 40, margin: MarginKind = "quantile") -> FloatArray:
    """Return truths of three classes on the boundary of the null: rival 1 has margin L, the other takes the rest.

    >>> print(boundary_truths(1.0, 3).round(4))
    [[0.6915 0.3085 0.    ]
     [0.2459 0.0458 0.7084]
     [0.0304 0.002  0.9676]]
    """
    share = np.linspace(0.0, 1.0, check_whole("points", points, 2))
    if check_choice("margin", margin, ("quantile", "probability")) == "quantile":
        t = -(0.5 * L + 1.875) * share
        first, second = ndtr(t + 0.5 * L), ndtr(t - 0.5 * L)
    else:
        second = 0.5 * (1.0 - share) * (1.0 - L)
        first = second + L
    return np.stack([first, second, np.maximum(1.0 - first - second, 0.0)], axis=-1)


def _check_truths(truths: ArrayLike) -> FloatArray:
    p = check_float_array("truths", truths)
    if p.ndim != 2 or p.shape[1] != 3 or (p < 0.0).any() or (np.abs(p.sum(axis=1) - 1.0) > 1e-9).any():
        raise InvalidInput(f"truths must have shape [k, 3] with rows in the simplex; got {show(truths)}")
    return p


def ever_certified(
    log_wealth: LogWealth, truths: ArrayLike, max_n: int, alpha: float, *, exam: Exam | None = None
) -> FloatArray:
    """Return, for each truth ``[k, 3]``, the exact probability of certifying at some draw up to ``max_n``.

    After every draw each rival's e-value is looked at; certified means that both have reached ``1/alpha``, at the same
    draw or at different ones, or that the exam, taken at draw ``max_n`` alone, is passed for those that have not.
    """
    return ever_all_certified([log_wealth], truths, max_n, alpha, exams=None if exam is None else [exam])


def ever_all_certified(
    rungs: Sequence[LogWealth],
    truths: ArrayLike,
    max_n: int,
    alpha: float,
    *,
    exams: Sequence[Exam] | None = None,
    any_rung: bool = False,
) -> FloatArray:
    """Return, for each truth ``[k, 3]``, the exact probability that every rung is certified, at a draw of its own.

    With the rungs up to the lowest false one, that is the probability of ever certifying a false radius: one that is
    higher needs all of these as well (theory T18). ``any_rung`` is the bug that an audit must find, one rung certified
    without those below it: give it the false rungs.
    """
    p = _check_truths(truths)
    max_n, needed = check_whole("max_n", max_n, 1), -np.log(check_alpha(alpha))
    top, rival = np.meshgrid(np.arange(max_n + 1), np.arange(max_n + 1), indexing="ij")
    p_top, p_rival, p_other = (p[:, k, None, None, None] for k in range(3))
    states = 4 ** len(rungs)
    mass = np.zeros((len(p), states, max_n + 1, max_n + 1))
    mass[:, 0, 0, 0] = 1.0
    for n in range(1, max_n + 1):
        after = mass * p_other
        after[:, :, 1:, :] += mass[:, :, :-1, :] * p_top
        after[:, :, :, 1:] += mass[:, :, :, :-1] * p_rival
        # Certified mass stays where it is: bits never turn off, so it may go on wandering over the lattice.
        here = top + rival <= n
        other = np.where(here, n - top - rival, 0)
        for k, log_wealth in enumerate(rungs):
            for bit, votes in ((4**k, rival), (2 * 4**k, other)):
                reached = np.zeros(here.shape, dtype=bool)
                reached[here] = log_wealth(top[here], votes[here], n) >= needed
                for state in range(states):
                    if not state & bit:
                        after[:, state | bit] += np.where(reached, after[:, state], 0.0)
                        after[:, state] = np.where(reached, 0.0, after[:, state])
        mass = after
    other = np.maximum(max_n - top - rival, 0)
    overcome = []
    for k in range(len(rungs)):
        final = np.zeros((2, *top.shape), dtype=bool)
        if exams is not None:
            here = top + rival <= max_n
            for at, votes in enumerate((rival, other)):
                final[at, here] = exams[k](top[here], votes[here])
        bits = np.arange(states) // 4**k
        by_wealth = np.array([bits % 2 == 1, bits // 2 % 2 == 1])[:, :, None, None]
        overcome.append((by_wealth | final[:, None]).all(axis=0))
    passed = np.array(overcome)
    certified = passed.any(axis=0) if any_rung else passed.all(axis=0)
    return np.asarray((mass * certified).sum(axis=(1, 2, 3)), dtype=np.float64)


def audit_stopping(
    log_wealth: LogWealth,
    L: float,
    max_n: int,
    alpha: float,
    *,
    points: int = 40,
    exam: Exam | None = None,
    margin: MarginKind = "quantile",
) -> StoppingAudit:
    """Return the worst chance of ever certifying a margin of L over ``points`` truths on the boundary of the null.

    ``alpha`` is the level that the e-values are held to; with an exam, judge ``miss`` against the sum of both.
    """
    truths = boundary_truths(check_positive("L", L), points, margin)
    misses = ever_certified(log_wealth, truths, max_n, alpha, exam=exam)
    worst = int(misses.argmax())
    return StoppingAudit(alpha, max_n, float(misses[worst]), tuple(truths[worst].tolist()), len(truths))


def simulate_crossings(
    log_wealth: LogWealth, truth: ArrayLike, looks: IntArray, runs: int, alpha: float, seed: int
) -> int:
    """Return how many of ``runs`` simulated inputs have the e-value against rival 1 ever reach ``1/alpha`` at a look.

    One rival is at least as easily overcome as all of them together, so this bounds the certificates from above.
    """
    p = _check_truths(check_float_array("truth", truth)[None])[0]
    needed = -np.log(check_alpha(alpha))
    rng = np.random.default_rng(seed)
    votes = np.zeros((check_whole("runs", runs, 1), 3), dtype=np.int64)
    crossings, n = 0, 0
    for look in looks.tolist():
        votes = votes + rng.multinomial(look - n, p, size=len(votes))
        n = look
        reached = log_wealth(votes[:, 0], votes[:, 1], n) >= needed
        crossings += int(reached.sum())
        votes = votes[~reached]
    return crossings
