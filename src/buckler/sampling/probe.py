"""What a classifier answers to a small fixed batch: how a run knows its model again.

The batch holds addressed noise around a few inputs of the run, the first and the last among them, under the run's own
law. The noise is always that of the CPU (``philox``), so that the batch is the same on every machine. Weights,
source code and settings are never looked at: whatever changes an answer is seen, and whatever does not is no change.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from buckler.sampling.classifiers import Classifier
from buckler.sampling.engine import Engine
from buckler.sampling.streams import content_id
from buckler.types import Float32Array, Law

INPUTS = 8
"""Inputs that are asked about, at most: spread evenly from the first to the last."""

DRAWS = 4
"""Noisy copies of each."""

CLOSE = {"float32": 1e-2, "float16": 1e-2, "bfloat16": 1e-1}
"""How far the answers of one model may lie apart in two environments, as a share of the largest logit.

A product keeps 11 bits in float16, and in float32 where a GPU multiplies it as TF32; 8 in bfloat16. The shipped
networks of 110 layers move by 0.0010 in float16 and 0.017 in bfloat16 (``benchmarks/probe_distance.py``); these limits
are some six to ten times that, for deeper ones. They are for environments that differ: in one and the same, answers
must be equal to the bit.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Logits ``[inputs * DRAWS, m]`` of the batch, its inputs with hashes of their values, and whether they repeat."""

    inputs: Mapping[str, str]
    logits: Float32Array
    repeatable: bool

    @property
    def hash(self) -> str:
        """A name for these answers; all classifiers that do not repeat theirs share one."""
        if not self.repeatable:
            return "answers:not-repeatable"
        shape = repr(self.logits.shape).encode()
        return "answers:" + hashlib.sha256(shape + self.logits.astype("<f4").tobytes()).hexdigest()

    def distance(self, other: "Answers") -> tuple[float, str]:
        """Return the largest difference of two logits, and at which input; infinite where the shapes differ."""
        if self.logits.shape != other.logits.shape:
            return np.inf, next(iter(self.inputs), "")
        apart = np.abs(self.logits.astype(np.float64) - other.logits).max(axis=1)
        row = int(apart.argmax())
        return float(apart[row]), list(self.inputs)[row // DRAWS]

    def is_close(self, other: "Answers", dtype: str) -> bool:
        """Return whether the two may be one model that was rounded differently."""
        return self.distance(other)[0] <= CLOSE[dtype] * float(np.abs(self.logits).max())

    def as_dict(self) -> dict[str, Any]:
        """Return the answers for a JSON file, the logits as the bytes of little-endian float32."""
        return {
            "inputs": [list(pair) for pair in self.inputs.items()],
            "shape": list(self.logits.shape),
            "logits": b64encode(self.logits.astype("<f4").tobytes()).decode("ascii"),
            "repeatable": self.repeatable,
        }


def answers_from(values: Any) -> Answers:
    """Return what ``as_dict`` wrote; anything else is a ValueError."""
    try:
        rows, m = (int(side) for side in values["shape"])
        logits = np.frombuffer(b64decode(values["logits"], validate=True), dtype="<f4").reshape(rows, m)
        inputs = {str(name): str(content) for name, content in values["inputs"]}
        repeatable = values["repeatable"]
    except (TypeError, KeyError, AttributeError, OverflowError) as problem:
        raise ValueError(f"not the answers of a classifier: {problem}") from None
    if rows != len(inputs) * DRAWS or rows == 0 or not isinstance(repeatable, bool) or not np.isfinite(logits).all():
        raise ValueError("not the answers of a classifier")
    return Answers(inputs, logits.astype(np.float32), repeatable)


def probed(count: int) -> list[int]:
    """Return the positions of the inputs to ask about, of ``count``.

    >>> probed(3), probed(1000)
    ([0, 1, 2], [0, 143, 285, 428, 571, 714, 856, 999])
    """
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, INPUTS)).tolist()})


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """The batch, to be asked wherever the classifier is."""

    ids: tuple[str, ...]
    x: Float32Array
    law: Law
    num_classes: int
    seed: int
    batch_size: int

    def ask(self, classifier: Classifier, threads: int | None = None, times: int = 1) -> Answers:
        """Return what a classifier answers, asked ``times`` times: it repeats itself if all answers are the same."""
        engine = Engine(
            classifier,
            law=self.law,
            num_classes=self.num_classes,
            seed=self.seed,
            batch_size=self.batch_size,
            noise="philox",
            workers=threads,
        )
        with engine.session():
            # Selection draws like any other; they decide nothing here.
            asked = [engine.scores(self.x, self.ids, "selection", DRAWS, lambda logits: logits) for _ in range(times)]
        heard = [rows.reshape(-1, self.num_classes).astype(np.float32) for rows in asked]
        inputs = {name: content_id(row) for name, row in zip(self.ids, self.x, strict=True)}
        return Answers(inputs, heard[0], all(np.array_equal(heard[0], again) for again in heard[1:]))
