"""The paper: what it prints, and its questions asked of recorded runs.

"Enhanced Estimation Techniques for Certified Radii in Randomized Smoothing". What it prints does not bound what it says
(``docs/errata.md`` shows where, with computed counter-examples). Its estimators are here so that its tables can be
reproduced, its errors audited, and sound methods compared with it. UNSOUND: each is called ``published_...``, and no
certificate comes of them.

- ``printed``: the numbers of its tables and the settings of its figures.
- ``signomial``: ``Phi_M^-1`` and the programme that Algorithms 4, 5 and 6 solve (its appendix), with three solvers.
- ``estimators``: ``published_margin_lower(top, runner_up, n)`` from votes, ``published_scores_margin_lower(draws)``
  from scores, its radius R1, and all of them by name: ``method_of(name)``.
- ``library``: a folder of runs -> the run that can answer a question -> limits by any method.
- ``reproduced``: its tables and figures again, sound methods beside its own.
- ``page``: ``reproduce_paper(part, library, out)`` writes everything, and the page in words.

May import: every room but ``cli``. Only ``cli`` imports this one.
"""
