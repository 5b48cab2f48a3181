"""Many certificates -> statements about a classifier or about a method.

- ``curves.certified_accuracy(certificates, labels, radii)``: accuracy against radius with its confidence band.
- ``curves.margin_accuracy(low, right, margins, ...)``: the same against the margin, as the paper draws it.
- ``population.population_accuracy(counts, labels, radii, sigma=)``: accuracy of the population;
  ``plan_population(counts, labels, radius, wanted, sigma=)``: how many inputs and draws that takes.
- ``conformal.RobustConformal(sigma=, radius=, alpha=)``: prediction sets that cover also after a move by the radius.
- ``curves.radius_histogram(certificates, labels, edges)``: how many inputs are certified how far.
- ``audit.audit_discrete(bound, margin, num_classes, n, alpha)``: the exact worst miss probability of a bound.
- ``power.compare_power(bounds, counts, margin=, alpha=, truths=)``: power against the linear-programming optimum.
- ``refutations.RefutationSettings(noise, alpha).refute(model, ids, x, labels, start)``: points at which the smoothed
  classifier does not predict a class, found by ``attacks`` and judged on fresh draws; ``bracket_curve`` and ``alarm``
  set them beside certificates.

May import: the root modules, ``bounds`` and ``certify``; torch only in ``attacks``.
"""
