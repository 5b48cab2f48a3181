"""What a finished run leaves: the float16 weights and their card, in place of the checkpoint."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from buckler import __version__
from buckler.sampling.cards import ClassifierCard, DenoiserCard, write_card
from buckler.training.data import Images
from buckler.training.descent import Descent
from buckler.training.devices import describe
from buckler.training.fitting import checkpoint_path
from buckler.training.weights import save_network

AnyCard = TypeVar("AnyCard", ClassifierCard, DenoiserCard)


@dataclass(frozen=True, slots=True)
class Trained(Generic[AnyCard]):
    """The three files, and what the card says."""

    weights: Path
    card_json: Path
    card_markdown: Path
    card: AnyCard


def save_outcome(
    descent: Descent, images: Images, out: Path, card_of: Callable[..., AnyCard], **own: Any
) -> Trained[AnyCard]:
    """Write the descent's network and its card to ``out``; ``own`` are the fields that only this kind of card has."""
    config, network = descent.config, descent.network
    weights = out / f"{config.stem(images.name)}.safetensors"
    sha256 = save_network(
        weights, network, architecture=config.architecture, num_classes=images.num_classes, sigma=config.sigma
    )
    card = card_of(
        weights=weights.name,
        sha256=sha256,
        architecture=config.architecture,
        parameters=sum(p.numel() for p in network.parameters()),
        height=images.x_train.shape[1],
        width=images.x_train.shape[2],
        sigma=config.sigma,
        data=images.name,
        data_source=images.source,
        data_sha256=images.sha256,
        train_inputs=len(images.x_train),
        test_inputs=len(images.x_test),
        recipe=config.choices(),
        command=config.command(images.name, None if images.name == "digits" else images.source, own.get("classifier")),
        seconds=round(descent.seconds, 1),
        device=describe(descent.device),
        versions={
            "buckler": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        **own,
    )
    card_json, card_markdown = write_card(out, card)
    checkpoint_path(config, images.name, out).unlink(missing_ok=True)
    return Trained(weights, card_json, card_markdown, card)
