"""A target radius for many inputs -> any-time certificates as they are decided, on any executor."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from buckler.errors import InvalidInput
from buckler.records import Certificate
from buckler.runs.anytime import certify_until_decided
from buckler.runs.executors import Desk, Executor, Step
from buckler.runs.identity import Expected
from buckler.runs.sample import Block, make_engine
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.noise import Float32Array

BATCHES_AT_ONCE = 4
"""Inputs of a block at most, in rows of a batch: enough that the last ones of a block seldom leave a batch thin."""

FEWEST = 64
"""Inputs of a block at least, for the same reason: each wants sixteen draws or more at a time."""


@dataclass(frozen=True, slots=True)
class DecideInputs:
    """The work of ``decide``: one test for each input of a block, their draws in shared batches."""

    spec: RunSpec
    target_radius: float
    alpha: float
    expected: Expected | None

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that decides a block, handing in each certificate when it is decided."""
        if self.expected is not None:
            self.expected.check(classifier, threads)
        engine = make_engine(self.spec, classifier, threads)

        def step(block: Block, desk: Desk) -> None:
            certify_until_decided(
                engine,
                block.x,
                block.ids,
                target_radius=self.target_radius,
                alpha=self.alpha,
                max_n=self.spec.n,
                n0=self.spec.n0,
                labels=block.labels,
                finished=desk.hand_in,
                progress=desk.tick,
            )

        with engine.session():
            yield step


def decide(
    spec: RunSpec,
    executor: Executor,
    dataset: Dataset,
    *,
    target_radius: float,
    alpha: float,
    use_labels: bool,
    skip: Collection[str],
    finished: Callable[[Certificate], None],
    loaded: Callable[[Sequence[str], Float32Array], None],
    tick: Callable[[int], None],
    expected: Expected | None = None,
) -> None:
    """Call ``loaded`` with the inputs not in ``skip``, and ``finished`` with each certificate as it is decided.

    **Guarantee.** Each is wrong with probability at most ``alpha``, whenever its drawing stopped. Its draws and its
    decision are those of its input alone, whatever the executor, for a classifier that treats rows independently.
    """
    if use_labels and dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    left = [i for i, name in enumerate(dataset.ids) if name not in skip]
    most = spec.batch_size * BATCHES_AT_ONCE
    size = most if executor.width == 1 else min(most, max(FEWEST, -(-len(left) // (4 * executor.width))))

    def fetch(number: int) -> Block:
        chosen = left[number * size : (number + 1) * size]
        part = dataset.select(ids=[dataset.ids[i] for i in chosen])
        x = part.load(0, len(part))
        loaded(part.ids, x)
        return Block(number, part.ids, part.labels if use_labels else None, x)

    executor.run(
        DecideInputs(spec, target_radius, alpha, expected),
        range(-(-len(left) // size)),
        fetch,
        Path(),
        tick=tick,
        done=lambda _, certificate: finished(certificate),
    )
