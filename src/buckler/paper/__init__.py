"""The paper: what it prints, and its questions asked of recorded runs.

"Enhanced Estimation Techniques for Certified Radii in Randomized Smoothing". What it prints does not bound what it says
(``docs/errata.md`` shows where, with computed counter-examples). Its estimators are here so that its tables can be
reproduced, its errors audited, and sound methods compared with it. UNSOUND: each is called ``published_...``, and no
certificate comes of them.

- ``printed``: the numbers of its tables and the settings of its figures.
- ``quantile``: ``Phi_M^-1``, the Taylor series of the Gaussian quantile.
- ``signomial``: monomials, signomials, constraints, programmes, and two SciPy solvers (its appendix).
- ``discrete``: Algorithms 4, 5 and 6; ``published_margin_lower(top, runner_up, n, ...)``.
- ``curve``: the same infimum as the programme's, along the boundary of its feasible set.
- ``continuous``: the variable Z and the two printed widths; ``published_scores_margin_lower(draws, ...)``.
- ``methods``: all of these by name, for ``certify.methods``, which finds them there.
- ``library``: a folder of runs -> the run that can answer a question; ``limits``: a run -> limits by any method.
- ``tables``, ``figures``: its tables and figures again, sound methods beside its own.
- ``peers``: logs of other tools -> what each method would certify, on average, on the networks behind them.
- ``facts``, ``page``: what the page says in words; ``page.reproduce(wanted, library, out)`` writes everything.

May import: every room but ``cli``. Only ``cli`` imports this one; ``certify.methods`` knows it by name.
"""
