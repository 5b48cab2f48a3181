"""Settings of a certificate, checked once, and certificates from limits under these settings.

Every function that certifies makes one ``Settings`` of its arguments; limits are computed from it,
``make_certificates`` turns them into certificates, and certificates and manifests repeat it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from buckler.certificate import ABSTAINED, RANDOMISED, Certificate, Claim
from buckler.certificates import Certificates
from buckler.certify import budget
from buckler.certify.methods import ENUMERATED, Method, Reads, sound_method
from buckler.errors import InvalidInput, check_alpha, check_choice, check_label, check_positive, check_risk
from buckler.noise import as_noise, check_margin, default_margin
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind, Noise, ScoreDtype, SimplexMap

DEFAULT_METHODS = {"votes": "exact", "scores": "pairwise/star"}
"""Method that certifies votes or scores unless another is named; for scores with a known seed it is ``RANDOMISED``."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """Setting: smooth the softmax scores of the logits at a temperature, instead of counting votes."""

    temperature: float = 1.0
    map: ClassVar[Literal["softmax"]] = "softmax"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)


@dataclass(frozen=True, slots=True)
class Sparsemax:
    """Setting: smooth the sparsemax scores of the logits (Martins and Astudillo 2016), instead of counting votes."""

    map: ClassVar[Literal["sparsemax"]] = "sparsemax"
    temperature: ClassVar[None] = None


Scoring = Softmax | Sparsemax


def scoring(map: str, temperature: float | None = None) -> Scoring | None:  # noqa: A002  (the record's name for it)
    """Return the ``Softmax`` or ``Sparsemax`` that ``map`` and ``temperature`` name; None for "hardmax", that is votes.

    None as the temperature of a softmax means 1.
    """
    if check_choice("map", map, get_args(SimplexMap)) == "softmax":
        return Softmax(1.0 if temperature is None else temperature)
    if temperature is not None:
        raise InvalidInput(f"temperature must be None for {map}; got {temperature}")
    return Sparsemax() if map == "sparsemax" else None


@dataclass(frozen=True, slots=True)
class Settings:
    """What certificates are asked for: noise, total error probability ``alpha``, method, and margin that it bounds.

    ``scores`` says which scores are smoothed, None that votes are counted. ``seed`` is that of the noise, or else that
    of a randomised method, None if there is neither; certificates repeat it. ``score_dtype`` is that of scores that
    were kept on disk.
    """

    noise: Noise
    alpha: float
    method: Method
    margin: MarginKind
    scores: Scoring | None = None
    seed: int | None = None
    score_dtype: ScoreDtype = "float32"

    @property
    def level(self) -> float:
        """Error probability left for the limits: ``after_drawing`` of alpha; 0 if the noise's copies are enumerated."""
        return 0.0 if self.noise.total is not None else budget.after_drawing(self.alpha, self.noise)

    @property
    def map(self) -> SimplexMap:
        """Name of the map from logits to votes ("hardmax") or to scores ("softmax", "sparsemax")."""
        return "hardmax" if self.scores is None else self.scores.map

    @property
    def temperature(self) -> float | None:
        """Temperature of softmax scores; None for sparsemax scores and for votes."""
        return None if self.scores is None else self.scores.temperature


def make_settings(
    *,
    sigma: float | None = None,
    noise: Noise | str | None = None,
    alpha: float = 1e-3,
    method: str | Method | None = None,
    margin: MarginKind | None = None,
    scores: Scoring | None = None,
    seed: int | None = None,
) -> Settings:
    """Return settings of certificates, checked: Gaussian noise of standard deviation ``sigma``, or else ``noise``.

    ``method`` and ``margin`` have defaults for the noise and for votes or ``scores``; a method named must have a
    guarantee, a ``Method`` itself need not. For noise whose copies are enumerated alpha is 0 and the votes are exact,
    so no method can be named. A randomised method needs the seed of the noise, or another one that was chosen before
    the draws were seen.
    """
    given = as_noise(sigma, noise)
    reads: Reads = "votes" if scores is None else "scores"
    level = check_alpha(alpha) if given.total is not None else check_risk(alpha)
    if given.total is not None:
        if method not in {None, DEFAULT_METHODS["votes"]} or scores is not None:
            raise InvalidInput(f"method and scores must be left out for {given.describe()}, whose votes are exact")
        check_margin(given, margin or "probability")
        return Settings(given, 0.0, ENUMERATED, "probability", None, None)
    if isinstance(method, Method):
        rule = method
    else:
        default = DEFAULT_METHODS[reads] if scores is None or seed is None else RANDOMISED
        rule = sound_method(method or default, reads)
    if rule.randomised and seed is None:
        raise InvalidInput(f"seed must be given with method {rule.name!r}, which draws one number for each input")
    kind = check_choice("margin", margin or default_margin(given), get_args(MarginKind))
    check_margin(given, kind)
    rule.check_margin(kind)
    return Settings(given, level, rule, kind, scores, seed)


class ChosenClass(NamedTuple):
    """The class to certify for each input, -1 where none is, and how it was chosen.

    ``n0`` selection draws chose it, 0 where none were made. ``winner_alpha`` was spent on the test that it is the
    smoothed prediction, 0 without one, and ``alpha`` is left for the limit of its margin.
    """

    classes: IntArray
    n0: IntArray
    alpha: float
    winner_alpha: float


def choose_class(
    alpha: float,
    inputs: int,
    num_classes: int,
    *,
    labels: ArrayLike | None,
    selected: tuple[IntArray, IntArray] | None,
    winner: Callable[[float], IntArray],
) -> ChosenClass:
    """Return the class to certify for each input: its label, the class selected on other draws, or the leading class.

    ``labels[inputs]`` are classes fixed beforehand; ``selected`` holds the class and the number of selection draws of
    each input; without both, ``winner(level)`` returns the class that leads in the draws to be certified from, where a
    test at that level shows that it is the smoothed prediction, else -1.

    **Guarantee.** A limit at the level returned, for the class returned, exceeds its margin or is about a class that is
    not the smoothed prediction with probability at most ``alpha`` (T18d).
    """
    none = np.zeros(inputs, dtype=np.int64)
    if labels is not None and selected is not None:
        raise InvalidInput("labels and selection cannot both choose the class; got both")
    if labels is not None:
        return ChosenClass(np.atleast_1d(check_label(labels, num_classes, inputs, "labels")), none, alpha, 0.0)
    if selected is not None:
        return ChosenClass(*selected, alpha, 0.0)
    share = budget.winner_share(alpha)
    return ChosenClass(winner(share), none, budget.rest(alpha, share), share)


def make_certificates(
    settings: Settings,
    chosen: ChosenClass,
    low: FloatArray,
    n: IntArray,
    ids: Sequence[str],
    kind: type[Claim] = Certificate,
) -> Certificates:
    """Return the certificate of each input from the lower limit ``low`` of its margin, the class chosen, and n draws.

    The radius is what the noise gives for the limit, rounded down; without one the certificate is an abstention.

    **Guarantee.** Each certificate is wrong with probability at most ``settings.alpha``, as its limit and the choice of
    its class are. With ``kind=Claim`` records come back that promise nothing, for a method without a guarantee.
    """
    lows = np.where(chosen.classes == ABSTAINED, -inf, low)
    # One radius for all inputs that share a limit: a million inputs are not rare.
    values, place = np.unique(lows, return_inverse=True)
    radii = np.array([settings.noise.radius(value, settings.margin) for value in values.tolist()])[place]
    predicted = np.where(radii > 0.0, chosen.classes, ABSTAINED)
    first = kind(
        id=ids[0],
        predicted=int(predicted[0]) if radii[0] > 0.0 else None,
        radius=float(radii[0]),
        margin_kind=settings.margin,
        margin=float(lows[0]),
        alpha=settings.alpha,
        n=int(n[0]),
        n0=int(chosen.n0[0]),
        winner_alpha=chosen.winner_alpha,
        noise=settings.noise,
        map=settings.map,
        temperature=settings.temperature,
        method=settings.method.name,
        sound=settings.method.sound,
        score_dtype=settings.score_dtype,
        seed=settings.seed,
    )
    return Certificates((first,), ids, predicted, radii, lows, n, chosen.n0).checked()


def names_or_numbers(ids: Sequence[str] | None, inputs: int) -> Sequence[str]:
    """Return ``ids``, checked to be a different name for each input; for None ``input 0``, ``input 1`` and so on."""
    if ids is None:
        return [f"input {i}" for i in range(inputs)]
    if len(ids) != inputs or len(set(ids)) != len(ids):
        raise InvalidInput(f"ids must be {inputs} different names, one for each input; got {len(ids)}")
    return ids
