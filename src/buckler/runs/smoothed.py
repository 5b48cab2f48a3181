"""A model, sigma and an input -> a certificate, in memory: the door for one's own program."""

from typing import Any

from buckler.certify.counts import certify_counts
from buckler.certify.scores import certify_scores
from buckler.errors import InvalidInput, check_float_array, check_positive, check_whole
from buckler.records import Certificate
from buckler.runs.anytime import certify_until_decided
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, draw_counts, draw_scores
from buckler.sampling.noise import Stream, content_id
from buckler.types import ArrayLike, FloatArray, MarginKind, RadiusKind, SimplexMap

DRAWS = 1000
"""Estimation draws unless told."""


class Smoothed:
    """A classifier smoothed with Gaussian noise of standard deviation ``sigma``, in the units of the input.

    ``model`` is a torch module, a scikit-learn classifier, the path of an ONNX file, or any callable that turns a batch
    into logits. Noise is added to the input as given, so any normalisation belongs inside of the model.

    >>> import numpy as np
    >>> def sign(batch):  # class 1 where the mean is above zero
    ...     return np.stack([0 * batch.mean(1), batch.mean(1)], axis=1)
    >>> certificate = Smoothed(sign, sigma=0.5, num_classes=2).certify([1.0, 1.0], n=1000, n0=100, alpha=1e-3, seed=0)
    >>> certificate.predicted, round(certificate.radius, 3)
    (1, 1.089)
    """

    def __init__(self, model: Any, sigma: float, num_classes: int | None = None) -> None:
        """Hold the model; nothing is drawn yet."""
        self.sigma = check_positive("sigma", sigma)
        self.classifier = as_classifier(model, num_classes=num_classes)

    def certify(
        self,
        x: ArrayLike,
        n: int | None = None,
        n0: int = 100,
        alpha: float = 1e-3,
        seed: int = 0,
        *,
        label: int | None = None,
        margin: MarginKind = "quantile",
        method: str | None = None,
        radius: RadiusKind | None = None,
        map: SimplexMap = "hardmax",  # noqa: A002  (the record's own name for it)
        temperature: float | None = None,
        target_radius: float | None = None,
        max_n: int = 100_000,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
    ) -> Certificate:
        """Return the certificate of one input ``x`` (without a batch axis), from ``n`` draws or until decided.

        **Guarantee.** Over the noise, the certificate is wrong with probability at most ``alpha``: an abstention, or a
        class that the smoothed classifier predicts everywhere within ``radius`` of ``x``.

        The class is ``label`` if given (then ``n0`` draws are not needed), else the top class of ``n0`` selection
        draws; the ``n`` estimation draws are separate. Noise depends on the seed and on ``id``, by default made from
        the values of x: different inputs never share noise, and the same call gives the same certificate.

        ``map`` is how logits become scores: ``hardmax`` smooths votes (method ``exact`` unless told), ``softmax`` at a
        ``temperature`` and ``sparsemax`` smooth the scores themselves (method ``pairwise/star`` unless told, any
        ``combine/limit``): another smoothed classifier, with another radius. Choose before drawing.

        With ``target_radius``, fixed beforehand, drawing goes on until that radius is certified, looks hopeless, or
        ``max_n`` draws are spent; the certificate is valid whenever it stops, and its ``n`` is what was used.
        """
        point = check_float_array("x", x)
        if point.ndim == 0 or point.size == 0:
            raise InvalidInput(f"x must be one input with at least one axis; got shape {point.shape}")
        name = content_id(point) if id is None else id
        if target_radius is not None:
            if n is not None or method is not None or radius is not None or margin != "quantile" or map != "hardmax":
                raise InvalidInput("target_radius stands alone: it takes max_n, not n, margin, method, radius or map")
            return certify_until_decided(
                Engine(self.classifier, sigma=self.sigma, seed=seed),
                point[None],
                [name],
                target_radius=target_radius,
                alpha=alpha,
                max_n=max_n,
                n0=n0,
                labels=None if label is None else [label],
            )[0]
        draws = check_whole("n", DRAWS if n is None else n, 1)
        selection_draws = check_whole("n0", n0, 0)
        if label is None and selection_draws == 0:
            raise InvalidInput("n0 must be at least 1 when no label is given; got 0")

        drawing: dict[str, Any] = {"sigma": self.sigma, "seed": seed, "input_id": name}
        deciding: dict[str, Any] = {"sigma": self.sigma, "alpha": alpha, "margin": margin, "radius": radius}
        if map == "hardmax":
            if temperature is not None:
                raise InvalidInput(f"temperature is for softmax scores; got map {map!r}")

            def votes(stream: Stream, amount: int) -> list[int]:
                counts: list[int] = draw_counts(self.classifier, point, n=amount, stream=stream, **drawing).tolist()
                return counts

            selection = votes("selection", selection_draws) if label is None else None
            return certify_counts(
                votes("estimation", draws),
                label=label,
                selection=selection,
                method=method or "exact",
                ids=[name],
                **deciding,
            )

        def scores(stream: Stream, amount: int) -> FloatArray:
            return draw_scores(
                self.classifier, point, n=amount, stream=stream, map=map, temperature=temperature, **drawing
            )

        made = certify_scores(
            scores("estimation", draws),
            label=label,
            selection=scores("selection", selection_draws) if selection_draws else None,
            method=method or "pairwise/star",
            map=map,
            temperature=temperature,
            ids=[name],
            **deciding,
        )
        assert isinstance(made, Certificate)  # noqa: S101  (one input in, one certificate out)
        return made
