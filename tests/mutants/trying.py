"""The tests of a mutant's room, then the audits, in a copy of the tree that holds the mutant."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from tests.mutants.making import Mutant

FURTHER = {"runs": ["tests/hostile", "tests/faults"]}
"""Where tests of a room lie beside its own folder."""

SLOW = ("tests/faults/", "tests/hostile/", "tests/bounds/test_compiled.py")
"""Tests that start processes, or compile every kernel anew: after the others of the room."""
SELECTED = "not (ray or browser or slow)"
"""A cluster and a browser are not started for a mutant."""

AUDITED = ("bounds", "certify", "noise", "evaluate")
AUDITS = "tests/audit"
NEVER_COPIED = ("evidence/", "models/", "site/")
"""Large, and no test of these rooms reads them."""

MOST_STEPS = 4
SHORT, LONG = 180, 600
"""Processor seconds of the first step and of later ones, several times what they take: a mutant that takes more loops
for ever, which is noticed. A busy machine takes longer and no more of these."""
WALL = 1800.0
"""Seconds after which a step that is not looping is given up without a verdict."""
USAGE, NO_TESTS = 4, 5
LIMITED = (
    "import os, resource as r, sys; r.setrlimit(r.RLIMIT_CPU, ({0}, {0} + 5)); os.execv(sys.executable, sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the tests noticed: ``found`` names the test that did, or is empty; None: there was no time to see."""

    found: str | None
    seconds: float


def steps(root: Path, file: str) -> list[list[str]]:
    """Return which tests to run one after the other: those that import the module, the room's, slow ones, the audits.

    The doctests of the module come beside those that import it.
    """
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    room, inside, _ = file.removeprefix("src/buckler/").partition("/")
    own = f"tests/{room}" if inside else "tests"
    folders = [root / folder for folder in (own, *FURTHER.get(room, [])) if (root / folder).exists()]
    named = re.compile(rf"\b{re.escape(module)}\b|\bfrom {re.escape(package)} import .*\b{name}\b")
    files = [test for folder in folders for test in _test_files(folder)]
    slow = [test for test in files if _names(root, [test])[0].startswith(SLOW) and test.stem != f"test_{name}"]
    quick = [test for test in files if test not in slow]
    near = [
        test for test in quick if test.stem == f"test_{name}" or named.search(test.read_text(encoding="utf-8"))
    ] or quick
    near.sort(key=lambda test: test.stem != f"test_{name}")
    # A source before any test would be imported twice where its package imports it: its classes would be two.
    first, *others = _names(root, near)
    found = [[first, file, *others], _names(root, [test for test in quick if test not in near]), _names(root, slow)]
    if room in AUDITED:
        found.append(_names(root, _test_files(root / AUDITS)))
    return [step for step in found if step]


def _test_files(place: Path) -> list[Path]:
    return sorted(place.glob("test_*.py")) if place.is_dir() else [place]


def _names(root: Path, paths: list[Path]) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def copy_tree(root: Path, to: Path) -> None:
    """Copy what git would keep of the tree (without git: what is not hidden), less what is large and not read here."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(listed, cwd=root, check=False, capture_output=True, text=True)  # noqa: S603
    names = told.stdout.split("\0")
    if told.returncode != 0:
        places = (path.relative_to(root) for path in root.rglob("*"))
        names = [str(place) for place in places if not any(part.startswith((".", "__p")) for part in place.parts)]
    for name in names:
        if name and not name.startswith(NEVER_COPIED) and (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def run_tests(tree: Path, tests: list[str], limit: int = LONG, ends: float = inf, *options: str) -> Verdict:
    """Run these tests in a tree until the first failure, for so many processor seconds, and no longer than ``ends``."""
    code, said, seconds = _pytest(tree, ["-x", *options, *tests], limit, min(ends, time.monotonic() + WALL))
    if code is None or code in {0, NO_TESTS}:
        return Verdict(None if code is None else "", seconds)
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return Verdict("no end", seconds)
    if code == USAGE:
        raise RuntimeError(f"pytest ended with {code} on {tests}:\n{said[-3000:]}")
    return Verdict(next(iter(failures(said)), f"pytest ended with {code}"), seconds)


def failing(tree: Path, test: str) -> list[str]:
    """Return which tests of a file fail on the tree as it is: those would find every mutant."""
    code, said, _ = _pytest(tree, [test], LONG, time.monotonic() + WALL)
    return [] if code in {0, NO_TESTS} else failures(said) or [test]


def failures(said: str) -> list[str]:
    """Return the names of failed tests, up to a space in them: enough to tell and to leave them out."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)


def _pytest(tree: Path, arguments: list[str], limit: int, ends: float) -> tuple[int | None, str, float]:
    """Return exit code (None if time was up), output and seconds."""
    python = [sys.executable, "-m", "pytest", "-q", "--no-header", "-m", SELECTED, *arguments]
    # The tree's own sources, and machine code of its own beside them.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    started = time.monotonic()
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", LIMITED.format(limit), *python], cwd=tree, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=max(0.0, ends - started))
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            code, said = None, ""
        with suppress(ProcessLookupError):  # and what the tests have started
            os.killpg(process.pid, signal.SIGKILL)
    return code, said, time.monotonic() - started


def try_mutant(tree: Path, mutant: Mutant, tests: list[str], limit: int, ends: float, *options: str) -> Verdict:
    """Return the verdict of these tests on one mutant; the tree is left as it was."""
    path = tree / mutant.file
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutant.applied(source), encoding="utf-8")
        return run_tests(tree, tests, limit, ends, *options)
    finally:
        path.write_text(source, encoding="utf-8")
