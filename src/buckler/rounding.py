"""Rounding of numbers that are shown: lower limits down, upper limits up."""

from decimal import ROUND_FLOOR, Context, Decimal
from math import isfinite

_EXACT = Context(prec=1200)
"""Digits for every float in full: up to 309 before the point and 1,074 after it."""


def rounded_down(value: float | Decimal, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` decimals, rounded down.

    **Guarantee.** ``float(text) <= value``. The shortest decimal of the float is truncated, so 0.58 is shown as 0.580
    and the float below it as 0.579.

    >>> rounded_down(0.37511), rounded_down(0.9999), rounded_down(0.58), rounded_down(-0.0001)
    ('0.375', '0.999', '0.580', '-0.001')
    """
    exact = value if isinstance(value, Decimal) else Decimal(repr(float(value) + 0.0))  # + 0.0: no negative zero
    if not isfinite(exact):
        return str(float(exact))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR, _EXACT):f}"


def rounded_up(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` decimals, rounded up.

    >>> rounded_up(0.37511), rounded_up(0.58), rounded_up(0.0)
    ('0.376', '0.580', '0.000')
    """
    return f"{-Decimal(rounded_down(-value, digits)):f}"
