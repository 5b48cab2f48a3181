"""Torch modules: as classifiers, and under noise with gradients. Loads torch.

``TorchClassifier`` runs a module in eval mode without gradients and restores its mode at the end. Lower precision is
autocast: weights and noisy inputs stay float32, and matrix products and convolutions run in ``dtype``.

``Gradients`` is for attacks that refute, ``SmoothedModule`` for any other. The noise of ``Gradients`` is addressed, in
the stream ``attack``: all points of one input share it, and no other stream does. Neither is a guarantee; what an
attack finds is judged on other draws (``evaluate.refutations``).
"""

import copy
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from buckler.errors import InvalidInput, show
from buckler.noise import Gaussian
from buckler.sampling.classifiers import Classifier, Dtype, one_output
from buckler.sampling.device import CudaNoise
from buckler.sampling.engine import Decider, Engine, draw_until_decided
from buckler.sampling.fusion import AVAILABLE, evaluating, fold, fuse
from buckler.sampling.simplex import ScoreMap
from buckler.sampling.streams import NOISE_BLOCK, check_address, gaussian
from buckler.types import AnyArray, Float32Array, IntArray, Noise


class NormalizedModule(nn.Module):
    """A module ``x -> model((x - mean) / std)``: the model with its normalisation; channels are the second axis."""

    def __init__(self, model: nn.Module, mean: AnyArray, std: AnyArray) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for the normalised batch."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return self.model((x - self.mean.view(shape)) / self.std.view(shape))  # type: ignore[operator]


class Resized(nn.Module):
    """``model`` for images of any size: those not of its own ``size``, (height, width), are interpolated by ``mode``.

    If ``mode`` is None they raise InvalidInput.
    """

    def __init__(self, model: nn.Module, size: tuple[int, int], mode: str | None) -> None:
        super().__init__()
        self.model, self.size, self.mode = model, size, mode

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for a batch of images."""
        if tuple(x.shape[2:]) == self.size:
            return self.model(x)
        if self.mode is None:
            high, wide = self.size
            raise InvalidInput(
                f"images must be {high}x{wide}, which the image processor of the model cuts out; got "
                f"{x.shape[2]}x{x.shape[3]}: cut the data before the noise is added, by --resize and --crop {wide}"
            )
        return self.model(functional.interpolate(x, self.size, mode=self.mode, antialias=self.mode != "nearest"))


class TorchClassifier(Classifier):
    """A Classifier of a ``torch.nn.Module``: float32 tensors on ``device`` -> logits.

    Of an output with ``.logits``, as models of transformers return, these are taken.
    """

    backend = "torch"

    def __init__(
        self,
        module: nn.Module,
        num_classes: int | None = None,
        *,
        device: str | None = None,
        dtype: Dtype = "float32",
        channels_last: bool = False,
        compile: bool = False,  # noqa: A002
    ) -> None:
        """Wrap the module; it is copied only if it lies on another device, or ``channels_last`` is asked for.

        A ``dtype`` other than float32 leaves the weights as they are and lets torch choose which operations run in it
        (autocast). With ``compile``, weights are constants of the compiled program, and on CUDA, in such a ``dtype``
        and with ``channels_last``, layers of few channels are fused (``fusion``).
        """
        for name, part in module.named_modules():
            if isinstance(part, _BatchNorm) and part.running_mean is None:
                raise InvalidInput(
                    f"model must be a function of one input; its part {name!r} normalises over the rows of a batch, "
                    "having no running statistics"
                )
        here = next((p.device for p in (*module.parameters(), *module.buffers())), torch.device("cpu"))
        there = here if device is None else _device(device)
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._autocast = self._dtype is not torch.float32
        if there != here or channels_last:
            module = copy.deepcopy(module).to(there)
            if channels_last:
                module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        super().__init__(module, infer_classes(module) if num_classes is None else num_classes, library="torch")
        self.module = module
        self.device = str(there)
        self.compiled = compile
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        # Weights of another single type, float64 say, stay as they are, and inputs are cast to that type.
        weights = {p.dtype for p in module.parameters() if p.is_floating_point()}
        self._input = weights.pop() if len(weights) == 1 else torch.float32
        self._call: Any = None if compile else module
        self._differentiable: Any = None
        told: set[Any] = {part.denoiser_sigma for part in module.modules() if hasattr(part, "denoiser_sigma")}
        self.denoiser_sigmas = frozenset(told)

    def __call__(self, batch: Tensor, /) -> Tensor:
        """Return float32 logits for a float32 batch on ``device``."""
        if self._call is None:
            self._call = self._compile(self._laid_out(batch))
        # Not inference_mode: folding weights into a compiled program needs ordinary tensors.
        with torch.no_grad():
            return self._logits(self._call, batch)

    def with_gradients(self, batch: Tensor) -> Tensor:
        """Return the logits of a batch, from which torch can compute gradients with respect to the batch.

        The module runs uncompiled. If the classifier is a compiled one, batch normalisations are folded into the
        convolutions before them here too.
        """
        if self._differentiable is None:
            folded = fold(self.module, self._laid_out(batch).to(self._input)) if self.compiled else None
            self._differentiable = folded or self.module
        return self._logits(self._differentiable, batch)

    def _laid_out(self, batch: Tensor) -> Tensor:
        return batch.contiguous(memory_format=self._format) if batch.dim() == 4 else batch

    def _logits(self, call: Any, batch: Tensor) -> Tensor:
        # A network that averages over the image takes any size, and standardising makes three channels of one.
        wanted, came = getattr(self.module, "buckler_image_shape", ()), tuple(batch.shape[1:])
        if wanted and (
            len(came) != 3 or any(size not in {None, given} for size, given in zip(wanted, came, strict=True))
        ):
            known = "x".join("any" if size is None else str(size) for size in wanted)
            raise InvalidInput(
                f"inputs must be images of the network's shape, {known} (channels, height, width); got "
                f"{'x'.join(map(str, came))}"
            )
        with torch.autocast(torch.device(self.device).type, self._dtype, enabled=self._autocast):
            out = call(self._laid_out(batch).to(self._input))
        logits = one_output(getattr(out, "logits", out))
        if not isinstance(logits, Tensor):
            raise InvalidInput(f"a module must return a tensor of logits; got {show(out)}")
        return logits.float()

    def _compile(self, batch: Tensor) -> Any:
        fused = None
        if AVAILABLE and batch.is_cuda and self._autocast and self._format is torch.channels_last:
            fused = fuse(self.module, self._dtype, batch)
        # Weights do not change while a classifier is certified, so they may be folded into the program.
        return torch.compile(fused or self.module, dynamic=False, options={"freezing": fused is None})

    def session(self) -> AbstractContextManager[None]:
        """Return a context in which every part of the module is in eval mode; its end restores each part's mode."""
        return evaluating(self.module)


def infer_classes(module: nn.Module) -> int | None:
    """Return a module's number of classes: that of a transformers config, else of the last linear layer; else None.

    It is a guess: every batch of logits is compared with it.
    """
    last = None
    for part in module.modules():
        configured = getattr(getattr(part, "config", None), "num_labels", None)
        if isinstance(configured, int) and configured >= 2:
            return configured
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            last = part
    return last.out_features if isinstance(last, nn.Linear) and last.out_features >= 2 else None


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise InvalidInput(f"device must be one that torch can use; got {name!r} ({show(str(problem), 100)})") from None
    return device if device.type != "cuda" or device.index is not None else torch.device("cuda", 0)


BLOCKS = 64
"""Blocks of noise that one call of ``Gradients.look`` may take at most."""


class Estimates(NamedTuple):
    """What ``Gradients.look`` returns at each point: votes of the noisy copies and mean scores, ``[points, classes]``.

    ``gradient[points, ...]`` is that of the mean difference of two classes' scores.
    """

    votes: Tensor
    scores: Tensor
    gradient: Tensor


class Gradients:
    """Votes and gradients of an engine's smoothed classifier at points near several inputs, for attacks.

    ``ids`` are the ids of the inputs, in whose stream ``attack`` it draws. Call its methods inside ``session()``.
    """

    def __init__(self, engine: Engine, ids: Sequence[str]) -> None:
        """Take an engine whose classifier is a torch module, since nothing else has gradients."""
        if not isinstance(engine.classifier, TorchClassifier):
            raise InvalidInput("an attack needs gradients: the model must be a torch module, and this one is not")
        self._engine, self._classifier = engine, engine.classifier
        self._sigma = float(np.float32(engine.noise.unit))
        self._addresses = [check_address(engine.seed, name, "attack") for name in ids]
        self.device = torch.device(self._classifier.device)
        self._on_device = CudaNoise(self._classifier.device) if self.device.type == "cuda" else None
        self.rows = engine.rows

    def count(self, points: Float32Array, names: Sequence[str], n: int) -> Generator[int, None, IntArray]:
        """Yield how many draws were made, and return the votes ``[points, classes]`` of ``n`` draws at each point.

        They are draws of the stream ``attack``, under the id that ``names`` gives each point.
        """
        return (yield from self._engine.vote_steps(points, names, "attack", n))

    def judge(self, points: Float32Array, ids: Sequence[str], decider: Decider) -> Iterator[int]:
        """Draw at ``points`` in the stream ``refutation`` until ``decider`` has decided; yield how many were drawn."""
        for made in draw_until_decided(self._engine, points, ids, decider, stream="refutation"):
            yield made.drawn

    def session(self) -> AbstractContextManager[None]:
        """Return the engine's session: methods are called inside of it, and its end restores the module's mode."""
        return self._engine.session()

    def look(self, points: Tensor, inputs: IntArray, pair: Tensor, block: int, draws: int) -> Estimates:
        """Return votes, mean scores, and the gradient of the mean difference of two classes' scores, at each point.

        The difference at point k is ``score[pair[k, 1]] - score[pair[k, 0]]``, with softmax of the logits as scores.
        Point k has the noise of the input at position ``inputs[k]``: ``draws`` draws from block ``BLOCKS * block`` of
        its stream ``attack`` on. Points of one input should follow one another, since they share this noise.
        """
        whole, rest = divmod(draws, NOISE_BLOCK)
        parts = [NOISE_BLOCK] * whole + [rest] * (rest > 0)
        parts_seen = [self._each(points, inputs, pair, BLOCKS * block + k, rows) for k, rows in enumerate(parts)]
        votes, scores, gradient = (torch.stack(kind) for kind in zip(*parts_seen, strict=True))
        shares = torch.tensor([rows / draws for rows in parts], device=self.device)
        return Estimates(votes.sum(dim=0), torch.tensordot(shares, scores, 1), torch.tensordot(shares, gradient, 1))

    def _each(self, points: Tensor, inputs: IntArray, pair: Tensor, block: int, draws: int) -> Estimates:
        found, first = [], 0
        while first < len(points):
            last = first + max(1, self.rows // draws)
            try:
                found.append(self._some(points[first:last], inputs[first:last], pair[first:last], block, draws))
            except torch.OutOfMemoryError:
                if self.rows <= draws:
                    raise
                self.rows //= 2
                torch.cuda.empty_cache()
                continue
            first = last
        return Estimates(*map(torch.cat, zip(*found, strict=True)))

    def _some(self, points: Tensor, inputs: IntArray, pair: Tensor, block: int, draws: int) -> Estimates:
        own, place = np.unique(inputs, return_inverse=True)
        shape = points.shape[1:]
        noise = torch.stack([self._noise(int(i), block, draws, tuple(shape)) for i in own])
        noisy = noise[torch.as_tensor(place, device=self.device)].mul_(self._sigma).add_(points[:, None])
        noisy = noisy.flatten(0, 1).requires_grad_()
        logits = self._classifier.with_gradients(noisy)
        scores = torch.softmax(logits, dim=1)
        sides = pair.repeat_interleave(draws, dim=0)
        gap = (scores.gather(1, sides[:, 1:]) - scores.gather(1, sides[:, :1])).sum()
        # Of the inputs alone; weights keep asking for theirs, since a compiled module would be compiled anew if not.
        (gradient,) = torch.autograd.grad(gap, noisy)
        votes = torch.zeros((len(points), logits.shape[1]), device=self.device)
        rows = torch.arange(len(points), device=self.device).repeat_interleave(draws)
        votes.index_put_((rows, logits.argmax(dim=1)), torch.ones((), device=self.device), accumulate=True)
        means = scores.detach().view(len(points), draws, -1).mean(dim=1)
        return Estimates(votes, means, gradient.view(len(points), draws, *shape).mean(dim=1))

    def _noise(self, place: int, block: int, draws: int, shape: tuple[int, ...]) -> Tensor:
        address = self._addresses[place].at(block)
        if self._on_device is None:
            return torch.from_numpy(gaussian(address, draws, shape)).to(self.device)
        out = torch.empty((draws, *shape), device=self.device)
        self._on_device.fill(out, address, 0)
        return out


class SmoothedModule(nn.Module):
    """A torch module that returns the mean of a model's scores over ``draws`` noisy copies of each input.

    ``scores`` makes scores of logits: where votes are smoothed it is softmax, since votes have no gradient. Every call
    draws fresh noise from torch's global generator. The output is an estimate and no certificate.
    """

    def __init__(self, classifier: Classifier, noise: Noise, scores: ScoreMap, draws: int) -> None:
        """Take a classifier of a torch module and Gaussian noise; anything else raises InvalidInput."""
        super().__init__()
        if not isinstance(classifier, TorchClassifier):
            raise InvalidInput(f"model must be a torch module here: nothing else has gradients; got {show(classifier)}")
        if not isinstance(noise, Gaussian):
            raise InvalidInput(f"noise must be Gaussian here: no other has gradients; got {noise.describe()}")
        self.model, self.draws = classifier.module, draws
        self._classifier, self._noise, self._scores = classifier, noise, scores

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean scores ``[inputs, classes]`` of the inputs ``x[inputs, ...]``."""
        noisy = self._noise.sample(x.repeat_interleave(self.draws, dim=0))
        with self._classifier.session():
            logits = self._classifier.with_gradients(noisy)
        means: Tensor = self._scores(logits).view(len(x), self.draws, -1).mean(dim=1)
        return means
