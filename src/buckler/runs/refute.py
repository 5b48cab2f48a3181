"""Certificates, their model and their data -> refutations: found by attacks, block by block, on any executor.

They are kept in a file as they are made, with points and votes, and the same call goes on from there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.certificate import Bracket, Refutation
from buckler.errors import InvalidInput, check_whole
from buckler.evaluate.refutations import RefutationSettings, check_searched, to_refute
from buckler.runs.identity import Lookup, begin, identify
from buckler.runs.open_run import OpenRun
from buckler.runs.results import Result
from buckler.runs.spec import FOR_EVIDENCE, IMPORTED, NAMES
from buckler.runs.store.tables import read_refutations, write_refutations
from buckler.sampling.engine import Engine
from buckler.session import Inputs, ResultFile, Session, Sink
from buckler.types import FloatArray

DRAWING_SETTINGS = ("n", "n0", *FOR_EVIDENCE, "generator")
"""Fields of a ``RunSpec`` that say how votes were drawn, not what is attacked; ``refute`` ignores them."""


class Refuted(NamedTuple):
    """Result of ``refute``: a ``Bracket`` for each certificate attacked, in their order.

    ``same_model`` says whether the model has the same logits as the one that was certified; None if that is not known.
    """

    brackets: list[Bracket]
    same_model: bool | None


class _Claim(NamedTuple):
    """What is attacked: a class, where the search begins, and what is known of the certificate and its input."""

    label: int
    radius: float
    alpha: float
    truth: int | None
    content: str


class ToRefute(NamedTuple):
    """A block of inputs with their classes, for a worker; the search around input i begins at radius ``start[i]``."""

    inputs: Inputs
    start: FloatArray


def refute_block(
    how: RefutationSettings, engine: Engine, _: dict[str, Any], block: ToRefute, folder: Path, sink: Sink
) -> Iterator[int]:
    """Attack the inputs of a block in a worker: yield numbers of draws, and pass each ``Refutation`` to ``sink``."""
    del folder
    for made in Session(engine).refute(block.inputs, how, block.start, sink):
        yield made.drawn


def settings_to_refute(result: Result, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which ``open_run`` opens the model and the data of a result again.

    Those in ``given`` that are not None replace the result's own.
    """
    noise = result.groups[0].first.noise
    check_searched(noise)
    settings = {key: value for key, value in (result.spec or {}).items() if key not in DRAWING_SETTINGS}
    if not settings or settings["model"] == IMPORTED:
        settings = {"noise": noise.name, "noise_parameters": dict(noise.parameters)}
    settings.pop("fresh_seed", None)  # ``seed`` holds the seed that was drawn
    settings |= {key: value for key, value in given.items() if value is not None}
    for name in ("model", "data"):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given: {str(result.path)!r} does not name it")
    return {**settings, "n": 1, "n0": 0}


def refute(
    result: Result,
    run: OpenRun,
    how: RefutationSettings,
    out: str | Path | None = None,
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Refuted:
    """Attack the certificates of a result that are no abstentions, or the first ``limit``, and return their brackets.

    **Guarantee.** Each refutation is false with probability at most ``how.alpha`` (theory T22), whatever the executor.

    ``run`` is the open run of model and data, and ``how`` says how to attack. ``out`` is a Parquet file that keeps
    points and votes as they are made, also if an error or an interrupt ends the call (an interrupt raises
    ``Interrupted`` with the brackets by then); the same call goes on from it. ``progress`` is called with the number of
    inputs done and of draws.
    """
    group, rows = result.groups[0], np.flatnonzero(~result.groups[0].abstained)
    rows = rows if limit is None else rows[: check_whole("limit", limit, 1)]
    if not rows.size:
        raise InvalidInput(f"{str(result.path)!r} holds abstentions alone: there is nothing to refute")
    truths = [None] * len(group) if group.labels is None else group.labels.tolist()
    contents = result.contents or [""] * len(group)
    wanted = {
        group.ids[i]: _Claim(*to_refute(group[i], how.noise), group[i].alpha, truths[i], contents[i])
        for i in rows.tolist()
    }
    identity, probe = identify(run.spec, run.executor, run.dataset)
    answers, drawn_by = identity.record["answers"], result.origins.get("classifier")
    left_out = {*NAMES, *DRAWING_SETTINGS, "batch_size"}
    asked = {
        "spec": {key: value for key, value in run.spec.as_dict().items() if key not in left_out},
        "alpha": how.alpha, "max_n": how.max_n, "max_radius": how.reach, "within": how.reach if how.first else None,
        "attack": None if how.attack is None else asdict(how.attack), "classifier": answers,
    }  # fmt: skip
    kept = _Brackets(None if out is None else Path(out), asked, wanted)
    left = [name for name in wanted if name not in kept.kept]
    size = how.inputs_at_once(run.spec.batch_size)
    if run.executor.width > 1:
        size = min(size, max(1, -(-len(left) // (2 * run.executor.width))))
    lookup = Lookup(run.dataset, result.path)

    def blocks() -> Iterator[ToRefute]:
        for first in range(0, len(left), size):
            names = left[first : first + size]
            claims = [wanted[name] for name in names]
            x = np.stack(list(lookup.inputs(names, [claim.content for claim in claims])))
            inputs = Inputs(x, tuple(names), np.array([claim.label for claim in claims]))
            yield ToRefute(inputs, np.array([claim.radius for claim in claims]))

    work = partial(begin, probe, identity.record, partial(refute_block, how), False)
    made = kept.fill(run.executor.run(work, blocks(), kept.take), progress)
    known = drawn_by is not None and drawn_by.startswith("answers:")
    return Refuted(made, drawn_by == answers if known else None)


class _Brackets(ResultFile):
    """Brackets of earlier calls and of this one; ``wanted`` are the certificates that are attacked, in their order."""

    def __init__(self, out: Path | None, asked: Mapping[str, Any], wanted: Mapping[str, _Claim]) -> None:
        """Read the brackets an earlier call wrote; raise InvalidInput if its settings or certificates were others."""
        super().__init__(out, list(wanted))
        self._asked, self._wanted = asked, wanted
        if out is None or not out.exists():
            return
        brackets, origin = read_refutations(out)
        if changed := [key for key in asked if origin.get(key) != asked[key]]:
            what = ", ".join(changed)
            raise InvalidInput(f"{str(out)!r} holds refutations of another call (another {what}); use another file")
        for b in brackets:
            name, claim = b.refutation.id, wanted.get(b.refutation.id)
            if claim is None or (b.refutation.label, b.certified) != (claim.label, claim.radius):
                raise InvalidInput(f"{str(out)!r} holds the refutation of another certificate, {name!r}")
            self.kept[name] = b

    def take(self, made: Refutation) -> None:
        """Keep a refutation."""
        claim = self._wanted[made.id]
        self.keep(made.id, Bracket(made, claim.radius, claim.alpha, claim.truth))

    def write(self, path: Path) -> None:
        """Write all refutations, and what was asked."""
        write_refutations(path, self.in_order(), self._asked)
