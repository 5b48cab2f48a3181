"""What a person reads. Computes nothing: numbers come in, tables and pictures go out, radii rounded down.

- ``tables.accuracy_table(curves)``: one row a method; ``TextTable``: any table, for ``to_text``, ``to_markdown``,
  ``to_latex`` and ``to_csv``.
- ``plots.accuracy_plot(curves, path)``: certified accuracy against radius, with bands; ``accuracy_panels``: several.
- ``plots.margin_grid(columns, paths, title)``: accuracy against both margins, as the paper arranges its figures.
- ``pages.build_page(results)``: the page about results of runs (``runs.results.read_result``); ``sweeps.sweep_table``
  and ``draw_axes``: the cells of a sweep (``runs.sweep.sweep_runs``) as a table and as figures.
- ``html.report_page(runs, series, title=, promise=, class_names=)``: one self-contained page, from ``templates/``, with
  the charts of ``charts``, the pictures of ``thumbnails`` and the words of ``sentences``; ``payload`` is what the
  script reads.

May import: the root modules, everything under ``evaluate``, and ``runs``; matplotlib only here, as are the templates of
all pages but the paper's.
"""
