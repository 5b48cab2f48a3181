"""The paper's estimators as methods, so that they can be audited and compared: none may certify.

From scores there are three ways, each with the width of a ``sequence`` or of ``bernstein``: ``published``, the variable
Z with the width that the paper prints; ``cited``, the same with the width of the theorem it cites; ``baseline``, its
Algorithm 3 with the latter.
"""

from functools import partial
from itertools import product
from typing import get_args

import numpy as np

from buckler.certify.margins import margin as margin_of
from buckler.certify.methods import Draws, Method, Reads, Votes
from buckler.paper.continuous import PublishedLimit, published_bonferroni_lower, published_scores_margin_lower
from buckler.paper.discrete import published_margin_lower
from buckler.types import FloatArray, MarginKind


def published(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the estimator of Algorithms 4 and 6 as printed; **no guarantee**, may be +inf."""
    return published_margin_lower(votes.top, votes.runner_up, votes.n, alpha=alpha, margin=margin)


WAYS = {
    "published": (published_scores_margin_lower, False, "the paper's variable Z, with the width it prints"),
    "cited": (published_scores_margin_lower, True, "the paper's variable Z, with the width of the theorem it cites"),
    "baseline": (published_bonferroni_lower, True, "the paper's Algorithm 3, with the width of the theorem it cites"),
}

METHODS = (
    Method("published", "votes", published, "the paper's Algorithms 4 and 6 as printed, for reproduction alone"),
    *(
        Method(f"{way}/{limit}", "scores", partial(rule, limit=limit, corrected=cited), summary)
        for (way, (rule, cited, summary)), limit in product(WAYS.items(), get_args(PublishedLimit))
    ),
)

HOLDS: dict[str, tuple[MarginKind, ...]] = {
    "published/sequence": ("probability",),
    "cited/sequence": ("probability",),
    "cited/bernstein": ("probability",),
    "baseline/sequence": ("probability", "quantile"),
    "baseline/bernstein": ("probability", "quantile"),
}
"""The margins for which a number of the paper's is a lower limit at level alpha all the same, rounding aside.

Its Z has a mean of at most the first margin, so there any valid width will do: those of the theorems, and the printed
one of the sequence, which wherever it is not vacuous is the wider. For the second margin none will.
"""


def is_limit(method: Method, margin: MarginKind) -> bool:
    """Whether a method's number is a lower limit at level alpha of this margin."""
    return method.sound or margin in HOLDS.get(method.name, ())


def _of_frequencies(votes: Votes, _: float, margin: MarginKind) -> FloatArray:
    return margin_of(margin, votes.top / votes.n, votes.runner_up / votes.n)


def _of_means(draws: Draws, _: float, margin: MarginKind) -> float:
    return float(margin_of(margin, draws.a.mean(), np.max(draws.rivals.mean(axis=1))))


ESTIMATES: dict[Reads, Method] = {
    "votes": Method("estimate", "votes", _of_frequencies, "the margin of the frequencies, no limit"),
    "scores": Method("estimate", "scores", _of_means, "the margin of the mean scores, no limit"),
}
"""What the margin seems to be; not registered, being no bound at all."""
