"""Evidence -> certificate.

The flow: ``discrete`` turns counts, and ``continuous`` turns scores, into a lower limit of a margin; ``radii`` turns
that limit and sigma into a radius; ``methods`` is the registry of names and holds the public doors.

- ``discrete.margin_lower(top, runner_up, n, alpha=, margin=, method=)``: arrays broadcast, float64 comes back.
- ``continuous.margin_lower(scores, label, alpha=, margin=, combine=, limit=, selection=)``: scores ``[n, m]`` or more.
- ``tangents``: from a mean of ``X_A - c X_j`` to the second margin.
- ``scores.certify_scores(scores, sigma=, alpha=, label= | selection=)``: Certificate or a list of them.
- ``methods.certify_counts(counts, sigma=, alpha=, label= | selection=)``: Certificate or a list of them.
- ``anytime.AnytimeTest(ladder, labels, num_classes)``: draw until the radii of a ``ladder.Ladder`` are decided.
- ``forecast.expected_draws(top, target_radius=, sigma=)``: about how many draws that takes. A plan.
- ``budget``: the only place where alpha is divided.
- ``published``: the estimators of the paper as printed; unsound, refused for certificates.

May import: the root modules and ``bounds``.
"""
