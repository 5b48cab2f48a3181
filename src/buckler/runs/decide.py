"""A specification, radii fixed beforehand, and inputs -> decisions: drawn until decided, on any executor.

Inputs are cut into blocks; the draws of a block share batches, and each decision comes as it is made. What is decided
is kept in a file, and the same call goes on from there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from buckler.certify.anytime import AnytimeTest
from buckler.certify.decided import Decided
from buckler.certify.ladder import Ladder
from buckler.errors import InvalidInput, check_choice, check_label
from buckler.runs.admission import Allowed
from buckler.runs.blocks import Block
from buckler.runs.decided import DecidedFile
from buckler.runs.executors import Desk, Executor, Step, as_executor
from buckler.runs.identity import Expected, expected_of, identify
from buckler.runs.sample import make_engine
from buckler.runs.spec import RunSpec, from_dict
from buckler.sampling.adaptive import draw_until_decided
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset

ClassRule = Literal["selection", "label"]
Watch = Callable[[int, int], None]
"""Is told, as they rise, how many inputs are decided and how many draws were made."""

MAX_N = 100_000
"""Draws for each input at most, unless told: what the field's usual tool always draws."""

FOR_EVIDENCE = ("scores", "temperature", "runner_ups", "score_draws", "score_dtype", "checkpoints", "shard_inputs")
"""Settings that say what a run keeps on disk; drawing until decided keeps votes alone."""

BATCHES_AT_ONCE = 4
"""Inputs of a block at most, in rows of a batch: enough that the last ones of a block seldom leave a batch thin."""

FEWEST = 64
"""Inputs of a block at least, for the same reason: each wants sixteen draws or more at a time."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about every input, fixed before the first draw: rising radii, one alpha, and the class's rule.

    The class is the top one of ``n0`` separate selection draws, or the true label.
    """

    radii: tuple[float, ...]
    alpha: float = 1e-3
    certified_class: ClassRule = "selection"

    def __post_init__(self) -> None:
        """Check what does not need a specification."""
        check_choice("class", self.certified_class, get_args(ClassRule))
        object.__setattr__(self, "radii", Ladder(self.radii, 1.0, self.alpha).radii)


def settings_to_decide(settings: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the settings of a run that decides ``target``: what does not apply is refused, what is missing filled in.

    ``n`` is the number of draws for each input at most; ``n0`` is 0 where the class is the label.
    """
    fit = {name: value for name, value in settings.items() if name not in FOR_EVIDENCE}
    # A specification that was written out holds values that say nothing: what would be filled in anyway.
    filled = from_dict({"model": "-", "data": "-", "sigma": 1.0, "num_classes": 2, "n": MAX_N, **fit}).as_dict()
    unfit = [name for name in FOR_EVIDENCE if name in settings and settings[name] != filled.get(name)]
    if unfit:
        raise InvalidInput(f"{unfit[0]} is for evidence that is kept; drawing until decided does not take it")
    if target.certified_class == "label" and settings.get("n0", 0) != 0:
        raise InvalidInput(f"n0 is for a class that is selected, and the class is the label; got {settings['n0']}")
    return {"n": MAX_N, **({"n0": 0} if target.certified_class == "label" else {}), **fit}


@dataclass(frozen=True, slots=True)
class DecideInputs:
    """The work of ``decide``: one test for all inputs of a block, their draws in shared batches."""

    spec: RunSpec
    target: Target
    expected: Expected | None

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that decides a block, handing in each decision when it is made."""
        if self.expected is not None:
            self.expected.check(classifier, threads)
        spec, engine = self.spec, make_engine(self.spec, classifier, threads)
        ladder = Ladder(self.target.radii, spec.sigma, self.target.alpha, spec.n)

        def step(block: Block, desk: Desk) -> None:
            labels = block.labels
            if labels is None:
                labels = engine.votes(block.x, block.ids, "selection", spec.n0).argmax(axis=1)
            test = AnytimeTest(ladder, labels, spec.num_classes)
            for done in draw_until_decided(engine, block.x, block.ids, test):
                for row in done.finished.tolist():
                    desk.hand_in(test.decided(row, block.ids[row], spec.n0))
                desk.tick(done.drawn)

        with engine.session():
            yield step


def decide(
    spec: RunSpec,
    target: Target,
    classifier: Classifier | Executor,
    dataset: Dataset,
    out: str | Path | None = None,
    *,
    any_environment: bool = False,
    another_model: bool = False,
    progress: Watch | None = None,
) -> list[Decided]:
    """Return the decision about every input, in the order of the data; at most ``spec.n`` draws go into each.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``target.alpha``,
    whenever its drawing stopped. Its draws and its decision are those of its input alone, whatever the executor, for a
    classifier that treats rows independently.

    ``out`` is a Parquet file that keeps what is decided: written as work goes on, and at the end, also where that is an
    interrupt or an error; the same call goes on from it. ``any_environment`` goes on although the versions of the
    libraries or the device differ from those of earlier calls, and ``another_model`` although the classifier answers
    otherwise; the file records both.
    """
    labels = _labels(spec, target, dataset)
    executor = as_executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    asked = {
        "spec": spec.as_dict(),
        "radii": list(target.radii),
        "alpha": target.alpha,
        "class": target.certified_class,
    }
    allowed = Allowed(any_environment, another_model)
    file = None if out is None else DecidedFile(Path(out), asked, identity, allowed)
    kept: dict[str, Decided] = {} if file is None else file.read(target.radii, dataset)
    left = [i for i, name in enumerate(dataset.ids) if name not in kept]
    most = spec.batch_size * BATCHES_AT_ONCE
    size = most if executor.width == 1 else min(most, max(FEWEST, -(-len(left) // (4 * executor.width))))
    drawn = 0

    def fetch(number: int) -> Block:
        chosen = left[number * size : (number + 1) * size]
        part = dataset.select(ids=[dataset.ids[i] for i in chosen])
        x = part.load(0, len(part))
        if file is not None:
            file.loaded(part.ids, x)
        return Block(number, part.ids, None if labels is None else labels[chosen], x)

    def tick(count: int) -> None:
        nonlocal drawn
        drawn += count
        if progress is not None:
            progress(len(kept), drawn)

    def keep(_: int, decided: Decided) -> None:
        kept[decided.certificate.id] = decided
        if file is not None:
            file.sign(decided.certificate.id)
            if file.is_due():
                file.write(in_order())

    def in_order() -> list[Decided]:
        return [kept[name] for name in dataset.ids if name in kept]

    tick(0)
    work = DecideInputs(spec, target, expected_of(identity, probe, spec, any_environment))
    try:
        executor.run(work, range(-(-len(left) // size)), fetch, Path(), tick=tick, done=keep)
    finally:
        if file is not None and len(kept) > len(dataset) - len(left):
            file.write(in_order())
        tick(0)
    return in_order()


def _labels(spec: RunSpec, target: Target, dataset: Dataset) -> Any:
    if target.certified_class == "selection":
        if spec.n0 == 0:
            raise InvalidInput("n0 must be at least 1 where the class is selected; got 0")
        return None
    if spec.n0 != 0:
        raise InvalidInput(f"n0 must be 0 where the class is the label: no draws select it; got {spec.n0}")
    if dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    return check_label(dataset.labels, spec.num_classes, len(dataset), "labels")
