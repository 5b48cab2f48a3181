"""The command: a sample of mutants by a seed, or all; what lived, with its line; exit code 1 if one is not excused.

Verdicts are kept in a file of JSON lines, and a mutant whose verdict is known is not tried again: an interrupted run
goes on where it was. A verdict that a mutant lived holds for the tests of its day; ``--again`` tries those anew.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from math import inf
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutants.excuses import read_excuses
from tests.mutants.making import Mutant, all_mutants
from tests.mutants.trying import copy_tree, run_tests, steps, try_mutant

ROOT = Path(__file__).parents[2]
MOST_STEPS = 3


def asked() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="how many mutants to try; all unless told")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--minutes", type=float, help="start no further mutant after this long")
    parser.add_argument("--only", action="append", default=[], help="files that start with this, below src/buckler/")
    parser.add_argument("--line", action="append", default=[], help="lines that hold this text")
    parser.add_argument("--again", action="store_true", help="try those anew that lived")
    parser.add_argument("--unproved", action="store_true", help="do not first run the tests on the tree as it is")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes, each with a copy of the tree")
    parser.add_argument("--results", type=Path, default=ROOT / ".mutants" / "results.jsonl")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Return the sample: mutants in an order that the seed alone decides, so that a larger one holds the smaller."""

    def place(mutant: Mutant) -> bytes:
        return hashlib.blake2b(f"{options.seed} {mutant.key}".encode()).digest()

    prefixes = tuple(f"src/buckler/{name}" for name in options.only)
    mutants = [m for m in all_mutants(ROOT) if not prefixes or m.file.startswith(prefixes)]
    mutants = [m for m in mutants if not options.line or any(text in m.text for text in options.line)]
    return sorted(mutants, key=place)[: options.sample]


def main() -> int:
    """Try the sample; print a line for each verdict and the table of those that lived."""
    options = asked()
    excuses = read_excuses()
    results: Path = options.results
    results.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, dict[str, Any]] = {}
    if results.exists():
        known = {entry["key"]: entry for entry in map(json.loads, results.read_text().splitlines())}
    sample = chosen(options)
    if options.again:
        known = {key: entry for key, entry in known.items() if entry["found"]}
    excused = {m.key for m in sample if any(excuse.covers(m) for excuse in excuses)}
    waiting = [m for m in sample if m.key not in excused]
    print(f"{len(sample)} mutants, {len(excused)} of them excused", flush=True)
    ends = time.monotonic() + 60.0 * options.minutes if options.minutes else inf
    lock = threading.Lock()
    proved: set[str] = set()
    trees: Queue[Path] = Queue()

    def one(mutant: Mutant, depth: int) -> None:
        entry = known.get(mutant.key, {"found": "", "passed": 0, "seconds": 0.0})
        plan = steps(ROOT, mutant.file)
        if time.monotonic() > ends or entry["found"] or entry["passed"] != depth or depth >= len(plan):
            return
        tree = trees.get()
        try:
            if not options.unproved:
                prove(tree, mutant.file, plan[depth], proved)
            verdict = try_mutant(tree, mutant, plan[depth])
        finally:
            trees.put(tree)
        entry = {
            "key": mutant.key, "file": mutant.file, "line": mutant.line, "text": mutant.text, "change": mutant.change,
            "found": verdict.found, "passed": depth if verdict.found else depth + 1, "steps": len(plan),
            "seconds": round(entry["seconds"] + verdict.seconds, 1),
        }  # fmt: skip
        with lock, results.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            known[mutant.key] = entry
            print(f"{verdict.found or f'passed {depth + 1} of {len(plan)}':60}  {where(mutant)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for job in range(options.jobs):
            copy_tree(ROOT, Path(folder) / str(job))
            trees.put(Path(folder) / str(job))
        with ThreadPoolExecutor(options.jobs) as pool:
            for depth in range(MOST_STEPS):  # the short step of all before the long one of any
                list(pool.map(one, waiting, repeat(depth)))
    return report(sample, excused, known)


def prove(tree: Path, file: str, tests: list[str], proved: set[str]) -> None:
    """Run tests on the tree as it is, once: those that fail on it would find every mutant."""
    name = " ".join(test for test in tests if test != file)
    if name not in proved and (verdict := run_tests(tree, tests)).found:
        raise SystemExit(f"{verdict.found} fails on the tree as it is: no verdict on mutants can be had")
    proved.add(name)


def where(mutant: Mutant) -> str:
    """Return the place and the change."""
    return f"{mutant.file.removeprefix('src/buckler/')}:{mutant.line}: {mutant.change}: {mutant.text}"


def report(sample: list[Mutant], excused: set[str], known: dict[str, dict[str, Any]]) -> int:
    """Print how many were found, room by room, and the lines of those that lived; return 1 if there are such.

    *open* are those that passed some of the tests and have others to come, *left* those not tried.
    """
    counts: Counter[tuple[str, str]] = Counter()
    living = []
    for mutant in sample:
        room = "/".join(mutant.file.removeprefix("src/buckler/").split("/")[:-1])
        state = "excused" if mutant.key in excused else state_of(known.get(mutant.key))
        counts[room, state] += 1
        if state in {"lived", "open"}:
            living.append((state, mutant))
    states = ("found", "lived", "excused", "open", "left")
    print(f"\n{'room':20}" + "".join(f"{state:>9}" for state in states))
    for room in sorted({room for room, _ in counts}):
        print(f"{room:20}" + "".join(f"{counts[room, state]:9}" for state in states))
    if living:
        print("\nnot found and without an excuse:")
        print("\n".join(sorted(f"  {state:6}{where(mutant)}" for state, mutant in living)))
    return 1 if any(state == "lived" for state, _ in living) else 0


def state_of(entry: dict[str, Any] | None) -> str:
    """Return how a mutant stands by what is known of it."""
    if entry is None:
        return "left"
    if entry["found"]:
        return "found"
    return "lived" if entry["passed"] == entry["steps"] else "open"


if __name__ == "__main__":
    sys.exit(main())
