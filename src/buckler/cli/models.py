"""``buckler models``: the networks that come with the package, as their cards tell of them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from buckler.cli.options import option
from buckler.sampling.cards import certified_at
from buckler.sampling.zoo import cards_in, shelf, weights_of


def models(
    folder: Annotated[Path | None, option("Weights and their cards.", "BUCKLER_MODELS, or the repository's")] = None,
    as_json: Annotated[bool, option("Print one card a line, as JSON.", name="--json")] = False,
) -> None:
    """List the networks at hand, each compared with the checksum on its card; nothing is fetched.

    Each is --model buckler:NAME or, a denoiser, --denoiser buckler:NAME; the card beside its weights says more.

    Examples:

      buckler models

      buckler models --folder weights --json
    """
    home = shelf() if folder is None else folder
    cards = cards_in(home)
    for card in cards.values():
        weights_of(card, home)
    if as_json:
        for name, card in cards.items():
            print(json.dumps({"name": name, **asdict(card)}))
        return
    if not cards:
        print(f"no networks in {home}")
    for name, card in cards.items():
        print(f"{name}\n    {card.kind}, {card.architecture}, {card.data}; noise: {card.noise()}\n    {card.summary()}")
        for table in card.certified:
            shares = ", ".join(f"{share:.1%} at {radius}" for radius, share in table["accuracy"].items())
            print(f"    certified at {certified_at(table)}: {shares}")
