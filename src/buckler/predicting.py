"""The smoothed classifier in use: a model and a law of noise -> the class that is predicted, or an abstention."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from buckler.certificates import as_labels
from buckler.certify.predictions import ABSTAINED
from buckler.errors import InvalidInput
from buckler.many import Inputs, axes_explained, names_of, predict_each
from buckler.noise import law_of
from buckler.plans import DRAWS, check_drawn
from buckler.progress import Show, shown
from buckler.records import Certificate
from buckler.sampling.classifiers import as_classifier, to_indices, to_label
from buckler.sampling.engine import BATCH_SIZE, Engine
from buckler.sampling.models import resolve_model
from buckler.sampling.preprocess import as_floats, check_value_range
from buckler.sampling.streams import seed_of
from buckler.types import AnyArray, ArrayLike, Float32Array, Label, Law


class Predictor:
    """A smoothed classifier that predicts; ``Smoothed`` is one that certifies too, and says what the arguments are."""

    def __init__(
        self,
        model: Any,
        sigma: float | None = None,
        num_classes: int | None = None,
        *,
        law: Law | str | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> None:
        self.law = law_of(sigma, law)
        self.value_range = None if value_range is None else check_value_range(value_range)
        make = resolve_model if isinstance(model, str) else as_classifier
        self.classifier = make(model, num_classes=num_classes)
        self._name = str(model) if isinstance(model, (str, Path)) else getattr(model, "__name__", type(model).__name__)

    def __repr__(self) -> str:
        where = "" if self.classifier.device == "cpu" else f", on {self.classifier.device}"
        return (
            f"{type(self).__name__}({self._name}, law={self.law!r}, num_classes={self.classifier.num_classes}{where})"
        )

    def predict(
        self,
        x: ArrayLike,
        *,
        n: int | None = None,
        max_n: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = 0,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
    ) -> Label | None:
        """Return the class that the smoothed classifier predicts at one input ``x``, or None for an abstention.

        **Guarantee.** Over the noise, another class is returned with probability at most ``alpha``.

        From ``n`` draws (1000 unless told) by Cohen's PREDICT (T18a); or, with ``max_n``, from as many as it takes, at
        most that many (T18b). It says nothing about points near x: see ``certify``, which makes other draws, so that
        what is predicted may be its ``label``.
        """
        ids = None if id is None else [id]
        found = self.predict_many(
            self._point(x)[None], n=n, max_n=max_n, alpha=alpha, seed=seed, ids=ids, progress=False
        )
        return None if found[0] is None or found[0] == ABSTAINED else found.tolist()[0]

    def predict_many(
        self,
        x: ArrayLike,
        *,
        n: int | None = None,
        max_n: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = 0,
        ids: Sequence[str] | None = None,
        batch_size: int | None = None,
        progress: bool | Show | None = None,
    ) -> AnyArray:
        """Return ``predict`` of each of the inputs ``x[inputs, ...]``: an array of classes, -1 for an abstention.

        Where the model's classes are texts, an abstention is None.
        """
        if n is not None and max_n is not None:
            raise InvalidInput("max_n is for drawing until decided; with n it does not apply")
        check_drawn(self.law)
        inputs = self._inputs(x, None, ids, seed, batch_size)
        with shown("predicting", progress) as show, axes_explained(inputs):
            found = predict_each(inputs, DRAWS if n is None else n, max_n, alpha, show)
        return as_labels([None if k == ABSTAINED else self._label(k) for k in found.tolist()])

    def _inputs(
        self,
        x: ArrayLike,
        labels: ArrayLike | None,
        ids: Sequence[str] | None,
        seed: int | None,
        batch_size: int | None,
    ) -> Inputs:
        points = as_floats("x", x, self.value_range, self.law)
        if points.ndim < 2 or points.size == 0:
            raise InvalidInput(f"x must have shape [inputs, ...] with at least one value each; got {points.shape}")
        rows = BATCH_SIZE if batch_size is None else batch_size
        engine = Engine(self.classifier, law=self.law, seed=seed_of(seed), batch_size=rows)
        classes = None if labels is None else to_indices(self.classifier, labels, len(points), "label")
        return Inputs(points, names_of(ids, points), classes, engine)

    def _label(self, index: int) -> Label:
        return to_label(self.classifier, index)

    def _renamed(self, certificate: Certificate) -> Certificate:
        """Return a certificate whose class is the model's own label."""
        if self.classifier.classes is None or certificate.predicted is None:
            return certificate
        return replace(certificate, predicted=self._label(cast(int, certificate.predicted)))

    def _point(self, x: ArrayLike) -> Float32Array:
        point = as_floats("x", x, self.value_range, self.law)
        if point.ndim == 0 or point.size == 0:
            raise InvalidInput(f"x must be one input with at least one axis; got shape {point.shape}")
        return point
