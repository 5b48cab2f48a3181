"""The estimators of the paper, as printed. UNSOUND: they cannot issue a certificate.

The paper is "Enhanced Estimation Techniques for Certified Radii in Randomized Smoothing". What it prints does not bound
what it says (``docs/errata.md`` shows where, with computed counter-examples); the estimators are here so that its
tables can be reproduced, its errors audited, and sound methods compared with it. Every name exported starts with
``published_``, and a Certificate refuses them.

- ``quantile``: ``Phi_M^-1``, the Taylor series of the Gaussian quantile.
- ``signomial``: monomials, signomials, constraints, programmes, and two SciPy solvers (its appendix).
- ``discrete``: Algorithms 4, 5 and 6; ``published_margin_lower(top, runner_up, n, ...)``.
- ``curve``: the same infimum as the programme's, along the boundary of its feasible set.
- ``continuous``: the variable Z and the two printed widths; ``published_scores_margin_lower(scores, label, ...)``.
"""

from buckler.certify.published.continuous import (
    published_bernstein_lower,
    published_margin_variable,
    published_scores_margin_lower,
    published_sequence_lower,
)
from buckler.certify.published.discrete import (
    published_bisection,
    published_fast_bisection,
    published_margin_lower,
    published_program,
)
from buckler.certify.published.quantile import published_quantile, published_quantile_inverse

__all__ = [
    "published_bernstein_lower",
    "published_bisection",
    "published_fast_bisection",
    "published_margin_lower",
    "published_margin_variable",
    "published_program",
    "published_quantile",
    "published_quantile_inverse",
    "published_scores_margin_lower",
    "published_sequence_lower",
]
