"""Fitting a network's weights by a recipe: epochs, checkpoints and the running average at the end."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from buckler.errors import InvalidInput
from buckler.training.checkpoints import load_checkpoint, save_checkpoint
from buckler.training.data import Images
from buckler.training.descent import Descent, TrainingProgress
from buckler.training.devices import choose_device, may_compile, place, tuned
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Task
from buckler.training.weights import round_to_half


def checkpoint_path(config: TrainingConfig, data: str, out: Path) -> Path:
    """Return where a run keeps its checkpoint."""
    return out / f"{config.stem(data)}.checkpoint"


def fit(
    config: TrainingConfig,
    task: Task,
    network: nn.Module,
    images: Images,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Descent:
    """Return the finished descent, its network holding the averaged weights, rounded to float16.

    A checkpoint is written to ``out`` after every epoch, and left there. With ``resume`` the run goes on from it;
    without, one left by an unfinished run is an error rather than lost.
    """
    device = choose_device(config.device)
    compiled = may_compile(device, config.compile)
    x = place(images.x_train, device)
    placed = network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    descent = Descent(config, task, placed, x, torch.from_numpy(images.y_train).to(x.device))
    checkpoint = checkpoint_path(config, images.name, out)
    choices = config.choices() | {"data": images.sha256}
    if checkpoint.exists():
        if not resume:
            raise InvalidInput(f"out holds an unfinished run, {checkpoint}: resume it or remove that file")
        descent.restore(load_checkpoint(checkpoint, choices))
    out.mkdir(parents=True, exist_ok=True)
    # A step is hundreds of small kernels: recorded once as a graph, they are no longer bound by the time of launching.
    forward = torch.compile(placed, mode="reduce-overhead") if compiled else placed
    with tuned():
        while descent.epoch < config.epochs:
            descent.run_epoch(forward, progress)  # type: ignore[arg-type]
            save_checkpoint(checkpoint, descent.state(choices))
    # Rounded before statistics are measured, so that these fit the rounded weights.
    descent.average.copy_to(placed)
    round_to_half(placed)
    return descent
