"""Votes -> certificates.

Votes of n noisy copies are multinomial. The smallest of limits that each hold at level alpha holds at level alpha (T2),
and every limit here falls as the other count rises, so only ``(top, runner_up, n)`` matter: the votes of the certified
class A and the largest count among the others. Each limit is one-sided, for fixed n, rounded down; it may be negative,
and is -inf where nothing is proved.

- ``certify_votes(counts, sigma=, alpha=)``: counts ``[inputs, classes]`` -> ``Certificates``.
- ``vote_margin_lower(top, runner_up, n, alpha=, margin=, method=)``: arrays broadcast, float64 limits come back.
- ``exact``, ``bonferroni``, ``top_class``: the limits themselves.

The two margins between the certified class A and another class j, of which that of an input is the smallest:

- first or *probability* margin: ``p_A - p_j``;
- second or *quantile* margin: ``Phi^-1(p_A) - Phi^-1(p_j)``.
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
from scipy.special import ndtri

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certificate import ABSTAINED, LEAST_UNIFORM
from buckler.certificates import Certificates
from buckler.certify import budget
from buckler.certify.methods import Method, Votes, find
from buckler.certify.predictions import predicted_class
from buckler.certify.settings import (
    ChosenClass,
    Settings,
    choose_class,
    make_certificates,
    make_settings,
    names_or_numbers,
)
from buckler.errors import BucklerWarning, InvalidInput, check_alpha, check_choice, check_counts, check_whole_array
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind, Noise

QUANTILE_ERROR = 4e-15
"""Relative error allowed for ``scipy.special.ndtri``, ten times what is seen against ball arithmetic (F10)."""


def margin(kind: MarginKind, p_top: ArrayLike, p_other: ArrayLike) -> FloatArray:
    """Return the margin between classes of known probabilities ``p_top`` and ``p_other``, which broadcast; not rounded.

    It is ``p_top - p_other`` ("probability") or ``Phi^-1(p_top) - Phi^-1(p_other)`` ("quantile"). ``margin("quantile",
    0, 0)`` is -inf: where neither class is ever seen, nothing can be certified. For truths, not for limits.

    >>> round(float(margin("quantile", 0.9, 0.1)), 6)
    2.563103
    """
    top, other = np.asarray(p_top, dtype=np.float64), np.asarray(p_other, dtype=np.float64)
    if kind == "probability":
        return np.asarray(top - other)
    with np.errstate(invalid="ignore"):
        value = ndtri(top) - ndtri(other)
    return np.where(np.isnan(value), -np.inf, value)


def margin_from_limits(kind: MarginKind, p_low: ArrayLike, p_high: ArrayLike) -> FloatArray:
    """Return the lower limit of a margin from a lower limit of the class's probability and an upper one of its rival's.

    ``p_low`` and ``p_high`` are these limits, which broadcast. Rounded down; -inf where nothing is proved.

    >>> float(margin_from_limits("probability", 0.75, 0.25)) < 0.5
    True
    """
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    if kind == "probability":
        return np.nextafter(low - high, -np.inf)
    a, b = ndtri(low), ndtri(high)
    with np.errstate(invalid="ignore"):
        value = a - b - QUANTILE_ERROR * (np.abs(a) + np.abs(b))
    # A limit of 0 for p_A, or of 1 for p_j, proves nothing.
    return np.where((low <= 0.0) | (high >= 1.0), -np.inf, value)


def certify_votes(
    counts: ArrayLike,
    *,
    sigma: float | None = None,
    noise: Noise | str | None = None,
    alpha: float = 1e-3,
    labels: ArrayLike | None = None,
    selection: ArrayLike | None = None,
    margin: MarginKind | None = None,
    method: str | None = None,
    ids: Sequence[str] | None = None,
) -> Certificates:
    """Return certificates from votes ``counts[inputs, classes]`` of noisy copies, one for each input.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind its counts, whose
    number was fixed beforehand.

    The certified class is the one with the most votes, if a test at a tenth of alpha shows that the smoothed classifier
    predicts it (T18d), else none is; or it is the class in ``labels``, fixed beforehand; or the top class of
    ``selection``, counts of *separate* draws. The noise is Gaussian of standard deviation ``sigma``, or else ``noise``.
    ``margin``, ``"quantile"`` or ``"probability"``, and ``method``, the name of a limit of it, have defaults that suit
    the noise.

    >>> certify_votes([[970, 20, 10], [480, 470, 50]], sigma=0.25)
    Certificates(2 inputs, 1 abstained, median radius 0.2151)
    >>> certify_votes([[100, 0, 0]], sigma=0.25, labels=[0], method="top_class").radii.round(4)
    array([0.3751])
    """
    settings = make_settings(sigma=sigma, noise=noise, alpha=alpha, method=method, margin=margin)
    made = votes_to_certificates(counts, settings, labels=labels, selection=selection, ids=ids)
    given, votes = np.asarray(selection), np.asarray(counts)
    # Unanimous votes may be so twice.
    if np.shares_memory(given, votes) or (np.array_equal(given, votes) and (np.count_nonzero(votes, axis=1) > 1).any()):
        raise InvalidInput("selection must be counts of separate draws; got the same counts as the evidence")
    classes = np.shape(counts)[1]
    warn_of_few_draws(int(made.n.max()), settings, classes, winner=labels is None and selection is None)
    return replace(made, classes=range(classes))


def votes_to_certificates(
    counts: ArrayLike,
    settings: Settings,
    *,
    labels: ArrayLike | None = None,
    selection: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
) -> Certificates:
    """Return certificates from votes ``counts[inputs, classes]`` under ``settings``; else as ``certify_votes``."""
    chosen, low, n = limits_of_votes(counts, settings, labels=labels, selection=selection)
    return make_certificates(settings, chosen, low, n, names_or_numbers(ids, len(low)))


def limits_of_votes(
    counts: ArrayLike, settings: Settings, *, labels: ArrayLike | None = None, selection: ArrayLike | None = None
) -> tuple[ChosenClass, FloatArray, IntArray]:
    """Return each input's class, the lower limit of its margin, and its draws, from votes ``counts[inputs, classes]``.

    **Guarantee.** For a sound method, the probability that the class is not the smoothed prediction or that the limit
    exceeds its margin is at most ``settings.alpha``; with labels or selection, the probability that the limit does.
    """
    values, noise = check_counts("counts", counts), settings.noise
    if values.ndim != 2:
        raise InvalidInput(f"counts must have shape [inputs, classes]; got shape {values.shape}")
    n = np.asarray(values.sum(axis=1), dtype=np.int64)
    given = None if selection is None else check_counts("selection", selection)
    if given is not None and given.shape != values.shape:
        raise InvalidInput(f"selection must have the shape of counts, {values.shape}; got {given.shape}")
    if noise.total is not None:
        if (n != noise.total).any():
            raise InvalidInput(
                f"counts must add up to {noise.total} for each input, all copies of {noise.describe()}; "
                f"got {n[n != noise.total][0]}"
            )
        if given is not None:
            raise InvalidInput(f"selection must be left out for {noise.describe()}: its votes are exact")
    if noise.total is not None and labels is None:  # votes that are probabilities choose the class themselves
        chosen = ChosenClass(values.argmax(axis=1), np.zeros(len(values), dtype=np.int64), 0.0, 0.0)
    else:
        chosen = choose_class(
            settings.level,
            len(values),
            values.shape[1],
            labels=labels,
            selected=None if given is None else (given.argmax(axis=1), given.sum(axis=1)),
            winner=lambda level: predicted_class(values, alpha=level),
        )
    low = settings.method.limit(votes_of(values, chosen.classes), chosen.alpha, settings.margin)
    return chosen, np.asarray(low, dtype=np.float64), n


def votes_of(counts: IntArray, chosen: IntArray) -> Votes:
    """Return ``counts[inputs, classes]`` as a method reads them, with the class ``chosen`` for each input put first.

    Where none is chosen (-1), class 0 is.
    """
    rows, classes = np.arange(len(counts)), np.maximum(chosen, 0)
    ordered = counts.copy()
    ordered[rows, classes] = counts[:, 0]
    ordered[:, 0] = counts[rows, classes]
    return Votes(ordered[:, 0], ordered[:, 1:].max(axis=1), counts.sum(axis=1), counts.shape[1], ordered)


CHECKED_DRAWS = 2000
"""``warn_of_few_draws`` looks below this number of draws: more can certify something at every usual alpha."""


def warn_of_few_draws(n: int, settings: Settings, num_classes: int, *, winner: bool) -> None:
    """Warn if ``n`` draws can certify nothing, even if all are of one class, and name the fewest draws that can.

    ``winner`` says that the certified class is the one with the most of the same votes, which a test must confirm.
    """
    draws = range(CHECKED_DRAWS)
    if n not in draws or settings.noise.total is not None or _can_certify(n, settings, num_classes, winner):
        return
    enough = bisect_left(draws, True, n, key=lambda k: _can_certify(k, settings, num_classes, winner))
    if enough in draws:
        warnings.warn(
            f"n = {n} draws cannot certify anything at alpha = {settings.alpha:g} by method "
            f"{settings.method.name!r}, even if all are of one class: n must be at least {enough}",
            BucklerWarning,
            stacklevel=3,
        )


def _can_certify(n: int, settings: Settings, num_classes: int, winner: bool) -> bool:
    """Return whether ``n`` draws that are all of one class certify a radius."""
    labels = None if winner else [0]
    if settings.scores is None:
        votes = n * np.eye(1, num_classes, dtype=np.int64)
        chosen, low, _ = limits_of_votes(votes, settings, labels=labels)
    else:
        from buckler.certify.scores import as_scores, limits_of_scores  # compiled code, loaded only where it is used

        # Each input has a random number of its own under a randomised method, and may be lucky.
        level, method = settings.alpha, find(settings.method.name.replace("randomised_", ""))
        luck = min(0.49, level / LEAST_UNIFORM) if settings.method.randomised else level
        scores = as_scores("scores", np.eye(1, num_classes)[None].repeat(n, axis=1))
        chosen, low, _ = limits_of_scores(scores, replace(settings, method=method, alpha=luck), labels=labels)
    return chosen.classes[0] != ABSTAINED and settings.noise.radius(float(low[0]), settings.margin) > 0.0


def vote_margin_lower(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    method: str | Method = "exact",
    num_classes: int | None = None,
) -> FloatArray:
    """Return the lower limit of a class's margin over any other class, from its votes and the most of any other.

    The class, fixed beforehand, got ``top`` of ``n`` votes, and no other more than ``runner_up``; the three broadcast.
    A limit may be negative, and is -inf where nothing is proved.

    **Guarantee.** For X multinomial with fixed n, A the class: ``P(vote_margin_lower(X_A, max_j X_j, n) > margin) <=
    alpha``, one-sided, rounded down; for a ``Method`` that is not sound there is **no guarantee**. With
    ``num_classes=2`` the limit may be sharper.

    >>> vote_margin_lower([100, 90], [0, 5], 100).round(4)
    array([3.0009, 1.8669])
    >>> vote_margin_lower([100, 90], [0, 5], 100, method="bonferroni").round(4)
    array([2.9048, 1.7061])
    """
    x1, x2, draws = check_votes(top, runner_up, n)
    rule = method if isinstance(method, Method) else find(method, "votes")
    kind = check_choice("margin", margin, get_args(MarginKind))
    rule.check_margin(kind)
    return np.asarray(rule.limit(Votes(x1, x2, draws, num_classes), check_alpha(alpha), kind), dtype=np.float64)


def check_votes(top: ArrayLike, runner_up: ArrayLike, n: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
    """Return ``top``, ``runner_up`` and ``n``, broadcast to one shape; raise InvalidInput unless they can be votes.

    Votes are whole numbers of at least 0, and top + runner_up is at most n.
    """
    try:
        x1, x2, draws = np.broadcast_arrays(
            check_whole_array("top", top), check_whole_array("runner_up", runner_up), check_whole_array("n", n, low=1)
        )
    except ValueError as mismatch:
        if isinstance(mismatch, InvalidInput):
            raise
        raise InvalidInput(f"top, runner_up and n must broadcast together; got {mismatch}") from None
    over = x1 + x2 > draws
    if over.any():
        raise InvalidInput(
            f"top + runner_up must be at most n; got {x1[over].flat[0]} + {x2[over].flat[0]} > {draws[over].flat[0]}"
        )
    return x1, x2, draws


def exact(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return Buehler's lower limit of each input's margin, under the likelihood-ratio ordering: the tightest here."""
    from buckler.bounds.buehler import exact_margin_lower  # compiled code, loaded only where it is used

    if votes.num_classes == 2:
        # With two classes the truth lies on the binary edge, where Clopper-Pearson at alpha is the best limit there is.
        return top_class(votes, alpha, margin)
    return exact_margin_lower(votes.top, votes.runner_up, votes.n, alpha, margin)


def bonferroni(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the lower limit of each input's margin from two Clopper-Pearson limits, each at alpha/2.

    One is a lower limit of the class's probability, the other an upper limit of the runner-up's.
    """
    share = budget.split_alpha(alpha, 2)
    low, high = clopper_pearson_lower(votes.top, votes.n, share), clopper_pearson_upper(votes.runner_up, votes.n, share)
    return margin_from_limits(margin, low, high)


def top_class(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the lower limit of each input's margin from one Clopper-Pearson limit, the class's (Cohen et al. 2019).

    It is a lower limit of p_A at alpha; any other class has at most ``1 - p_A``.
    """
    low = clopper_pearson_lower(votes.top, votes.n, alpha)
    return margin_from_limits(margin, low, np.nextafter(1.0 - low, 1.0))
