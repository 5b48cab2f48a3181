"""What a person reads. Computes nothing: numbers come in, tables and pictures go out, radii rounded down.

- ``tables.accuracy_table(curves)``: one row a method, rich for people.
- ``plots.accuracy_plot(curves, path)``: certified accuracy against radius, with bands.
- ``html.report_page(runs, series, title=, class_names=)``: one self-contained page, from ``templates/``, with the
  charts of ``charts``, the pictures of ``thumbnails`` and the words of ``sentences``.

May import: the root modules and everything under ``evaluate``; matplotlib and templates only here.
"""
