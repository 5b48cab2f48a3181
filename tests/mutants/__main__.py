"""One-token mutants of what certificates rest on, and whether the tests notice: ``python -m tests.mutants --help``.

A mutant is the source with one operator, constant or name changed; a test suite that stays green on it does not look
there. ``making`` makes them, ``trying`` runs the tests of the mutant's room and then the audits in a copy of the tree,
``excuses.toml`` says which of those that live may, and why.

Why not mutmut or cosmic-ray. mutmut 3 writes all mutants of a function into one module behind a switch that is read
when the function is called: numba compiles what it sees once, and keeps the code in a folder named by a digest of the
sources, which would be the same for every mutant, so all of them would run the code of the first. cosmic-ray edits
the one tree in place, beside which that folder lies, runs one command for every mutant, and needs a server for each
further process. Here each process has a tree of its own, a mutant of a kernel has sources, digest and code of its
own, and a test file that is likely to notice runs before an audit of minutes.

The command tries a sample of mutants by a seed, or all, and prints those that lived, with their lines; its exit code is
1 if one is not excused. Verdicts are kept in a file of JSON lines, and a mutant whose verdict is known is not tried
again: an interrupted run goes on where it was. A verdict that a mutant lived holds for the tests of its day;
``--again`` tries those anew.
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

from tests.mutants.making import Excuse, Mutant, all_mutants, read_excuses
from tests.mutants.trying import LONG, MOST_STEPS, SHORT, copy_tree, failing, steps, try_mutant

ROOT = Path(__file__).parents[2]


def asked() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="how many mutants to try; all unless told")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--minutes", type=float, help="end after this long")
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
    known = {key: entry for key, entry in read(options.results).items() if entry["found"] or not options.again}
    sample = chosen(options)
    excused = {m.key for m in sample if any(excuse.covers(m) for excuse in excuses)}
    waiting = [m for m in sample if m.key not in excused]
    plans = {file: steps(ROOT, file) for file in {m.file for m in waiting}}
    print(f"{len(sample)} mutants, {len(excused)} of them excused", flush=True)
    ends = inf if options.minutes is None else time.monotonic() + 60.0 * options.minutes
    lock = threading.Lock()
    trees: Queue[Path] = Queue()
    sound: dict[str, list[str]] = {}

    def prove(test: str) -> None:
        tree = trees.get()
        sound[test] = failing(tree, test) if time.monotonic() < ends else [test]
        trees.put(tree)
        if sound[test]:
            print(f"fails on the tree as it is, and is left out: {' '.join(sound[test])}", flush=True)

    def one(mutant: Mutant, depth: int) -> None:
        if time.monotonic() > ends:
            return
        plan = plans[mutant.file]
        tests = [test for test in plan[depth] if test not in sound.get(test, [])]
        without = [f"--deselect={name}" for test in tests for name in sound.get(test, [])]
        tree = trees.get()
        try:
            verdict = try_mutant(tree, mutant, tests, LONG if depth else SHORT, ends, *without)
        finally:
            trees.put(tree)
        if verdict.found is None:
            return
        entry = {
            "key": mutant.key, "file": mutant.file, "line": mutant.line, "text": mutant.text, "change": mutant.change,
            "found": verdict.found, "passed": depth if verdict.found else depth + 1, "steps": len(plan),
            "seconds": round(known.get(mutant.key, {"seconds": 0.0})["seconds"] + verdict.seconds, 1),
        }  # fmt: skip
        with lock, options.results.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            known[mutant.key] = entry
            print(f"{verdict.found or f'passed {depth + 1} of {len(plan)}':60}  {where(mutant)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for job in range(options.jobs):
            copy_tree(ROOT, Path(folder) / str(job))
            trees.put(Path(folder) / str(job))
        for depth in range(MOST_STEPS):  # the short step of all before the long one of any
            now = [m for m in waiting if (stage(known.get(m.key)) == depth < len(plans[m.file]))]
            if not options.unproved:
                list(pool.map(prove, sorted({test for m in now for test in plans[m.file][depth]} - set(sound))))
            list(pool.map(one, now, repeat(depth)))
    old = lapsed(excuses)
    for excuse in old:
        print(f"an excuse that fits no mutant any more: {excuse.function}: {excuse.changes}")
    return report(sample, excused, known) or int(bool(old))


def lapsed(excuses: list[Excuse]) -> list[Excuse]:
    """Return the excuses of which a change is not a mutant any more."""
    there = {(mutant.function, mutant.change) for mutant in all_mutants(ROOT)}
    return [e for e in excuses if any((e.function, change) not in there for change in e.changes)]


def read(results: Path) -> dict[str, dict[str, Any]]:
    """Return the last verdict on each mutant; a line that was cut off by a kill is removed."""
    results.parent.mkdir(parents=True, exist_ok=True)
    text = results.read_text() if results.exists() else ""
    if not text.endswith("\n") and text:
        text = text[: text.rfind("\n") + 1]
        results.write_text(text)
    return {entry["key"]: entry for entry in map(json.loads, text.splitlines())}


def stage(entry: dict[str, Any] | None) -> int:
    """Return which step is next for a mutant; none after it was found."""
    return MOST_STEPS if entry and entry["found"] else int(entry["passed"]) if entry else 0


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
    total = Counter(state for (_, state), number in counts.items() for _ in range(number))
    tried = total["found"] + total["lived"] + total["open"]
    print(f"\nfound: {total['found']} of {tried} tried ({total['found'] / max(1, tried):.1%});", end=" ")
    print(f"excused: {total['excused']} of {len(sample)} ({total['excused'] / max(1, len(sample)):.1%})")
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
