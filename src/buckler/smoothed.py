"""A model, a law of noise and inputs -> certificates, in memory: the door for one's own program."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack, cast

from buckler.certificates import Certificates
from buckler.certify.decision import Decided
from buckler.errors import InvalidInput
from buckler.many import Inputs, axes_explained, certify_each, certify_scores_each, decide_each
from buckler.plans import (
    CertifyOptions,
    DecideOptions,
    check_keywords,
    fixed_draws,
    ladder_of,
    scores_until,
    selection_draws,
    to_decide,
)
from buckler.predicting import Predictor
from buckler.progress import Show, shown
from buckler.records import Certificate
from buckler.refutations import Refutation
from buckler.refuting import RefuteOptions, refute_each
from buckler.types import ArrayLike, Label, MarginKind, SimplexMap


class Smoothed(Predictor):
    """A classifier smoothed with Gaussian noise of standard deviation ``sigma``, or with noise that follows ``law``.

    Sigma and radii are in the units of the input. A law is one of ``buckler.noise``, or its name as for the commands,
    ``"splitting:lam=2.5"``.

    ``model`` is a torch module, a scikit-learn classifier, any callable that turns a batch into logits, or what the
    commands take as a name: the path of an ONNX file, ``hf:FOLDER``, ``resnet110:WEIGHTS``, ``buckler:NAME``,
    ``package.module:factory``. Classes are the columns of the logits, 0 to m - 1; those of a scikit-learn classifier
    are its ``classes_``, in ``label``, ``labels``, ``predicted`` and ``accuracy`` alike.

    Noise is added to the input as given, so any normalisation belongs inside of the model.

    ``value_range = (low, high)`` declares the range of the inputs, as ``buckler sample`` does: floats must lie in it,
    bytes are spread over it (0 is low, 255 is high), other whole numbers are taken as they are. Without it inputs must
    be floats, since sigma and radius are in units that whole numbers leave open; under a law on a grid, whole numbers
    are steps of it, so that 8-bit images come as they are.

    >>> import numpy as np
    >>> def sign(batch):  # class 1 where the mean is above zero
    ...     return np.stack([0 * batch.mean(1), batch.mean(1)], axis=1)
    >>> certificate = Smoothed(sign, sigma=0.5, num_classes=2).certify([1.0, 1.0], n=1000, n0=100, alpha=1e-3, seed=0)
    >>> certificate.predicted, round(certificate.radius, 3)
    (1, 1.089)
    """

    def certify(
        self,
        x: ArrayLike,
        *,
        n: int | None = None,
        n0: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = 0,
        label: Label | None = None,
        margin: MarginKind | None = None,
        method: str | None = None,
        map: SimplexMap = "hardmax",  # noqa: A002  (the record's own name for it)
        temperature: float | None = None,
        target_radius: float | None = None,
        radii: ArrayLike | None = None,
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
        names inputs by their row, so ``id="7"`` has the noise of row 7 there. ``seed=None`` takes a seed from the
        operating system; the certificate tells which.

        ``map`` is how logits become scores: ``hardmax`` smooths votes (method ``exact`` unless told), ``softmax`` at a
        ``temperature`` and ``sparsemax`` smooth the scores themselves (method ``pairwise/star`` unless told, any
        ``combine/limit``): another smoothed classifier, with another radius. Choose before drawing.

        With ``target_radius``, or rising ``radii``, fixed beforehand, or a ``precision``, drawing goes on until that is
        decided: see ``decide``, which also tells how. The certificate is of the largest radius certified, it holds
        whenever drawing stopped, and its ``n`` is what was used. For scores ``pairwise/sequence`` decides, whose limit
        holds at every number of draws (T18c); the certificate's radius is what that limit gives.
        """
        return self.certify_many(
            self._point(x)[None], n=n, n0=n0, alpha=alpha, seed=seed, labels=None if label is None else [label],
            margin=margin, method=method, map=map, temperature=temperature, target_radius=target_radius,
            radii=radii, precision=precision, max_n=max_n, max_seconds=max_seconds, ids=None if id is None else [id],
            progress=False,
        )[0]  # fmt: skip

    def certify_many(
        self,
        x: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        batch_size: int | None = None,
        progress: bool | Show | None = None,
        **options: Unpack[CertifyOptions],
    ) -> Certificates:
        """Return the certificates of inputs ``x[inputs, ...]``, as ``certify`` gives each, in full batches.

        **Guarantee.** That of ``certify`` for each certificate; inputs have noise of their own, so their errors are
        independent.

        ``options`` are those of ``certify``; ``labels`` are classes to certify in place of selected ones.
        ``batch_size`` rows are given to the model at once (512 unless told). A bar shows how far it is, on a terminal
        or in a notebook; ``progress=False`` hides it, and a function is called with the number of inputs done and of
        all. On an interrupt (Ctrl-C), or after ``max_seconds``, what there is comes back: certificates of the first
        inputs, which hold like any other.

        >>> import numpy as np
        >>> smoothed = Smoothed(lambda batch: np.stack([0 * batch[:, 0], batch[:, 0]], axis=1), 0.5, num_classes=2)
        >>> smoothed.certify_many([[0.6], [-1.0], [0.0]], n=1000)
        Certificates(3 inputs, 1 abstained, median radius 0.4942)
        """
        check_keywords(options, CertifyOptions.__optional_keys__)
        inputs = self._inputs(x, labels, ids, options.get("seed", 0), batch_size)
        ladder = to_decide(options)
        terms = {"seed": inputs.engine.seed}
        if ladder is not None and options.get("map", "hardmax") != "hardmax":
            until = scores_until(self.law, options, labelled=labels is not None, **terms)
            with shown("deciding", progress) as show, axes_explained(inputs):
                made = certify_scores_each(inputs, until, show, ladder.get("max_seconds"))
            return self._labelled(made, inputs)
        if ladder is not None:
            decided = self._decided(inputs, ladder, progress)
            return self._labelled([one.certificate for one in decided], inputs)
        plan = fixed_draws(self.law, options, labelled=labels is not None, **terms)
        with shown("certifying", progress) as show, axes_explained(inputs):
            made = certify_each(inputs, plan, show)
        return self._labelled(made, inputs)

    def decide(
        self,
        x: ArrayLike,
        *,
        radii: ArrayLike | None = None,
        precision: float | None = None,
        max_n: int | None = None,
        max_seconds: float | None = None,
        n0: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = 0,
        label: Label | None = None,
        margin: MarginKind | None = None,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
    ) -> Decided:
        """Return how far up a ladder of ``radii`` one input gets, drawing until each radius is decided.

        **Guarantee.** The probability that a false radius is ever certified is at most ``alpha``, whenever and for
        whatever reason drawing stops (theory T16 to T18).

        Drawing goes on until every radius is certified, the next one looks hopeless, or ``max_n`` draws (100,000 unless
        told) are spent. With a ``precision`` in place of radii, as much is certified as there is: a fine ladder, until
        the certified radius is within that share of the estimated one. After ``max_seconds``, or on an interrupt
        (Ctrl-C), the answer so far is returned; its decision is then ``undecided``, and its exam forfeited.

        >>> import numpy as np
        >>> smoothed = Smoothed(lambda batch: np.stack([0 * batch[:, 0], batch[:, 0]], axis=1), 0.5, num_classes=2)
        >>> decided = smoothed.decide([0.6], radii=[0.25, 0.5, 0.75])
        >>> decided.decision, decided.certificate.radius, len(decided.certified_at)
        ('hopeless', 0.5, 2)
        """
        return self.decide_many(
            self._point(x)[None], radii=radii, precision=precision, max_n=max_n, max_seconds=max_seconds, n0=n0,
            alpha=alpha, seed=seed, labels=None if label is None else [label], margin=margin,
            ids=None if id is None else [id], progress=False,
        )[0]  # fmt: skip

    def decide_many(
        self,
        x: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        batch_size: int | None = None,
        progress: bool | Show | None = None,
        **options: Unpack[DecideOptions],
    ) -> list[Decided]:
        """Return ``decide`` of each of the inputs ``x[inputs, ...]``, in full batches; its guarantee holds for each.

        ``options`` are those of ``decide``, the others as for ``certify_many``.
        """
        check_keywords(options, DecideOptions.__optional_keys__)
        made = self._decided(self._inputs(x, labels, ids, options.get("seed", 0), batch_size), options, progress)
        return [
            replace(one, certificate=self._renamed(one.certificate), label=self._label(cast(int, one.label)))
            for one in made
        ]

    def refute(
        self,
        x: ArrayLike,
        *,
        certificate: Certificate | None = None,
        label: Label | None = None,
        id: str | None = None,  # noqa: A002  (the record's own name for it)
        **options: Unpack[RefuteOptions],
    ) -> Refutation:
        """Return a point near ``x`` at which the smoothed classifier does not predict a class, or an abstention.

        **Guarantee.** Over the draws that judge it, which the search has not seen, the refutation is false with
        probability at most ``alpha`` (theory T22). An abstention says nothing.

        The class is that of a ``certificate`` of x, and the search begins at its radius, or it is ``label``. Options:
        ``max_radius`` (8 sigma unless told), ``alpha`` (0.001), ``max_n`` draws at a candidate (100,000), ``seed`` (0)
        and ``attack``, an ``evaluate.attacks.Attack``. Points stay in ``value_range``. The model is a torch module.
        """
        if (certificate is None) == (label is None):
            raise InvalidInput("certificate or label must be given, and not both")
        return self.refute_many(
            self._point(x)[None], certificates=None if certificate is None else [certificate],
            labels=None if label is None else [label], ids=None if id is None else [id], progress=False, **options,
        )[0]  # fmt: skip

    def refute_many(
        self,
        x: ArrayLike,
        *,
        certificates: Sequence[Certificate] | None = None,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        batch_size: int | None = None,
        progress: bool | Show | None = None,
        **options: Unpack[RefuteOptions],
    ) -> list[Refutation]:
        """Return ``refute`` of each of the inputs ``x[inputs, ...]``, in full batches; its guarantee holds for each."""
        check_keywords(options, RefuteOptions.__optional_keys__)
        inputs = self._inputs(x, labels, ids, options.get("seed", 0), batch_size)
        with shown("refuting", progress) as show, axes_explained(inputs):
            return refute_each(inputs, certificates, self.value_range, options, show)

    def _labelled(self, made: Sequence[Certificate], inputs: Inputs) -> Certificates:
        classes = self.classifier.classes or range(inputs.engine.num_classes)
        return Certificates(map(self._renamed, made), asked=len(inputs.x), classes=classes)

    def _decided(self, inputs: Inputs, options: DecideOptions, progress: bool | Show | None) -> list[Decided]:
        ladder = ladder_of(self.law, options)
        n0 = selection_draws(options.get("n0"), inputs.labels is not None, "hardmax")
        with shown("deciding", progress) as show, axes_explained(inputs):
            return decide_each(inputs, ladder, n0, show, options.get("max_seconds"))
