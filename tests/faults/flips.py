"""Flips bits of tables and reads them: ``python -m tests.faults.flips FOLDER FLIPS`` prints what came of it as JSON.

It runs apart, since a reader that ends the process would end the tests with it.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import buckler
from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.errors import BucklerError
from buckler.noise import Gaussian
from buckler.runs.store.tables import (
    Drawing,
    read_certificates,
    read_decisions,
    read_origin,
    write_certificates,
    write_decisions,
)

LABELS = np.arange(30) % 2


def _certificates(path: Path) -> object:
    made = read_certificates(path)
    return list(made), None if made.labels is None else made.labels.tolist(), read_origin(path)


def main(home: Path, flips: int) -> dict[str, int]:
    """Return how many flips were refused, made no difference, and were accepted with other content."""
    k = np.random.default_rng(0).integers(500, 1000, 30)
    ids = [f"input {i}" for i in range(30)]
    made = buckler.certify_votes(np.stack([k, 1000 - k], axis=1), sigma=0.5, labels=LABELS, ids=ids)
    write_certificates(home / "c.parquet", made, {"alpha": 1e-3}, LABELS)
    test = AnytimeTest(Ladder((0.1,), Gaussian(0.5)), [0] * 30, 3)
    test.update(range(30), np.stack([k // 10, 100 - k // 10, 0 * k], axis=1))
    model = {"answers": "a", "weights": {}, "environment": {}}
    decided = [test.decided(i, ids[i]) for i in range(30)]
    write_decisions(home / "d.parquet", decided, [Drawing("hash", 0)] * 30, {"drawn_by": [model]}, LABELS)
    chance, found = random.Random(0), Counter[str]()  # noqa: S311
    for name, read in (("c.parquet", _certificates), ("d.parquet", read_decisions)):
        whole, expected = (home / name).read_bytes(), read(home / name)
        footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        for number in range(flips):
            # Half of the flips are in the footer, which no page checksum covers.
            at = chance.randrange(footer if number % 2 else 0, len(whole))
            broken = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
            (home / "broken.parquet").write_bytes(broken)
            try:
                found["the same" if read(home / "broken.parquet") == expected else "accepted"] += 1
            except BucklerError:
                found["refused"] += 1
    return dict(found)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
