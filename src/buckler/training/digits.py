"""The small classifier of the demo: a perceptron on the 8x8 digits, trained with fresh Gaussian noise each epoch.

It needs scikit-learn and no torch, and takes seconds on one core, so that the whole path from a model to its
certificates can be walked on any laptop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, check_float_array, check_label, check_real, check_whole
from buckler.sampling.datasets import bundled_digits
from buckler.types import ArrayLike, FloatArray, IntArray

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier

COPIES = 2
"""Noisy copies of every input in an epoch. More of them ask for fewer epochs, so for fewer calls of scikit-learn."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Inputs ``[inputs, 64]`` in [0, 1], their classes, and ids: ``digit-i`` for image i of the bundled data."""

    inputs: FloatArray
    labels: IntArray
    ids: tuple[str, ...]


def digits_split(test: int = 500) -> tuple[Split, Split]:
    """Return scikit-learn's bundled 1,797 digits, split at random into a training set and a test set.

    The test set has ``test`` images, the same ones at each call.
    """
    images, classes = bundled_digits()
    check_whole("test", test, 1, len(images) - 1)
    order = np.random.default_rng(0).permutation(len(images))
    held, rest = np.sort(order[:test]), np.sort(order[test:])

    def part(places: IntArray) -> Split:
        inputs = images[places].reshape(len(places), -1) / 16.0
        return Split(inputs, classes[places], tuple(f"digit-{i}" for i in places))

    return part(rest), part(held)


def train_digits(
    inputs: ArrayLike,
    labels: ArrayLike,
    *,
    sigma: float,
    seed: int,
    epochs: int = 60,
    hidden: tuple[int, ...] = (256,),
    progress: Callable[[int, int, float], None] | None = None,
) -> "MLPClassifier":
    """Return a fitted ``MLPClassifier`` trained under Gaussian noise of standard deviation ``sigma``.

    ``inputs`` has shape ``[inputs, features]`` with entries in [0, 1] (the digits divided by 16: 64 features), before
    any noise; ``labels`` holds classes 0, 1, ... Each epoch draws new noise for every input. Noisy inputs are not
    clipped, since they are not when votes are drawn. The learning rate falls along a half cosine.
    The same arguments give the same network. ``progress(epoch, epochs, loss)`` is called after each epoch.
    """
    try:
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise MissingExtra("scikit-learn", "demo") from None
    x = check_float_array("inputs", inputs)
    if x.ndim != 2 or 0 in x.shape:
        raise InvalidInput(f"inputs must have shape [inputs, features], neither of length 0; got shape {x.shape}")
    if x.min() < 0.0 or x.max() > 1.0:
        raise InvalidInput(f"inputs must lie in [0, 1]; got values from {x.min():g} to {x.max():g}")
    y = check_label(labels, 2**31, x.shape[0], name="labels")
    if np.unique(y).size < 2:
        raise InvalidInput("labels must hold at least 2 different classes; got one")
    noise_level = check_real("sigma", sigma)
    if noise_level < 0.0:
        raise InvalidInput(f"sigma must be at least 0; got {sigma}")
    epochs = check_whole("epochs", epochs, 1)
    seed = check_whole("seed", seed, 0, 2**32 - 1)

    generator = np.random.default_rng(seed)
    network = MLPClassifier(hidden, batch_size=min(128, COPIES * len(x)), alpha=1e-4, random_state=seed)
    classes = np.arange(int(y.max()) + 1)
    x32, y_copies = np.tile(x.astype(np.float32), (COPIES, 1)), np.tile(y, COPIES)
    first_rate = 3e-3
    for epoch in range(epochs):
        rate = first_rate * 0.5 * (1.0 + np.cos(np.pi * epoch / epochs))
        if epoch:
            network._optimizer.learning_rate_init = rate  # noqa: SLF001  (partial_fit offers no public schedule)
        else:
            network.set_params(learning_rate_init=rate)
        noise = generator.standard_normal(x32.shape, dtype=np.float32) * np.float32(noise_level)
        network.partial_fit(x32 + noise, y_copies, classes=classes if epoch == 0 else None)
        if progress is not None:
            progress(epoch + 1, epochs, float(network.loss_))
    return network
