"""Classes with the names and arguments of other tools, so that a script written for these changes one import.

- ``Smooth``: as in locuslab/smoothing (Cohen et al. 2019), ``from core import Smooth``.
- ``PyTorchRandomizedSmoothing``: as in the Adversarial Robustness Toolbox, for ``certify`` and ``predict``.

The radius follows by default from the top class's votes alone (``top_class``), as in those tools, and is never larger
than their formula gives: limits are rounded outward. With ``method="exact"`` it is larger wherever a third class holds
votes. Noise has a seed, by default from the operating system, and different inputs never share noise. The page "Coming
from elsewhere" says what else differs.
"""

import sys
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np

from buckler.errors import InvalidInput, check_positive, check_risk, check_whole, show
from buckler.sampling.classifiers import Normalized, is_module
from buckler.sampling.preprocess import on_host
from buckler.sampling.streams import seed_of
from buckler.smoothed import Smoothed
from buckler.types import AnyArray, ArrayLike, FloatArray, IntArray


class Smooth:
    """A smoothed classifier as in locuslab/smoothing: ``certify`` returns a class and a radius, ``predict`` a class.

    >>> def sign(batch):
    ...     return np.stack([-batch[:, 0], batch[:, 0]], axis=1)
    >>> label, radius = Smooth(sign, 2, 0.5, seed=0).certify(np.array([1.0]), 100, 1000, 0.001, 400)
    >>> label, round(radius, 4)
    (1, 0.8941)
    """

    ABSTAIN = -1

    def __init__(
        self,
        base_classifier: Any,
        num_classes: int,
        sigma: float,
        *,
        method: str = "top_class",
        seed: int | None = None,
    ) -> None:
        """Take the classifier, which maps a batch to logits.

        ``method`` is a sound method for votes, ``top_class`` or ``exact``; ``seed`` is that of the noise, from the
        operating system if None, and is kept as ``self.seed`` so that a run can be repeated.
        """
        self.base_classifier, self.num_classes, self.sigma = base_classifier, num_classes, sigma
        self.method, self.seed = method, seed_of(seed)
        self._smoothed = Smoothed(base_classifier, sigma, num_classes)

    def certify(self, x: ArrayLike, n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        """Return the certified class of the input ``x`` and its l2 radius; (-1, 0.0) for an abstention.

        **Guarantee.** With probability at least ``1 - alpha`` the class is -1, or the smoothed classifier predicts it
        everywhere within the radius of ``x``. All ``n0 + n`` draws go into the limit (T18d).
        """
        self._smoothed.batch_size = check_whole("batch_size", batch_size, 1)
        made = self._smoothed.certify(
            np.asarray(on_host(x))[None], n=n0 + n, alpha=alpha, seed=self.seed, method=self.method, progress=False
        )[0]
        return (self.ABSTAIN if made.predicted is None else cast(int, made.predicted)), made.radius

    def predict(self, x: ArrayLike, n: int, alpha: float, batch_size: int) -> int:
        """Return the class predicted at the input ``x``, from ``n`` draws; -1 for an abstention (T18a).

        Another class than the smoothed classifier's is returned with probability at most ``alpha``.
        """
        self._smoothed.batch_size = check_whole("batch_size", batch_size, 1)
        x = np.asarray(on_host(x))[None]
        return int(self._smoothed.predict(x, n=n, alpha=alpha, seed=self.seed, progress=False)[0])


def _refusal(instead: str) -> Callable[..., NoReturn]:
    """Return a method that raises InvalidInput, whatever it is called with."""

    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise InvalidInput(instead)

    return refuse


class PyTorchRandomizedSmoothing:
    """A smoothed classifier as in the Adversarial Robustness Toolbox, to certify and to predict; it does not train.

    Arguments stand in the order of the toolbox. ``predict`` makes ``sample_size`` draws, and ``certify`` makes so many
    beside its own ``n``; ``scale`` is sigma. ``preprocessing``, ``(mean, std)``, normalises noisy inputs. ``loss`` and
    ``optimizer`` are only kept as attributes, for scripts that look there. ``clip_values`` is the range of the inputs;
    inputs outside of it are refused. With ``device_type="gpu"`` a module is moved to the GPU if there is one. Methods
    of the toolbox that are missing here (training, gradients) raise InvalidInput, which says what takes their place.
    """

    def __init__(
        self,
        model: Any,
        loss: Any,
        input_shape: tuple[int, ...],
        nb_classes: int,
        optimizer: Any = None,
        channels_first: bool = True,
        clip_values: tuple[float, float] | None = None,
        preprocessing_defences: None = None,
        postprocessing_defences: None = None,
        preprocessing: tuple[Any, Any] | None = (0.0, 1.0),
        device_type: str = "gpu",
        sample_size: int = 32,
        scale: float = 0.1,
        alpha: float = 0.001,
        *,
        method: str = "top_class",
        seed: int | None = None,
    ) -> None:
        """Take the model; ``channels_first`` must be True, since inputs reach the model as they are."""
        if not channels_first:
            raise InvalidInput("channels_first must be True: inputs are given to the model as they are")
        for name, given in (("pre", preprocessing_defences), ("post", postprocessing_defences)):
            if given is not None:
                raise InvalidInput(f"{name}processing_defences must be None; put them inside of the model")
        if device_type not in {"cpu", "gpu"}:
            raise InvalidInput(f"device_type must be 'cpu' or 'gpu'; got {show(device_type)}")
        torch: Any = sys.modules.get("torch")
        if device_type == "gpu" and is_module(model) and torch.cuda.is_available():
            model = model.cuda()
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.input_shape, self.nb_classes, self.clip_values = tuple(input_shape), nb_classes, clip_values
        self.channels_first = channels_first
        self.sample_size, self.scale = check_whole("sample_size", sample_size, 1), check_positive("scale", scale)
        self.alpha, self.method, self.seed = check_risk(alpha), method, seed_of(seed)
        mean, std = (0.0, 1.0) if preprocessing is None else preprocessing
        plain = np.all(np.asarray(mean) == 0.0) and np.all(np.asarray(std) == 1.0)
        normalized = model if plain else Normalized(model, np.squeeze(mean), np.squeeze(std))
        self._smoothed = Smoothed(normalized, scale, nb_classes, value_range=clip_values)

    def certify(self, x: ArrayLike, n: int, batch_size: int = 32) -> tuple[IntArray, FloatArray]:
        """Return the class of each input ``x[inputs, ...]``, -1 for an abstention, and its certified radius, 0 for one.

        **Guarantee.** That of ``Smoothed.certify`` at ``alpha`` for each input.
        """
        self._smoothed.batch_size = check_whole("batch_size", batch_size, 1)
        made = self._smoothed.certify(
            self._inputs(x),
            n=self.sample_size + n,
            alpha=self.alpha,
            seed=self.seed,
            method=self.method,
            progress=False,
        )
        return made.predicted, made.radii

    def predict(
        self, x: ArrayLike, batch_size: int = 128, verbose: bool = False, *, is_abstain: bool = True
    ) -> FloatArray:
        """Return one row for each input: 1 at the predicted class, else 0; all 0 for an abstention (T18a).

        ``verbose`` shows a bar; ``is_abstain`` must be True.
        """
        if not is_abstain:
            raise InvalidInput("is_abstain must be True: without abstentions a prediction has no error probability")
        self._smoothed.batch_size = check_whole("batch_size", batch_size, 1)
        found = self._smoothed.predict(
            self._inputs(x), n=self.sample_size, alpha=self.alpha, seed=self.seed,
            progress=None if verbose else False,
        )  # fmt: skip
        rows: FloatArray = np.eye(self.nb_classes + 1)[found][:, : self.nb_classes]
        return rows

    fit = fit_generator = clone_for_refitting = reset = _refusal(
        "training is not done here: train with noise beforehand, for example by `buckler train`"
    )
    loss_gradient = class_gradient = custom_loss_gradient = compute_loss = compute_losses = get_activations = _refusal(
        "gradients, losses and activations are not here: give attacks PyTorchClassifier("
        "buckler.Smoothed(model, sigma).as_module(), ...) of the toolbox, or search and judge points by "
        "buckler.Smoothed.refute"
    )
    set_params = get_params = set_learning_phase = _refusal(
        "arguments are those of the constructor, and the model runs in evaluation mode: make another one for others"
    )
    save = _refusal("nothing but the model is kept here: save it yourself, torch.save(model.state_dict(), path)")

    def _inputs(self, x: ArrayLike) -> AnyArray:
        points = np.asarray(on_host(x))
        if points.shape[1:] != self.input_shape:
            raise InvalidInput(f"x must have shape [inputs, *{self.input_shape}]; got {points.shape}")
        return points
