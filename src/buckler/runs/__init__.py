"""A specification -> files, and back; and the doors that need both a model and a bound.

- ``smoothed.Smoothed(model, sigma, num_classes).certify(x, n=, n0=, alpha=, seed=)``: one certificate, no files.
- ``store``: evidence and certificates as Parquet (the only place that imports pyarrow).

May import: the root modules, ``sampling`` and ``certify``.
"""
