"""Save a finished run: the float16 weights and their card, in place of the checkpoint."""

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from buckler import __version__
from buckler.errors import MissingExtra
from buckler.files import atomic_write, checksum
from buckler.sampling.cards import ClassifierCard, DenoiserCard, write_card
from buckler.sampling.weights import HEADER
from buckler.training.data import Images
from buckler.training.descent import Descent, checkpoint_path
from buckler.training.devices import describe

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


def save_network(path: Path, network: nn.Module, *, architecture: str, num_classes: int, sigma: float) -> str:
    """Write the weights as float16, whole or not at all, and return the file's sha256."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingExtra("safetensors", "torch") from None
    # One entry, since safetensors writes several in random order: the same weights must give the same checksum.
    header = {HEADER: json.dumps({"architecture": architecture, "num_classes": num_classes, "sigma": sigma})}
    with atomic_write(path) as temporary:
        kept = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        halves = {name: value.half() if value.is_floating_point() else value for name, value in kept.items()}
        temporary.write_bytes(save(halves, metadata=header))
    return checksum(path)
