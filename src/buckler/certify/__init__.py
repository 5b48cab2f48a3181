"""Evidence -> certificate.

The flow: ``discrete`` turns counts, and ``continuous`` turns scores, into a lower limit of a margin; ``radii`` turns
that limit and sigma into a radius; ``methods`` is the registry of names and holds the public doors.

- ``discrete.margin_lower(top, runner_up, n, alpha=, margin=, method=)``: arrays broadcast, float64 comes back.
- ``methods.certify_counts(counts, sigma=, alpha=, label= | selection=)``: Certificate or a list of them.
- ``anytime.AnytimeTest(label, num_classes, sigma, target_radius, alpha, max_n)``: draw until a radius is decided.
- ``budget``: the only place where alpha is divided.
- ``published``: the estimators of the paper as printed; unsound, refused for certificates.

May import: the root modules and ``bounds``.
"""
