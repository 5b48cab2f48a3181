"""The limits of a margin that votes allow: (top, runner_up, n) -> a lower limit, for every input at once.

Each is a lower limit of the margin of the certified class at total error alpha: one-sided, fixed n, rounded down; it
may be negative, and is -inf where nothing is proved. Each falls as the other count rises, so that the largest of the
other classes decides (T2 pays for the rest).
"""

import numpy as np

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certify.budget import split
from buckler.certify.margins import margin_from_limits
from buckler.certify.method import Method, Votes
from buckler.errors import InvalidInput, check_whole
from buckler.soundness import ALL_COPIES
from buckler.types import FloatArray, MarginKind


def exact(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return Buehler's limit under the likelihood-ratio ordering; the tightest here."""
    from buckler.bounds.buehler import exact_margin_lower  # compiled code, loaded only where it is used

    if votes.num_classes == 2:
        # With two classes the truth lies on the binary edge, where Clopper-Pearson at alpha is the best limit there is.
        return top_class(votes, alpha, margin)
    return exact_margin_lower(votes.top, votes.runner_up, votes.n, alpha, margin)


def bonferroni(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the limit from Clopper-Pearson at alpha/2 below for the class, and at alpha/2 above for the runner-up."""
    return _from_shares(votes, split(alpha, 2), margin)


def bonferroni_all(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the limit from Clopper-Pearson at alpha/m for each of the m classes (Algorithm 3 of the paper)."""
    if votes.num_classes is None:
        raise InvalidInput("num_classes must be given for method 'bonferroni_all'; got None")
    return _from_shares(votes, split(alpha, check_whole("num_classes", votes.num_classes, 2)), margin)


def top_class(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the limit from Clopper-Pearson at alpha for the class, and ``p_j <= 1 - p_A`` (Cohen et al. 2019)."""
    low = clopper_pearson_lower(votes.top, votes.n, alpha)
    return margin_from_limits(margin, low, np.nextafter(1.0 - low, 1.0))


def all_copies(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the probability margin itself, from the votes of all copies that a law has (T29); alpha is 0."""
    del alpha, margin
    return np.asarray((votes.top - votes.runner_up) / votes.n)


def _from_shares(votes: Votes, share: float, margin: MarginKind) -> FloatArray:
    low, high = clopper_pearson_lower(votes.top, votes.n, share), clopper_pearson_upper(votes.runner_up, votes.n, share)
    return margin_from_limits(margin, low, high)


_SUMMARIES = {
    exact: "Buehler's limit under the likelihood-ratio ordering of outcomes: the tightest here",
    bonferroni: "Clopper-Pearson at alpha/2 for the class and alpha/2 for the runner-up",
    bonferroni_all: "Clopper-Pearson at alpha/m for each of the m classes",
    top_class: "Clopper-Pearson at alpha for the class, all else being the runner-up's (Cohen et al. 2019)",
}
METHODS = tuple(Method(limit.__name__, "votes", limit, summary, sound=True) for limit, summary in _SUMMARIES.items())

WITHOUT_CHANCE = Method(
    ALL_COPIES, "votes", all_copies, "the margin itself, from all copies", sound=True, margins=("probability",)
)
"""Not among the methods that a user names: it is the one way to certify a law whose copies are all there are."""
