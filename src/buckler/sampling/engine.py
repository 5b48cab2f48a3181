"""Noisy copies through the classifier, votes counted, scores kept: the one loop that everything else calls.

Batches are filled across inputs. Which draws share a batch follows from the request alone, so the same request on the
same kind of hardware gives the same bytes.

When a device runs out of memory the batch is halved and drawing goes on: the noise is the same, but kernels may round
differently for another batch shape, so ``Engine.rows`` tells what was used and a run writes it down.

``draw_until_decided`` draws for inputs until a ``Decider`` needs no more draws of any. It gathers the draws that it
asks for into shared batches, and an input that needs no more makes room for the next one waiting, so the device stays
full as inputs finish. The ``Decider`` gets the votes of an input in stream order and in the sizes it asked for,
whatever the scheduling: its decision is a function of that input alone (for a classifier whose rows do not depend on
one another).
"""

import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, get_args

import numpy as np

from buckler.errors import (
    BucklerWarning,
    ClassifierError,
    InvalidInput,
    check_choice,
    check_whole,
    check_whole_array,
    show,
)
from buckler.noise import as_noise
from buckler.sampling.classifiers import Classifier, failure_hint
from buckler.sampling.cpu import Backend, KeptScores
from buckler.sampling.preprocess import to_float32
from buckler.sampling.simplex import ScoreMap
from buckler.sampling.streams import (
    Batch,
    GeneratorKind,
    Request,
    Stream,
    batches,
    check_address,
    check_ids,
    input_name,
)
from buckler.types import ArrayLike, BoolArray, Float32Array, FloatArray, IntArray, Noise

BATCH_SIZE = 512
"""Rows of a batch by default: right for small networks on a CPU; a large device needs a few thousand."""

MOST_VALUES = 2**28
"""Values of one input at most. What imperfect random numbers take from alpha is computed for no more (T24)."""

GROUP, LONGEST_GROUP = 16, 1.0
"""Most batches, and about the most seconds, after which the engine waits for the device and reads its results."""

ROUND = 4
"""Most batches in a round of ``draw_until_decided``, unless one request is larger."""

OTHER_LOGITS = (
    "the model gave some inputs other logits when it was run on them again in another batch. If its answer to a row "
    "depends on the other rows (batch statistics, random numbers shared by a batch), its certificates do not hold. If "
    "it draws fresh random numbers for each row, they hold for the average over these (see 'A model that is random' in "
    "docs/guarantees.md)"
)
"""Warning about a model that is not one function of its input, under noise that is computed with rounding."""

_Result = TypeVar("_Result")


class Engine:
    """Sampler of one classifier under one noise (Gaussian, if ``sigma`` is given) and seed: counts votes, keeps scores.

    Call its methods inside ``with engine.session()``.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        sigma: float | None = None,
        noise: Noise | None = None,
        num_classes: int | None = None,
        seed: int = 0,
        batch_size: int = BATCH_SIZE,
        generator: GeneratorKind | None = None,
        workers: int | None = None,
    ) -> None:
        """Check the arguments and open a backend; exactly one of ``sigma`` and ``noise`` is given.

        ``generator`` defaults to ``cuda``, the device's own, for Gaussian noise on CUDA, and to ``philox`` otherwise.
        ``workers`` threads make noise on the host, one for each processor if None; the draws are the same.
        """
        self.noise = as_noise(sigma, noise)
        for wanted in classifier.denoiser_sigmas:
            if self.noise.parameters.get("sigma", wanted) != wanted:
                raise InvalidInput(f"sigma must be {wanted:g}, which the denoiser is told; got {self.noise.describe()}")
        m = classifier.num_classes if num_classes is None else num_classes
        if m is None:
            raise InvalidInput("num_classes must be given: it cannot be inferred from this model")
        self.num_classes = check_whole("num_classes", m, 2)
        self.seed = check_address(seed, "any", "selection").seed
        on_cuda, normal = classifier.device.startswith("cuda"), self.noise.draws == "gaussian"
        self.generator: GeneratorKind = generator or ("cuda" if on_cuda and normal else "philox")
        if check_choice("generator", self.generator, get_args(GeneratorKind)) == "cuda" and not (on_cuda and normal):
            where = f"{self.noise.describe()} on {classifier.device!r}"
            raise InvalidInput(f"generator must be 'philox' for {where}; got 'cuda'")
        self._batch_size = check_whole("batch_size", batch_size, 1)
        self.classifier = classifier
        self._inputs: Float32Array = np.zeros((0, 0), dtype=np.float32)
        self._warned = False
        how: dict[str, Any] = {"noise": self.noise, "num_classes": self.num_classes, "rows": self._batch_size}
        how["workers"] = None if workers is None else check_whole("workers", workers, 1)
        if classifier.backend == "torch":
            from buckler.sampling.device import TorchBackend

            self._backend: Backend = TorchBackend(classifier, generator=self.generator, **how)
        else:
            self._backend = Backend(classifier, **how)

    @property
    def rows(self) -> int:
        """Rows of a batch: ``batch_size``, halved each time that memory ran out."""
        return self._backend.rows

    @contextmanager
    def session(self) -> Iterator[None]:
        """Prepare the classifier for drawing, a torch module by eval mode, and restore it at the end.

        At the end it warns, once, if rows gave other logits when they were run again in another batch. Under noise that
        is exact in floating point any difference counts; under other noise, only one larger than rounding explains.
        """
        with self.classifier.session():
            yield
            compared, differed = self._backend.replayed()
        if compared:
            self.classifier.compared = True
        if differed and not self._warned:
            self._warned = True
            said = OTHER_LOGITS
            if self.noise.idealised is None:
                what = f"certificates under {self.noise.describe()} hold for an idealisation of it alone"
                said = f"{self._not_one_function(compared, differed)}; {what}"
            warnings.warn(said, BucklerWarning, stacklevel=3)

    @staticmethod
    def _not_one_function(compared: int, differed: int) -> str:
        return (
            f"the classifier is not one function of its input: {differed} of {compared} rows gave other logits when "
            "run again in another batch"
        )

    def replayed(self) -> tuple[int, int]:
        """Return how many rows were run again at other places among other rows, and how many gave other logits.

        Rows are counted under noise that is exact in floating point; under other noise it returns (0, 0).
        """
        return self._backend.replayed() if self.noise.idealised is None else (0, 0)

    def steps(
        self,
        x: ArrayLike,
        ids: Sequence[str],
        stream: Stream,
        requests: Iterable[Request],
        *,
        checkpoints: Sequence[int] = (2**62,),
        keep: KeptScores | None = None,
    ) -> Generator[int, None, IntArray]:
        """Make the requested draws in ``stream``; yield how many each group of batches made, and return their votes.

        Votes ``[inputs, segments, classes]`` are counted in segments: draw i of an input counts in the first segment
        whose checkpoint is above i, by default in a single one. Requests name inputs by their row in ``x``; ``ids``
        are their ids. With ``keep``, ``keep.sink`` is called with the scores in the order of the requests, a group of
        batches at a time, so memory does not grow with the number of draws.
        """
        inputs = check_inputs(x, ids, self.noise)
        for name, one in zip(ids, inputs, strict=True):
            try:
                self.noise.check_input(one)
            except InvalidInput as problem:
                raise InvalidInput(f"{input_name(name)}: {problem}") from None
        addresses = [check_address(self.seed, name, stream) for name in ids]
        edges = np.asarray(checkpoints, dtype=np.int64)
        m, segments = self.num_classes, len(edges)
        self._inputs = inputs
        self._backend.load(inputs, addresses, len(inputs) * segments * m, keep)
        pending, done, since = 0, 0, time.monotonic()
        for batch in batches(requests, self._batch_size):
            slots = (batch.inputs * segments + np.searchsorted(edges, batch.draws, side="right")) * m
            self._step(batch, slots, ids)
            done += len(batch)
            pending += 1
            if pending == GROUP or time.monotonic() - since > LONGEST_GROUP:
                self._settle(ids, keep)
                yield done
                pending, done, since = 0, 0, time.monotonic()
        self._settle(ids, keep)
        if done:
            yield done
        if self.noise.total is not None:
            compared, differed = self._backend.replayed()
            if differed:
                raise ClassifierError(self._not_one_function(compared, differed) + "; alpha = 0 needs one function")
        return self._backend.votes().reshape(len(inputs), segments, m)

    def draw(
        self, x: ArrayLike, ids: Sequence[str], stream: Stream, requests: Iterable[Request], **options: Any
    ) -> IntArray:
        """Return the votes ``[inputs, segments, classes]`` of the requested draws; ``options`` are as in ``steps``."""
        return exhaust(self.steps(x, ids, stream, requests, **options))

    def votes(self, x: ArrayLike, ids: Sequence[str], stream: Stream, n: int, start: int = 0) -> IntArray:
        """Return the votes ``[inputs, classes]`` of draws ``start, ..., start + n - 1`` of every input.

        The noise is a function of (seed, id, stream) and the number of the draw, so votes of ``n`` draws and of the
        next ``n`` add up to those of ``2 n``.

        >>> def sign(batch):  # class 1 where the mean is above zero
        ...     return np.stack([0 * batch.mean(1), batch.mean(1)], axis=1)
        >>> from buckler.sampling.classifiers import as_classifier
        >>> engine = Engine(as_classifier(sign, num_classes=2), sigma=1.0)
        >>> engine.votes([[0.5, 0.5]], ["a"], "estimation", 1000)
        array([[257, 743]])
        """
        return exhaust(self.vote_steps(x, ids, stream, n, start))

    def vote_steps(
        self, x: ArrayLike, ids: Sequence[str], stream: Stream, n: int, start: int = 0, keep: KeptScores | None = None
    ) -> Generator[int, None, IntArray]:
        """Yield how many draws each group of batches made; return what ``votes`` does; ``keep`` is as in ``steps``."""
        n, start = check_whole("n", n, 1), check_whole("start", start, 0)
        requests = [Request(i, start, start + n) for i in range(len(ids))]
        return (yield from self.steps(x, ids, stream, requests, keep=keep))[:, 0]

    def score_steps(
        self, x: ArrayLike, ids: Sequence[str], stream: Stream, n: int, make: ScoreMap, start: int = 0
    ) -> Generator[int, None, FloatArray]:
        """Yield how many draws each group of batches made, and return the scores of all, ``[inputs, n, classes]``.

        ``make`` computes scores from logits; the draws are those of ``votes``.
        """
        rows: list[Float32Array] = []
        yield from self.vote_steps(x, ids, stream, n, start, keep=KeptScores(make, rows.append))
        return np.concatenate(rows).astype(np.float64).reshape(len(ids), n, self.num_classes)

    def _step(self, batch: Batch, slots: IntArray, ids: Sequence[str]) -> None:
        low, total = 0, len(batch)
        while low < total:
            high = min(low + self.rows, total)
            part = batch[low:high]
            try:
                self._backend.step(part, slots[low:high])
            except self._backend.out_of_memory as problem:
                if self.noise.idealised is None:
                    raise ClassifierError(
                        f"out of memory for a batch of {self.rows} rows, and {self.noise.describe()} needs batches of "
                        "one shape: use a smaller batch size"
                    ) from problem
                if self.rows == 1:
                    raise ClassifierError(f"out of memory for a single row ({show(str(problem), 80)})") from problem
                self._backend.rows = max(1, min(self.rows, total) // 2)
                self._backend.release()
                continue
            except Exception as problem:
                raise self._blame(part, ids, problem) from problem
            low = high

    def _settle(self, ids: Sequence[str], keep: KeptScores | None) -> None:
        bad, rows = self._backend.settle()
        if bad.any():
            worst = int(np.argmax(bad > 0))
            what = f"{input_name(ids[worst])} ({int(bad[worst])} draws)"
            raise ClassifierError(f"the classifier returned a NaN or infinite logit for {what}")
        if keep is not None:
            for part in rows:
                keep.sink(part)

    def _blame(self, part: Batch, ids: Sequence[str], problem: Exception) -> ClassifierError:
        """Return the error that names the input: each input of the failed batch is tried alone."""
        positions = list(dict.fromkeys(part.inputs.tolist()))
        for position in positions:
            try:
                self._backend.logits(part[part.inputs == position])
            except Exception as alone:
                hint = failure_hint(self.classifier, self.num_classes, self._inputs[position], alone)
                return ClassifierError(
                    f"the classifier failed on {input_name(ids[position])}: {show_problem(alone)}{hint}"
                )
        names = ", ".join(input_name(ids[position]) for position in positions)
        return ClassifierError(f"the classifier failed on a batch of {show(names)}: {show_problem(problem)}")


def exhaust(steps: Generator[int, None, _Result], tick: Callable[[int], None] = lambda _: None) -> _Result:
    """Run a generator to its end and return what it returns; ``tick`` is called with each number of draws it yields."""
    while True:
        try:
            tick(next(steps))
        except StopIteration as end:
            return cast(_Result, end.value)


def show_problem(problem: Exception) -> str:
    """Return an exception's message in one line, with its type unless it is a ClassifierError."""
    text = " ".join(str(problem).split())[:300]
    return text if isinstance(problem, ClassifierError) else f"{type(problem).__name__}: {text}"


def check_inputs(x: ArrayLike, ids: Sequence[str], noise: Noise) -> Float32Array:
    """Return ``x`` as float32 ``[inputs, ...]``; raise InvalidInput for wrong shapes, values or ``ids``."""
    inputs = to_float32("x", x, noise)
    if inputs.ndim < 2 or inputs.size == 0:
        raise InvalidInput(f"x must have shape [inputs, ...] with at least one value each; got {inputs.shape}")
    if inputs[0].size > MOST_VALUES:
        raise InvalidInput(f"an input of x must have at most {MOST_VALUES} values; got {inputs[0].size}")
    check_ids(ids, len(inputs))
    return inputs


class Decider(Protocol):
    """Protocol of a sequential test of each of several inputs: it asks for draws, and takes their votes.

    Inputs are named by their positions, 0, 1, ... An input is undecided while its test needs more draws.
    """

    @property
    def n(self) -> IntArray:
        """How many draws of each input the test has taken, ``[inputs]``."""

    @property
    def undecided(self) -> IntArray:
        """Positions of the inputs whose tests need more draws."""

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws the test asks for next, at least one, for each of the undecided inputs ``rows``."""

    def update(self, rows: IntArray, counts: IntArray) -> None:
        """Take votes ``counts[i, class]`` of the next draws of each input ``rows[i]``, and decide the inputs it can."""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a round of ``draw_until_decided`` did: how many draws it made, and positions of inputs decided by them."""

    drawn: int
    finished: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Inputs whose draws are made together: what each asks for next, by its place in ``rows``; ``later`` ones wait."""

    places: int
    rows: IntArray
    requests: list[Request]
    later: IntArray


NONE: IntArray = np.zeros(0, dtype=np.int64)


def filling(wanted: IntArray, rows: int) -> BoolArray:
    """Return which requests to draw now so that batches are full: in order, those that fit into whole batches.

    ``wanted`` are the requests' numbers of draws, ``rows`` those of a batch. A batch that is not full costs a device as
    much as a full one. The first request is always among them; otherwise at most ``ROUND`` batches are filled, so that
    inputs are finished in order and little is lost by an interruption.

    >>> filling(np.array([3, 4, 6, 2]), rows=10)
    array([ True,  True, False,  True])
    """
    room = min(int(wanted.sum()) // rows, ROUND) * rows or rows
    now = np.zeros(wanted.shape, dtype=np.bool_)
    for i, count in enumerate(wanted.tolist()):
        if count <= room or i == 0:
            now[i] = True
            room -= count
    return now


def draw_until_decided(
    engine: Engine, x: ArrayLike, ids: Sequence[str], decider: Decider, *, stream: Stream = "estimation"
) -> Generator[Round, None, None]:
    """Draw for the inputs that ``decider`` has not decided, round after round until it has; yield what each round did.

    At most as many inputs as a batch has rows are drawn at once. Where there is enough to draw they form two groups,
    and while the draws of one are made, ``decider`` takes the votes of the other in a second thread. Between two rounds
    the caller may use the inputs that were decided, or stop by closing the iterator, after which ``decider`` is not
    called any more. Iterate inside ``engine.session()``.
    """
    inputs = check_inputs(x, ids, engine.noise)
    waiting = deque(decider.undecided.tolist())
    if waiting and waiting[-1] >= len(inputs):
        raise InvalidInput(f"decider must be of the {len(inputs)} inputs; got input {waiting[-1]} undecided")

    def look(group: _Group, counts: IntArray | None) -> tuple[_Group, Round]:
        """Hand over the votes of a group; return it with newcomers in free places, and what the round did."""
        left = group.rows
        if counts is not None:
            decider.update(left, counts)
            left = left[np.isin(left, decider.undecided)]
        free = group.places - left.size - group.later.size
        joined = [waiting.popleft() for _ in range(min(free, len(waiting)))]
        # Those that waited come first, so that nobody waits for long.
        rows = np.concatenate([group.later, left, np.array(joined, dtype=np.int64)])
        wanted = check_whole_array("batch_sizes()", decider.batch_sizes(rows), low=1) if rows.size else NONE
        now = filling(wanted, engine.rows)
        had = decider.n[rows[now]]
        asked = zip(had.tolist(), (had + wanted[now]).tolist(), strict=True)
        requests = [Request(place, start, stop) for place, (start, stop) in enumerate(asked)]
        drawn = sum(request.stop - request.start for request in group.requests)
        return _Group(group.places, rows[now], requests, rows[~now]), Round(drawn, np.setdiff1d(group.rows, left))

    def draw(group: _Group) -> IntArray:
        return engine.draw(inputs[group.rows], [ids[i] for i in group.rows], stream, group.requests)[:, 0]

    def begin(places: int) -> _Group:
        return look(_Group(places, NONE, [], NONE), None)[0]

    most = min(engine.rows, len(waiting))
    # Two groups only where either fills half a batch from the start.
    asked = decider.batch_sizes(decider.undecided[:most])
    places = [most - most // 2, most // 2] if most > 1 and asked.sum() >= engine.rows else [most]
    ready = deque(begin(count) for count in places if most)
    # Every call of the decider from here on is made by this one thread, in turn.
    with ThreadPoolExecutor(1) as second:
        looking: Future[tuple[_Group, Round]] | None = None
        while ready or looking is not None:
            group = ready.popleft() if ready else None
            counts = None if group is None else draw(group)
            before, looking = looking, None if group is None else second.submit(look, group, counts)
            if before is not None:
                again, done = before.result()
                if again.rows.size:
                    ready.append(again)
                yield done
