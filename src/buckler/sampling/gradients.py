"""A torch module under noise, with gradients: ``Gradients`` for attacks that refute, ``SmoothedModule`` for any other.

The noise of ``Gradients`` is addressed, in the stream ``attack``: all points of one input share it, and no other stream
does. Nothing here is a guarantee; what an attack finds is judged on other draws (``evaluate.refutations``).
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from buckler.errors import InvalidInput, show
from buckler.noise import Gaussian
from buckler.sampling.classifiers import Classifier
from buckler.sampling.device import CudaNoise
from buckler.sampling.engine import Decider, Engine, ScoreMap, draw_until_decided
from buckler.sampling.modules import TorchClassifier
from buckler.sampling.streams import NOISE_BLOCK, check_address, gaussian
from buckler.types import Float32Array, IntArray, Noise

BLOCKS = 64
"""Blocks of noise that one look may take."""


class Estimates(NamedTuple):
    """At each point: votes of the noisy copies and their mean scores ``[points, m]``, and the gradient of the pair."""

    votes: torch.Tensor
    scores: torch.Tensor
    gradient: torch.Tensor


class Gradients:
    """The model of an engine, at points near several inputs: votes and gradients; call it inside ``session()``."""

    def __init__(self, engine: Engine, ids: Sequence[str]) -> None:
        """Take an engine of a torch module: nothing else has gradients."""
        if not isinstance(engine.classifier, TorchClassifier):
            raise InvalidInput(f"an attack needs gradients, so a torch module; got {show(engine.classifier)}")
        self._engine, self._classifier = engine, engine.classifier
        self._sigma = float(np.float32(engine.noise.unit))
        self._addresses = [check_address(engine.seed, name, "attack") for name in ids]
        self.device = torch.device(self._classifier.device)
        self._on_device = CudaNoise(self._classifier.device) if self.device.type == "cuda" else None
        self.rows = engine.rows

    def count(self, points: Float32Array, names: Sequence[str], n: int) -> Generator[int, None, IntArray]:
        """Yield the draws made, and return the votes ``[points, m]`` of ``n`` draws in the stream ``attack``."""
        return (yield from self._engine.vote_steps(points, names, "attack", n))

    def judge(self, points: Float32Array, ids: Sequence[str], decider: Decider) -> Iterator[int]:
        """Draw at points fixed now, in the stream ``refutation``, until the decider wants no more; yield the draws."""
        for made in draw_until_decided(self._engine, points, ids, decider, stream="refutation"):
            yield made.drawn

    def session(self) -> AbstractContextManager[None]:
        """Return the context in which to look and to draw; the module is given back as it was."""
        return self._engine.session()

    def look(self, points: torch.Tensor, inputs: IntArray, pair: torch.Tensor, block: int, draws: int) -> Estimates:
        """Return votes, and the gradient of the mean of ``score[pair[:, 1]] - score[pair[:, 0]]``, at each point.

        ``inputs[k]`` is the input whose noise point k shares: the first ``draws`` from block ``BLOCKS * block`` of the
        stream on. Points of one input should stand together.
        """
        whole, rest = divmod(draws, NOISE_BLOCK)
        parts = [NOISE_BLOCK] * whole + [rest] * (rest > 0)
        parts_seen = [self._each(points, inputs, pair, BLOCKS * block + k, rows) for k, rows in enumerate(parts)]
        votes, scores, gradient = (torch.stack(kind) for kind in zip(*parts_seen, strict=True))
        shares = torch.tensor([rows / draws for rows in parts], device=self.device)
        return Estimates(votes.sum(dim=0), torch.tensordot(shares, scores, 1), torch.tensordot(shares, gradient, 1))

    def _each(self, points: torch.Tensor, inputs: IntArray, pair: torch.Tensor, block: int, draws: int) -> Estimates:
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

    def _some(self, points: torch.Tensor, inputs: IntArray, pair: torch.Tensor, block: int, draws: int) -> Estimates:
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

    def _noise(self, place: int, block: int, draws: int, shape: tuple[int, ...]) -> torch.Tensor:
        address = self._addresses[place].at(block)
        if self._on_device is None:
            return torch.from_numpy(gaussian(address, draws, shape)).to(self.device)
        out = torch.empty((draws, *shape), device=self.device)
        self._on_device.fill(out, address, 0)
        return out


class SmoothedModule(nn.Module):
    """The mean of a model's scores over noisy copies of each input, as a torch module with gradients.

    Scores are those that are smoothed, or softmax of the logits where votes are smoothed, since votes have no gradient.
    Every call draws fresh noise from torch's own generator. The output is an estimate and no certificate.
    """

    def __init__(self, classifier: Classifier, noise: Noise, scores: ScoreMap, draws: int) -> None:
        """Hold a torch module under Gaussian noise; anything else raises InvalidInput."""
        super().__init__()
        if not isinstance(classifier, TorchClassifier):
            raise InvalidInput(f"model must be a torch module here: nothing else has gradients; got {show(classifier)}")
        if not isinstance(noise, Gaussian):
            raise InvalidInput(f"noise must be Gaussian here: no other has gradients; got {noise.describe()}")
        self.model, self.draws = classifier.module, draws
        self._classifier, self._noise, self._scores = classifier, noise, scores

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean scores ``[inputs, m]``."""
        noisy = self._noise.sample(x.repeat_interleave(self.draws, dim=0))
        with self._classifier.session():
            logits = self._classifier.with_gradients(noisy)
        means: torch.Tensor = self._scores(logits).view(len(x), self.draws, -1).mean(dim=1)
        return means
