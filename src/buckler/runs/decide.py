"""A specification, radii fixed beforehand, and inputs -> certificates, each input drawn until its radii are decided.

A radius is decided once it is certified or given up. Inputs are cut into blocks, which any executor runs; the draws of
a block share batches. Results are kept in a file as they are made, with the votes of inputs that are not finished, and
the same call goes on from there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, StoreError, check_alpha, check_choice, check_label, check_positive, show
from buckler.noise import default_margin
from buckler.runs.executor import Executor
from buckler.runs.identity import Identity, Lookup, Record, admit, begin, identify, is_same, records_in, replayed_in
from buckler.runs.spec import FOR_EVIDENCE, NAMES, CertifiedClass, RunSpec, difference, noise_in
from buckler.runs.store.tables import DecisionTable, Drawing, read_decisions, write_decisions
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.engine import Engine
from buckler.sampling.streams import content_id
from buckler.session import Inputs, ResultFile, Session, Sink
from buckler.types import Float32Array, MarginKind

MAX_N = 100_000
"""Default of the largest number of draws for each input: the number that Cohen et al. always draw."""


@dataclass(frozen=True, slots=True)
class Target:
    """What ``decide`` is to find out about every input, fixed before the first draw: ``radii`` or a ``precision``.

    Each input is certified to the largest of the rising ``radii`` that it reaches, at error probability ``alpha``. With
    a ``precision`` in place of radii, a fine ladder of radii is climbed until the certified radius is within that share
    of the estimated one. ``certified_class`` is ``winner`` (the class with the most votes, tested to be the winner),
    ``selection`` (the top class of ``n0`` separate draws) or ``label`` (the true one). ``margin`` is the noise's first
    if None.
    """

    radii: tuple[float, ...] = ()
    alpha: float = 1e-3
    certified_class: CertifiedClass = "winner"
    margin: MarginKind | None = None
    precision: float | None = None

    def __post_init__(self) -> None:
        """Check the fields by themselves; InvalidInput names the one that is wrong."""
        check_choice("class", self.certified_class, get_args(CertifiedClass))
        check_alpha(self.alpha)
        if self.margin is not None:
            check_choice("margin", self.margin, get_args(MarginKind))
        if self.precision is None:
            object.__setattr__(self, "radii", check_radii(self.radii))
        elif self.radii:
            raise InvalidInput("radii must be left out with a precision, which has a ladder of its own")
        else:
            check_precision(self.precision)

    def ladder(self, spec: RunSpec, final_n: int = 0) -> Ladder:
        """Return the ``Ladder`` of these radii under the noise of ``spec``, with at most ``spec.n`` draws of an input.

        ``final_n`` is the draw at which the ladder makes its final test; 0 is the last one.
        """
        noise, winner, margin = spec.noise, self.certified_class == "winner", self.margin or default_margin(spec.noise)
        radii = self.radii if self.precision is None else radii_for(noise, self.precision, margin)
        return Ladder(radii, noise, self.alpha, spec.n, margin, final_n, self.precision, winner)

    def as_dict(self, spec: RunSpec) -> dict[str, Any]:
        """Return the target and ``spec`` as a dict for JSON, its keys named like the options of ``buckler decide``."""
        margin = self.margin or default_margin(spec.noise)
        return {
            "spec": spec.as_dict(), "radii": list(self.radii), "alpha": self.alpha, "class": self.certified_class,
            "margin": margin, "precision": self.precision,
        }  # fmt: skip


def settings_to_decide(settings: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return ``settings``, fields of a ``RunSpec`` by name, for a run of ``decide``, with ``n`` filled in if missing.

    Settings that only ``sample`` takes raise InvalidInput. ``n`` is here the largest number of draws for each input,
    and ``n0`` must be 0 unless the class is selected.
    """
    fit = {name: value for name, value in settings.items() if name not in FOR_EVIDENCE}
    if "noise" in fit and noise_in(fit).total is not None:
        raise InvalidInput(f"noise {fit['noise']} leaves nothing to decide: sample and certify give its one answer")
    # A specification that was written out says that no scores are kept, and has checkpoints in any case.
    unfit = [name for name in FOR_EVIDENCE if name != "checkpoints" and settings.get(name, "none") != "none"]
    if unfit:
        raise InvalidInput(f"{unfit[0]} is for evidence that is kept; drawing until decided does not take it")
    if target.certified_class != "selection" and settings.get("n0", 0) != 0:
        raise InvalidInput(f"n0 must be 0 for class {target.certified_class!r}; got {settings['n0']}")
    return {"n": MAX_N, **fit}


SHARE_OF_BATCH, BATCHES_ON_DEVICE = 4, 4
"""Inputs of a block: on a processor the rows of a batch divided by the first, so that the first look at each takes
four batches and inputs are finished in order; on a device the rows times the second, so that the last inputs
seldom leave a batch thin."""

FEWEST = 64
"""Smallest number of inputs in a block where several workers share them."""


class ToDecide(NamedTuple):
    """A block of inputs for a worker; ``before`` holds the state in which an earlier call left each input, or None."""

    inputs: Inputs
    before: tuple[Decided | None, ...]


class Replayed(NamedTuple):
    """How many rows (noisy copies) a block ran a second time, and how many of them gave other logits."""

    compared: int
    differed: int


def decide_block(
    ladder: Ladder, n0: int, engine: Engine, _: dict[str, Any], block: ToDecide, folder: Path, sink: Sink
) -> Iterator[int]:
    """Run a block in a worker: yield the numbers of draws made, and pass results to ``sink``.

    Results are a ``Decided`` record of each input, of unfinished ones as they stand, and one ``Replayed``. ``ladder``
    holds the radii, and ``n0`` is the number of selection draws.
    """
    del folder
    before = engine.replayed()
    try:
        steps = Session(engine).certify_until(block.inputs, ladder, sink, n0=n0, before=block.before)
        with closing(steps) as going:  # type: ignore[type-var]
            for made in going:
                yield made.drawn
    finally:
        now = engine.replayed()
        sink(Replayed(now[0] - before[0], now[1] - before[1]))


def decide(
    spec: RunSpec,
    target: Target,
    classifier: Classifier | Executor,
    dataset: Dataset,
    out: str | Path | None = None,
    *,
    max_seconds: float | None = None,
    allow_other_model: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Decided]:
    """Return a ``Decided`` record of every input in the order of the data, after at most ``spec.n`` draws of each.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``target.alpha``,
    whenever its drawing stopped, over all calls together. Its draws and its decision are those of its input alone,
    whatever the executor, for a classifier that treats rows independently.

    ``out`` is a Parquet file that keeps the decisions, and the votes of unfinished inputs; it is written as work goes
    on and at the end, also after an error or an interrupt (which raises ``Interrupted`` with the records by then). The
    same call goes on from it. If ``n`` is larger then, inputs that were given up go on too, by e-values alone: the
    final test, at the first call's ``n``, is not made again (theory T17). After ``max_seconds`` drawing stops: inputs
    begun are ``undecided``, with the certificates that they have by then, and those not begun are missing.

    A file is continued with the model, environment and data that began it (``runs.identity``); ``allow_other_model``
    lets another model or environment go on, which the file records. ``progress`` is called with the number of inputs
    decided, and of draws made by this call.
    """
    labels = _labels(spec, target, dataset)
    deadline = inf if max_seconds is None else time.monotonic() + check_positive("max_seconds", max_seconds)
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    made = Decisions(None if out is None else Path(out), spec, target, dataset, identity, allow_other_model)
    left = [i for i, name in enumerate(dataset.ids) if name not in made.finished]
    size = max(1, spec.batch_size // SHARE_OF_BATCH if spec.device == "cpu" else spec.batch_size * BATCHES_ON_DEVICE)
    if executor.width > 1:
        size = min(size, max(FEWEST, -(-len(left) // (4 * executor.width))))

    def blocks() -> Iterator[ToDecide]:
        for first in range(0, len(left), size):
            chosen = left[first : first + size]
            part = dataset.select(ids=[dataset.ids[i] for i in chosen])
            x = part.load(0, len(part))
            made.loaded(part.ids, x)
            inputs = Inputs(x, part.ids, None if labels is None else labels[chosen])
            yield ToDecide(inputs, tuple(made.kept.get(name) for name in part.ids))

    step = partial(decide_block, target.ladder(spec, made.final_n), spec.n0)
    work = partial(begin, probe, identity.record, step, False)
    return made.fill(executor.run(work, blocks(), made.take, deadline=deadline), progress)


def _labels(spec: RunSpec, target: Target, dataset: Dataset) -> Any:
    if (target.certified_class == "selection") != (spec.n0 > 0):
        raise InvalidInput(f"n0 must be at least 1 for class 'selection', and 0 for others; got {spec.n0}")
    if target.certified_class != "label":
        return None
    if dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    return check_label(dataset.labels, spec.num_classes, len(dataset), "labels")


class Decisions(ResultFile):
    """Sink of ``decide``: the ``Decided`` records of earlier calls and of this one, also in a Parquet file.

    The file's metadata say what was asked, which models drew and from which inputs, so that the same call goes on, and
    another call is refused and overwrites nothing. ``final_n`` is the draw of the final test: ``spec.n`` of the first
    call. ``finished`` holds the names of the inputs that need no more draws.
    """

    def __init__(
        self,
        path: Path | None,
        spec: RunSpec,
        target: Target,
        dataset: Dataset,
        identity: Identity,
        allow_other_model: bool,
    ) -> None:
        """Take the decisions that the file holds; InvalidInput or StoreError if its call, data or model was another."""
        super().__init__(path, dataset.ids)
        self._spec, self._dataset, self._data = spec, dataset, identity.data
        self._asked = target.as_dict(spec)
        self._record = identity.record
        self._known: list[Record] = []
        self._contents: dict[str, str] = {}
        self._drawings: dict[str, Drawing] = {}
        self._replayed = 0, 0
        self.final_n, self.finished = spec.n, set[str]()
        if path is not None and path.exists():
            self._go_on(path, read_decisions(path), target.ladder(spec).radii, allow_other_model)

    def _go_on(self, path: Path, found: DecisionTable, radii: Sequence[float], allow_other_model: bool) -> None:
        """Take the decisions of a file, after comparing its call, data and model with this one's.

        Where the budget has grown, what was given up within the old one is undecided again. An undecided input with
        votes of another model is left out, and begun anew: a test needs the votes of one model.
        """
        origin, spec = found.origin, self._spec
        changed = [key for key, value in self._asked.items() if _unnamed(origin.get(key)) != _unnamed(value)]
        first, before = origin.get("final_n"), _budget(origin.get("spec"))
        if changed or type(first) is not int or not 1 <= first <= before or spec.n < before:
            old, alone = origin.get("spec"), changed in ([], ["spec"])
            what = difference(old, spec.as_dict()) if alone and isinstance(old, dict) else ", ".join(changed)
            raise InvalidInput(
                f"{str(path)!r} holds decisions of another call (another {what}); give its settings to go on with it, "
                "or another file"
            )
        owner = origin.get("owner")
        if not isinstance(owner, dict) or owner.get("data") != self._data:
            raise StoreError(
                f"{str(path)!r} was begun with other data: ids, labels or values of inputs differ; use another file"
            )
        self.final_n = first
        self._known, self._replayed = records_in(origin), replayed_in(origin)
        self._record = admit(path, self._known, self._record, allow_other_model)
        names = [decided.certificate.id for decided in found.decided]
        for name, decided, drawing in zip(names, found.decided, found.drawings, strict=True):
            steps = len(decided.certified_at)
            allowed = {radii[steps - 1] if 0 < steps <= len(radii) else 0.0}
            if decided.certificate.winner_alpha:  # a radius is passed, and the class is not known to be the winner yet
                allowed.add(0.0)
            if decided.certificate.radius not in allowed:
                raise InvalidInput(f"{str(path)!r} holds a decision that is not of this run: {show(name)}")
            again = spec.n > before and decided.decision == "given up"
            ended = "undecided" if again else decided.decision
            if ended == "undecided" and not is_same(self._known[drawing.drawn_by], self._record):
                continue
            self._drawings[name] = drawing
            self.kept[name] = replace(decided, decision=ended, radii=tuple(radii), final_n=first)
            if ended != "undecided":
                self.finished.add(name)
        Lookup(self._dataset, path).check(names, [drawing.input for drawing in found.drawings])

    def loaded(self, ids: Sequence[str], x: Float32Array) -> None:
        """Remember a hash of the values of each input ``x[i]``, named ``ids[i]``; the file will hold it."""
        if self.path is not None:
            self._contents.update(zip(ids, map(content_id, x), strict=True))

    @property
    def done(self) -> int:
        """The number of inputs that need no more draws."""
        return len(self.finished)

    def take(self, made: Decided | Replayed) -> None:
        """Keep what a worker made: a ``Decided`` record, or numbers of rows that it ran again."""
        if isinstance(made, Replayed):
            self._replayed = self._replayed[0] + made.compared, self._replayed[1] + made.differed
            return
        name = made.certificate.id
        if self._record not in self._known:
            self._known.append(self._record)
        # Noted before it is kept: what is kept is written, also after an interrupt here.
        self._drawings[name] = Drawing(self._contents.get(name, ""), self._known.index(self._record))
        if made.decision != "undecided":
            self.finished.add(name)
        self.keep(name, made)

    def write(self, path: Path) -> None:
        """Write all records to ``path``, with what was asked and which models drew from which inputs."""
        decisions, labels = self.in_order(), self._dataset.labels
        owner = {"classifier": self._known[0]["answers"], "data": self._data}
        drawn = {"owner": owner, "drawn_by": self._known, "replayed": list(self._replayed)}
        drawings = [self._drawings[decided.certificate.id] for decided in decisions]
        held = np.array([name in self.kept for name in self.names])
        origin = {**self._asked, "final_n": self.final_n, **drawn}
        write_decisions(path, decisions, drawings, origin, None if labels is None else labels[held])


def _unnamed(value: Any) -> Any:
    """Return a specification without its names and its budget, and anything else as it is."""
    left_out = {*NAMES, "n", "checkpoints"}
    return {k: v for k, v in value.items() if k not in left_out} if isinstance(value, dict) else value


def _budget(spec: Any) -> int:
    n = spec.get("n") if isinstance(spec, dict) else None
    return n if type(n) is int else 0
