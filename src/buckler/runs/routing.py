"""A composition (``Routed``) as runs: one of its router, and one of each level's classifier.

The settings of a composition have a table ``router`` and a list ``experts``, each with a ``model`` and a ``sigma``; all
other settings are those of every part. Parts are ordinary runs, called ``router``, ``level0``, ``level1``, ...: folders
in the folder of ``sample``, files in that of ``decide``. Level k has the k-th smallest sigma, and its run has the
inputs that the router sends there.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast

import numpy as np

from buckler.certificate import Certificate
from buckler.certificates import Certificates
from buckler.certify.budget import routed_level
from buckler.certify.composition import compose_all
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, StoreError, check_positive, check_risk, show
from buckler.runs.certify import CertifyKeywords, certify_by_each
from buckler.runs.decide import Target
from buckler.runs.spec import FIELDS, from_dict
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.folder import MANIFEST, ROUTER
from buckler.runs.store.tables import read_decisions, read_origin
from buckler.sampling.datasets import Dataset

EXPERTS = "experts"

OF_ALL = frozenset({"data", "labels", "resize", "crop", "value_range", "every", "limit", "ids"})
"""Settings that must be the same for all parts, so a part cannot have its own: they say which inputs are certified."""

OF_ONE = frozenset({"model", "denoiser", "sigma"})
"""Settings that each part has for itself."""

VOTES_ALONE = frozenset(
    {"noise", "noise_parameters", "scores", "temperature", "runner_ups", "score_draws", "score_dtype"}
)
"""Settings that no part takes: a composition certifies votes under Gaussian noise."""


class Part(NamedTuple):
    """A run to be drawn: its settings, and the folder or file that keeps it.

    ``level`` is the level of its classifier in a composition, -1 for the router, and None for a run that is no part.
    """

    settings: dict[str, Any]
    path: Path | None
    level: int | None = None

    @property
    def name(self) -> str:
        """What the part is called: ``router``, ``level0``, ...; nothing for a run that is no part."""
        return "" if self.level is None else _name(self.level)

    def inputs(self, dataset: Dataset) -> Dataset:
        """Return the data set as the part draws it: without true classes for a router, whose classes are levels."""
        return replace(dataset, labels=None) if self.level == -1 else dataset


def _name(level: int) -> str:
    return ROUTER if level < 0 else f"level{level}"


Levels = Callable[[Path], Mapping[str, int]]
"""Function that reads the router's finished run at a path and returns the level of each input by id; an input on whose
level the router abstains may be left out."""


def parts(
    settings: Mapping[str, Any], out: Path | None, levels: Levels, ending: str = "", given: Collection[str] = ()
) -> Iterator[Part]:
    """Yield the runs that ``settings`` name: a single one, kept at ``out``, or the parts of a composition.

    Those are kept in the folder ``out``, under names with this ``ending``. The router comes first; each must be
    finished before the next is asked for, since ``levels`` tells from the router's run which inputs an expert gets.
    ``given`` are the settings that options of the command gave, which a part cannot have for itself.
    """
    if not {ROUTER, EXPERTS} & settings.keys():
        yield Part(dict(settings), out)
        return
    if out is None:
        raise InvalidInput("--out must be given for a router and its experts: the folder that keeps them")
    if out.suffix == ".parquet" or (out / MANIFEST).is_file():
        raise InvalidInput(f"the folder of a composition must be one of its own; got {str(out)!r}")
    router, experts = _checked(settings)
    shared = {name: value for name, value in settings.items() if name not in {ROUTER, EXPERTS}}
    for part in (router, *experts):
        if twice := sorted(part.keys() & set(given)):
            raise InvalidInput(f"{twice[0]} is given as an option and in a table of the file: leave one of them out")
        from_dict({"num_classes": 2, "n": 1, **shared, **part})  # a mistake is told before anything is drawn
    file = out / (ROUTER + ending)
    yield Part({**shared, **router, "num_classes": len(experts)}, file, -1)
    chosen = levels(file)
    shared = {name: value for name, value in shared.items() if name not in {"every", "limit"}}
    for level, expert in enumerate(experts):
        ids = tuple(name for name, its in chosen.items() if its == level)
        if ids:
            yield Part({**shared, **expert, "ids": ids}, out / (_name(level) + ending), level)


def _checked(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings of the router, and those of the experts by rising sigma; InvalidInput names a wrong one."""
    router, experts = settings.get(ROUTER), settings.get(EXPERTS)
    if not isinstance(router, dict) or not isinstance(experts, list) or len(experts) < 2:
        raise InvalidInput("a composition must have a table [router] and at least two tables [[experts]]")
    if wrong := sorted(settings.keys() & (OF_ONE | VOTES_ALONE)):
        own = "is a setting of the router and of each expert" if wrong[0] in OF_ONE else "is not for a composition"
        raise InvalidInput(f"{wrong[0]} {own}; got {show(settings[wrong[0]])} for all")
    for what, part in ((ROUTER, router), *(("an expert", one) for one in experts)):
        if not isinstance(part, dict) or not {"model", "sigma"} <= part.keys():
            raise InvalidInput(f"{what} must be a table with a model and a sigma; got {show(part)}")
        if wrong := sorted(part.keys() & (OF_ALL | VOTES_ALONE)):
            own = "must be the same for all parts: set it outside of them" if wrong[0] in OF_ALL else "is not for it"
            raise InvalidInput(f"{what} has the setting {wrong[0]!r}, which {own}")
        if unknown := sorted(part.keys() - FIELDS):
            raise InvalidInput(f"{what} has an unknown setting {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
        check_positive(f"sigma of {what}", part["sigma"])
    ranked = sorted(experts, key=lambda one: float(one["sigma"]))
    if any(low["sigma"] == high["sigma"] for low, high in pairwise(ranked)):
        raise InvalidInput(f"experts must have different sigmas; got {[one['sigma'] for one in ranked]}")
    if router.get("num_classes", len(ranked)) != len(ranked):
        raise InvalidInput(f"num_classes of the router must be that of its experts, {len(ranked)}")
    return router, ranked


def levels_by_votes(folder: Path) -> dict[str, int]:
    """Return the level with the most votes of each input of a router's run, by id: the only one it may certify."""
    votes = open_evidence(folder).counts()
    chosen = votes.values if votes.selection is None else votes.selection
    return dict(zip(votes.ids, chosen.argmax(axis=1).tolist(), strict=True))


def levels_by_decisions(file: Path) -> dict[str, int]:
    """Return the level certified for each input of a router's file of decisions, by id; abstentions are left out."""
    made = [decided.certificate for decided in read_decisions(file).decided]
    return {one.id: int(one.predicted) for one in made if one.predicted is not None}


def is_composition(folder: Path) -> bool:
    """Return whether ``sample`` wrote a composition into a folder."""
    return (folder / ROUTER / MANIFEST).is_file()


class CertifiedComposition(NamedTuple):
    """The certificates of a composition's run, with the true classes where known, and the runs of its parts.

    The first part is the router, whose inputs are those of the whole run.
    """

    certificates: Certificates
    parts: tuple[Evidence, ...]


def certify_composition(
    folder: Path, method: str | None = None, **asked: Unpack[CertifyKeywords]
) -> CertifiedComposition:
    """Return the certificates of the inputs of a composition that are drawn, from the folder that ``sample`` wrote.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha``: it is an abstention, or the composition
    of router and chosen classifier predicts its class everywhere in the open l2 ball of its ``radius`` (T36).

    The method and the keywords are those of ``certify_evidence`` for both; ``certified_class`` is for the classifiers.
    """
    if asked.get("map") is not None or asked.get("temperature") is not None:
        raise InvalidInput("map and temperature are for scores; a composition certifies votes")
    alpha = check_risk(1e-3 if asked.get("alpha") is None else cast(float, asked["alpha"]))
    of_router: CertifyKeywords = {**asked, "alpha": routed_level(alpha), "certified_class": None}
    of_expert: CertifyKeywords = {**of_router, "certified_class": asked.get("certified_class")}

    def certified(evidence: Evidence, keywords: CertifyKeywords) -> tuple[Certificates, dict[str, str]]:
        noise = evidence.spec.noise
        if (noise.name, noise.norm) != ("gaussian", "l2"):
            raise InvalidInput(f"{str(evidence.root)!r} must be drawn under Gaussian noise; got {noise.describe()}")
        made = certify_by_each(evidence, [method or "exact"], **keywords)
        return made.certificates[0], dict(zip(made.certificates[0].ids, made.contents, strict=True))

    router = open_evidence(folder / ROUTER)
    routes, values = certified(router, of_router)
    parts, chosen, labels = [router], dict[str, Certificate](), dict[str, int | None]()
    for k in range(router.spec.num_classes):
        if not (folder / _name(k) / MANIFEST).is_file():
            continue
        evidence = open_evidence(folder / _name(k))
        made, contents = certified(evidence, of_expert)
        if any(values.get(name) != value for name, value in contents.items()):
            raise InvalidInput(f"{str(evidence.root)!r} must hold inputs of the router, and holds others")
        if len(parts) > 1 and parts[-1].spec.num_classes != evidence.spec.num_classes:
            raise InvalidInput(f"experts must have the same number of classes; {str(evidence.root)!r} has another")
        if len(parts) > 1 and not parts[-1].spec.sigma < evidence.spec.sigma:  # type: ignore[operator]
            raise InvalidInput(f"sigma must rise with the level; {str(evidence.root)!r} has {evidence.spec.sigma}")
        parts.append(evidence)
        known = [None] * len(made) if made.labels is None else made.labels.tolist()
        labels |= dict(zip(made.ids, known, strict=True))
        routed = {way.id for way in routes if way.predicted == k}
        chosen |= {one.id: one for one in made if one.id in routed}
    drawn = [way for way in routes if way.id in labels]
    if not drawn:
        raise StoreError(f"{str(folder)!r} holds no finished input yet")
    truth = [labels[way.id] for way in drawn]
    known_labels = None if None in truth else np.array(truth, dtype=np.int64)
    certificates = Certificates.of(compose_all(drawn, chosen, alpha), labels=known_labels)
    return CertifiedComposition(certificates, tuple(parts))


def target_of(part: Part, target: Target) -> Target:
    """Return what ``decide`` is to find out about the inputs of a part, for the ``target`` of the whole.

    A part of a composition is decided at the level ``routed_level(alpha)``, and a router certifies no true class.
    """
    if part.level is None:
        return target
    rule = target.certified_class
    if part.level < 0 and rule == "label":
        rule = "winner"
    return replace(target, alpha=routed_level(target.alpha), certified_class=rule)


def check_budget(part: Part, n: int) -> None:
    """Raise InvalidInput if a router was decided with another budget than ``n`` draws: its levels might change."""
    if part.level == -1 and part.path is not None and part.path.is_file():
        spec = read_origin(part.path).get("spec")
        before = spec.get("n") if isinstance(spec, dict) else None
        if before != n:
            raise InvalidInput(f"max_n of a composition must stay what it was, {before}; got {n}: use another folder")


def ending_of(route: Decided, expert: Decided | None) -> str:
    """Return how an input of a composition ended, in the words of ``Decided.decision``."""
    if route.decision == "undecided" or route.certificate.abstained:
        return route.decision
    if expert is None or expert.decision == "undecided":
        return "undecided"
    return expert.decision if route.decision == "certified" else route.decision


def compose_decisions(routes: Sequence[Decided], chosen: Sequence[Decided], alpha: float) -> Certificates:
    """Return the certificates of a composition, from the router's decisions and those of the classifiers it chose.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``alpha``: a radius
    is certified if the router's ladder and the chosen classifier's both have it (T36).
    """
    found = {decided.certificate.id: decided.certificate for decided in chosen}
    return Certificates.of(compose_all([decided.certificate for decided in routes], found, alpha))
