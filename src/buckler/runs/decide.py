"""A specification, radii fixed beforehand, and inputs -> decisions: drawn until decided, on any executor.

Inputs are cut into blocks; the draws of a block share batches, and each decision comes as it is made. What is decided
is kept in a file, with the votes of inputs that are under way, and the same call goes on from there.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, check_alpha, check_choice, check_label, check_positive
from buckler.noise import NOISES, default_margin, parse
from buckler.runs.executor import Executor, Job, Step, StepContext
from buckler.runs.identity import Expected, identify
from buckler.runs.resume import DecidedFile
from buckler.runs.sample import Block
from buckler.runs.spec import RunSpec, from_dict, noise_in
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.session import Inputs, Session
from buckler.types import MarginKind, Noise

ClassRule = Literal["winner", "selection", "label"]

MAX_N = 100_000
"""Draws for each input at most, unless told: what the field's usual tool always draws."""

FOR_EVIDENCE = ("scores", "temperature", "runner_ups", "score_draws", "score_dtype", "checkpoints", "shard_inputs")
"""Settings that say what a run keeps on disk; drawing until decided keeps votes alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about every input, fixed before the first draw: rising radii or a precision, and one alpha.

    With a ``precision`` in place of radii, as much is certified as there is: the radii are those of a fine ladder, and
    drawing ends where the certified one is that close to the estimated one. The class is the one with the most votes,
    tested to be the winner; or the top one of ``n0`` separate selection draws; or the true label.
    """

    radii: tuple[float, ...] = ()
    alpha: float = 1e-3
    certified_class: ClassRule = "winner"
    margin: MarginKind = "quantile"
    precision: float | None = None

    def __post_init__(self) -> None:
        """Check what does not need a specification."""
        check_choice("class", self.certified_class, get_args(ClassRule))
        check_alpha(self.alpha)
        if self.precision is None:
            object.__setattr__(self, "radii", check_radii(self.radii))
        elif self.radii:
            raise InvalidInput("radii do not go with a precision, which has a ladder of its own")
        else:
            check_precision(self.precision)

    def ladder(self, spec: RunSpec, final_n: int = 0) -> Ladder:
        """Return the ladder of radii under the noise of a specification, with at most its ``n`` draws."""
        noise, winner = spec.noise, self.certified_class == "winner"
        radii = self.radii if self.precision is None else radii_for(noise, self.precision, self.margin)
        return Ladder(radii, noise, self.alpha, spec.n, self.margin, final_n, self.precision, winner)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON, under the names of the command's options."""
        return {
            "radii": list(self.radii), "alpha": self.alpha, "class": self.certified_class, "margin": self.margin,
            "precision": self.precision,
        }  # fmt: skip


def settings_to_decide(settings: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the settings of a run that decides ``target``: what does not apply is refused, what is missing filled in.

    ``n`` is the number of draws for each input at most; ``n0`` is 0 unless the class is selected.
    """
    fit = {name: value for name, value in settings.items() if name not in FOR_EVIDENCE}
    if "noise" in fit and noise_in(fit).total is not None:
        raise InvalidInput(f"noise {fit['noise']} leaves nothing to decide: sample and certify give its one answer")
    # A specification that was written out holds values that say nothing: what would be filled in anyway.
    noise = {} if "noise" in fit else {"sigma": 1.0}
    filled = from_dict({"model": "-", "data": "-", **noise, "num_classes": 2, "n": MAX_N, **fit}).as_dict()
    unfit = [name for name in FOR_EVIDENCE if name in settings and settings[name] != filled.get(name)]
    if unfit:
        raise InvalidInput(f"{unfit[0]} is for evidence that is kept; drawing until decided does not take it")
    if target.certified_class != "selection" and settings.get("n0", 0) != 0:
        raise InvalidInput(f"n0 must be 0 for class {target.certified_class!r}; got {settings['n0']}")
    return {"n": MAX_N, **fit}


def margin_for(settings: Mapping[str, Any], wanted: str | None) -> MarginKind:
    """Return the margin to test: as wanted, else the first of the noise in the settings."""
    if wanted is not None:
        return cast(MarginKind, check_choice("margin", wanted, get_args(MarginKind)))
    name = check_choice("noise", parse(settings.get("noise", "gaussian"))[0], tuple(NOISES))
    return default_margin(cast(Noise, NOISES[name]))


Watch = Callable[[int, int], None]
"""Is told, as they rise, how many inputs are decided and how many draws were made."""

BATCHES_AT_ONCE = 4
"""Inputs of a block at most, in rows of a batch: enough that the last ones of a block seldom leave a batch thin."""

FEWEST = 64
"""Inputs of a block at least, for the same reason: each wants sixteen draws or more at a time."""


class Begun(NamedTuple):
    """A block of inputs, and where an earlier call left each of them, if it had begun."""

    block: Block
    before: tuple[Decided | None, ...]


@dataclass(frozen=True, slots=True)
class DecideInputs:
    """The work of ``decide``, for an executor: one session for all inputs of a block."""

    spec: RunSpec
    target: Target
    final_n: int
    expected: Expected

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that decides a block: the session sends decisions, and inputs under way as they stand."""
        self.expected.check(classifier, threads)
        engine, ladder = self.spec.engine(classifier, threads), self.target.ladder(self.spec, self.final_n)
        session = Session(engine)

        def step(begun: Begun, context: StepContext) -> None:
            inputs = Inputs(begun.block.x, begun.block.ids, begun.block.labels)
            before = engine.replayed()
            try:
                with closing(
                    session.certify_until(inputs, ladder, context.send_result, n0=self.spec.n0, before=begun.before)  # type: ignore[type-var]
                ) as steps:
                    for made in steps:
                        context.tick(made.drawn)
            finally:
                now = engine.replayed()
                context.send_result(Replayed(now[0] - before[0], now[1] - before[1]))

        with engine.session():
            yield step


class Replayed(NamedTuple):
    """Rows that a block ran a second time, and how many of them gave other bits."""

    compared: int
    differed: int


class _Deciding:
    """Decisions of a call to ``decide`` as they come in: kept in memory, and in a file where there is one."""

    def __init__(
        self, dataset: Dataset, labels: Any, kept: dict[str, Decided], file: DecidedFile | None, progress: Watch | None
    ) -> None:
        self._dataset, self._labels, self._file, self._progress = dataset, labels, file, progress
        self._kept, self._drawn, self._changed = kept, 0, False
        self._finished = {name for name, decided in kept.items() if decided.decision != "undecided"}
        self.left = [i for i, name in enumerate(dataset.ids) if name not in self._finished]
        self.size = 1

    def fetch(self, number: int) -> Begun:
        """Return the inputs of a block, and the states that earlier calls left them in."""
        chosen = self.left[number * self.size : (number + 1) * self.size]
        part = self._dataset.select(ids=[self._dataset.ids[i] for i in chosen])
        x = part.load(0, len(part))
        if self._file is not None:
            self._file.loaded(part.ids, x)
        block = Block(number, part.ids, None if self._labels is None else self._labels[chosen], x)
        return Begun(block, tuple(self._kept.get(name) for name in part.ids))

    def show(self, drawn: int = 0) -> None:
        """Count draws and show the progress."""
        self._drawn += drawn
        if self._progress is not None:
            self._progress(len(self._finished), self._drawn)

    def keep(self, _: int, made: Decided | Replayed) -> None:
        """Take a result of a worker, and write the file from time to time."""
        if isinstance(made, Replayed):
            if self._file is not None:
                self._file.ran_again(*made)
            return
        name = made.certificate.id
        if self._file is not None:
            self._file.sign(name)  # before it is kept: what is kept is written, also after an interrupt here
        self._kept[name], self._changed = made, True
        if made.decision != "undecided":
            self._finished.add(name)
        if self._file is not None and self._file.is_due():
            self._file.write(self.in_order())

    def close(self) -> None:
        """Write the file if anything changed, and show the last progress."""
        if self._file is not None and self._changed:
            self._file.write(self.in_order())
        self.show()

    def in_order(self) -> list[Decided]:
        """Return the decisions in the order of the data."""
        return [self._kept[name] for name in self._dataset.ids if name in self._kept]


def decide(
    spec: RunSpec,
    target: Target,
    classifier: Classifier | Executor,
    dataset: Dataset,
    out: str | Path | None = None,
    *,
    max_seconds: float | None = None,
    allow_other_model: bool = False,
    progress: Watch | None = None,
) -> list[Decided]:
    """Return how every input ended or stands, in the order of the data; at most ``spec.n`` draws go into each.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``target.alpha``,
    whenever its drawing stopped, over all calls together. Its draws and its decision are those of its input alone,
    whatever the executor, for a classifier that treats rows independently.

    ``out`` is a Parquet file that keeps what is decided, and the votes of inputs under way: written as work goes on,
    and at the end, also where that is an interrupt or an error; the same call goes on from it. With a larger ``n`` in
    the specification the call goes on where the budget was too small, by e-values alone beyond the first ``n``, whose
    final test is not taken again (theory T17). After ``max_seconds`` drawing stops: inputs under way are ``undecided``,
    with the certificates that they have by then, and those that were not begun are missing.

    The file goes on with the model, environment and data of earlier calls alone (``runs.identity``), and one finished
    input is drawn again; ``allow_other_model`` lets another model or environment go on, which the file records.
    """
    labels = _labels(spec, target, dataset)
    deadline = None if max_seconds is None else time.monotonic() + check_positive("max_seconds", max_seconds)
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    asked = {"spec": spec.as_dict(), **target.as_dict(), "final_n": spec.n}
    file = None if out is None else DecidedFile(Path(out), asked, identity, allow_other_model)
    kept = {} if file is None else file.read(target.ladder(spec).radii, dataset)
    if file is not None:
        file.draw_again(list(kept.values()), spec, executor, dataset)
    deciding = _Deciding(dataset, labels, kept, file, progress)
    most, left = spec.batch_size * BATCHES_AT_ONCE, len(deciding.left)
    deciding.size = most if executor.width == 1 else min(most, max(FEWEST, -(-left // (4 * executor.width))))
    deciding.show()
    final_n = spec.n if file is None else file.final_n
    work = DecideInputs(spec, target, final_n, Expected(probe, identity))
    blocks = range(-(-left // deciding.size))
    try:
        executor.run(Job(work.begin, blocks, deciding.fetch, deciding.keep, deciding.show, deadline=deadline))
    finally:
        deciding.close()
    return deciding.in_order()


def _labels(spec: RunSpec, target: Target, dataset: Dataset) -> Any:
    if (target.certified_class == "selection") != (spec.n0 > 0):
        raise InvalidInput(f"n0 must be at least 1 for class 'selection', and 0 for others; got {spec.n0}")
    if target.certified_class != "label":
        return None
    if dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    return check_label(dataset.labels, spec.num_classes, len(dataset), "labels")
