"""Numbers -> one confidence limit. Knows no classes, no models and no sigma.

Call shapes, all vectorised and all returning float64:

- ``binomial``: ``clopper_pearson_lower(k, n, alpha)`` and ``..._upper``; sign tests, ``log_wealth_of_votes(wins,
  losses)``, any-time, and ``tail_of_votes(wins, losses)``, at a fixed n; ``distinct_rows`` finds those that repeat.
- ``means``: ``hoeffding_lower``, ``bernstein_lower``, ``sequence_lower``, and ``betting``: ``star_lower``, all ``(x,
  alpha, low=0, high=1)`` with x ``[n]`` or ``[n, columns]``; ``betting.constant_stake_lower(x, alpha, stake)`` for
  draws of different means.
- ``evalues``: ``tangent_mixture(L).log_wealth(x1, x2, n)``, any-time; ``distance_to_null(p, L)``, for planning;
  ``half_space_mixture(L)`` and ``distance_to_half_space(p, L)`` for a difference of probabilities.
- ``buehler``: ``exact_margin_lower(top, runner_up, n, alpha, margin)``, for one outcome ``buehler_lower``: which
  outcomes count as more extreme, and the limit. It uses ``supremum`` (a guess, and its proof) and ``trinomial`` (curve
  of one margin, probability of a region).
- ``bernstein``: values of a count whose mean, at every p, is below a step, ``below_step(n, t, pmf, inputs, alpha)``,
  or below a binomial tail at a smaller probability, ``below_tail(k, shrinking, pmf, inputs)``.

Every function states its guarantee, divides alpha by nothing, and rounds outward: what it returns is never on the
wrong side of the exact limit. The side is in the name. May import: the root modules, NumPy, ``scipy.special``,
``scipy.optimize``, numba.
"""
