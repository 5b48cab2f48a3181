"""Merging killed at each step: ``python compact_killed.py RUN PLACE`` merges copies PLACE/0, PLACE/1, ... of a run.

The k-th copy's process is killed right before its k-th rename, removal or flush; a fresh copy is merged by a fresh
child until one of them comes to its end. Prints the steps at which they were killed, as JSON.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from buckler.runs.store.writer import compact


def killed_at(home: Path, number: int, told: int) -> None:
    """Merge, but end the process without a word before step ``number``, and say on ``told`` which step it was."""
    left = number

    def hooked(name: str, call: Any, of: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if of(arguments[0]).startswith(".lock"):
                return call(*arguments, **options)
            if left == 0:
                os.write(told, f"{name} {of(arguments[0])}".encode())
                os._exit(9)
            left -= 1
            return call(*arguments, **options)

        return step

    path_type: Any = Path
    path_type.replace = hooked("replace", Path.replace, lambda path: path.name)
    path_type.unlink = hooked("unlink", Path.unlink, lambda path: path.name)
    os.fsync = hooked("fsync", os.fsync, lambda _: "")
    compact(home)


def main(run: Path, place: Path) -> None:
    """Fork a child for each step; this process itself starts no threads, so that forking it is safe."""
    steps: list[str] = []
    while True:
        home = place / str(len(steps))
        shutil.copytree(run, home)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                killed_at(home, len(steps), write)
            except BaseException as problem:  # a child must never come back here
                print(repr(problem), file=sys.stderr)
                os._exit(1)
            os._exit(0)
        os.close(write)
        said = os.read(read, 200).decode()
        os.close(read)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            break
        if code != 9:
            raise SystemExit(f"the child ended with {code}")
        steps.append(said)
    print(json.dumps(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
