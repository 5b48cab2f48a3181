"""Stochastic gradient descent under noise: devices, the average of the weights, checkpoints, and the loop over epochs.

On a GPU the arithmetic is bfloat16 under autocast with float32 weights. The host reads the loss every fifty steps and
otherwise never waits for the device.

A run's state is written to disk after each epoch, so that an interrupted run goes on as if nothing had happened: one
file, replaced by an atomic rename, of plain tensors and strings, only ever read with ``weights_only=True``. No
generator state is kept, for none is needed: the draws of an epoch depend on (seed, epoch) alone.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from buckler.errors import BucklerError, InvalidInput, check_positive, show
from buckler.files import atomic_write
from buckler.training.convolution import use_kernels
from buckler.training.data import Images
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import TrainingTask, crop_and_flip, draws_for
from buckler.types import AnyArray


def choose_device(name: str) -> torch.device:
    """Return the torch device called ``name``; ``auto`` is the GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in {"cpu", "cuda"}:
        raise InvalidInput(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N'; got {show(name)}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidInput(f"device must be one of the {torch.cuda.device_count()} CUDA devices here; got {show(name)}")
    return device


def may_compile(device: torch.device, asked: bool | None) -> bool:
    """Return whether to compile a network on the device: as ``asked``, or wherever that is possible if None.

    If it is asked for where it is not possible, that raises InvalidInput.
    """
    possible = device.type == "cuda" and find_spec("triton") is not None
    if asked and not possible:
        raise InvalidInput(f"compile must be off on {device} here: it needs a CUDA device and the package triton")
    return possible if asked is None else asked


def place(images: AnyArray, device: torch.device) -> Tensor:
    """Return the images as a tensor on the device, or on the host if they would fill half of its free memory."""
    tensor = torch.from_numpy(images)
    if device.type == "cuda" and tensor.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return tensor
    return tensor.to(device)


@contextmanager
def tuned() -> Iterator[None]:
    """Let cuDNN try its convolutions within the block and keep the fastest for each shape; restore the setting."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


AVERAGE_EVERY = 10
"""Training steps between updates of the average of the weights: often enough, and its many small copies cost little."""

DECAY = 0.98
"""Largest weight of the old average in an update: with ``AVERAGE_EVERY``, it averages about the last 500 steps."""


class WeightAverage:
    """Exponential moving average of a network's parameters; its first updates count more, to forget the start."""

    def __init__(self, network: nn.Module) -> None:
        self.values = {name: value.detach().clone() for name, value in network.named_parameters()}
        self.updates = 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the present weights of the network."""
        decay = min(DECAY, (1 + self.updates) / (10 + self.updates))
        for name, value in network.named_parameters():
            self.values[name].lerp_(value, 1.0 - decay)
        self.updates += 1

    def restore(self, values: Mapping[str, Tensor], updates: int) -> None:
        """Set the average, and the number of its updates, to those of a checkpoint."""
        for name, value in self.values.items():
            value.copy_(values[name])
        self.updates = updates

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> None:
        """Replace the network's weights by the average; its batch normalisation's statistics no longer fit then.

        If the training was too short for one update, the network keeps its own weights.
        """
        if self.updates == 0:
            return
        for name, value in network.named_parameters():
            value.copy_(self.values[name])


def round_to_half(network: nn.Module) -> None:
    """Round the network's float weights and buffers to float16, in place: what is measured is then what is saved."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.half().to(value.dtype))
                if not torch.isfinite(value).all():
                    raise BucklerError(f"{name} does not fit float16; the training has diverged")


@torch.no_grad()
def recompute_statistics(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the running mean and variance of the network's batch normalisations to their averages over ``batches``.

    The network is in eval mode afterwards.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    network.train()
    for batch in batches:
        network(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.eval()


CHECKPOINT_FORMAT = "buckler-training-1"


def save_checkpoint(path: Path, descent: "Descent", choices: Mapping[str, Any]) -> None:
    """Write the state of a training run, from which it can go on, to ``path``, whole or not at all.

    ``choices`` are the recipe and the checksum of its data.
    """
    state = {
        "epoch": descent.epoch,
        "seconds": descent.seconds,
        "weights": dict(descent.network.state_dict()),
        "average": descent.average.values,
        "updates": descent.average.updates,
        "optimiser": descent.optimiser.state_dict(),
        "format": CHECKPOINT_FORMAT,
        "choices": json.dumps(dict(choices), sort_keys=True),
    }
    with atomic_write(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state in the checkpoint at ``path``, for ``Descent.restore``, its tensors on the CPU.

    One with other ``choices`` raises InvalidInput.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["format"] != CHECKPOINT_FORMAT:
            raise KeyError("format")
        found = json.loads(state["choices"])
        parts = {name: state[name] for name in ("epoch", "seconds", "weights", "average", "updates", "optimiser")}
    except Exception as error:  # a damaged archive raises half a dozen types, none of them documented
        raise InvalidInput(f"{path} is not a checkpoint of this program ({type(error).__name__}); remove it") from None
    wanted = json.loads(json.dumps(dict(choices)))
    other = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if other:
        named = ", ".join(f"{name} {found.get(name)} there and {wanted.get(name)} here" for name in other)
        raise InvalidInput(f"{path.name} belongs to another run ({named}); use its options or remove it")
    return parts


REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a training run: ``step`` of ``steps`` of all ``epochs``, and the mean ``loss`` since the last report.

    ``rate`` is the learning rate.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    rate: float


class Descent:
    """A training run: its network, optimiser, average of the weights, and the number of epochs done.

    ``images`` (uint8 ``[inputs, height, width, 3]``) and ``labels`` lie on one device, the network's or the host.
    """

    def __init__(
        self, config: TrainingConfig, task: TrainingTask, network: nn.Module, images: Tensor, labels: Tensor
    ) -> None:
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
        """Train for one epoch, once over the images; ``forward`` is the network or its compiled form.

        ``report`` is called every ``REPORT_EVERY`` steps and at the end.
        """
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
            if step % AVERAGE_EVERY == 0:
                self.average.update(self.network)
            loss_sum += loss.detach()
            since += 1
            if since == REPORT_EVERY or count == self.epoch_steps:
                mean = float(loss_sum) / since
                if not mean < float("inf"):
                    raise BucklerError(f"training diverged in epoch {self.epoch + 1}: try a lower learning rate")
                if report is not None:
                    rate = config.rate(step - 1, steps)
                    report(TrainingProgress(self.epoch + 1, config.epochs, step, steps, mean, rate))
                loss_sum, since = torch.zeros_like(loss_sum), 0
        self.epoch, self.seconds = self.epoch + 1, self.seconds + time.perf_counter() - start

    def batches(self, number: int, limit: int | None = None) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor]]:
        """Yield the network's inputs, the images and the labels of the random full batches of epoch ``number``.

        There are at most ``limit`` of them. What is drawn is a function of the seed and the epoch's number.
        """
        home, seed = self.images.device, self.config.seed
        order = torch.randperm(len(self.images), generator=draws_for(home, seed, number, 0), device=home)
        draws = draws_for(self.device, seed, number, 1)
        for index in torch.split(order[: self.epoch_steps * self.batch], self.batch)[:limit]:
            x = crop_and_flip(self.images[index].to(self.device, non_blocking=True), draws, flip=self.config.flip)
            yield self.task.inputs(x, draws), x, self.labels[index].to(self.device, non_blocking=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the run back into the state of a checkpoint."""
        self.network.load_state_dict(state["weights"])
        self.average.restore(state["average"], state["updates"])
        self.optimiser.load_state_dict(state["optimiser"])
        for group in self.optimiser.param_groups:
            group["fused"] = self.device.type == "cuda"  # the state may come from another kind of device
        self.epoch, self.seconds = state["epoch"], state["seconds"]


def checkpoint_path(config: TrainingConfig, data: str, out: Path) -> Path:
    """Return the path in the folder ``out`` of the checkpoint of a recipe on the data named ``data``."""
    return out / f"{config.stem(data)}.checkpoint"


def descend(
    config: TrainingConfig,
    task: TrainingTask,
    network: nn.Module,
    images: Images,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    max_seconds: float | None = None,
) -> Descent:
    """Train ``network`` on the training images to the end, and return the run; the network has the averaged weights.

    They are rounded to float16. A checkpoint is written to the folder ``out`` after every epoch, and stays there. With
    ``resume`` the run goes on from it; without, a checkpoint of an unfinished run raises InvalidInput, so that it is
    not lost. Before an epoch that would end after ``max_seconds`` if it took as long as the last, a ``TimeoutError`` is
    raised. ``progress`` is called every ``REPORT_EVERY`` steps.
    """
    if max_seconds is not None:
        check_positive("max_seconds", max_seconds)
    start = time.perf_counter()
    device = choose_device(config.device)
    compiled = may_compile(device, config.compile)
    x = place(images.x_train, device)
    placed = network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if compiled:
        use_kernels(placed)
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
            save_checkpoint(checkpoint, descent, choices)
            now = time.perf_counter()
            if max_seconds is not None and descent.epoch < config.epochs and now - start + (now - begun) > max_seconds:
                raise TimeoutError(
                    f"{descent.epoch} of {config.epochs} epochs are done, the next would not end in time"
                )
    # Rounded before statistics are measured, so that these fit the rounded weights.
    descent.average.copy_to(placed)
    round_to_half(placed)
    return descent
