"""Votes or scores -> certificates.

A method turns votes or scores into a lower limit of a margin; the noise turns that limit into a radius;
``make_certificates`` makes the records.

- ``settings``: ``Settings``, what is asked, made once by ``make_settings``; ``Softmax``, ``Sparsemax``;
  ``make_certificates``: limits -> certificates, and the class that each is about.
- ``votes``: ``certify_votes(counts, sigma= | noise=, alpha=)``, ``vote_margin_lower(top, runner_up, n, alpha=)``; the
  two margins of known probabilities.
- ``scores``: ``certify_scores(scores, sigma= | noise=, alpha=)``, ``limit_of(limit, draws, alpha, margin)``.
- ``methods``: ``find(name)``, ``Method``, ``own_method``, ``register``: from a name to a limit.
- ``ladder``, ``sequential``: draw until rising radii are decided, by votes or by scores.
- ``predictions``: which class the smoothed classifier predicts: ``predict``, and the winner's test of a certificate.
- ``tangents``: from a mean of ``X_A - c X_j`` to the quantile margin.
- ``budget``: the only place where alpha is divided.

May import: the root records, ``noise`` and ``bounds``.
"""

from buckler.certify.methods import Method as Method
from buckler.certify.methods import own_method as own_method
from buckler.certify.methods import register as register
