"""What a training run is: every choice that decides the weights, and where to compute them. Knows no torch."""

import math
from dataclasses import asdict, dataclass

from buckler.errors import InvalidInput, check_positive, check_real, check_whole, show

DEVICE_ONLY = ("device", "compile")
"""Fields that say how to compute, not what: they may change when a run is resumed."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The recipe: SGD with Nesterov momentum (AdamW for a denoiser) under noise, one cycle of the learning rate.

    The noise is Gaussian with deviation ``sigma`` (0 for none) or, with ``lam``, splitting noise. A denoiser
    (architecture ``unet``) sees deviations from ``smallest_sigma`` to ``sigma`` and may be judged, with the weight
    ``recognition``, by the classifier whose weights have the checksum ``classifier``.

    ``flip`` mirrors half of the images, right for photographs and wrong for digits. ``device`` is ``auto``, ``cpu``,
    ``cuda`` or ``cuda:1``; ``compile`` is for CUDA devices only, and ``None`` means wherever that is possible.
    """

    sigma: float
    architecture: str = "resnet110"
    lam: float | None = None
    smallest_sigma: float | None = None
    classifier: str | None = None
    recognition: float = 0.0
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
        """Refuse a recipe that cannot be followed."""
        if check_real("sigma", self.sigma) < 0.0:
            raise InvalidInput(f"sigma must be at least 0; got {show(self.sigma)}")
        if self.lam is not None and (
            check_real("lam", self.lam) < 0.5 or abs(510.0 * self.lam - round(510.0 * self.lam)) > 1e-9
        ):
            raise InvalidInput(f"lam must be at least 1/2 and 510 lam a whole number; got {show(self.lam)}")
        if self.lam is not None and self.sigma != 0.0:
            raise InvalidInput(f"sigma must be 0 with splitting noise; got {show(self.sigma)}")
        if self.denoises != (self.smallest_sigma is not None):
            raise InvalidInput("smallest_sigma belongs to a denoiser, and a denoiser needs it")
        if self.smallest_sigma is not None and not 0.0 < check_real("smallest_sigma", self.smallest_sigma) < self.sigma:
            raise InvalidInput(f"smallest_sigma must lie between 0 and sigma; got {show(self.smallest_sigma)}")
        if (self.classifier is not None) != (check_real("recognition", self.recognition) > 0.0) or (
            self.classifier is not None and not self.denoises
        ):
            raise InvalidInput("classifier and recognition go together, and belong to a denoiser")
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
        fields = asdict(self).items()
        return {name: value for name, value in fields if name not in DEVICE_ONLY and value is not None}

    def stem(self, data: str) -> str:
        """Return the name of the run's files without suffix.

        >>> TrainingConfig(sigma=0.5).stem("cifar10")
        'cifar10-resnet110-sigma0.50'
        >>> TrainingConfig(sigma=0.0, lam=2.5).stem("cifar10")
        'cifar10-resnet110-splitting2.50'
        """
        if self.denoises:
            return f"{data}-denoiser"
        if self.lam is not None:
            return f"{data}-{self.architecture}-splitting{self.lam:.2f}"
        if self.sigma == 0.0:
            return f"{data}-{self.architecture}-clean"
        sigma = f"{self.sigma:.2f}" if round(self.sigma, 2) == self.sigma else f"{self.sigma:g}"
        return f"{data}-{self.architecture}-sigma{sigma}"

    def command(self, data: str, source: str | None) -> str:
        """Return the command that trains these weights."""
        words = ["buckler train", data, *([f"--data {source}"] if source else []), f"--sigma {self.sigma:g}"]
        words += [f"--arch {self.architecture}", f"--epochs {self.epochs}", f"--batch-size {self.batch_size}"]
        words += [f"--lr {self.learning_rate:g}", f"--weight-decay {self.weight_decay:g}"]
        words += [f"--label-smoothing {self.label_smoothing:g}"] if self.label_smoothing else []
        return " ".join([*words, "--flip" if self.flip else "--no-flip", f"--seed {self.seed}"])
