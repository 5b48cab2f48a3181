"""The recipe of a training run: every choice that decides the weights, and the device. Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from buckler.errors import InvalidInput, check_positive, check_real, check_whole, show

DEVICE_ONLY = ("device", "compile")
"""Fields of a recipe that say how to compute, not what: they may change when a run is resumed."""

DENOISER = ("smallest_sigma", "classifier", "recognition")
"""Fields that only a denoiser's recipe has, and needs."""

CLASSIFIER_FIELDS: Mapping[str, float | None] = MappingProxyType(
    {"lam": None, "momentum": 0.9, "label_smoothing": 0.0, "adversary": None, "attack_steps": None}
)
"""Fields that only a classifier's recipe uses -> the values that they must have for a denoiser."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The recipe: SGD with Nesterov momentum (AdamW for a denoiser) under noise, one cycle of the learning rate.

    The noise is Gaussian with deviation ``sigma`` (0 for none) or, with ``lam``, splitting noise of that lambda. A
    denoiser (architecture ``unet``) is trained at deviations from ``smallest_sigma`` to ``sigma``. Its loss is the
    squared error plus ``recognition`` times the loss of a classifier on the denoised images: ``classifier`` is the
    checksum of that one's weights, or those of several, joined by ", ". A denoiser needs these fields (``DENOISER``),
    and a classifier has none of them.

    With a ``consistency``, each image is seen under two draws of noise, and the loss has a term for what the
    classifier's outputs differ by, of this weight relative to the cross entropy (Jeong and Shin, NeurIPS 2020). With
    an ``adversary``, for classifiers under Gaussian noise, each image is first moved by up to that l2 distance in
    ``attack_steps`` steps of an attack on the mean output for its draws (Salman et al., NeurIPS 2019).

    ``warmup`` is the share of the steps in which the learning rate rises. ``flip`` mirrors half of the images, right
    for photographs and wrong for digits. ``device`` is ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; ``compile`` is for
    CUDA devices only, and ``None`` means wherever that is possible.
    """

    sigma: float
    architecture: str = "resnet110"
    lam: float | None = None
    smallest_sigma: float | None = None
    classifier: str | None = None
    recognition: float | None = None
    consistency: float | None = None
    adversary: float | None = None
    attack_steps: int | None = None
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 0.2
    weight_decay: float = 5e-4
    momentum: float = 0.9
    label_smoothing: float = 0.0
    warmup: float = 0.2
    flip: bool = True
    seed: int = 0
    device: str = "auto"
    compile: bool | None = None

    def __post_init__(self) -> None:
        if check_real("sigma", self.sigma) < 0.0:
            raise InvalidInput(f"sigma must be at least 0; got {show(self.sigma)}")
        if self.lam is not None and (
            check_real("lam", self.lam) < 0.5 or abs(510.0 * self.lam - round(510.0 * self.lam)) > 1e-9
        ):
            raise InvalidInput(f"lam must be at least 1/2 and 510 lam a whole number; got {show(self.lam)}")
        if self.lam is not None and self.sigma != 0.0:
            raise InvalidInput(f"sigma must be 0 with splitting noise; got {show(self.sigma)}")
        for name in DENOISER:
            if (getattr(self, name) is None) == self.denoises:
                raise InvalidInput(f"{name} belongs to a denoiser, which needs it; got {show(getattr(self, name))}")
        for name, unused in CLASSIFIER_FIELDS.items():
            if self.denoises and getattr(self, name) != unused:
                raise InvalidInput(f"{name} belongs to a classifier; got {show(getattr(self, name))} for a denoiser")
        if self.smallest_sigma is not None and not 0.0 < check_real("smallest_sigma", self.smallest_sigma) < self.sigma:
            raise InvalidInput(f"smallest_sigma must lie between 0 and sigma; got {show(self.smallest_sigma)}")
        if self.recognition is not None and check_real("recognition", self.recognition) < 0.0:
            raise InvalidInput(f"recognition must be at least 0; got {show(self.recognition)}")
        if self.consistency is not None:
            check_positive("consistency", self.consistency)
            if self.denoises and not self.recognition:
                raise InvalidInput(f"consistency needs recognition above 0 for a denoiser; got {self.recognition}")
            if not self.denoises and self.sigma == 0.0 and self.lam is None:
                raise InvalidInput("consistency needs noise: two draws without it are the same; got sigma 0")
        if (self.adversary is None) != (self.attack_steps is None):
            raise InvalidInput(
                f"adversary and attack_steps must be given together; got {self.adversary} and {self.attack_steps}"
            )
        if self.adversary is not None:
            check_positive("adversary", self.adversary)
            check_whole("attack_steps", self.attack_steps, 1)
            if self.sigma == 0.0:
                raise InvalidInput(f"adversary needs Gaussian noise, sigma above 0; got sigma {show(self.sigma)}")
        check_whole("epochs", self.epochs, 1)
        check_whole("batch_size", self.batch_size, 2)
        check_whole("seed", self.seed, 0, 2**32 - 1)
        check_positive("learning_rate", self.learning_rate)
        if check_real("weight_decay", self.weight_decay) < 0.0:
            raise InvalidInput(f"weight_decay must be at least 0; got {show(self.weight_decay)}")
        for name in ("momentum", "label_smoothing", "warmup"):
            value = getattr(self, name)
            if not 0.0 <= check_real(name, value) < 1.0:
                raise InvalidInput(f"{name} must be in [0, 1); got {show(value)}")
        if self.momentum == 0.0:
            raise InvalidInput("momentum must be above 0 (Nesterov); got 0")

    @property
    def denoises(self) -> bool:
        """Whether the recipe is of a denoiser, which returns images and no classes."""
        return self.architecture == "unet"

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate at ``step`` of ``steps``, counted from 0.

        It rises on a straight line over the first share ``warmup`` of the steps, then falls along half a cosine.
        """
        rise = self.warmup * steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * (step - rise) / (steps - rise)))

    def choices(self) -> dict[str, float | int | str | bool]:
        """Return the recipe's fields that decide the weights, by name, without those that are None."""
        left_out = {*DEVICE_ONLY, *(CLASSIFIER_FIELDS if self.denoises else ())}
        return {name: value for name, value in asdict(self).items() if name not in left_out and value is not None}

    def stem(self, data: str) -> str:
        """Return the name, without suffix, of the files that training writes, for the data named ``data``.

        >>> TrainingConfig(sigma=0.5).stem("cifar10")
        'cifar10-resnet110-sigma0.50'
        >>> TrainingConfig(sigma=0.5, consistency=10.0).stem("cifar10")
        'cifar10-resnet110-consistency-sigma0.50'
        >>> TrainingConfig(sigma=0.0, lam=2.5).stem("cifar10")
        'cifar10-resnet110-splitting2.50'
        """
        if self.denoises:
            return f"{data}-denoiser"
        if self.lam is None and self.sigma == 0.0:
            return f"{data}-{self.architecture}-clean"
        recipe = [name for name in ("consistency", "adversary") if getattr(self, name) is not None]
        noise, size = ("sigma", self.sigma) if self.lam is None else ("splitting", self.lam)
        words = "-".join([data, self.architecture, *recipe, noise])
        return words + (f"{size:.2f}" if round(size, 2) == size else f"{size:g}")

    def command(self, data: str, source: str | None, classifier: str | None = None) -> str:
        """Return the ``buckler train`` command line of this recipe for the data named ``data``, in the file ``source``.

        A denoiser's command names its file ``classifier``, or several, whose names are joined by ", ".
        """
        words = ["buckler train", data, *([f"--data {source}"] if source else [])]
        words.append(f"--sigma {self.sigma:g}" if self.lam is None else f"--lam {self.lam:.12g}")
        if self.denoises:
            words += ["--denoiser", f"--smallest-sigma {self.smallest_sigma:g}"]
            words += [f"--classifier {name}" for name in (classifier or "").split(", ")]
            words.append(f"--recognition {self.recognition:g}")
        else:
            words.append(f"--arch {self.architecture}")
        words += [] if self.consistency is None else [f"--consistency {self.consistency:g}"]
        words += (
            [] if self.adversary is None else [f"--adversary {self.adversary:g} --attack-steps {self.attack_steps}"]
        )
        words += [f"--epochs {self.epochs}", f"--batch-size {self.batch_size}", f"--lr {self.learning_rate:g}"]
        words.append(f"--weight-decay {self.weight_decay:g}")
        words += [f"--label-smoothing {self.label_smoothing:g}"] if self.label_smoothing else []
        return " ".join([*words, "--flip" if self.flip else "--no-flip", f"--seed {self.seed}"])
