"""Stochastic gradient descent under noise: the state of a run, one epoch, and the loop over epochs.

On a GPU the arithmetic is bfloat16 under autocast with float32 weights. The host reads the loss every fifty steps and
otherwise never waits for the device.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from buckler.errors import BucklerError, InvalidInput, check_positive
from buckler.training.averaging import EVERY, WeightAverage, round_to_half
from buckler.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from buckler.training.data import Images
from buckler.training.devices import choose_device, may_compile, place, stream, tuned
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Task, crop_and_flip

REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a run: ``step`` of ``steps`` in all, and the mean ``loss`` since the last report."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    rate: float
    seconds_left: float


class Descent:
    """The state of a run: network, optimiser, average of the weights, and the number of epochs done.

    ``images`` (uint8 ``[inputs, height, width, 3]``) and ``labels`` lie on one device, the network's or the host.
    """

    def __init__(self, config: TrainingConfig, task: Task, network: nn.Module, images: Tensor, labels: Tensor) -> None:
        self.config, self.task, self.network, self.images, self.labels = config, task, network, images, labels
        self.device = next(network.parameters()).device
        self.batch = min(config.batch_size, len(images))
        self.epoch_steps = len(images) // self.batch
        # Decaying a scale or a bias only weakens the network: what decay regulates is the size of the convolutions.
        decayed = [p for p in network.parameters() if p.ndim > 1]
        kept = [p for p in network.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
        fused = self.device.type == "cuda"
        self.optimiser: torch.optim.Optimizer
        if config.denoises:
            self.optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, fused=fused)
        else:
            self.optimiser = torch.optim.SGD(
                groups, lr=config.learning_rate, momentum=config.momentum, nesterov=True, fused=fused
            )
        self.average = WeightAverage(network)
        self.epoch, self.seconds = 0, 0.0

    def run_epoch(self, forward: nn.Module, report: Callable[[TrainingProgress], None] | None = None) -> None:
        """Pass once over the images; ``forward`` is the network or its compiled form."""
        config, steps = self.config, self.config.epochs * self.epoch_steps
        self.network.train()
        loss_sum = torch.zeros((), device=self.device)
        start, since = time.perf_counter(), 0
        for count, (inputs, images, labels) in enumerate(self.batches(self.epoch), start=1):
            step = self.epoch * self.epoch_steps + count
            for group in self.optimiser.param_groups:
                group["lr"] = config.rate(step - 1, steps)
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = self.task.loss(forward, inputs, images, labels)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            if step % EVERY == 0:
                self.average.update(self.network)
            loss_sum += loss.detach()
            since += 1
            if since == REPORT_EVERY or count == self.epoch_steps:
                mean = float(loss_sum) / since
                if not mean < float("inf"):
                    raise BucklerError(f"training diverged in epoch {self.epoch + 1}: try a lower learning rate")
                left = (time.perf_counter() - start) / count * (steps - step)
                if report is not None:
                    rate = config.rate(step - 1, steps)
                    report(TrainingProgress(self.epoch + 1, config.epochs, step, steps, mean, rate, left))
                loss_sum, since = torch.zeros_like(loss_sum), 0
        self.epoch, self.seconds = self.epoch + 1, self.seconds + time.perf_counter() - start

    def batches(self, number: int, limit: int | None = None) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor]]:
        """Yield the network's inputs, images and labels of random full batches, drawn from the seed and ``number``."""
        home, seed = self.images.device, self.config.seed
        order = torch.randperm(len(self.images), generator=stream(home, seed, number, 0), device=home)
        draws = stream(self.device, seed, number, 1)
        for index in torch.split(order[: self.epoch_steps * self.batch], self.batch)[:limit]:
            x = crop_and_flip(self.images[index].to(self.device, non_blocking=True), draws, flip=self.config.flip)
            yield self.task.inputs(x, draws), x, self.labels[index].to(self.device, non_blocking=True)

    def state(self, choices: Mapping[str, Any]) -> Checkpoint:
        """Return everything needed to go on from here."""
        return Checkpoint(
            choices=choices,
            epoch=self.epoch,
            seconds=self.seconds,
            weights=self.network.state_dict(),
            average=self.average.values,
            updates=self.average.updates,
            optimiser=self.optimiser.state_dict(),
        )

    def restore(self, state: Checkpoint) -> None:
        """Go on from a saved state."""
        self.network.load_state_dict(state.weights)
        self.average.restore(state.average, state.updates)
        self.optimiser.load_state_dict(dict(state.optimiser))
        for group in self.optimiser.param_groups:
            group["fused"] = self.device.type == "cuda"  # the state may come from another kind of device
        self.epoch, self.seconds = state.epoch, state.seconds


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
    max_seconds: float | None = None,
) -> Descent:
    """Return the finished descent, its network holding the averaged weights, rounded to float16.

    A checkpoint is written to ``out`` after every epoch, and left there. With ``resume`` the run goes on from it;
    without, one left by an unfinished run is an error rather than lost. Where another epoch as long as the last would
    end after ``max_seconds``, a ``TimeoutError`` is raised in its place.
    """
    if max_seconds is not None:
        check_positive("max_seconds", max_seconds)
    start = time.perf_counter()
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
            begun = time.perf_counter()
            descent.run_epoch(forward, progress)  # type: ignore[arg-type]
            save_checkpoint(checkpoint, descent.state(choices))
            now = time.perf_counter()
            if max_seconds is not None and descent.epoch < config.epochs and now - start + (now - begun) > max_seconds:
                raise TimeoutError(
                    f"{descent.epoch} of {config.epochs} epochs are done, the next would not end in time"
                )
    # Rounded before statistics are measured, so that these fit the rounded weights.
    descent.average.copy_to(placed)
    round_to_half(placed)
    return descent
