"""What a run is drawn from: a classifier, which is what it answers, and data, which are names, labels and values.

When a run is opened, its classifier is asked a small fixed batch (``sampling.probe``), wherever it runs, and every
worker must give the same answers. ``admission`` compares them with those that began the run. Shards hold a hash of each
input's values, with which the data are compared when inputs are looked for again.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput, StoreError
from buckler.runs.executor import Description, Executor, Job, Step, describe
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.probe import Answers, Probe, probed
from buckler.sampling.streams import content_id
from buckler.types import Float32Array

TIMES = 2
"""How often the classifier is asked when a run is opened: two answers that differ are not those of a function."""

NAMES_HASH = "names:"
"""What a hash of ids and labels begins with."""

AT_ONCE = 128
"""Inputs in memory at once, where they are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """What draws: a classifier by name, its answers and files, its environment; and the data by ids and labels.

    Without answers (votes read from a log), the name alone counts.
    """

    classifier: str
    data: str
    environment: Mapping[str, str] = field(default_factory=dict)
    answers: Answers | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a manifest's ``drawn_by``."""
        heard = {} if self.answers is None else {"answers": self.answers.as_dict()}
        return {
            "classifier": self.classifier,
            "environment": dict(self.environment),
            "files": dict(self.files),
            **heard,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What every worker of a run must answer."""

    probe: Probe
    answers: Answers
    dtype: str
    any_environment: bool

    def check(self, classifier: Classifier, threads: int | None) -> None:
        """Refuse a classifier that answers otherwise."""
        if not self.answers.repeatable:
            return
        heard = self.probe.ask(classifier, threads)
        if heard.hash == self.answers.hash or (self.any_environment and self.answers.is_close(heard, self.dtype)):
            return
        apart, name = self.answers.distance(heard)
        raise StoreError(
            f"the workers run different classifiers: logits differ by up to {apart:.3g}, at input {name!r}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """The work of ``identify``: one block, in which the classifier is asked."""

    probe: Probe

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that asks."""
        yield lambda _, context: context.send_result((self.probe.ask(classifier, threads, TIMES), describe(classifier)))


def identify(spec: RunSpec, executor: Executor, dataset: Dataset) -> tuple[Identity, Probe]:
    """Return what an executor runs, asked by the first worker that is free, and what it was asked."""
    places = probed(len(dataset))
    part = dataset.select(ids=[dataset.ids[i] for i in places])
    probe = Probe(part.ids, part.load(0, len(part)), spec.noise_law, spec.num_classes, spec.seed, spec.batch_size)
    heard: list[tuple[Answers, Description]] = []
    executor.run(Job(_Ask(probe).begin, [0], lambda _: None, lambda _, said: heard.append(said)))
    answers, runs = heard[0]
    return Identity(answers.hash, names_hash(dataset), runs.environment, answers, runs.files), probe


def expected_of(identity: Identity, probe: Probe, spec: RunSpec, any_environment: bool) -> Expected | None:
    """Return what the workers of a run must answer, or None where there is nothing to compare."""
    return None if identity.answers is None else Expected(probe, identity.answers, spec.dtype, any_environment)


def names_hash(dataset: Dataset) -> str:
    """Return the hash of a data set's ids and labels; what the inputs hold is compared as they are drawn."""
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-names-1")
    for i, name in enumerate(dataset.ids):
        label = "" if dataset.labels is None else int(dataset.labels[i])
        digest.update(f"{len(name)}:{name}={label};".encode("utf-8", "surrogatepass"))
    return NAMES_HASH + digest.hexdigest()


def found_again(
    dataset: Dataset, ids: Sequence[str], contents: Sequence[str] | None, where: Path
) -> Iterator[Float32Array]:
    """Yield the inputs with these ids one by one; one whose values are not those of the hashes is refused.

    An empty hash is not known and not compared.
    """
    places = {name: i for i, name in enumerate(dataset.ids)}
    missing = next((name for name in ids if name not in places), None)
    if missing is not None:
        raise InvalidInput(f"data must hold every input of {str(where)!r}; it has no {missing!r}")
    chosen = [places[name] for name in ids]
    for start in range(0, len(chosen), AT_ONCE):
        part = chosen[start : start + AT_ONCE]
        if part == list(range(part[0], part[0] + len(part))):
            inputs = list(dataset.load(part[0], part[0] + len(part)))
        else:
            inputs = [dataset.load(place, place + 1)[0] for place in part]
        for i, x in enumerate(inputs, start):
            if contents is not None and contents[i] and content_id(x) != contents[i]:
                raise InvalidInput(f"data is not what was certified in {str(where)!r}: {ids[i]!r} has other values")
            yield x


def contents_hash(pairs: Iterable[tuple[str, str]]) -> str | None:
    """Return the hash of ids with the hashes of their inputs, in whatever order they come; None if one is not known."""
    known = sorted(pairs)
    if not all(content for _, content in known):
        return None
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-inputs-1")
    for name, content in known:
        digest.update(f"{len(name)}:{name}={content};".encode("utf-8", "surrogatepass"))
    return f"inputs:{digest.hexdigest()}"
