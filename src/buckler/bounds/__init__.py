"""Numbers -> one confidence limit. Knows no classes, no models and no sigma.

Call shapes, all vectorised and all returning float64:

- ``binomial``: ``clopper_pearson_lower(k, n, alpha)`` and ``..._upper``; ``distinct`` finds rows of counts that repeat.
- ``bounded``: ``hoeffding_lower``, ``bernstein_lower``, ``sequence_lower``, ``betting``: ``betting_lower``, ``star``:
  ``star_lower``, all ``(x, alpha, low=0, high=1)`` with x ``[n]`` or ``[n, columns]``; ``constant_stake_lower(x, alpha,
  stake)`` for draws of different means. ``partition`` holds the cells of candidate means that ``star`` bets against.
- ``evalues``: ``tangent_mixture(L).log_wealth(x1, x2, n)``, any-time; ``kl_to_null(p, L)``, for planning;
  ``half_space_mixture(L)`` and ``kl_to_half_space(p, L)`` for a difference of probabilities.
- ``sign_test``: ``log_wealth_of_votes(wins, losses)``, any-time, and ``tail_of_votes(wins, losses)``, at a fixed n.
- ``buehler``: ``exact_margin_lower(top, runner_up, n, alpha, margin)``, for one outcome ``buehler_lower``. It uses
  ``ordering`` (which outcomes count as more extreme), ``margin_search`` (a guess), ``margin_curve`` (its proof) and
  ``trinomial`` (curve of one margin, probability of a region).
- ``bernstein``: ``below_step(n, t, law, inputs, alpha)``, values of a count whose mean is below a step at every p;
  ``below_curve(n, curve, law, inputs)`` and ``lowered_below_curve(h, curve)``, below a curve.

Every function states its guarantee, divides alpha by nothing, and rounds outward: what it returns is never on the
wrong side of the exact limit. The side is in the name. May import: the root modules, NumPy, ``scipy.special``,
``scipy.optimize``, numba.
"""
