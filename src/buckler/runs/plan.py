"""What a run will cost, before it is begun: draws, hours, bytes on disk, and what deciding any-time would save."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from buckler.certify.forecast import expected_draws, typical_top
from buckler.errors import check_positive, check_whole
from buckler.runs.identity import Identity
from buckler.runs.spec import RunSpec
from buckler.runs.store.shard import Shard
from buckler.runs.store.writer import open_writer
from buckler.types import FloatArray

SHOWN = 64
"""Inputs of the shard that is written to see how large one is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run costs; ``anytime_samples`` and ``anytime_hours`` are for deciding one target radius instead."""

    inputs: int
    samples: int
    gpu_hours: float
    evidence_bytes: int
    anytime_samples: int
    anytime_hours: float
    anytime_share_certified: float

    @property
    def times_fewer(self) -> float:
        """How many times fewer draws deciding takes."""
        return self.samples / self.anytime_samples


def plan(
    *,
    inputs: int,
    num_classes: int,
    n: int,
    rate: float,
    n0: int = 100,
    sigma: float = 0.5,
    target_radius: float = 0.5,
    alpha: float = 1e-3,
    top: FloatArray | None = None,
) -> Plan:
    """Return what ``n`` draws for each input cost at ``rate`` draws a second of one device.

    ``top`` are probabilities of the top class, one for each input of a pilot or of a typical data set; a plan built on
    them is as good as they are. The size on disk is that of a shard of made-up votes, written and measured.
    """
    inputs = check_whole("inputs", inputs, 1)
    rate = check_positive("rate", rate)
    spec = RunSpec(model="plan", data="plan", sigma=sigma, num_classes=num_classes, n=n, n0=n0)
    probabilities = typical_top() if top is None else top
    draws = expected_draws(probabilities, target_radius=target_radius, sigma=sigma, alpha=alpha, max_n=n)
    samples = inputs * (spec.n + spec.n0)
    deciding = round(inputs * (float(draws.mean()) + spec.n0))
    # A run at n certifies the radius where the top probability exceeds Phi(r / sigma), give or take the noise.
    return Plan(
        inputs,
        samples,
        samples / rate / 3600.0,
        _bytes_on_disk(spec, inputs, probabilities),
        deciding,
        deciding / rate / 3600.0,
        float((probabilities > ndtr(target_radius / sigma)).mean()),
    )


def _bytes_on_disk(spec: RunSpec, inputs: int, top: FloatArray) -> int:
    """Return the size of the votes of ``inputs`` inputs, by writing a shard as a run would."""
    shown = min(inputs, SHOWN)
    rng = np.random.default_rng(0)
    counts = np.zeros((shown, len(spec.checkpoints), spec.num_classes), dtype=np.int64)
    selection = np.zeros((shown, spec.num_classes), dtype=np.int64)
    for i, p in enumerate(rng.choice(top, shown)):
        rest = rng.dirichlet(np.full(spec.num_classes - 1, 0.1)) * (1.0 - p)
        shares = np.concatenate([[p], rest])
        steps = np.diff([0, *spec.checkpoints])
        counts[i] = np.cumsum([rng.multinomial(step, shares) for step in steps], axis=0)
        selection[i] = rng.multinomial(spec.n0, shares)
    ids = tuple(str(10_000 + i) for i in range(shown))
    hashes = tuple(rng.bytes(16).hex() for _ in range(shown))
    shard = Shard(ids, np.zeros(shown, dtype=np.int64), hashes, selection if spec.n0 else None, counts, None, 1)
    with tempfile.TemporaryDirectory() as home:
        with open_writer(home, spec, Identity("plan", "plan"), inputs=shown) as writer:
            writer.append(0, shard)
        each = sum(path.stat().st_size for path in (Path(home) / "shards").iterdir())
    return round(each * inputs / shown)
