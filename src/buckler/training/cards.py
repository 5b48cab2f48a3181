"""The card beside a network's weights: what it was trained on, how, how well, and the checksum to know it by.

Written twice, for a program (``.json``) and for a person (``.md``). Knows no torch.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput
from buckler.files import atomic_write, parse_json, read_text

LARGEST_CARD = 1 << 20
"""Bytes of a card, at most."""

PAGE = """# {title}

A classifier trained under Gaussian noise, to be certified by randomized smoothing at sigma = {sigma}.

| | |
|---|---|
| weights | `{weights}`, float16 safetensors, sha256 `{sha256}` |
| input | colour images in [0, 1], `[batch, 3, {height}, {width}]`; standardisation is inside the network |
| architecture | {architecture}, {parameters:,} parameters, {num_classes} classes |
| data | {data}, `{data_source}`, sha256 `{data_sha256}` |
| images | {train_inputs:,} for training, {test_inputs:,} for the test |
| noise | Gaussian, sigma = {sigma}, drawn anew for every image in every epoch |
| accuracy under noise | **{accuracy:.2%}** of the test set, one draw for each image at sigma = {sigma} |
| accuracy without noise | {clean_accuracy:.2%} |
| training time | {seconds:.0f} s on {device} |
| versions | {versions} |

The accuracies were measured with the float16 weights of the file, computed in float32. No certificate is claimed
here: an accuracy under noise is an estimate of the base classifier, not a bound.

## Recipe

Stochastic gradient descent with Nesterov momentum; the learning rate rises in a straight line over the warm-up, then
falls along half a cosine. Images are shifted by up to an eighth of their size and, with flip, mirrored at random. The
weights are a running average over the last steps, with the statistics of batch normalisation measured anew for it.

{recipe}

    {command}
"""


@dataclass(frozen=True, slots=True)
class Card:
    """Everything that is said of a network."""

    weights: str
    sha256: str
    architecture: str
    parameters: int
    num_classes: int
    height: int
    width: int
    sigma: float
    accuracy: float
    clean_accuracy: float
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


def write_card(folder: Path, card: Card) -> tuple[Path, Path]:
    """Write the card as JSON and as Markdown beside the weights; return both paths."""
    stem = Path(card.weights).stem
    fields = asdict(card)
    recipe = "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in card.recipe.items())
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    page = PAGE.format(**(fields | {"title": stem, "recipe": recipe, "versions": versions}))
    texts = {folder / f"{stem}.json": json.dumps(fields, indent=2) + "\n", folder / f"{stem}.md": page}
    for path, text in texts.items():
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    first, second = texts
    return first, second


def read_card(path: Path) -> Card:
    """Return the card in a ``.json`` file."""
    try:
        return Card(**parse_json(read_text(path, LARGEST_CARD)))
    except (OSError, ValueError, TypeError):
        raise InvalidInput(f"path must be a network's card (.json); {path} is not readable as one") from None
