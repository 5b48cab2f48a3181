"""From a source file to its one-token mutants, and the excuses of ``excuses.toml`` for those that may live."""

import ast
import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MUTATED = (
    "src/buckler/bounds",
    "src/buckler/certify",
    "src/buckler/noise",
    "src/buckler/certificate.py",
    "src/buckler/session.py",
    "src/buckler/evaluate/conformal.py",
    "src/buckler/evaluate/curves.py",
    "src/buckler/evaluate/population.py",
    "src/buckler/evaluate/refutations.py",
    "src/buckler/runs/store",
    "src/buckler/runs/identity.py",
    "src/buckler/runs/decide.py",
    "src/buckler/runs/executor.py",
    "src/buckler/sampling/streams.py",
)
"""What certificates and their evidence rest on."""

GUESSES = ("log_at", "margin_at", "climb", "scan")
"""Functions of the search for a margin, which returns none that ``supremum_at_most`` has not proved."""

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
NAMES = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "any": "all", "all": "any"}
ALLOWANCE = 1e-6
"""Constants below are allowances for rounding and the like, which are taken away; others are off by one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: at ``line`` (from 1) and ``column`` of it, ``old`` becomes ``new``.

    ``repeat`` tells lines of the same text in one file apart, so that a mutant keeps its key when lines move.
    ``function`` is the function or class around it, or the constant that is defined at the top of a module;
    ``expression`` is the expression that changes.
    """

    file: str
    line: int
    column: int
    old: str
    new: str
    text: str
    repeat: int
    function: str
    expression: str

    @property
    def key(self) -> str:
        """The same for the same change of the same text, wherever in its file the line has moved."""
        what = (self.file, self.text, self.repeat, self.column, self.old, self.new)
        return hashlib.blake2b(repr(what).encode(), digest_size=8).hexdigest()

    @property
    def change(self) -> str:
        """The change in words: ``< -> <= in i < n``."""
        return f"{self.old} -> {self.new}".replace(" -> ()", " removed") + f" in {self.expression}"

    def applied(self, source: str) -> str:
        """Return the source with the change made."""
        lines = source.splitlines(keepends=True)
        at = lines[self.line - 1]
        assert at[self.column :].startswith(self.old), (self, at)
        new = "" if self.new == "()" else self.new
        lines[self.line - 1] = at[: self.column] + new + at[self.column + len(self.old) :]
        return "".join(lines)


def all_mutants(root: Path) -> list[Mutant]:
    """Return the mutants of every file that is mutated."""
    places = [root / place for place in MUTATED]
    paths = sorted({path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])})
    names = [path.relative_to(root).as_posix() for path in paths]
    found = [mutant for name in names for mutant in mutants_of(name, (root / name).read_text(encoding="utf-8"))]
    return [mutant for mutant in found if mutant.function not in GUESSES]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return the mutants of one file, in the order of its lines."""
    lines = source.splitlines()
    seen: Counter[str] = Counter()
    repeats = []
    for text in lines:
        seen[text.strip()] += 1
        repeats.append(seen[text.strip()])
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = set()
    for node in _outside_annotations(tree):
        for line, column, old, new in _changes(node, lines):
            text, repeat = lines[line - 1].strip(), repeats[line - 1]
            around = _function(node, parents), _expression(node, parents)
            found.add(Mutant(file, line, column, old, new, text, repeat, *around))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.column, mutant.new))


def _function(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """Return the function or class around an expression, or at the top of a module the constant that it defines."""
    names: list[str] = []
    constant = ""
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.insert(0, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            constant = ast.unparse(target.elts[0] if isinstance(target, ast.Tuple) else target)
    return ".".join(names) or constant


def _expression(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """Return the source of the expression that changes; of a constant, of the expression or statement that it is in."""
    while isinstance(node, ast.Constant | ast.USub):
        node = parents[node]
    return ast.unparse(node).splitlines()[0]


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            yield from _operator(lines, left, operator, right)
    elif isinstance(node, ast.BinOp):
        yield from _operator(lines, node.left, node.op, node.right)
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _operator(lines, left, node.op, right)
    elif isinstance(node, ast.AugAssign):
        yield from _operator(lines, node.target, node.op, node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        old = "not " if isinstance(node.op, ast.Not) else "~"
        yield node.lineno, _characters(lines, node.lineno, node.col_offset), old, "()"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield from _constant(lines, node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name in NAMES and node.func.end_lineno and node.func.end_col_offset:
            end = _characters(lines, node.func.end_lineno, node.func.end_col_offset)
            yield node.func.end_lineno, end - len(name), name, NAMES[name]


def _outside_annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk the tree, leaving out types, whose ``|`` and literals do nothing when run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field not in {"annotation", "returns"}:
                waiting += [child for child in (value if isinstance(value, list) else [value]) if _is_node(child)]


def _is_node(value: object) -> bool:
    return isinstance(value, ast.AST)


def _constant(lines: list[str], node: ast.Constant) -> Iterator[tuple[int, int, str, str]]:
    start, end = (_characters(lines, node.lineno, offset) for offset in (node.col_offset, node.end_col_offset or 0))
    old = lines[node.lineno - 1][start:end]
    if isinstance(node.value, bool):
        new = str(not node.value)
    elif isinstance(node.value, int):
        new = str(node.value + 1)
    else:
        assert isinstance(node.value, float)
        new = "0.0" if 0.0 < abs(node.value) < ALLOWANCE else repr(node.value + 1.0)
    yield node.lineno, start, old, new


def _operator(
    lines: list[str], left: ast.expr, operator: ast.AST, right: ast.expr
) -> Iterator[tuple[int, int, str, str]]:
    """Yield the change of the operator that stands between two operands."""
    if type(operator) not in OPERATORS or left.end_lineno is None or left.end_col_offset is None:
        return
    old, new = OPERATORS[type(operator)]
    for line in range(left.end_lineno, right.lineno + 1):
        start = _characters(lines, line, left.end_col_offset) if line == left.end_lineno else 0
        end = _characters(lines, line, right.col_offset) if line == right.lineno else len(lines[line - 1])
        between = lines[line - 1][start:end].split("#")[0]
        if old in between:
            yield line, start + between.index(old), old, new
            return


def _characters(lines: list[str], line: int, offset: int) -> int:
    """Return a column in characters; the syntax tree counts bytes."""
    return len(lines[line - 1].encode()[:offset].decode())


KINDS = ("equivalent", "heuristic")
LIST = Path(__file__).with_name("excuses.toml")


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why some mutants of one function may live.

    ``function`` is a function, a method with its class, or a constant at the top of a module, and ``changes`` are those
    in it. *equivalent*: no input tells the mutant from the original, or the mutant is sound and as tight. *heuristic*:
    it changes speed or power, never validity. A change is given with its expression, and no file, so that functions and
    lines may move. ``python -m tests.mutants`` names excuses that fit no mutant.
    """

    function: str
    changes: list[str]
    kind: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Return whether this excuse is of that mutant."""
        return self.function == mutant.function and mutant.change in self.changes


def read_excuses(path: Path = LIST) -> list[Excuse]:
    """Return the excuses of the list."""
    return [Excuse(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("excuse", [])]
