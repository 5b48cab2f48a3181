"""Bundled networks by name: weights with a card beside them, in a folder on this machine. Does not load torch.

A card, ``NAME.json`` beside ``NAME.safetensors``, tells the data, training, accuracy, certified accuracy and checksum
of the weights. The folder is the one that the environment variable ``BUCKLER_MODELS`` names, else ``models`` of the
repository that the package runs from. Nothing is downloaded. A name with a folder, ``here/mine``, is a card there that
``buckler train`` wrote.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from buckler.errors import InvalidInput
from buckler.files import atomic_write, checksum, parse_json, read_text

LARGEST_CARD = 1 << 20
"""Largest size of a card's file, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of a network: the fields that the cards of classifiers and of denoisers share."""

    kind: str
    weights: str
    sha256: str
    architecture: str
    parameters: int
    height: int
    width: int
    sigma: float
    data: str
    data_source: str
    data_sha256: str
    train_inputs: int
    test_inputs: int
    recipe: dict[str, Any]
    command: str
    seconds: float
    device: str
    versions: dict[str, str]
    certified: tuple[Mapping[str, Any], ...] = ()
    """Tables of certified accuracy: sigma or lam, alpha, inputs, draws, ``accuracy`` by radius, and the command that
    made the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierCard(Card):
    """Card of a classifier, trained under Gaussian noise (``sigma``), splitting noise (``lam``) or none (sigma 0).

    ``accuracy`` is that on test images with this noise, ``clean_accuracy`` that without.
    """

    kind: str = "classifier"
    num_classes: int
    accuracy: float
    clean_accuracy: float
    lam: float | None = None

    def noise(self) -> str:
        """Return a text that says under which noise the network was trained."""
        if self.lam is not None:
            return f"splitting, lam {self.lam:g}"
        return f"Gaussian, sigma {self.sigma:g}" if self.sigma > 0.0 else "none"

    def summary(self) -> str:
        """Return the classifier's accuracies, with noise and without, in one line of text."""
        if self.lam is None and self.sigma == 0.0:
            return f"accuracy {self.accuracy:.2%}"
        return f"accuracy {self.accuracy:.2%} under noise, {self.clean_accuracy:.2%} without"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiserCard(Card):
    """Card of a denoiser, trained under Gaussian noise from ``smallest_sigma`` to ``sigma``.

    ``accuracy`` is, by sigma, that of the classifier in the file ``classifier`` on test images with noise that the
    denoiser has removed. Of several classifiers, names and checksums are joined by ", ", and the accuracy is the mean.
    """

    kind: str = "denoiser"
    smallest_sigma: float
    classifier: str
    classifier_sha256: str
    accuracy: dict[str, float]

    def noise(self) -> str:
        """Return a text that says under which noise the network was trained."""
        return f"Gaussian, sigma {self.smallest_sigma:g} to {self.sigma:g}"

    def summary(self) -> str:
        """Return the accuracies of the classifier behind the denoiser, by sigma, in one line of text."""
        shares = ", ".join(f"{share:.2%} at sigma {sigma}" for sigma, share in self.accuracy.items())
        mean = "mean " if ", " in self.classifier_sha256 else ""
        return f"{mean}accuracy of {self.classifier} behind it: {shares}"


def certified_at(table: Mapping[str, Any]) -> str:
    """Return a text that names the noise of one of a card's ``certified`` tables, and the norm unless it is l2."""
    return f"sigma {table['sigma']:g}" if "sigma" in table else f"lam {table['lam']:g}, l1"


def write_card(folder: Path, card: ClassifierCard | DenoiserCard) -> None:
    """Write the card as JSON into ``folder``, under the name of its weights."""
    with atomic_write(folder / f"{Path(card.weights).stem}.json") as temporary:
        temporary.write_text(json.dumps(asdict(card), indent=2) + "\n", encoding="utf-8")


def read_card(path: Path) -> ClassifierCard | DenoiserCard:
    """Return the card in a ``.json`` file; a card that names no kind is a classifier's."""
    try:
        fields = parse_json(read_text(path, LARGEST_CARD))
        fields["certified"] = tuple(fields.get("certified", ()))
        return KINDS[fields.get("kind", "classifier")](**fields)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        raise InvalidInput(f"path must be a network's card (.json); {path} is not readable as one") from None


KINDS: Mapping[str, type[ClassifierCard] | type[DenoiserCard]] = MappingProxyType(
    {"classifier": ClassifierCard, "denoiser": DenoiserCard}
)
"""Kind of a network, as its card names it -> class of the card."""


VARIABLE = "BUCKLER_MODELS"


def models_folder() -> Path:
    """Return the folder of the bundled networks; where there is none, InvalidInput says how to name one."""
    told = os.environ.get(VARIABLE)
    folder = Path(told) if told else Path(__file__).parents[3] / "models"
    if not folder.is_dir():
        if told:
            raise InvalidInput(f"{VARIABLE} must name a folder of networks; got {str(folder)!r}")
        raise InvalidInput(
            f"bundled networks lie in the folder models/ of a clone of the repository: set {VARIABLE} to it; "
            "nothing is downloaded"
        )
    return folder


def cards_in(folder: Path) -> dict[str, ClassifierCard | DenoiserCard]:
    """Return the cards in a folder, by the name of the network."""
    if not folder.is_dir():
        raise InvalidInput(f"folder must be one of networks and their cards; got {str(folder)!r}")
    return {path.stem: read_card(path) for path in sorted(folder.glob("*.json"))}


def weights_of(card: ClassifierCard | DenoiserCard, folder: Path) -> Path:
    """Return the path of a card's file of weights; a missing file or another checksum raises InvalidInput."""
    path = folder / card.weights
    if Path(card.weights).name != card.weights or not path.is_file():
        raise InvalidInput(f"weights of a card must lie beside it; there is no {str(path)!r}")
    if checksum(path) != card.sha256:
        raise InvalidInput(f"weights {str(path)!r} are not those of their card: the checksum differs")
    return path


def bundled(name: str, kind: str) -> tuple[ClassifierCard | DenoiserCard, Path]:
    """Return the card of the network ``name`` or ``FOLDER/name``, and the path of its weights, whose checksum fits.

    A network that is not of this ``kind``, classifier or denoiser, raises InvalidInput.
    """
    named = Path(name)
    folder = named.parent if len(named.parts) > 1 else models_folder()
    if not (folder / f"{named.name}.json").is_file():
        there = ", ".join(sorted(path.stem for path in folder.glob("*.json"))) or "none"
        raise InvalidInput(f"buckler: must be followed by the name of a network; got {name!r}, and there are {there}")
    card = read_card(folder / f"{named.name}.json")
    if card.kind != kind:
        raise InvalidInput(f"buckler:{name} must be a {kind} here; it is a {card.kind}")
    return card, weights_of(card, folder)
