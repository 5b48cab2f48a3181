"""A model, a law of noise and an input -> a certificate, in memory: the door for one's own program."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from buckler.certify.anytime import AnytimeTest
from buckler.certify.counts import certify_counts
from buckler.certify.decided import Decided
from buckler.certify.ladder import Ladder, radii_for
from buckler.certify.registry import sound_method
from buckler.certify.scores import certify_scores
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.laws import law_of
from buckler.records import Certificate
from buckler.sampling.adaptive import draw_until_decided
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, score_map
from buckler.sampling.noise import content_id
from buckler.sampling.values import as_floats, check_value_range
from buckler.types import ArrayLike, Float32Array, Law, MarginKind, RadiusKind, SimplexMap

DRAWS, SELECTION_DRAWS, MAX_DRAWS = 1000, 100, 100_000
"""Draws unless told: for estimation, for selection, and for estimation at most where drawing ends when decided."""


class Smoothed:
    """A classifier smoothed with Gaussian noise of standard deviation ``sigma``, or with noise that follows ``law``.

    Sigma and radii are in the units of the input.

    ``model`` is a torch module, a scikit-learn classifier, the path of an ONNX file, or any callable that turns a batch
    into logits. Noise is added to the input as given, so any normalisation belongs inside of the model.

    ``value_range = (low, high)`` declares the range of the inputs, as ``buckler sample`` does: floats must lie in it,
    bytes are spread over it (0 is low, 255 is high), other whole numbers are taken as they are. Without it inputs must
    be floats, since sigma and radius are in units that whole numbers leave open.

    >>> import numpy as np
    >>> def sign(batch):  # class 1 where the mean is above zero
    ...     return np.stack([0 * batch.mean(1), batch.mean(1)], axis=1)
    >>> certificate = Smoothed(sign, sigma=0.5, num_classes=2).certify([1.0, 1.0], n=1000, n0=100, alpha=1e-3, seed=0)
    >>> certificate.predicted, round(certificate.radius, 3)
    (1, 1.089)
    """

    def __init__(
        self,
        model: Any,
        sigma: float | None = None,
        num_classes: int | None = None,
        *,
        law: Law | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> None:
        """Hold the model; nothing is drawn yet."""
        self.law = law_of(sigma, law)
        self.value_range = None if value_range is None else check_value_range(value_range)
        self.classifier = as_classifier(model, num_classes=num_classes)

    def certify(
        self,
        x: ArrayLike,
        *,
        n: int | None = None,
        n0: int | None = None,
        alpha: float = 1e-3,
        seed: int = 0,
        label: int | None = None,
        margin: MarginKind | None = None,
        method: str | None = None,
        radius: RadiusKind | None = None,
        map: SimplexMap = "hardmax",  # noqa: A002  (the record's own name for it)
        temperature: float | None = None,
        target_radius: float | None = None,
        radii: Sequence[float] | None = None,
        precision: float | None = None,
        max_n: int | None = None,
        max_seconds: float | None = None,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
    ) -> Certificate:
        """Return the certificate of one input ``x`` (without a batch axis), from ``n`` draws or until decided.

        **Guarantee.** Over the noise, the certificate is wrong with probability at most ``alpha``: an abstention, or a
        class that the smoothed classifier predicts everywhere within ``radius`` of ``x``.

        The class is ``label`` if given, else the top class of ``n0`` selection draws (100 unless told); the ``n``
        estimation draws (1000 unless told) are separate. Noise depends on the seed and on ``id``, by default made from
        the values of x: different inputs never share noise, and the same call gives the same certificate. A command
        names inputs by their row, so ``id="7"`` has the noise of row 7 there.

        ``map`` is how logits become scores: ``hardmax`` smooths votes (method ``exact`` unless told), ``softmax`` at a
        ``temperature`` and ``sparsemax`` smooth the scores themselves (method ``pairwise/star`` unless told, any
        ``combine/limit``): another smoothed classifier, with another radius. Choose before drawing.

        With ``target_radius``, or rising ``radii``, fixed beforehand, or a ``precision``, drawing goes on until that is
        decided: see ``decide``, which also tells how. The certificate is of the largest radius certified, it holds
        whenever drawing stopped, and its ``n`` is what was used.
        """
        point = self._point(x)
        name = content_id(point) if id is None else id
        check_alpha(alpha)
        ways = {"target_radius": target_radius, "radii": radii, "precision": precision}
        asked = [key for key, value in ways.items() if value is not None]
        if asked:
            others = {"n": n, "method": method, "radius": radius, "temperature": temperature}
            given = [key for key, value in others.items() if value is not None] + ["map"] * (map != "hardmax")
            if given or len(asked) > 1:
                unfit, kind = (
                    (given[0], "for a fixed number of draws") if given else (asked[1], "another way to decide")
                )
                raise InvalidInput(f"{unfit} is {kind}; with {asked[0]} it does not apply")
            return self.decide(
                x, radii=radii if target_radius is None else (target_radius,), precision=precision, max_n=max_n,
                max_seconds=max_seconds, n0=n0, alpha=alpha, seed=seed, label=label, margin=margin, id=id,
            ).certificate  # fmt: skip
        for key, value in {"max_n": max_n, "max_seconds": max_seconds}.items():
            if value is not None:
                raise InvalidInput(f"{key} is for drawing until decided; without radii or precision it does not apply")
        draws = check_whole("n", (self.law.total or DRAWS) if n is None else n, 1)
        selection_draws = self._selection_draws(n0, label, map) if self.law.total is None else 0
        if self.law.total is not None and (map != "hardmax" or n0):
            unfit = f"n0 {n0}" if n0 else f"map {map!r}"
            raise InvalidInput(f"{self.law.describe()} has the votes of all copies and no other draws; got {unfit}")
        engine = Engine(self.classifier, law=self.law, seed=seed)
        deciding: dict[str, Any] = {
            "law": self.law, "dimension": point.size, "alpha": alpha, "margin": margin,
            "radius": radius, "label": label, "ids": [name],
        }  # fmt: skip
        if map == "hardmax":
            if temperature is not None:
                raise InvalidInput(f"temperature is for softmax scores; got map {map!r}")
            with engine.session():
                first = engine.votes(point[None], [name], "selection", selection_draws)[0] if selection_draws else None
                votes = engine.votes(point[None], [name], "estimation", draws)[0]
            chosen = None if first is None else first.tolist()
            certificate: Certificate = certify_counts(
                votes.tolist(), selection=chosen, method=method or "exact", **deciding
            )
            return certificate
        rule = sound_method(method or "pairwise/star", "scores")
        make = score_map(map, temperature)
        with engine.session():
            before = engine.scores(point[None], [name], "selection", selection_draws, make) if selection_draws else None
            scores = engine.scores(point[None], [name], "estimation", draws, make)
        made = certify_scores(
            scores[0],
            selection=None if before is None else before[0],
            method=rule.name,
            map=map,
            temperature=temperature,
            **deciding,
        )
        assert isinstance(made, Certificate)  # noqa: S101  (one input in, one certificate out)
        return made

    def decide(
        self,
        x: ArrayLike,
        *,
        radii: Sequence[float] | None = None,
        precision: float | None = None,
        max_n: int | None = None,
        max_seconds: float | None = None,
        n0: int | None = None,
        alpha: float = 1e-3,
        seed: int = 0,
        label: int | None = None,
        margin: MarginKind | None = None,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
    ) -> Decided:
        """Return how far up a ladder of ``radii`` one input gets, drawing until each radius is decided.

        **Guarantee.** The probability that a false radius is ever certified is at most ``alpha``, whenever and for
        whatever reason drawing stops (theory T16 to T18).

        Drawing goes on until every radius is certified, the next one looks hopeless, or ``max_n`` draws (100,000 unless
        told) are spent. With a ``precision`` in place of radii, as much is certified as there is: a fine ladder, until
        the certified radius is within that share of the estimated one. After ``max_seconds`` the answer so far is
        returned, and with a precision on an interrupt (Ctrl-C) too; its decision is then ``undecided``.

        >>> import numpy as np
        >>> smoothed = Smoothed(lambda batch: np.stack([0 * batch[:, 0], batch[:, 0]], axis=1), 0.5, num_classes=2)
        >>> decided = smoothed.decide([0.6], radii=[0.25, 0.5, 0.75])
        >>> decided.decision, decided.certificate.radius, len(decided.certified_at)
        ('hopeless', 0.5, 2)
        """
        point = self._point(x)
        name = content_id(point) if id is None else id
        deadline = None if max_seconds is None else time.monotonic() + check_positive("max_seconds", max_seconds)
        draws = self._selection_draws(n0, label, "hardmax")
        if (radii is None) == (precision is None):
            raise InvalidInput("radii or precision must be given, and not both")
        rungs = radii_for(self.law, precision, margin) if precision is not None else radii
        how: dict[str, Any] = {"law": self.law, "dimension": point.size, "precision": precision, "margin": margin}
        ladder = Ladder(rungs, alpha=alpha, max_n=MAX_DRAWS if max_n is None else max_n, **how)  # type: ignore[arg-type]
        engine = Engine(self.classifier, law=self.law, seed=seed)
        with engine.session():
            if label is None:
                label = int(engine.votes(point[None], [name], "selection", draws)[0].argmax())
            test = AnytimeTest(ladder, [label], engine.num_classes)
            try:
                with closing(draw_until_decided(engine, point[None], [name], test)) as rounds:
                    for _ in rounds:
                        if deadline is not None and time.monotonic() > deadline:
                            break
            except KeyboardInterrupt:
                if precision is None or not test.n[0]:
                    raise
        return test.decided(0, name, draws)

    def _point(self, x: ArrayLike) -> Float32Array:
        point = as_floats("x", x, self.value_range)
        if point.ndim == 0 or point.size == 0:
            raise InvalidInput(f"x must be one input with at least one axis; got shape {point.shape}")
        return point

    @staticmethod
    def _selection_draws(n0: int | None, label: int | None, map_: SimplexMap) -> int:
        """Return how many selection draws to make: they select the class, and for scores tune the limit as well."""
        if label is not None and map_ == "hardmax":
            if n0:
                raise InvalidInput(f"n0 is for a class that is selected, and label is given; got {n0}")
            return 0
        draws = check_whole("n0", SELECTION_DRAWS if n0 is None else n0, 0)
        if label is None and draws == 0:
            raise InvalidInput("n0 must be at least 1 when no label is given; got 0")
        return draws
