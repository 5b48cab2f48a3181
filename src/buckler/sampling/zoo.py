"""Bundled networks by name: weights with a card beside them, in a folder on this machine.

The folder is the one that the environment variable ``BUCKLER_MODELS`` names, else ``models`` of the repository that the
package runs from. Nothing is downloaded. A name with a folder, ``here/mine``, is a card there that ``buckler train``
wrote.
"""

import os
from pathlib import Path

from buckler.errors import InvalidInput
from buckler.files import checksum
from buckler.sampling.cards import ClassifierCard, DenoiserCard, read_card

VARIABLE = "BUCKLER_MODELS"


def models_folder() -> Path:
    """Return the folder of the bundled networks."""
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
    """Return the cards in a folder by the names of their networks."""
    if not folder.is_dir():
        raise InvalidInput(f"folder must be one of networks and their cards; got {str(folder)!r}")
    return {path.stem: read_card(path) for path in sorted(folder.glob("*.json"))}


def weights_of(card: ClassifierCard | DenoiserCard, folder: Path) -> Path:
    """Return the file of weights of a card; a missing file or another checksum raises InvalidInput."""
    path = folder / card.weights
    if Path(card.weights).name != card.weights or not path.is_file():
        raise InvalidInput(f"weights of a card must lie beside it; there is no {str(path)!r}")
    if checksum(path) != card.sha256:
        raise InvalidInput(f"weights {str(path)!r} are not those of their card: the checksum differs")
    return path


def take(name: str, kind: str) -> tuple[ClassifierCard | DenoiserCard, Path]:
    """Return the card and the weights of a classifier or denoiser, after comparing the checksum."""
    named = Path(name)
    folder = named.parent if len(named.parts) > 1 else models_folder()
    if not (folder / f"{named.name}.json").is_file():
        there = ", ".join(sorted(path.stem for path in folder.glob("*.json"))) or "none"
        raise InvalidInput(f"buckler: must be followed by the name of a network; got {name!r}, and there are {there}")
    card = read_card(folder / f"{named.name}.json")
    if card.kind != kind:
        raise InvalidInput(f"buckler:{name} must be a {kind} here; it is a {card.kind}")
    return card, weights_of(card, folder)
