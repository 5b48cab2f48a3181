"""Evidence -> certificate.

The flow: a method turns votes or scores into a lower limit of a margin; a law turns that limit into a radius; ``issue``
makes the certificate.

- ``counts.certify_counts(counts, sigma= | law=, alpha=, label= | selection=)``: Certificate or Certificates.
- ``scores.certify_scores(scores, sigma= | law=, alpha=, label= | selection=)``: Certificate or Certificates.
- ``discrete.margin_lower(top, runner_up, n, alpha=, margin=, method=)``: arrays broadcast, float64 comes back.
- ``continuous.margin_lower(scores, label, alpha=, margin=, combine=, limit=, selection=)``: scores ``[n, m]`` or more.
- ``Method``, ``own_method``, ``register``: a method of one's own; ``registry.find(name)``: from a name to a method.
- ``vote_limits``, ``continuous.limit_of``: what our methods compute; ``draws``: scores cut into a class and its rivals.
- ``issue``: the one place where certificates are made.
- ``tangents``: from a mean of ``X_A - c X_j`` to the second margin; ``margins``: the two margins.
- ``anytime.AnytimeTest(ladder, labels, num_classes)``: draw until the radii of a ``ladder.Ladder`` are decided;
  ``decided.Decided``: how one input ended or stands.
- ``predictions``: the class that the smoothed classifier predicts, or an abstention; fixed n or any-time.
- ``forecast.expected_draws(top, radii=, sigma=)``: about how many draws that takes. A plan.
- ``budget``: the only place where alpha is divided.

May import: the root modules, ``noise`` and ``bounds``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buckler.certify.method import Method as Method
    from buckler.certify.method import own_method as own_method
    from buckler.certify.registry import register as register

_HOME = {"Method": "method", "own_method": "method", "register": "registry"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'buckler.certify' has no attribute {name!r}")
    return getattr(import_module(f"buckler.certify.{_HOME[name]}"), name)
