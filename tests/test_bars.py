"""Sizes that the sources keep to, so that each module and each function can be taken in at once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "buckler"
MODULES = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}

MOST_LINES = 300
MOST_PARAMETERS = 8
CLI_SHARE = 0.10

DOORS = {
    ("certify/counts.py", "certify_counts"),
    ("certify/scores.py", "certify_scores"),
    ("smoothed.py", "certify"),
    ("smoothed.py", "decide"),
    ("compat.py", "__init__"),  # another tool's
    ("runs/sample.py", "sample"),
    ("runs/decide.py", "decide"),
    ("runs/plan.py", "plan"),
    ("paper/discrete.py", "published_margin_lower"),  # the parameters of the paper's algorithms
    ("sampling/kernels.py", "convolve"),  # Triton kernels, which take numbers and pointers alone
    ("sampling/kernels.py", "grid_copies"),
}
"""Functions that users call by many named options; the commands are such doors too."""


def wide_functions(path: str, source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(argument.arg not in {"self", "cls"} for argument in given)
            is_command = path == f"cli/{node.name.removesuffix('_')}.py" or path == f"cli/{node.name}.py"
            if count > MOST_PARAMETERS and not is_command and (path, node.name) not in DOORS:
                yield node.name, count


@pytest.mark.parametrize("path", sorted(MODULES))
def test_a_module_is_short(path: str) -> None:
    assert len(MODULES[path].splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", sorted(MODULES))
def test_a_function_has_few_parameters(path: str) -> None:
    assert list(wide_functions(path, MODULES[path])) == []


def test_a_wide_function_is_found() -> None:
    wide = "def f(a, b, c, d, /, e, *, f, g, h, i): ..."
    assert list(wide_functions("cli/g.py", wide)) == [("f", 9)]
    assert list(wide_functions("cli/f.py", wide)) == []
    assert list(wide_functions("runs/a.py", "class A:\n    def m(self, a, b, c, d, e, f, g, h): ...")) == []


def test_every_door_is_there() -> None:
    for path, name in DOORS:
        assert f"def {name}(" in MODULES[path]


def test_the_command_line_is_thin() -> None:
    lines = {path: len(source.splitlines()) for path, source in MODULES.items()}
    commands = sum(count for path, count in lines.items() if path.startswith("cli/"))
    assert commands / sum(lines.values()) < CLI_SHARE
