"""Numbers -> text for people; everything that is a guarantee is rounded down."""

from collections.abc import Sequence
from math import floor

from rich.table import Table

from buckler.evaluate.curves import Curve


def rounded_down(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` decimals, never more than it is.

    >>> rounded_down(0.37511)
    '0.375'
    >>> rounded_down(0.9999)
    '0.999'
    """
    scale = 10**digits
    units = floor(value * scale)
    # The product may have been rounded up onto the next unit; a value just below it must not be shown as reaching it.
    if units / scale > value:
        units -= 1
    return f"{units / scale:.{digits}f}"


def accuracy_table(curves: Sequence[Curve], title: str) -> Table:
    """Return certified accuracy against radius, one row a method."""
    table = Table(title=title, caption=f"share of {curves[0].inputs} inputs predicted right and certified to radius r")
    table.add_column("method")
    table.add_column("abstained", justify="right")
    for radius in curves[0].radii:
        table.add_column(f"r={radius:g}", justify="right")
    for curve in curves:
        table.add_row(curve.name, f"{curve.abstained:.3f}", *(rounded_down(a) for a in curve.accuracy))
    return table
