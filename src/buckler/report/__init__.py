"""What a person reads. Computes no limit: numbers come in, tables and pictures go out, radii rounded down.

- ``text``: ``TextTable``, any table, for ``to_text``, ``to_markdown``, ``to_latex`` and ``to_csv``;
  ``accuracy_table(curves)`` has one row a method.
- ``plots``: figures as files: ``accuracy_plot(curves, path)``, certified accuracy against radius with bands;
  ``margin_grid``, both margins as the paper arranges its figures.
- ``sweeps``: the cells of a sweep (``runs.sweep``) as a table and as figures.
- ``pages``: ``build_page(results)``, the page about results of runs (``runs.results.read_result``).
- ``board``: ``check_board(folder)`` and ``write_board``: entries of strangers, certified again, as a site.
- ``html``: ``report_page(runs, series)`` renders it from ``templates/``; ``charts``: its charts.

May import: what runs, evaluate and the rooms below them hold; matplotlib only here, as are the templates of all pages
but the paper's.
"""
