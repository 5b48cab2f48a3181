"""Shares of alpha never add up to more than alpha, and alpha is divided nowhere else."""

import ast
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckler.certify.budget import split

SOURCE = Path(__file__).parents[2] / "src" / "buckler"


@given(alpha=st.floats(1e-200, 1.0, exclude_max=True), parts=st.integers(1, 10**6))
def test_shares_never_exceed_alpha(alpha: float, parts: int) -> None:
    share = split(alpha, parts)
    assert parts * Fraction(share) <= Fraction(alpha)
    assert parts * Fraction(share) >= Fraction(alpha) * (1 - Fraction(1, 2**51)), "no more than a rounding is lost"


def is_level(node: ast.expr) -> bool:
    """Return whether an expression is a name, or an attribute, with alpha or delta in it."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return "alpha" in name.lower() or "delta" in name.lower()


def is_fraction(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 0.0 < node.value < 1.0


def divisions_of_alpha(source: str) -> list[int]:
    """Return the lines where something called alpha or delta is divided, or multiplied by a number below 1."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            shared = isinstance(node.op, ast.Div | ast.FloorDiv) and is_level(left)
            scaled = isinstance(node.op, ast.Mult) and {is_level(left), is_level(right)} == {True, False}
            if shared or (scaled and (is_fraction(left) or is_fraction(right))):
                found.append(node.lineno)
    return found


def test_alpha_is_divided_only_in_the_budget() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name != "budget.py":
            assert divisions_of_alpha(path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.parametrize(
    "line", ["alpha / 2", "self.alpha / 2", "0.5 * alpha", "alpha * 0.5", "delta / 3", "a.delta // 2", "alpha /= 2"]
)
def test_a_division_of_alpha_is_found(line: str) -> None:
    assert divisions_of_alpha(line) == [1]
    assert divisions_of_alpha("alpha * (1.0 - ERROR) + 2.0 / alpha") == []
