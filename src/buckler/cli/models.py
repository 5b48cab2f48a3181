"""``buckler models``: list the bundled networks from their cards."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.sampling.zoo import cards_in, certified_at, models_folder, weights_of


def models_command(
    folder: Annotated[
        Path | None, option("Folder of weights and cards.", "BUCKLER_MODELS, or the repository's")
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print the cards as JSON, one a line.")] = False,
) -> None:
    """List the bundled networks.

    The weights of each are compared with the checksum on its card; nothing is downloaded. Use them by --model
    buckler:NAME, or a denoiser by --denoiser buckler:NAME.

    Examples:

      buckler models
      buckler models --folder weights --json
    """
    home = models_folder() if folder is None else folder
    cards = cards_in(home)
    for card in cards.values():
        weights_of(card, home)
    if as_json:
        for name, card in cards.items():
            say(json.dumps({"name": name, **asdict(card)}))
        return
    if not cards:
        say(f"no networks in {home}")
    for name, card in cards.items():
        say(f"{name}\n    {card.kind}, {card.architecture}, {card.data}; noise: {card.noise()}\n    {card.summary()}")
        for table in card.certified:
            shares = ", ".join(f"{share:.1%} at {radius}" for radius, share in table["accuracy"].items())
            say(f"    certified at {certified_at(table)}: {shares}")
