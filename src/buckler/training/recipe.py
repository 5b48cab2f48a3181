"""The recipe of a training run: every choice that decides the weights, and the device. Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from buckler.errors import InvalidInput, check_positive, check_real, check_whole, show

DEVICE_ONLY = ("device", "compile")
"""Fields that say how to compute, not what: they may change when a run is resumed."""

DENOISER = ("smallest_sigma", "classifier", "recognition")
"""Fields of denoisers."""

CLASSIFIER_FIELDS: Mapping[str, float | None] = MappingProxyType(
    {"lam": None, "momentum": 0.9, "label_smoothing": 0.0, "adversary": None, "attack_steps": None}
)
"""Fields of classifiers, and the values at which a denoiser leaves them."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The recipe: SGD with Nesterov momentum (AdamW for a denoiser) under noise, one cycle of the learning rate.

    The noise is Gaussian with deviation ``sigma`` (0 for none) or, with ``lam``, splitting noise. A denoiser
    (architecture ``unet``) sees deviations from ``smallest_sigma`` to ``sigma`` and is judged, with the weight
    ``recognition``, by the classifier whose weights have the checksum ``classifier``, or by several, whose checksums
    are joined by ", ": ``DENOISER``'s fields are for denoisers alone, and all needed there.

    With a ``consistency``, each image is seen under two draws of noise: the weight of what the classifier's answers to
    them differ by, relative to its cross entropy (Jeong and Shin, NeurIPS 2020). With an ``adversary``, for classifiers
    under Gaussian noise, each image is first moved by up to that l2 distance in ``attack_steps`` steps of an attack on
    the mean answer to its draws (Salman et al., NeurIPS 2019).

    ``flip`` mirrors half of the images, right for photographs and wrong for digits. ``device`` is ``auto``, ``cpu``,
    ``cuda`` or ``cuda:1``; ``compile`` is for CUDA devices only, and ``None`` means wherever that is possible.
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
        """Whether the network returns images and not classes."""
        return self.architecture == "unet"

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate at a step: a straight rise over the first ``warmup`` of them, then half a cosine."""
        rise = self.warmup * steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * (step - rise) / (steps - rise)))

    def choices(self) -> dict[str, float | int | str | bool]:
        """Return the fields that decide the weights, by name."""
        left_out = {*DEVICE_ONLY, *(CLASSIFIER_FIELDS if self.denoises else ())}
        return {name: value for name, value in asdict(self).items() if name not in left_out and value is not None}

    def stem(self, data: str) -> str:
        """Return the name of the run's files without suffix.

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
        """Return the ``buckler train`` command line of this recipe; a denoiser's names its ``classifier`` file.

        ``classifier`` may hold the names of several files, joined by ", ".
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
