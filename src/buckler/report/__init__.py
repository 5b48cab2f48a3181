"""What a person reads. Computes nothing: numbers come in, tables and pictures go out, radii rounded down.

- ``tables.accuracy_table(curves)``: one row a method, for the terminal; ``accuracy_rows`` with gains in percent, for
  ``to_markdown``, ``to_latex`` and ``to_csv``.
- ``plots.accuracy_plot(curves, path)``: certified accuracy against radius, with bands; ``accuracy_panels``: several.

May import: the root modules and everything under ``evaluate``; matplotlib and templates only here.
"""
