"""Inputs and their classes -> nearby points at which the smoothed classifier seems to predict something else.

A search, no statement: what it finds is judged on fresh draws (``evaluate.refutations``). It minimises the distance,
subject to some rival getting as many votes as the class. Each step looks at fresh noisy copies of every point: the
gradient of the pair's mean softmax turns the direction, and the votes move the distance towards the boundary. By T1 the
quantile margin falls by at most ``2 / sigma`` for a unit of distance, so ``sigma / 2`` times the margin seldom
overshoots. Direction and norm are thus decoupled (Rony et al. 2019); several searches for each input aim at different
rivals, and the best goes on. The other attack is projected gradient descent at fixed distances, bisected from the
certified radius on (Salman et al. 2019). torch lives here.
"""

from collections.abc import Generator
from dataclasses import dataclass, fields
from math import cos, pi

import numpy as np
import numpy.typing as npt
import torch

from buckler.errors import InvalidInput, check_choice, check_whole
from buckler.evaluate.refutations import Attacked
from buckler.types import FloatArray, IntArray

TURNS = (1.0, 0.05)
"""First and last length of the step along the unit gradient, added to the unit direction: at first one gradient
dominates, at last some twenty are averaged."""

GAINS = (1.3, 0.1)
"""First and last share of the distance to the decision boundary, as one step's votes suggest it, by which a point is
moved."""

MOMENTUM, MEMORY = 0.7, 0.85
"""Share of the averaged gradient direction, and of the votes by which searches are compared, that each step keeps."""

FIRST_LOOK = 128
"""Draws at the input itself, whose mean scores tell the likeliest rivals."""


@dataclass(frozen=True, slots=True)
class DecoupledAttack:
    """Settings of an attack that turns a direction and, separately, moves the distance along it (Rony et al. 2019).

    ``searches`` for each input go on for a third of the ``steps``, half as many for the next third, one for the last,
    with ``draws`` noisy copies a step, twice and four times as many. These numbers decide which points are found;
    whether a point refutes is decided by other draws.
    """

    searches: int = 6
    steps: int = 120
    draws: int = 32

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def looks(self) -> int:
        """Number of noisy copies that the attack takes for each input."""
        third, half = self.steps // 3, -(-self.searches // 2)
        rest = self.steps - 2 * third
        return FIRST_LOOK + self.draws * (third * self.searches + 2 * third * half + 4 * rest)

    def run(self, search: "Search") -> Generator[int, None, FloatArray]:
        """Yield the draws of each step; return the distance from each input at which its class seems to lose.

        ``search`` holds the inputs, and afterwards the direction found for each (``best``).
        """
        rows, draws, third = search.aim(self.searches), self.draws, self.steps // 3
        yield FIRST_LOOK * search.inputs
        for step in range(self.steps):
            if step in (third, 2 * third):
                draws *= 2
                search.keep_best(rows, -(-self.searches // 2) if draws == 2 * self.draws else 1)
            share = 0.5 + 0.5 * cos(pi * step / self.steps)
            votes = search.turn(rows, 1 + step, draws, share)
            search.move(rows, votes, _between(GAINS, share))
            if step == 0:  # up to here at the inputs themselves
                rows.norm = torch.maximum(rows.norm, search.start[rows.inputs])
            yield draws * len(rows.norm)
        search.keep_best(rows, 1)
        search.best = rows.direction
        return np.asarray(rows.norm.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class PGDAttack:
    """Settings of an attack by projected gradient descent at one distance after another (Salman et al. 2019).

    Distances from the certified radius on are bisected in ``phases`` of equal length; there are ``steps`` in all, of
    ``draws`` noisy copies each.
    """

    steps: int = 120
    draws: int = 32
    phases: int = 8

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def searches(self) -> int:
        """Number of searches for each input, which is 1."""
        return 1

    @property
    def looks(self) -> int:
        """Number of noisy copies that the attack takes for each input."""
        return FIRST_LOOK + self.steps * self.draws

    def run(self, search: "Search") -> Generator[int, None, FloatArray]:
        """Yield the draws of each step; return the distance from each input at which its class seems to lose.

        ``search`` holds the inputs, and afterwards the direction found for each (``best``).
        """
        rows = search.aim(1)
        yield FIRST_LOOK * search.inputs
        low, high = search.start.clone(), torch.full_like(search.start, search.reach)
        for step in range(self.steps):
            if step and step * self.phases // self.steps != (step - 1) * self.phases // self.steps:
                search.bisect(rows, low, high)
            search.turn(rows, 1 + step, self.draws, 0.5 + 0.5 * cos(pi * step / self.steps))
            if step == 0:  # up to here at the inputs themselves
                rows.norm = search.start[rows.inputs]
            yield self.draws * len(rows.norm)
        search.bisect(rows, low, high)
        return np.asarray(high.cpu().numpy(), dtype=np.float64)


Attack = DecoupledAttack | PGDAttack

ATTACKS: dict[str, type[DecoupledAttack] | type[PGDAttack]] = {"decoupled": DecoupledAttack, "pgd": PGDAttack}


def attack_named(text: str) -> Attack:
    """Return the attack that a text names: ``decoupled`` or ``pgd``, perhaps with sizes, ``NAME:key=value,key=value``.

    >>> attack_named("pgd:steps=160,draws=64")
    PGDAttack(steps=160, draws=64, phases=8)
    """
    name, _, rest = text.partition(":")
    kind = ATTACKS[check_choice("attack", name, list(ATTACKS))]
    known = [field.name for field in fields(kind)]
    sizes = dict(part.partition("=")[::2] for part in rest.split(",")) if rest else {}
    if not sizes.keys() <= set(known) or not all(size.isdecimal() for size in sizes.values()):
        allowed = ",".join(f"{key}=NUMBER" for key in known)
        raise InvalidInput(f"attack must be {name} or {name}:{allowed}; got {text!r}")
    return kind(**{key: int(size) for key, size in sizes.items()})


def _check_sizes(attack: Attack) -> None:
    for field in fields(attack):
        check_whole(field.name, getattr(attack, field.name), 1, 10**6)


@dataclass(slots=True)
class _Rows:
    """State of the searches under way: tensors with a row for each search."""

    inputs: torch.Tensor
    label: torch.Tensor
    rival: torch.Tensor
    free: torch.Tensor
    direction: torch.Tensor
    drift: torch.Tensor
    norm: torch.Tensor
    recent: torch.Tensor

    def keep(self, rows: torch.Tensor) -> None:
        """Keep these searches and drop the others."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[rows])


class Search:
    """State of an attack on inputs ``x`` of classes ``labels``, each from its distance ``start`` up to ``reach``.

    ``run`` of an attack calls its methods; ``best`` are the directions found, one an input. The state of the searches
    under way is in ``rows``, with a rival class, a direction and a distance (norm) for each.
    """

    def __init__(
        self,
        model: Attacked,
        x: npt.NDArray[np.float32],
        labels: IntArray,
        start: FloatArray,
        *,
        sigma: float,
        reach: float,
        value_range: tuple[float, float] | None = None,
    ) -> None:
        """Hold the inputs on the model's device; ``sigma`` is the noise's, points stay in ``value_range`` if given."""
        self.model, self._sigma, self.reach, self._range = model, sigma, reach, value_range
        self._x = torch.as_tensor(x, device=model.device)
        self._labels = torch.as_tensor(labels, device=model.device)
        self.start = torch.as_tensor(start, dtype=torch.float32, device=model.device).clamp(max=reach)
        self.best, self.inputs = torch.zeros_like(self._x), len(x)

    def points(self, inputs: IntArray, norms: FloatArray) -> npt.NDArray[np.float32]:
        """Return points at distances ``norms`` from inputs, given by number, in the direction found for each."""
        rows = torch.as_tensor(inputs, device=self._x.device)
        reach = torch.as_tensor(norms, dtype=torch.float32, device=self._x.device)
        return self._points(self._x[rows], self.best[rows], reach).cpu().numpy()

    def aim(self, searches: int) -> _Rows:
        """Return the state of ``searches`` new searches for each input, aimed at its likeliest rivals.

        The last one of an input may change its rival later.
        """
        count = self.inputs
        # Any other class will do here: the gradient is not used.
        pair = torch.stack([self._labels, torch.where(self._labels == 0, 1, 0)], dim=1)
        scores = self.model.look(self._x, np.arange(count), pair, 0, FIRST_LOOK).scores
        order = scores.scatter(1, self._labels[:, None], -1.0).argsort(dim=1, descending=True)[:, :-1]
        aims = torch.stack([order[:, min(k, order.shape[1] - 1)] for k in range(searches)], dim=1)
        aims[:, -1] = order[:, 0]
        each = torch.arange(count, device=self._x.device).repeat_interleave(searches)
        zero = torch.zeros((len(each), *self._x.shape[1:]), device=self._x.device)
        free = torch.arange(len(each), device=self._x.device) % searches == searches - 1
        return _Rows(
            each, self._labels[each], aims.flatten(), free, zero, zero.clone(),
            torch.zeros(len(each), device=zero.device), torch.zeros((len(each), scores.shape[1]), device=zero.device),
        )  # fmt: skip

    def turn(self, rows: _Rows, block: int, draws: int, share: float) -> torch.Tensor:
        """Turn the directions along the gradients at ``draws`` fresh noisy copies, and return the votes of these.

        ``block`` numbers the calls, for fresh noise; ``share`` falls from 1 to 0 over the steps, and how far directions
        turn with it.
        """
        pair = torch.stack([rows.label, rows.rival], dim=1)
        points = self._points(self._x[rows.inputs], rows.direction, rows.norm)
        seen = self.model.look(points, rows.inputs.cpu().numpy(), pair, block, draws)
        rows.recent = MEMORY * rows.recent + seen.votes
        rivals = (rows.recent + seen.scores).scatter(1, rows.label[:, None], -1.0).argmax(dim=1)
        rows.rival = torch.where(rows.free, rivals, rows.rival)
        rows.drift = MOMENTUM * rows.drift + (1.0 - MOMENTUM) * _unit(seen.gradient)
        rows.direction = _unit(rows.direction + _between(TURNS, share) * _unit(rows.drift))
        votes: torch.Tensor = seen.votes
        return votes

    def move(self, rows: _Rows, votes: torch.Tensor, gain: float) -> None:
        """Move each point by the share ``gain`` of the distance to the decision boundary that its ``votes`` suggest."""
        rows.norm = (rows.norm + gain * 0.5 * self._sigma * _margin(votes, rows.label)).clamp(0.0, self.reach)

    def keep_best(self, rows: _Rows, count: int) -> None:
        """Keep for each input the ``count`` searches whose decision boundary, by recent votes, is nearest to it."""
        searches = len(rows.norm) // self.inputs
        distance = rows.norm + 0.5 * self._sigma * _margin(rows.recent, rows.label)
        best = distance.view(-1, searches).argsort(dim=1)[:, :count].sort(dim=1).values
        rows.keep((best + searches * torch.arange(len(best), device=best.device)[:, None]).flatten())

    def bisect(self, rows: _Rows, low: torch.Tensor, high: torch.Tensor) -> None:
        """Halve the interval from ``low`` to ``high`` of each search's distance by the votes of the phase that ends.

        Where the input's class lost, the direction is kept in ``best``.
        """
        won = _margin(rows.recent, rows.label) < 0.0
        self.best[won] = rows.direction[won]
        high[won], low[~won] = rows.norm[won], rows.norm[~won]
        rows.norm, rows.recent = 0.5 * (low + high), torch.zeros_like(rows.recent)

    def _points(self, x: torch.Tensor, direction: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """Return points at distance ``norm``, clipped to the value range; steps are lengthened to make up for it."""
        if self._range is None:
            return x + _wide(norm, x) * direction
        length = norm
        for _ in range(4):
            moved = (x + _wide(length, x) * direction).clamp(*self._range)
            length = length * (norm / (moved - x).flatten(1).norm(dim=1).clamp(min=1e-12)).clamp(max=2.0)
        return moved


def _wide(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(-1, *(1,) * (like.dim() - 1))


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    """Return each vector at length one, or as it is where it is zero."""
    length = vectors.flatten(1).norm(dim=1)
    return vectors / _wide(torch.where(length > 0.0, length, 1.0), vectors)


def _between(ends: tuple[float, float], share: float) -> float:
    return float(ends[1] * (ends[0] / ends[1]) ** share)


def _margin(votes: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the quantile margin that the votes suggest, half a vote added to either side so that it is finite."""
    quantile = torch.special.ndtri((votes + 0.5) / (votes.sum(dim=1, keepdim=True) + 1.0))
    own = label[:, None]
    rival = quantile.scatter(1, own, -torch.inf).amax(dim=1)
    margin: torch.Tensor = quantile.gather(1, own)[:, 0] - rival
    return margin
