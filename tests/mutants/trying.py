"""The tests of a mutant's room, then the audits, in a copy of the tree that holds the mutant."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant

ROOMS = {
    "src/buckler/bounds/": ["tests/bounds"],
    "src/buckler/certify/": ["tests/certify"],
    "src/buckler/laws/": ["tests/laws", "tests/certify"],
    "src/buckler/evaluate/": ["tests/evaluate/test_curves.py"],
    "src/buckler/runs/": ["tests/runs", "tests/faults", "tests/hostile"],
    "src/buckler/sampling/": ["tests/sampling/test_noise.py", "tests/sampling/test_engine.py"],
}
"""Where the tests of a room lie."""

AUDITED = ("src/buckler/bounds/", "src/buckler/certify/", "src/buckler/laws/")
AUDITS = "tests/audit"
NEVER_COPIED = ("evidence/", "models/", "site/")
"""Large, and no test of these rooms reads them."""

LONGEST = 900.0
"""Seconds of one step, after which the mutant is taken to loop for ever, which is noticed."""
STOP = 10.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the tests noticed: ``found`` names the test that did, or is empty."""

    found: str
    seconds: float


def steps(root: Path, file: str) -> list[list[str]]:
    """Return which tests to run one after the other: those that name the module, the rest of the room, the audits.

    The doctests of the module come first, beside those that name it.
    """
    folders = next(where for room, where in ROOMS.items() if file.startswith(room))
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    named = re.compile(rf"\b{re.escape(module)}\b|\bfrom {re.escape(package)} import .*\b{name}\b")
    files = [test for folder in folders for test in _test_files(root / folder)]
    near = [test for test in files if named.search(test.read_text()) or test.stem == f"test_{name}"]
    # The test named after the module is the likeliest to notice.
    near.sort(key=lambda test: test.stem != f"test_{name}")
    far = [test for test in files if test not in near]
    found = [[file, *_names(root, near)], _names(root, far)]
    if file.startswith(AUDITED):
        found.append(_names(root, _test_files(root / AUDITS)))
    return [step for step in found if step]


def _test_files(place: Path) -> list[Path]:
    return sorted(place.glob("test_*.py")) if place.is_dir() else [place]


def _names(root: Path, paths: list[Path]) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def copy_tree(root: Path, to: Path) -> None:
    """Copy what git would keep of the tree, without what is large and not read here."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")  # noqa: S603
    for name in names:
        if name and not name.startswith(NEVER_COPIED) and (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def run_tests(tree: Path, tests: list[str]) -> Verdict:
    """Run these tests in a tree until the first failure."""
    python = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *tests]
    # The tree's own sources, and machine code of its own beside them.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    started = time.monotonic()
    with subprocess.Popen(  # noqa: S603
        python, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=STOP)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return Verdict("no end", time.monotonic() - started)
    seconds = time.monotonic() - started
    if process.returncode == 0:
        return Verdict("", seconds)
    if process.returncode not in {1, 2, 3, -signal.SIGSEGV, -signal.SIGABRT}:
        raise RuntimeError(f"pytest ended with {process.returncode} on {tests}:\n{said[-3000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return Verdict(failed[0] if failed else f"pytest ended with {process.returncode}", seconds)


def try_mutant(tree: Path, mutant: Mutant, tests: list[str]) -> Verdict:
    """Return the verdict of these tests on one mutant; the tree is left as it was."""
    path = tree / mutant.file
    source = path.read_text()
    try:
        path.write_text(mutant.applied(source))
        return run_tests(tree, tests)
    finally:
        path.write_text(source)
