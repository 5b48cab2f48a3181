"""Shares of alpha never add up to more than alpha, and alpha is divided nowhere else."""

import ast
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from buckler.certify.budget import split

SOURCE = Path(__file__).parents[2] / "src" / "buckler"


@given(alpha=st.floats(1e-290, 1.0, exclude_max=True), parts=st.integers(1, 10**6))
def test_shares_never_exceed_alpha(alpha: float, parts: int) -> None:
    share = split(alpha, parts)
    assert parts * Fraction(share) <= Fraction(alpha)
    assert parts * Fraction(share) >= Fraction(alpha) * (1 - Fraction(1, 2**51)), "no more than a rounding is lost"


def divisions_of_alpha(source: str) -> list[int]:
    """Return the lines where something called alpha (or delta, a level) is divided."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Div, ast.FloorDiv))
        and any(isinstance(leaf, ast.Name) and "alpha" in leaf.id for leaf in [node.left])
    ]


def test_alpha_is_divided_only_in_the_budget() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name != "budget.py":
            assert divisions_of_alpha(path.read_text(encoding="utf-8")) == [], path.name
    assert divisions_of_alpha("low = bound(alpha / 2)") == [1]
