"""A smoothed classifier in memory: a model and noise -> predictions, certificates and refutations of inputs."""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from buckler.certificate import ABSTAINED, Certificate, Refutation
from buckler.certificates import Certificates, as_labels
from buckler.certify.budget import after_drawing
from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.certify.sequential import SEQUENCE, Decided, warn_of_short_ladder
from buckler.certify.settings import Scoring, Softmax, make_settings
from buckler.certify.votes import warn_of_few_draws
from buckler.errors import BucklerWarning, ClassifierError, InvalidInput, check_positive, check_risk, check_whole, show
from buckler.noise import as_noise, default_margin
from buckler.progress import Show, shown
from buckler.sampling.classifiers import (
    IMAGE_CHANNELS,
    as_classifier,
    columns_of,
    to_indices,
    to_label,
    warn_of_bare_transformer,
)
from buckler.sampling.engine import BATCH_SIZE, Engine
from buckler.sampling.models import resolve_model
from buckler.sampling.preprocess import as_floats, check_value_range
from buckler.sampling.simplex import score_map
from buckler.sampling.streams import content_id, input_ids, seed_of
from buckler.session import Inputs, Session, run_steps
from buckler.types import AnyArray, ArrayLike, Batches, Float32Array, FloatArray, IntArray, MarginKind, Noise

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack
    from buckler.sampling.modules import SmoothedModule

MAX_DRAWS = 1_000_000
"""Largest number of draws for each input: up to it the confidence limits are proved, rounding included."""


class Smoothed:
    """A classifier smoothed with Gaussian noise of standard deviation ``sigma``, or with another ``noise``.

    ``noise`` is one of ``buckler.noise``, or its name as for the commands, ``"splitting:lam=2.5"``. Sigma and radii are
    in the units of the input.

    ``model`` is a torch module, a scikit-learn classifier, any callable that turns a batch into logits, or a name as
    the commands take it: the path of an ONNX file, ``hf:FOLDER``, ``resnet110:WEIGHTS``, ``buckler:NAME``,
    ``package.module:factory``. Classes are the columns of the logits, 0 to ``num_classes - 1``, a number that must be
    given for a callable; those of a scikit-learn classifier are its ``classes_``. Noise is added to the input as given,
    so any normalisation belongs inside of the model.

    The smoothed classifier predicts the class that the model predicts most often under noise, or with
    ``scores=Softmax(temperature)`` or ``Sparsemax()`` the one with the largest mean score: that is another classifier,
    with other radii.

    ``value_range = (low, high)`` declares the range of the inputs: floats must lie in it, bytes are spread over it (0
    is low, 255 is high), other whole numbers are taken as they are. Without it inputs must be floats; under noise on a
    grid, whole numbers are steps of the grid, so that 8-bit images come as they are. The model is given ``batch_size``
    noisy copies at once.

    Inputs ``x[inputs, ...]`` are an array, a tensor or an iterable of batches; labels in the batches of a
    ``DataLoader`` are ignored.

    >>> import numpy as np
    >>> def sign(batch):  # class 1 where the mean is above zero
    ...     return np.stack([0 * batch.mean(1), batch.mean(1)], axis=1)
    >>> smoothed = Smoothed(sign, sigma=0.5, num_classes=2)
    >>> certificates = smoothed.certify([[1.0, 1.0], [-0.5, -0.6], [0.0, 0.0]], n=1000)
    >>> certificates
    Certificates(3 inputs, 1 abstained, median radius 0.6686)
    >>> certificates.predicted, certificates.radii.round(2)
    (array([ 1,  0, -1]), array([1.09, 0.67, 0.  ]))
    """

    def __init__(
        self,
        model: Any,
        sigma: float | None = None,
        num_classes: int | None = None,
        *,
        noise: Noise | str | None = None,
        scores: Scoring | None = None,
        value_range: tuple[float, float] | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self.noise = as_noise(sigma, noise)
        if self.noise.total is not None and scores is not None:
            raise InvalidInput(f"scores must be left out for {self.noise.describe()}, which certifies votes")
        self.scores = scores
        self.value_range = None if value_range is None else check_value_range(value_range)
        warn_of_bare_transformer(model)
        make = resolve_model if isinstance(model, str) else as_classifier
        self.classifier = make(model, num_classes=num_classes)
        self.batch_size = check_whole("batch_size", batch_size, 1)
        self._told_of_range = False
        self._name = str(model) if isinstance(model, (str, Path)) else getattr(model, "__name__", type(model).__name__)

    def __repr__(self) -> str:
        where = "" if self.classifier.device == "cpu" else f", on {self.classifier.device}"
        classes = self.classifier.num_classes
        return f"Smoothed({self._name}, noise={show(self.noise, 100)}, num_classes={classes}{where})"

    def predict(
        self,
        x: Batches,
        *,
        n: int | None = None,
        max_n: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = None,
        ids: Sequence[str] | None = None,
        progress: bool | Show | None = None,
    ) -> AnyArray:
        """Return the class that the smoothed classifier predicts at each input ``x[inputs, ...]``, -1 if it abstains.

        **Guarantee.** Over the noise, for each input, another class is returned with probability at most ``alpha``.

        Each prediction is from ``n`` draws (1000 if None) by Cohen's PREDICT (T18a); or, with ``max_n`` in place of n,
        from as many as it takes, at most that many (T18b). ``certify`` draws others, so a predicted class may be its
        label. Where the model's classes are texts, an abstention is None. Other arguments are those of ``certify``.
        The guarantee is for inputs chosen without knowledge of the seed, which each call therefore takes from the
        operating system: give one only to have the same predictions again.
        """
        if n is not None and max_n is not None:
            raise InvalidInput("at most one of n (draw so often) and max_n (draw until decided) may be given; got both")
        if self.scores is not None:
            raise InvalidInput("predict counts votes; leave out scores in Smoothed(...)")
        self._check_drawn()
        level = after_drawing(check_risk(alpha), self.noise)
        draws = None if max_n is not None else _draws("n", 1000 if n is None else n)
        most = None if max_n is None else _draws("max_n", max_n)
        inputs, session = self._open(x, None, ids, seed)
        found: list[int] = []
        steps = session.predict(inputs, level, found.append, n=draws, max_n=most)
        self._run("predicting", steps, session, inputs, progress)
        return as_labels([None if k == ABSTAINED else to_label(self.classifier, k) for k in found])

    def certify(
        self,
        x: Batches,
        *,
        n: int | None = None,
        n0: int = 0,
        alpha: float = 1e-3,
        seed: int | None = 0,
        labels: ArrayLike | None = None,
        margin: MarginKind | None = None,
        method: str | None = None,
        ids: Sequence[str] | None = None,
        progress: bool | Show | None = None,
    ) -> Certificates:
        """Return the certificates of inputs ``x[inputs, ...]``, from ``n`` draws each (1000 if None).

        **Guarantee.** Over the noise, each certificate is wrong with probability at most ``alpha``: it is an
        abstention, or its class is predicted everywhere within its ``radius`` of the input. Inputs have noise of their
        own, so their errors are independent.

        The class is the one with the most votes, tested to be the winner at a tenth of alpha (T18d); or that of
        ``labels``, fixed beforehand; or the top class of ``n0`` separate draws. ``method`` is ``exact`` for votes and
        ``pairwise/randomised_star`` for scores if None; ``margin`` is ``quantile`` or ``probability``, by default the
        noise's first. Noise is a function of ``seed`` and of ``ids``, the names of the inputs, by default made from
        their values; a command names inputs by their row, so ``ids=["7"]`` has the noise of row 7 there. ``seed=None``
        takes a seed from the operating system, which each certificate tells.

        A bar shows the progress on a terminal or in a notebook; ``progress=False`` hides it, and a function given as
        ``progress`` is called with the number of inputs done and of all. On an interrupt (Ctrl-C) the certificates of
        the first inputs come back, which hold like any other.
        """
        inputs, session = self._open(x, labels, ids, seed)
        settings = make_settings(
            noise=self.noise, alpha=alpha, method=method, margin=margin, scores=self.scores, seed=session.engine.seed
        )
        if self.noise.total is not None:
            for name, given, value in (("n", n, self.noise.total), ("n0", n0, 0)):
                if given not in {None, value}:
                    raise InvalidInput(f"{name} must be {value}, or left out, for {self.noise.describe()}; got {given}")
            draws = self.noise.total
        else:
            draws = _draws("n", 1000 if n is None else n)
        chosen = self._selection_draws(n0, labels)
        if (classes := self.classifier.num_classes) is not None:
            warn_of_few_draws(draws, settings, classes, winner=labels is None and chosen == 0)
        made: list[Certificate] = []
        steps = session.certify(inputs, settings, draws, chosen, made.append)
        self._run("certifying", steps, session, inputs, progress, made)
        return self._labelled(made, inputs)

    def certify_until(
        self,
        x: Batches,
        *,
        radii: ArrayLike | None = None,
        precision: float | None = None,
        max_n: int = 100_000,
        max_seconds: float | None = None,
        n0: int = 0,
        alpha: float = 1e-3,
        seed: int | None = 0,
        labels: ArrayLike | None = None,
        margin: MarginKind | None = None,
        ids: Sequence[str] | None = None,
        progress: bool | Show | None = None,
    ) -> Certificates:
        """Return the certificates of inputs ``x[inputs, ...]``, drawing until rising ``radii`` are decided for each.

        **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``alpha``,
        whenever and for whatever reason drawing stops (T16 to T18).

        Decided means that every radius is certified, that the next one looks out of reach, or that ``max_n`` draws are
        spent. With a ``precision`` in place of radii, each input is certified as far as it goes: on a fine ladder of
        radii, until the certified radius is within that share of the estimated one. After ``max_seconds``, or on an
        interrupt (Ctrl-C), the certificates so far come back. ``certificates.decided`` tells how each input ended; for
        scores, which ``pairwise/sequence`` decides (T18c), it is None. Other arguments are those of ``certify``.

        >>> import numpy as np
        >>> smoothed = Smoothed(lambda batch: np.stack([0 * batch[:, 0], batch[:, 0]], axis=1), 0.5, num_classes=2)
        >>> certificates = smoothed.certify_until([[0.6]], radii=[0.25, 0.5, 0.75])
        >>> certificates.radii, certificates.decided[0].decision
        (array([0.5]), 'given up')
        """
        self._check_drawn()
        if (radii is None) == (precision is None):
            raise InvalidInput("exactly one of radii and precision must be given")
        if max_seconds is not None:
            check_positive("max_seconds", max_seconds)
        draws, chosen = _draws("max_n", max_n), self._selection_draws(n0, labels)
        inputs, session = self._open(x, labels, ids, seed)
        seed = session.engine.seed
        if self.scores is not None:
            settings = make_settings(
                noise=self.noise, alpha=alpha, method=SEQUENCE, margin=margin, scores=self.scores, seed=seed
            )
            made: list[Certificate] = []
            steps = session.certify_scores_until(
                inputs, settings, made.append, max_n=draws, n0=chosen,
                radii=() if radii is None else check_radii(radii),
                precision=None if precision is None else check_precision(precision),
            )  # fmt: skip
            self._run("deciding", steps, session, inputs, progress, made, max_seconds)
            return self._labelled(made, inputs)
        ladder = Ladder(
            check_radii(radii) if precision is None else radii_for(self.noise, precision, margin),  # type: ignore[arg-type]
            self.noise,
            alpha=check_risk(alpha),
            max_n=draws,
            margin=margin or default_margin(self.noise),
            precision=precision,
            winner=labels is None and chosen == 0,
        )
        if (classes := self.classifier.num_classes) is not None:
            warn_of_short_ladder(ladder, classes)
        states: dict[str, Decided] = {}
        steps = session.certify_until(inputs, ladder, lambda one: states.update({one.certificate.id: one}), n0=chosen)
        self._run("deciding", steps, session, inputs, progress, states, max_seconds)
        first = next((i for i, name in enumerate(inputs.ids) if name not in states), len(inputs))
        decided = [states[name] for name in inputs.ids[:first]]
        return self._labelled([one.certificate for one in decided], inputs, decided)

    def refute(
        self,
        x: Batches,
        certificates: Sequence[Certificate] | None = None,
        *,
        labels: ArrayLike | None = None,
        max_radius: float | None = None,
        within: float | None = None,
        alpha: float = 1e-3,
        max_n: int | None = None,
        attack: Attack | None = None,
        seed: int | None = 0,
        ids: Sequence[str] | None = None,
        progress: bool | Show | None = None,
    ) -> list[Refutation]:
        """Return, for each input ``x[inputs, ...]``, a near point that the smoothed classifier gives another class.

        **Guarantee.** Over the draws that judge it, which the search has not seen, each refutation is false with
        probability at most ``alpha`` (T22). An abstention says nothing.

        The class of each input is that of ``certificates``, one an input, whose radii are where the search begins; or
        that of ``labels``. ``within=R`` is for a claimed radius R: each search stops at the first point inside of R
        that is shown to have another class. Otherwise the nearest such point is searched for, within ``max_radius`` (8
        sigma if None). Each point is judged by at most ``max_n`` draws (200,000 if None), and stays in ``value_range``.
        ``attack`` is a ``buckler.DecoupledAttack`` or ``PGDAttack``. The model must be a torch module. Other arguments
        are those of ``certify``.
        """
        if (certificates is None) == (labels is None):
            raise InvalidInput("exactly one of certificates and labels must be given")
        if self.classifier.backend != "torch":
            raise InvalidInput(f"model must be a torch module to be refuted: attacks need gradients; got {self!r}")
        from buckler.evaluate.attacks import DecoupledAttack
        from buckler.evaluate.refutations import CANDIDATE_DRAWS as JUDGED
        from buckler.evaluate.refutations import RefutationSettings, reach_of

        inputs, session = self._open(x, labels, ids, seed)
        start = np.zeros(len(inputs))
        if certificates is not None:
            claims, start = self._claims(inputs, certificates)
            inputs = Inputs(inputs.x, inputs.ids, claims)
        refuting = RefutationSettings(
            self.noise,
            check_risk(alpha),
            _draws("max_n", JUDGED if max_n is None else max_n),
            reach_of(self.noise, max_radius, within),
            self.value_range,
            DecoupledAttack() if attack is None else attack,
            first=within is not None,
        )
        made: list[Refutation] = []
        steps = session.refute(inputs, refuting, start, made.append)
        self._run("refuting", steps, session, inputs, progress, made)
        return made

    def as_module(self, draws: int = 32) -> SmoothedModule:
        """Return a ``torch.nn.Module`` from a batch to the mean scores over ``draws`` fresh noisy copies of each input.

        It has gradients, so tools for attacks and explanations take it; its output is an estimate and no certificate.
        Scores are those of the argument ``scores`` of ``Smoothed``, else the softmax of the logits. The model must be a
        torch module under Gaussian noise.
        """
        from buckler.sampling.modules import SmoothedModule

        scores = self.scores or Softmax()
        return SmoothedModule(
            self.classifier, self.noise, score_map(scores.map, scores.temperature), check_whole("draws", draws, 1)
        )

    def _claims(self, inputs: Inputs, certificates: Sequence[Certificate]) -> tuple[IntArray, FloatArray]:
        """Return the class of each certificate and the distance at which its search begins."""
        from buckler.evaluate.refutations import to_refute

        if len(certificates) != len(inputs):
            raise InvalidInput(f"certificates must be one for each of {len(inputs)} inputs; got {len(certificates)}")
        for certificate, x in zip(certificates, inputs.x, strict=True):
            # An input that comes again has the same id with "-2" behind it.
            if certificate.id.startswith("x-") and not certificate.id.startswith(content_id(x)):
                raise InvalidInput(f"certificates must be of the inputs x; {certificate.id!r} is of another input")
        claims = [to_refute(certificate, self.noise) for certificate in certificates]
        labels = to_indices(self.classifier, [label for label, _ in claims], len(claims), "certificates")
        return labels, np.array([radius for _, radius in claims])

    def _check_drawn(self) -> None:
        if self.noise.total is not None:
            raise InvalidInput(f"noise must be drawn here; {self.noise.describe()} runs all its copies: call certify")

    def _selection_draws(self, n0: int, labels: ArrayLike | None) -> int:
        draws = check_whole("n0", n0, 0, MAX_DRAWS)
        if draws and labels is not None and self.scores is None:
            raise InvalidInput(f"n0 is for a class that is selected, and labels are given; got {n0}")
        return draws

    def _open(
        self, x: Batches, labels: ArrayLike | None, ids: Sequence[str] | None, seed: int | None
    ) -> tuple[Inputs, Session]:
        points = as_floats("x", x, self.value_range, self.noise)
        if self.value_range is None and not self._told_of_range:
            self._told_of_range = warn_of_range(points, self.noise)
        if points.ndim < 2 or points.size == 0:
            raise InvalidInput(
                f"x must have shape [inputs, ...] with at least one value each; got {points.shape} (one is x[None])"
            )
        engine = Engine(self.classifier, noise=self.noise, seed=seed_of(seed), batch_size=self.batch_size)
        classes = None if labels is None else to_indices(self.classifier, labels, len(points), "labels")
        return Inputs(points, input_ids(ids, points), classes), Session(engine)

    def _run(
        self,
        what: str,
        steps: Iterator[Any],
        session: Session,
        inputs: Inputs,
        progress: bool | Show | None,
        results: Any = (),
        max_seconds: float | None = None,
    ) -> None:
        """Go through a session's steps with a bar; raise KeyboardInterrupt if nothing was finished before one."""
        total, x = len(inputs), inputs.x
        try:
            with shown(what, progress) as show_bar, session.engine.session():
                finished = run_steps(steps, lambda done: show_bar(done, total), max_seconds)
                show_bar(total if finished else len(results), total)
        except ClassifierError:
            several = f"x[0], of shape {x.shape[1:]}, for a batch: pass x.reshape(-1, *x.shape[2:]) or x[0]"
            takes_x = columns_of(self.classifier, x[:1]) > 0  # what failed is then not the shape
            for rows, takes in ((x[0][:1], several), (x[None], "x for one input: pass x[None]")):
                if not takes_x and rows.ndim > 1 and columns_of(self.classifier, rows) == self.classifier.num_classes:
                    raise InvalidInput(
                        f"x must have shape [inputs, ...]; got {x.shape}, and the model takes {takes}"
                    ) from None
            raise
        if not finished and max_seconds is None and not results:
            raise KeyboardInterrupt

    def _labelled(
        self, made: Sequence[Certificate], inputs: Inputs, decided: Sequence[Decided] | None = None
    ) -> Certificates:
        """Return certificates whose classes are the model's own labels."""
        classes = self.classifier.classes or range(cast(int, self.classifier.num_classes))
        if self.classifier.classes is not None:
            made = [
                one
                if one.predicted is None
                else replace(one, predicted=to_label(self.classifier, cast(int, one.predicted)))
                for one in made
            ]
        return Certificates.of(made, asked=len(inputs), classes=classes, decided=decided)


SMALLEST_SIDE = 8
"""Inputs of two axes are taken for images if both axes have the same length of at least this; inputs of one axis, if
they have at least as many values as such an image."""

LARGEST_GREY = (15, 255)
"""Inputs of one axis, all whole numbers from 0, are taken for grey values if the largest is between these two."""


def warn_of_range(x: Float32Array, noise: Noise) -> bool:
    """Warn if ``x`` looks like images with values outside of [0, 1], as after normalisation or from 0 to 255.

    Return whether it warned.
    """
    low, high = float(x.min(initial=0.0)), float(x.max(initial=0.0))
    outside = not (low >= 0.0 and high <= 1.0) and noise.norm != "l0" and _looks_like_images(x, low, high)
    if outside:
        warnings.warn(
            f"x has values from {low:.4g} to {high:.4g}: sigma and radii are in these units; put the normalisation "
            "inside of the model (buckler.Normalized), or pass value_range",
            BucklerWarning,
            stacklevel=4,
        )
    return outside


def _looks_like_images(x: Float32Array, low: float, high: float) -> bool:
    if x.ndim == 4:
        return x.shape[1] in IMAGE_CHANNELS or x.shape[3] in IMAGE_CHANNELS
    if x.ndim == 3:
        return bool(x.shape[1] == x.shape[2] >= SMALLEST_SIDE)  # embeddings have three axes too, but are seldom square
    # Tables have whole numbers too, but rarely so many columns of which none is negative or large.
    grey = x.ndim == 2 and x.shape[1] >= SMALLEST_SIDE**2 and low >= 0.0 and LARGEST_GREY[0] <= high <= LARGEST_GREY[1]
    return grey and bool((x == np.rint(x)).all())


def _draws(name: str, n: int) -> int:
    return check_whole(name, n, 1, MAX_DRAWS)
