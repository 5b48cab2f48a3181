"""A specification, radii fixed beforehand, and inputs -> decisions: drawn until decided, on any executor.

Inputs are cut into blocks; the draws of a block share batches, and each decision comes as it is made. What is decided
is kept in a file, with the votes of inputs that are under way, and the same call goes on from there.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, StoreError, check_alpha, check_choice, check_label, check_positive, show
from buckler.noise import NOISES, default_margin, parse
from buckler.runs.executor import ComputeBlock, Executor, Interrupted, Watch
from buckler.runs.identity import (
    BATCHES_AGAIN,
    NOT_REPEATABLE,
    Expected,
    Identity,
    Lookup,
    Redraw,
    admit,
    check_same_votes,
    identify,
    is_same,
    records_in,
    replayed_in,
)
from buckler.runs.spec import NAMES, RunSpec, difference, from_dict, noise_in
from buckler.runs.store.tables import Drawing, read_decisions, read_origin, write_decisions
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.streams import content_id
from buckler.session import SAVE_SECONDS, Inputs, Session, Sink
from buckler.types import Float32Array, MarginKind, Noise

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


SHARE_OF_BATCH, BATCHES_ON_DEVICE = 4, 4
"""Inputs of a block: a quarter of the rows of a batch on a processor, so that the first look at each takes four batches
and inputs are finished in order; on a device four times the rows, so that the last ones seldom leave a batch thin."""

FEWEST = 64
"""Inputs of a block at least, where there are several workers."""

SAVING_SHARE = 0.05
"""Share of the time that may go into saving, where files are so large that this takes longer."""


class ToDecide(NamedTuple):
    """A block of inputs, and where an earlier call left each of them, if it had begun."""

    inputs: Inputs
    before: tuple[Decided | None, ...]


class Replayed(NamedTuple):
    """Rows that a block ran a second time, and how many of them gave other bits."""

    compared: int
    differed: int


@dataclass(frozen=True, slots=True)
class DecideInputs:
    """The work of ``decide``, for an executor: one session for all inputs of a block."""

    spec: RunSpec
    target: Target
    final_n: int
    expected: Expected

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[ComputeBlock]:
        """Yield the function that draws for a block and hands over decisions, and inputs under way as they stand."""
        self.expected.check(classifier, threads)
        engine, ladder = self.spec.engine(classifier, threads), self.target.ladder(self.spec, self.final_n)

        def step(data: ToDecide, _: Path, sink: Sink) -> Iterator[int]:
            before = engine.replayed()
            try:
                steps = Session(engine).certify_until(data.inputs, ladder, sink, n0=self.spec.n0, before=data.before)
                with closing(steps) as going:  # type: ignore[type-var]
                    for made in going:
                        yield made.drawn
            finally:
                now = engine.replayed()
                sink(Replayed(now[0] - before[0], now[1] - before[1]))

        with engine.session():
            yield step


def decide(
    spec: RunSpec,
    target: Target,
    classifier: Classifier | Executor,
    dataset: Dataset,
    out: str | Path | None = None,
    *,
    max_seconds: float | None = None,
    allow_other_model: bool = False,
    progress: Watch = lambda *_: None,
) -> list[Decided]:
    """Return how every input ended or stands, in the order of the data; at most ``spec.n`` draws go into each.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``target.alpha``,
    whenever its drawing stopped, over all calls together. Its draws and its decision are those of its input alone,
    whatever the executor, for a classifier that treats rows independently.

    ``out`` is a Parquet file that keeps what is decided, and the votes of inputs under way: written as work goes on,
    and at the end, also where that is an error or an interrupt, which raises ``Interrupted`` with the decisions by
    then; the same call goes on from it. With a larger ``n`` in the specification the call goes on where the budget was
    too small, by e-values alone beyond the first ``n``, whose final test is not taken again (theory T17). After
    ``max_seconds`` drawing stops: inputs under way are ``undecided``, with the certificates that they have by then, and
    those that were not begun are missing.

    The file goes on with the model, environment and data of earlier calls alone (``runs.identity``), and one finished
    input is drawn again; ``allow_other_model`` lets another model or environment go on, which the file records.
    """
    labels = _labels(spec, target, dataset)
    deadline = inf if max_seconds is None else time.monotonic() + check_positive("max_seconds", max_seconds)
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    asked = {"spec": spec.as_dict(), **target.as_dict(), "final_n": spec.n}
    made = DecisionStore(None if out is None else Path(out), asked, dataset, identity, allow_other_model)
    made.read(target.ladder(spec).radii)
    made.draw_again(spec, executor)
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

    drawn, work = 0, DecideInputs(spec, target, made.final_n, Expected(probe, identity))
    progress(len(made.finished), drawn)
    try:
        for more in executor.run(work, blocks(), made.take, deadline=deadline):
            drawn += more
            progress(len(made.finished), drawn)
    except KeyboardInterrupt:
        raise Interrupted(made.in_order()) from None
    finally:
        made.close()
        progress(len(made.finished), drawn)
    return made.in_order()


def _labels(spec: RunSpec, target: Target, dataset: Dataset) -> Any:
    if (target.certified_class == "selection") != (spec.n0 > 0):
        raise InvalidInput(f"n0 must be at least 1 for class 'selection', and 0 for others; got {spec.n0}")
    if target.certified_class != "label":
        return None
    if dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    return check_label(dataset.labels, spec.num_classes, len(dataset), "labels")


class DecisionStore:
    """Decisions of earlier calls and of this one, in memory, and in a file where there is one.

    The file's metadata say what was asked, which models drew and from which inputs, so that the same call goes on where
    it ended, and another one is refused and overwrites nothing.
    """

    def __init__(
        self, path: Path | None, asked: Mapping[str, Any], dataset: Dataset, identity: Identity, allow_other_model: bool
    ) -> None:
        """Name the file; ``asked`` holds ``spec`` and whatever else decisions depend on. Another file is refused."""
        self._path, self._asked, self._dataset, self._data = path, dict(asked), dataset, identity.data
        self._record = identity.as_dict()
        self._known: list[dict[str, Any]] = []
        self._contents: dict[str, str] = {}
        self._drawings: dict[str, Drawing] = {}
        self._replayed = 0, 0
        self._saved, self._took = time.monotonic(), 0.0
        self._grown = self._changed = False
        self.kept: dict[str, Decided] = {}
        self.finished: set[str] = set()
        self._found = read_origin(path) if path is not None and path.exists() else None
        if path is not None and self._found is not None:
            self._go_on(path, self._found, allow_other_model)

    @property
    def final_n(self) -> int:
        """The draw of the final test: the budget that was fixed before the first draw."""
        return int(self._asked["final_n"])

    def _go_on(self, path: Path, found: Mapping[str, Any], allow_other_model: bool) -> None:
        asked = {key: value for key, value in self._asked.items() if key != "final_n"}
        changed = [key for key, value in asked.items() if _unnamed(found.get(key)) != _unnamed(value)]
        first, before, now = found.get("final_n"), _budget(found.get("spec")), _budget(asked["spec"])
        if changed or type(first) is not int or not 1 <= first <= before or now < before:
            old, alone = found.get("spec"), changed in ([], ["spec"])
            what = difference(old, asked["spec"]) if alone and isinstance(old, dict) else ", ".join(changed)
            raise InvalidInput(
                f"{str(path)!r} holds decisions of another call (another {what}); give its settings to go on with it, "
                "or another file"
            )
        self._asked["final_n"], self._grown = first, now > before
        owner = found.get("owner")
        if not isinstance(owner, dict) or owner.get("data") != self._data:
            raise StoreError(
                f"{str(path)!r} was begun with other data: ids, labels or values of inputs differ; use another file"
            )
        self._known, self._replayed = records_in(found), replayed_in(found)
        self._record = admit(path, self._known, self._record, allow_other_model)

    def read(self, radii: Sequence[float]) -> None:
        """Take the decisions of earlier calls, after comparing their inputs with those of the data.

        Where the budget has grown, what was given up within the old one is undecided again. An undecided input with
        votes of another model is left out, and begun anew: a test needs the votes of one model.
        """
        if self._path is None or self._found is None:
            return
        found = read_decisions(self._path)
        kept = {d.certificate.id: d for d in found.decided}
        known = set(self._dataset.ids)
        for name, decided in kept.items():
            steps = len(decided.certified_at)
            allowed = {radii[steps - 1] if 0 < steps <= len(radii) else 0.0}
            if decided.certificate.winner_alpha:  # a radius is passed, and the class is not known to be the winner yet
                allowed.add(0.0)
            if name not in known or decided.certificate.radius not in allowed:
                raise InvalidInput(f"{str(self._path)!r} holds a decision that is not of this run: {show(name)}")
            kept[name] = replace(decided, radii=tuple(radii), final_n=self.final_n)
        for _ in Lookup(self._dataset, self._path).inputs(list(kept), [drawing.input for drawing in found.drawings]):
            pass
        self._drawings = dict(zip(kept, found.drawings, strict=True))
        for name, decided in list(kept.items()):
            if self._grown and decided.decision == "given up":
                kept[name] = replace(decided, decision="undecided")
            if kept[name].decision == "undecided" and not is_same(self._drawer(name), self._record):
                del kept[name]
        self.kept, self.finished = kept, {name for name, d in kept.items() if d.decision != "undecided"}

    def _drawer(self, name: str) -> Mapping[str, Any]:
        return self._known[self._drawings[name].drawn_by]

    def draw_again(self, spec: RunSpec, executor: Executor) -> None:
        """Draw one input of an earlier call again, and raise StoreError if the model gives other votes now."""
        own = [d for d in self.kept.values() if is_same(self._drawer(d.certificate.id), self._record)]
        if self._path is None or not own or self._record["answers"] == NOT_REPEATABLE:
            return
        few = [d for d in own if d.certificate.n <= BATCHES_AGAIN * spec.batch_size]
        own = few or [min(own, key=lambda d: d.certificate.n)]
        chosen = min(own, key=lambda d: (max(dict(d.votes).values()) / d.certificate.n, -d.certificate.n))
        name, n = chosen.certificate.id, chosen.certificate.n
        position = Lookup(self._dataset, self._path).places([name])[0]
        x = self._dataset.load(position, position + 1)
        (now,) = executor.call(Redraw(spec, (name,), x, 0, (("estimation", 0, n),)).votes)
        before = np.zeros(spec.num_classes, dtype=np.int64)
        for k, count in chosen.votes:
            before[k] = count
        check_same_votes(self._path, name, now, before)

    def loaded(self, ids: Sequence[str], x: Float32Array) -> None:
        """Keep a hash of the values of each input that a block has loaded, for the file."""
        if self._path is not None:
            self._contents.update(zip(ids, map(content_id, x), strict=True))

    def take(self, made: Decided | Replayed) -> None:
        """Keep a decision, or a number of replayed rows, that a worker made; write the file from time to time."""
        if isinstance(made, Replayed):
            self._replayed = self._replayed[0] + made.compared, self._replayed[1] + made.differed
            return
        name = made.certificate.id
        if self._record not in self._known:
            self._known.append(self._record)
        # Noted before it is kept: what is kept is written, also after an interrupt here.
        self._drawings[name] = Drawing(self._contents.get(name, ""), self._known.index(self._record))
        self.kept[name], self._changed = made, True
        if made.decision != "undecided":
            self.finished.add(name)
        if time.monotonic() - self._saved > max(SAVE_SECONDS, self._took / SAVING_SHARE):
            self.close()

    def in_order(self) -> list[Decided]:
        """Return the decisions in the order of the data."""
        return [self.kept[name] for name in self._dataset.ids if name in self.kept]

    def close(self) -> None:
        """Write the file, if there is one and anything changed."""
        if self._path is None or not self._changed:
            return
        started, decisions, labels = time.monotonic(), self.in_order(), self._dataset.labels
        owner = {"classifier": self._known[0]["answers"], "data": self._data}
        origin = {**self._asked, "owner": owner, "drawn_by": self._known, "replayed": list(self._replayed)}
        drawings = [self._drawings[decided.certificate.id] for decided in decisions]
        held = np.array([name in self.kept for name in self._dataset.ids])
        write_decisions(self._path, decisions, drawings, origin, None if labels is None else labels[held])
        self._saved, self._changed = time.monotonic(), False
        self._took = self._saved - started


def _unnamed(value: Any) -> Any:
    """Return a specification without its names and its budget, and anything else as it is."""
    left_out = {*NAMES, "n", "checkpoints"}
    return {k: v for k, v in value.items() if k not in left_out} if isinstance(value, dict) else value


def _budget(spec: Any) -> int:
    n = spec.get("n") if isinstance(spec, dict) else None
    return n if type(n) is int else 0
