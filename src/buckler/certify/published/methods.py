"""The paper's method for votes, registered so that it can be audited and compared. No guarantee, no certificate."""

from buckler.certify.method import Method, Votes
from buckler.certify.published.discrete import published_margin_lower
from buckler.types import FloatArray, MarginKind


def published(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the estimator of Algorithms 4 and 6 as printed; **no guarantee**, may be +inf."""
    return published_margin_lower(votes.top, votes.runner_up, votes.n, alpha=alpha, margin=margin)


METHODS = (
    Method("published", "votes", published, "the paper's Algorithms 4 and 6 as printed, for reproduction alone"),
)
