"""Certificates, their model and their data -> refutations: attacked in blocks, on any executor, kept as they are made.

What is refuted is kept in a file with points and votes, and the same call goes on from there.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.certificate import Bracket, Refutation
from buckler.errors import InvalidInput, check_whole
from buckler.evaluate.refutations import Refuting, check_searched, to_refute
from buckler.runs.executor import Job, Step, StepContext
from buckler.runs.identity import Expected, Lookup, identify
from buckler.runs.open_run import Opened
from buckler.runs.results import Result, inputs_of
from buckler.runs.spec import NAMES, RunSpec
from buckler.runs.store.tables import read_refutations, write_refutations
from buckler.sampling.classifiers import Classifier
from buckler.session import Inputs, Session
from buckler.types import Float32Array, FloatArray, IntArray

BATCHES = 4
"""Batches that a step of the search fills, at most: inputs of a block."""

SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost, beside the block in flight."""

DRAWING = ("n", "n0", "scores", "temperature", "runner_ups", "score_draws", "score_dtype", "checkpoints",
           "shard_inputs", "generator")  # fmt: skip
"""Settings of a run that say how evidence was drawn, not what is attacked."""

Watch = Callable[[int, int], None]
"""Is told how many inputs are done and how many draws were made."""


class Refuted(NamedTuple):
    """What was refuted, in the order of the certificates, and whether the model answers as it did when they were drawn.

    ``same_model`` is None where that is not known.
    """

    brackets: list[Bracket]
    same_model: bool | None


class ToRefute(NamedTuple):
    """A block: inputs with their classes and certified radii."""

    ids: tuple[str, ...]
    x: Float32Array
    labels: IntArray
    start: FloatArray


@dataclass(frozen=True, slots=True)
class RefuteInputs:
    """The work of ``refute``, for an executor."""

    spec: RunSpec
    how: Refuting
    expected: Expected

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that attacks a block; each refutation is sent."""
        self.expected.check(classifier, threads)
        engine = self.spec.engine(classifier, threads)
        session = Session(engine)

        def step(block: ToRefute, context: StepContext) -> None:
            inputs = Inputs(block.x, block.ids, block.labels)
            for made in session.refute(inputs, self.how, block.start, context.send_result):
                context.tick(made.drawn)

        with engine.session():
            yield step


def settings_to_refute(result: Result, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which the model and the data of a result are opened again; those given win."""
    noise = result.groups[0].first.noise
    check_searched(noise)
    settings = {key: value for key, value in (result.spec or {}).items() if key not in DRAWING}
    if not settings:
        settings = {"noise": noise.name, "noise_parameters": dict(noise.parameters)}
    settings.pop("fresh_seed", None)  # it has one by now
    settings |= {key: value for key, value in given.items() if value is not None}
    for name in ("model", "data"):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given: {str(result.path)!r} does not say which")
    return {**settings, "n": 1, "n0": 0}


def refute(
    result: Result,
    run: Opened,
    how: Refuting,
    out: str | Path | None = None,
    *,
    limit: int | None = None,
    progress: Watch | None = None,
) -> Refuted:
    """Return the bracket of every certificate of a result that is no abstention, or of the first ``limit``.

    **Guarantee.** Each refutation is false with probability at most ``how.alpha`` (theory T22), whatever the executor.

    ``out`` is a Parquet file that keeps points and votes as they are made, also where the call ends by an interrupt or
    an error; the same call goes on from it.
    """
    group = result.groups[0]
    claims = [(c, i) for i, c in enumerate(group) if not c.abstained]
    claims = claims if limit is None else claims[: check_whole("limit", limit, 1)]
    if not claims:
        raise InvalidInput(f"{str(result.path)!r} holds abstentions alone: there is nothing to refute")
    wanted = {c.id: (*to_refute(c, how.noise), c, i) for c, i in claims}
    if result.contents is None and result.contents_hash is not None:
        deque(inputs_of(run.dataset, result), maxlen=0)  # refuses inputs that are not those certified
    identity, probe = identify(run.spec, run.executor, run.dataset)
    drawn_by = result.origins.get("classifier")
    kept, file = _kept(out, run.spec, how, identity.answers, wanted)
    left = [name for name in wanted if name not in kept]
    attack = how.attack
    looks = 1 if attack is None else attack.searches * attack.draws
    size = max(1, BATCHES * run.spec.batch_size // looks)
    if run.executor.width > 1:
        size = min(size, max(1, -(-len(left) // (2 * run.executor.width))))
    drawn, saved, lookup = 0, time.monotonic(), Lookup(run.dataset, result.path)

    def fetch(number: int) -> ToRefute:
        names = left[number * size : (number + 1) * size]
        rows = [wanted[name] for name in names]
        contents = None if result.contents is None else [result.contents[row[3]] for row in rows]
        x = np.stack(list(lookup.inputs(names, contents)))
        return ToRefute(tuple(names), x, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))

    def tell(count: int) -> None:
        nonlocal drawn
        drawn += count
        if progress is not None:
            progress(len(kept), drawn)

    def keep(_: int, made: Refutation) -> None:
        nonlocal saved
        _, radius, certificate, i = wanted[made.id]
        truth = None if group.labels is None else int(group.labels[i])
        kept[made.id] = Bracket(made, radius, certificate.alpha, truth)
        if file is not None and time.monotonic() - saved > SAVE_EVERY:
            write_refutations(file[0], in_order(), file[1])
            saved = time.monotonic()

    def in_order() -> list[Bracket]:
        return [kept[name] for name in wanted if name in kept]

    tell(0)
    before = len(kept)
    try:
        work = RefuteInputs(run.spec, how, Expected(probe, identity))
        run.executor.run(Job(work.begin, range(-(-len(left) // size)), fetch, keep, tell))
    finally:
        if file is not None and len(kept) > before:
            write_refutations(file[0], in_order(), file[1])
        tell(0)
    known = drawn_by is not None and drawn_by.startswith("answers:")
    return Refuted(in_order(), drawn_by == identity.answers if known else None)


def _kept(
    out: str | Path | None, spec: RunSpec, how: Refuting, classifier: str, wanted: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, Bracket], tuple[Path, dict[str, Any]] | None]:
    """Return what an earlier call refuted, and the file with its record; a file of something else is refused."""
    if out is None:
        return {}, None
    plain = {key: value for key, value in spec.as_dict().items() if key not in {*NAMES, *DRAWING, "batch_size"}}
    attack = None if how.attack is None else asdict(how.attack)
    asked = {"spec": plain, "alpha": how.alpha, "max_n": how.max_n, "max_radius": how.reach, "attack": attack,
             "classifier": classifier}  # fmt: skip
    path = Path(out)
    if not path.exists():
        return {}, (path, asked)
    brackets, found = read_refutations(path)
    changed = [key for key in asked if found.get(key) != asked[key]]
    if changed:
        raise InvalidInput(f"{str(path)!r} holds refutations of another call (another {', '.join(changed)})")
    kept = {b.refutation.id: b for b in brackets}
    for name, b in kept.items():
        if name not in wanted or (b.refutation.label, b.certified) != tuple(wanted[name][:2]):
            raise InvalidInput(f"{str(path)!r} holds the refutation of another certificate, {name!r}")
    return kept, (path, asked)
