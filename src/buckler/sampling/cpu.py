"""Batches of noisy copies on the host: how they are made, run through the classifier and counted, with NumPy.

A backend holds the current inputs and the counts of their votes. The engine asks for draws and reads results only when
it calls ``settle``, so it does not wait for a device after each batch. ``device`` has the backend in torch.

``RepeatCheck`` tests whether a classifier is one function of its input, by running some rows a second time.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from buckler.errors import ClassifierError
from buckler.files import usable_cores
from buckler.noise import BaseNoise
from buckler.sampling.classifiers import Classifier
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, PhiloxNoise
from buckler.types import Float32Array, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class KeptScores:
    """Which scores of the draws to keep: ``score`` makes them of logits, ``sink`` is called with their rows in order.

    A row has a score for every class. With ``columns`` it has those of the classes ``columns[input]`` alone, and in
    place of the last entry, ``OTHERS``, the maximum over all other classes.
    """

    score: Callable[[Any], Any]
    sink: Callable[[Float32Array], None]
    columns: IntArray | None = None


def check_shape(shape: tuple[int, ...], rows: int, num_classes: int) -> None:
    """Raise ClassifierError unless ``shape``, that of logits, is ``(rows, num_classes)``."""
    if len(shape) != 2 or shape[0] != rows:
        hint = ": for one score a row, return np.stack([-score, score], axis=1)" if shape == (rows,) else ""
        raise ClassifierError(f"must return one row of logits for each of {rows} rows; got shape {tuple(shape)}{hint}")
    if shape[1] != num_classes:
        raise ClassifierError(f"must return {num_classes} classes; got {shape[1]}: pass num_classes={shape[1]}")


class Backend:
    """Runner of a classifier on batches of noisy copies, which counts votes: in NumPy, for all but torch modules."""

    out_of_memory: tuple[type[BaseException], ...] = (MemoryError,)

    def __init__(
        self, classifier: Classifier, *, noise: BaseNoise, num_classes: int, rows: int, workers: int | None = None
    ) -> None:
        """Hold a classifier and its noise, for batches of at most ``rows``, which the engine halves if memory runs out.

        ``workers`` threads make the noise, one for each processor if None.
        """
        self.rows = rows
        self._classifier, self._m = classifier, num_classes
        self._host_copies = NoisyCopies(noise, workers)
        # Kernels may round differently for another shape: noise without idealisation pads a short batch. So does a
        # compiled module, which is compiled for one shape.
        self._exact = noise.idealised is None
        self._one_shape = self._exact or classifier.compiled
        # Under noise that is computed with rounding, rows are compared once for a classifier and not in each call,
        # and never where another shape would be compiled anew.
        compare = self._exact or not (classifier.compared or classifier.compiled)
        self._repeats = RepeatCheck(self._run, self._reversed, exact=self._exact) if compare else None

    def load(self, x: Float32Array, addresses: Sequence[Address], slots: int, keep: KeptScores | None) -> None:
        """Store inputs, the addresses of their noise and which scores to keep (``keep``); set ``slots`` votes to 0."""
        self._x, self._addresses, self._keep = x, addresses, keep
        self._votes, self._bad = self._zeros(slots), self._zeros(len(x))
        self._columns = None if keep is None or keep.columns is None else self._send(keep.columns)
        self._rows: list[Any] = []

    def logits(self, part: Batch) -> Any:
        """Return the classifier's logits of the draws in a batch, one row each, after checking their shape and type."""
        rows = len(part)
        noisy = self._noisy(part, max(rows, self.rows) if self._one_shape else rows)
        # The classifier may overwrite its batch and reuse its output, and the rows may be run again.
        check = self._repeats if self._repeats is not None and self._repeats.wanted else None
        values = self._run(noisy if check is None else self._copied(noisy))
        if check is not None:
            values = self._copied(values)
            check.look(noisy, values)
        return values[:rows]

    def replayed(self) -> tuple[int, int]:
        """Return how many rows were run a second time in another batch, and how many of them gave other logits."""
        return (0, 0) if self._repeats is None else self._repeats.counts()

    def step(self, part: Batch, slots: IntArray) -> None:
        """Run the draws in a batch and count each row's vote, in the vote count ``slots[row] + class``."""
        logits = self.logits(part)
        finite = np.isfinite(logits).all(axis=1)
        if not finite.all():
            np.add.at(self._bad, part.inputs[~finite], 1)
            return
        keep, places = self._keep, slots + logits.argmax(axis=1)
        if keep is not None:
            scores = np.asarray(keep.score(logits), dtype=np.float32)
            columns = None if keep.columns is None else keep.columns[part.inputs]
            # A copy, since the classifier may reuse its output.
            self._rows.append(scores.copy() if columns is None else kept(scores, columns))
        # Count only after everything is computed: a batch that runs out of memory is drawn again.
        np.add.at(self._votes, places, 1)

    def settle(self) -> tuple[IntArray, list[Float32Array]]:
        """Return each input's number of rows with NaN or Inf logits, and the kept scores not yet returned."""
        rows, self._rows = self._rows, []
        return self._bad, rows

    def votes(self) -> IntArray:
        """Return the vote counts: as many numbers as ``load`` was told ``slots``."""
        return np.asarray(self._votes)

    def release(self) -> None:
        """Free cached memory after memory ran out: nothing to do here, since NumPy holds none."""

    def _noisy(self, part: Batch, total: int) -> Any:
        """Return the noisy copies of a batch, filled up with zeros to ``total`` rows."""
        noisy = np.zeros((total, *self._x.shape[1:]), dtype=np.float32)
        self._host_copies.write(noisy[: len(part)], part, self._x, self._addresses)
        return noisy

    def _run(self, noisy: Any) -> Any:
        values = np.asarray(self._classifier(noisy))
        check_shape(values.shape, len(noisy), self._m)
        if values.dtype.kind not in "iuf":
            raise ClassifierError(f"must return numbers; got dtype {values.dtype}")
        return values

    def _send(self, values: IntArray) -> Any:
        return values

    def _zeros(self, count: int) -> Any:
        return np.zeros(count, dtype=np.int64)

    @staticmethod
    def _copied(rows: Any) -> Any:
        return rows.copy()

    @staticmethod
    def _reversed(rows: Any) -> Any:
        return rows[::-1].copy()


WORTH_A_THREAD = 1 << 16
"""Values of a block from which on a thread makes it. Heuristic: affects speed alone."""

WORDS_AT_A_TIME = 1 << 21
"""Random words held at a time, 16 megabytes, but at least those of one copy. Heuristic: affects speed alone."""


class NoisyCopies:
    """Maker of batches of noisy copies on the host, with threads for whole blocks.

    A block depends on its address alone, so the copies do not depend on the threads.
    """

    def __init__(self, noise: BaseNoise, workers: int | None = None) -> None:
        """Make copies under ``noise`` in ``workers`` threads, one for each processor of this process if None."""
        self._noise = noise
        self._spread = noise.spread if noise.draws == "gaussian" else None
        self._workers = workers or usable_cores()
        self._philox = PhiloxNoise()
        self._pool: ThreadPoolExecutor | None = None

    def write(self, out: Float32Array, part: Batch, x: Float32Array, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch of the inputs ``x`` into ``out``, one row each."""
        whole: list[tuple[Float32Array, Address, Float32Array]] = []
        for some, position, block, low in part.pieces():
            rows, address = out[some], addresses[position].at(block)
            if len(rows) == NOISE_BLOCK and self._workers > 1 and rows.size >= WORTH_A_THREAD:
                whole.append((rows, address, x[position]))
            else:
                # No thread: the generator keeps its place in a block that the next batch continues.
                self._fill(self._philox, rows, address, x[position], low)
        if whole:
            self._pool = self._pool or ThreadPoolExecutor(self._workers)
            for filled in [self._pool.submit(self._fill, PhiloxNoise(), *block, 0) for block in whole]:
                filled.result()

    def _fill(self, philox: PhiloxNoise, rows: Float32Array, address: Address, x: Float32Array, low: int) -> None:
        if self._spread is not None:
            philox.fill(rows, address, low)
            rows *= self._spread
            rows += x
            return
        step = max(1, WORDS_AT_A_TIME // x.size)
        for a in range(0, len(rows), step):
            some = rows[a : a + step]
            if self._noise.draws == "numbers":
                first = address.block * NOISE_BLOCK + low + a
                some[...] = self._noise.numbered(x, np.arange(first, first + len(some)))
            else:
                words = philox.words(address, len(some), self._noise.words(x.shape), low + a)
                some[...] = self._noise.noisy(x, words)


def kept(scores: Float32Array, columns: IntArray) -> Float32Array:
    """Return the scores of the classes in ``columns[:, :-1]``, row by row, then the maximum of all other classes.

    The last entry of each row of ``columns`` is ``OTHERS``, in the place of that maximum; scores are at least 0.
    """
    named = columns[:, :-1]
    rest = scores.copy()
    np.put_along_axis(rest, named, np.float32(0.0), axis=1)
    return np.concatenate([np.take_along_axis(scores, named, axis=1), rest.max(axis=1, keepdims=True)], axis=1)


EVERY = 128
"""One batch in so many is run again, which takes less than a hundredth of the time."""

KEPT = 64
"""Largest number of rows of an earlier batch that replace rows of a batch that is run again."""

ROWS_RUN_ALONE = 8
"""Rows of the first batch that are run again, alone, under noise that is computed with rounding."""

LOGIT_RANGE_SHARE, LARGEST_LOGIT_SHARE = 0.05, 1e-4
"""How far logits may differ when rows are run again alone: these shares of their range and of the largest one, added. A
warning depends on it."""


class RepeatCheck:
    """Counter of rows run a second time and of rows whose logits differ, for arrays of NumPy or torch.

    If ``exact``, logits must be equal, and one batch in ``EVERY`` is run again in reverse order, with rows of an
    earlier batch in the place of some: rows have other places and other neighbours. Otherwise ``ROWS_RUN_ALONE`` rows
    of the first batch are run again alone, and their logits may differ by rounding (``LOGIT_RANGE_SHARE``). Equal
    logits are evidence and no proof.
    """

    def __init__(self, run: Callable[[Any], Any], reverse: Callable[[Any], Any], *, exact: bool) -> None:
        """Take functions, ``run(batch)`` -> logits and ``reverse(rows)`` -> a copy of them in reverse order."""
        self._run, self._reverse, self._exact = run, reverse, exact
        self._batches, self._differed, self._compared = 0, 0, 0
        self._kept: tuple[Any, Any] | None = None
        self._last: tuple[Any, Any] | None = None

    @property
    def wanted(self) -> bool:
        """Whether ``look`` needs the next batch: a classifier must then be given a copy, which it may overwrite."""
        return self._exact or self._batches == 0

    def look(self, batch: Any, logits: Any) -> None:
        """Take a batch and its logits, and run rows of it again if it is their turn."""
        if not self._exact:
            rows = max(1, min(ROWS_RUN_ALONE, len(batch) // 2))
            self._compare(self._reverse(batch[:rows]), self._reverse(logits[:rows]))
        else:
            self._last = batch, logits
            if self._batches % EVERY == 1:
                self._again()
            if self._batches % EVERY == 0:
                rows = max(1, min(KEPT, len(batch) // 2))
                # Copies, so that the batch can be freed.
                self._kept = self._reverse(batch[:rows]), self._reverse(logits[:rows])
        self._batches += 1

    def _again(self) -> None:
        assert self._last is not None  # noqa: S101  (set by look)
        batch, logits = map(self._reverse, self._last)
        if self._kept is not None and self._kept[0].shape[1:] == batch.shape[1:]:
            rows = len(self._kept[0])
            batch[:rows], logits[:rows] = self._kept
        self._compare(batch, logits)

    def _compare(self, batch: Any, logits: Any) -> None:
        again = self._run(batch)
        if self._exact:
            differs = again != logits
        else:
            with np.errstate(invalid="ignore"):  # infinite logits are an error that the engine names
                rounding = LOGIT_RANGE_SHARE * (logits.max() - logits.min()) + LARGEST_LOGIT_SHARE * abs(logits).max()
                differs = abs(again - logits) > rounding
        # On a device the sum is computed asynchronously; reading it waits.
        self._differed = self._differed + differs.any(1).sum()
        self._compared += len(batch)

    def counts(self) -> tuple[int, int]:
        """Return how many rows were run again, and how many of them gave other logits.

        If none was run again yet, the last batch is run again now.
        """
        if self._compared == 0 and self._last is not None:
            self._again()
        self._last = None
        return self._compared, int(self._differed)
