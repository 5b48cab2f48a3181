"""Timings and power studies, each a command that prints a table.

A package and not a mere folder: some libraries install a package of this name, which would be found in its place.
"""
