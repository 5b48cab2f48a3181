"""A run's state on disk after each epoch, so that an interrupted run goes on as if nothing had happened.

One file, replaced by an atomic rename: a run killed while writing leaves the checkpoint before. It holds plain tensors
and strings and is only ever read with ``weights_only=True``. No generator state is kept, for none is needed: the
draws of an epoch depend on (seed, epoch) alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from buckler.errors import InvalidInput
from buckler.files import atomic_write

FORMAT = "buckler-training-1"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state after ``epoch`` epochs and ``seconds``; ``choices`` holds the recipe and its data's checksum."""

    choices: Mapping[str, Any]
    epoch: int
    seconds: float
    weights: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    updates: int
    optimiser: Mapping[str, Any]


STATE = tuple(field.name for field in fields(Checkpoint) if field.name != "choices")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint to ``path``, whole or not at all."""
    values = {name: getattr(checkpoint, name) for name in STATE}
    state = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    state |= {"format": FORMAT, "choices": json.dumps(dict(checkpoint.choices), sort_keys=True)}
    with atomic_write(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path, choices: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint at ``path``, on the CPU; one of another recipe or other data is refused."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["format"] != FORMAT:
            raise KeyError("format")
        found = json.loads(state["choices"])
        parts = {name: state[name] for name in STATE}
    except Exception as error:  # a damaged archive raises half a dozen types, none of them documented
        raise InvalidInput(f"{path} is not a checkpoint of this program ({type(error).__name__}); remove it") from None
    wanted = json.loads(json.dumps(dict(choices)))
    other = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if other:
        named = ", ".join(f"{name} {found.get(name)} there and {wanted.get(name)} here" for name in other)
        raise InvalidInput(f"{path.name} belongs to another run ({named}); use its options or remove it")
    return Checkpoint(choices=found, **parts)
