"""The maker of mutants, and the list of those that may live."""

import ast
import sys
import time
from pathlib import Path

import pytest

from tests.mutants.__main__ import main, report
from tests.mutants.making import KINDS, MUTATED, Excuse, Mutant, all_mutants, mutants_of, read_excuses
from tests.mutants.trying import AUDITS, run_tests, steps

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A docstring with a < b and 3 + 4."""

def f(a: int | None, b: float = 0.5) -> float:
    # a comment: a < b
    if not a < b and a != 3:
        return max(a * 2, b - 1e-9)
    a += 1
    return ~a if True else 1 / b
'''


def changes(source: str) -> set[tuple[int, str]]:
    return {(mutant.line, mutant.change.split(" in ")[0]) for mutant in mutants_of("f.py", source)}


def test_every_kind_of_change_is_made_and_nothing_else() -> None:
    assert changes(SOURCE) == {
        (3, "0.5 -> 1.5"),
        (5, "not  removed"), (5, "< -> <="), (5, "and -> or"), (5, "!= -> =="), (5, "3 -> 4"),
        (6, "max -> min"), (6, "* -> /"), (6, "2 -> 3"), (6, "- -> +"), (6, "1e-9 -> 0.0"),
        (7, "+ -> -"), (7, "1 -> 2"),
        (8, "~ removed"), (8, "True -> False"), (8, "1 -> 2"), (8, "/ -> *"),
    }  # fmt: skip


def test_a_mutant_differs_in_one_line_and_can_be_parsed() -> None:
    for mutant in mutants_of("f.py", SOURCE):
        changed = mutant.applied(SOURCE)
        ast.parse(changed)
        pairs = zip(SOURCE.splitlines(), changed.splitlines(), strict=True)
        assert [i for i, (old, new) in enumerate(pairs, start=1) if old != new] == [mutant.line]


def test_a_key_stays_when_lines_move_and_tells_all_mutants_apart() -> None:
    before, after = mutants_of("f.py", SOURCE), mutants_of("f.py", "# one line more\n" + SOURCE)
    assert [mutant.key for mutant in before] == [mutant.key for mutant in after]
    every = all_mutants(ROOT)
    assert len({mutant.key for mutant in every}) == len(every) > 3000


def test_every_place_is_there_and_every_file_has_its_tests() -> None:
    for place in MUTATED:
        assert (ROOT / place).exists(), place
    files = {mutant.file for mutant in all_mutants(ROOT)}
    for file in files:
        for step in steps(ROOT, file):
            assert all((ROOT / name).exists() for name in step)
    near, far, slow, audits = steps(ROOT, "src/buckler/bounds/binomial.py")
    assert near[:2] == ["tests/bounds/test_binomial.py", "src/buckler/bounds/binomial.py"]
    assert far
    assert "tests/bounds/test_compiled.py" in slow
    assert len(audits) == len(list((ROOT / AUDITS).glob("test_*.py")))


def test_an_excuse_is_of_a_change_in_a_function_wherever_its_line_is() -> None:
    excuse = Excuse("f", ["- -> + in b - 1e-09"], "heuristic", "why")
    (mutant,) = (m for m in mutants_of("f.py", SOURCE) if excuse.covers(m))
    assert (mutant.line, mutant.old, mutant.new) == (6, "-", "+")
    moved = SOURCE.replace("return max(a * 2, b - 1e-9)", "return max(\n            b - 1e-9,\n            a * 3)")
    assert sum(excuse.covers(m) for m in mutants_of("f.py", moved)) == 1
    assert not any(excuse.covers(m) for m in mutants_of("f.py", SOURCE.replace("b - 1e-9", "b - 1e-8")))
    assert not any(excuse.covers(m) for m in mutants_of("f.py", SOURCE.replace("def f(", "def g(")))
    assert sum(excuse.covers(m) for m in mutants_of("moved.py", SOURCE)) == 1


def test_a_constant_of_a_module_has_its_name() -> None:
    source = "FEW: int = 64\nFIRST, LAST = 16, 5\nclass A:\n    SIZE = 3\n"
    assert [mutant.function for mutant in mutants_of("f.py", source)] == ["FEW", "FIRST", "FIRST", "A"]


@pytest.fixture(scope="module")
def everyone() -> list[Mutant]:
    return all_mutants(ROOT)


def test_every_excuse_has_a_kind_and_a_reason() -> None:
    for excuse in read_excuses():
        assert excuse.kind in KINDS
        assert len(excuse.reason) > 20
        assert excuse.changes


def test_fewer_than_a_fifth_are_excused(everyone: list[Mutant]) -> None:
    excuses = read_excuses()
    excused = sum(any(excuse.covers(mutant) for excuse in excuses) for mutant in everyone)
    assert excused < len(everyone) / 5


@pytest.mark.slow
def test_a_step_ends_with_a_verdict_or_because_time_is_up(tmp_path: Path) -> None:
    for name, body in (("passes", "pass"), ("fails", "raise ValueError"), ("loops", "while True: pass")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {body}\n")
    assert run_tests(tmp_path, ["test_passes.py"]).found == ""
    assert run_tests(tmp_path, ["test_fails.py"]).found == "test_fails.py::test_it"
    assert run_tests(tmp_path, ["test_loops.py"], limit=2).found == "no end"
    # What was not seen to the end is no verdict, neither that a mutant was found nor that it lived.
    assert run_tests(tmp_path, ["test_fails.py"], ends=time.monotonic()).found is None


def test_only_a_mutant_that_passed_all_of_its_tests_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], everyone: list[Mutant]
) -> None:
    one = everyone[0]
    monkeypatch.setattr("tests.mutants.__main__.lapsed", lambda _: [])
    for found, passed, failed in (("a test", 0, False), ("", 2, False), ("", 3, True)):
        assert report([one], set(), {one.key: {"found": found, "passed": passed, "steps": 3}}) == failed
    assert report([one], {one.key}, {one.key: {"found": "", "passed": 3, "steps": 3}}) == 0
    assert report([one], set(), {}) == 0
    # However slow the machine: with no time at all nothing is tried, and nothing fails.
    results = tmp_path / "results.jsonl"
    monkeypatch.setattr(sys, "argv", ["mutants", "--sample", "5", "--minutes", "0", "--results", str(results)])
    assert main() == 0
    assert "found: 0 of 0 tried" in capsys.readouterr().out
    assert not results.exists()
