"""Robust prediction sets side by side, on the scores of a recorded run: mean size and coverage of clean inputs.

    python benchmarks/conformal.py evidence/cifar10-sigma0.50
    python benchmarks/conformal.py evidence/cifar10-sigma0.50 --tunings
    python benchmarks/conformal.py evidence/cifar10-sigma0.50 --attack cifar10_test500.npz --radius 0.5
    python benchmarks/conformal.py --picture docs/images/conformal.png

The inputs of the run are split into calibration and test inputs again and again; every method has the same splits and
the same draws. A set must hold the true class with probability 1 - alpha after a move by the radius.

- ``buckler``: ``RobustConformal``; scores (softmax) counted above tau, or votes.
- ``BinCP`` (Zargarbashi and Bojchevski 2025): tau is the conformal quantile of the scores that a share p0 of an input's
  draws reaches, by Clopper-Pearson for every calibration input; a class is in if the limit from above of its share over
  tau is at least what p0 can become. eta = alpha/10 pays for the limits; the best of five p0 is shown.
- ``RCP1`` (Zargarbashi, Akhondzadeh and Bojchevski 2025): one draw of each input, and conformal prediction at the level
  that the worst move turns into 1 - alpha.
- ``RSCP+`` (Yan, Romano and Weng 2024): means of scores with Hoeffding's correction at beta = .001; with its
  transformation of scores after training (ranks, then a sigmoid), fitted to the tuning inputs.

Own implementations from the papers. Coverage after a move is what the theorems are about. ``--attack`` measures it for
the first ``--images`` of the recorded inputs in a random order, the others being for calibration: the recorded network
is attacked at the radius by ``evaluate.attacks``, ``--steps`` steps with 16 noisy copies each, and ``--draws`` fresh
draws are made where that ends; ``no move`` are sets for radius 0. It needs the network, the images, and some minutes.
"""

import argparse
from collections.abc import Callable
from functools import partial
from math import cos, floor, log, pi, sqrt
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit, ndtr, ndtri

from buckler import RobustConformal
from buckler.bounds.bernstein import below_tail, binomial_pmf, fitted_pmf, shrunk_tail
from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.evaluate.conformal import worst_move
from buckler.evaluate.refutations import distances_between
from buckler.noise import Gaussian
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.datasets import open_dataset
from buckler.sampling.engine import Engine
from buckler.sampling.models import resolve_model
from buckler.types import BoolArray, FloatArray, IntArray

RADII = (0.125, 0.25, 0.5)
SHARE = 0.6
"""Of the inputs are for calibration, tuning among them; the others test."""

COPIES, ATTACK_SEED = 16, 1
"""Noisy copies in a step of the attack, and its seed, which is not that of the recorded draws."""

Split = tuple[FloatArray, IntArray, FloatArray]
Sets = Callable[[Split, float, float, float], BoolArray]
"""Sets of the test inputs from a split (calibration scores and labels, test scores), sigma, radius and alpha."""


def recorded(run: Path) -> tuple[FloatArray, IntArray, float]:
    """Return softmax scores ``[inputs, draws, classes]`` of a run, its labels and its sigma."""
    evidence = open_evidence(run)
    rows, labels = [], []
    for scores, _, label in evidence.scores(map="softmax", temperature=1.0):
        row = np.empty_like(scores.values[0])
        row[:, scores.columns[0]] = scores.values[0]
        rows.append(row)
        labels.append(-1 if label is None else label)
    return np.array(rows), np.array(labels), float(evidence.spec.sigma or 0.0)


def true_scores(scores: FloatArray, labels: IntArray) -> FloatArray:
    """Return the scores of the true classes, ``[inputs, draws]``."""
    return np.take_along_axis(scores, labels[:, None, None], axis=2)[:, :, 0]


def lower_quantile(values: FloatArray, level: float) -> float:
    """Return the conformal quantile: a new value is below it with probability at most ``level``."""
    rank = floor(level * (values.size + 1))
    return float(np.sort(values)[rank - 1]) if rank >= 1 else -np.inf


def buckler_sets(split: Split, sigma: float, radius: float, alpha: float, *, n: int, votes: bool) -> BoolArray:
    """Return our sets."""
    calibration, labels, test = split
    calibration, test = calibration[:, :n], test[:, :n]
    if votes:
        classes = np.arange(calibration.shape[2])
        calibration, test = ((s.argmax(axis=2)[:, :, None] == classes).sum(axis=1) for s in (calibration, test))
    return RobustConformal(sigma=sigma, radius=radius, alpha=alpha).calibrate(calibration, labels).predict_sets(test)


def bincp_sets(split: Split, sigma: float, radius: float, alpha: float, *, n: int, p0: float) -> BoolArray:
    """Return the sets of BinCP."""
    calibration, labels, test = split
    eta, inputs = 0.1 * alpha, len(calibration)
    counts = np.arange(1, n + 1)
    enough = counts[np.asarray(clopper_pearson_lower(counts, n, 0.5 * eta / inputs)) >= p0]
    if not enough.size:
        return np.ones((len(test), test.shape[2]), dtype=np.bool_)
    reached = np.sort(true_scores(calibration[:, :n], labels), axis=1)[:, -enough[0]]
    over = (test[:, :n] >= lower_quantile(reached, alpha - eta)).sum(axis=1)
    return np.asarray(clopper_pearson_upper(over, n, 0.5 * eta)) >= ndtr(ndtri(p0) - radius / sigma)


def rcp1_sets(split: Split, sigma: float, radius: float, alpha: float) -> BoolArray:
    """Return the sets of RCP1."""
    calibration, labels, test = split
    level = float(ndtr(ndtri(alpha) - radius / sigma))
    return test[:, 0] >= lower_quantile(true_scores(calibration[:, :1], labels)[:, 0], level)


def rscp_sets(split: Split, sigma: float, radius: float, alpha: float, *, n: int, transformed: bool) -> BoolArray:
    """Return the sets of RSCP+."""
    calibration, labels, test = (split[0][:, :n], split[1], split[2][:, :n])
    losses, new = 1.0 - calibration, 1.0 - test
    if transformed:
        held = round(0.3 * len(losses))
        ranks = np.sort(true_scores(losses[:held], labels[:held]).ravel())
        losses, new = (
            expit((np.searchsorted(ranks, values) / ranks.size - (1.0 - alpha)) * 400.0)
            for values in (losses[held:], new)
        )
        labels = labels[held:]
    beta = 0.001
    width = sqrt(-log(beta) / (2 * n))
    worst = -lower_quantile(-true_scores(losses, labels).mean(axis=1), alpha - 2 * beta)
    return new.mean(axis=1) - width <= ndtr(ndtri(min(1.0, worst + width)) + radius / sigma)


def methods() -> dict[tuple[str, int], list[Sets]]:
    """Return the methods by name and draws; of several variants the one with the smallest sets is shown."""
    found: dict[tuple[str, int], list[Sets]] = {}
    for n in (20, 50, 100):
        found["buckler, scores", n] = [partial(buckler_sets, n=n, votes=False)]
    found["buckler, votes", 50] = [partial(buckler_sets, n=50, votes=True)]
    for n in (50, 100, 500):
        found["BinCP", n] = [partial(bincp_sets, n=n, p0=p0) for p0 in (0.5, 0.6, 0.7, 0.8, 0.9)]
    found["RCP1", 1] = [rcp1_sets]
    for n in (50, 500):
        found["RSCP+", n] = [partial(rscp_sets, n=n, transformed=False)]
        found["RSCP+, transformed", n] = [partial(rscp_sets, n=n, transformed=True)]
    return found


def size(made: BoolArray, _: IntArray) -> float:
    """Return the mean size of sets."""
    return float(made.sum(axis=1).mean())


def coverage(made: BoolArray, truth: IntArray) -> float:
    """Return the share of sets that hold the true class."""
    return float(made[np.arange(len(made)), truth].mean())


def averages(sets: Sets, splits: list[tuple[Split, IntArray]], sigma: float, radius: float, alpha: float) -> FloatArray:
    """Return the mean size and the clean coverage over splits."""
    rows = []
    for split, labels in splits:
        made = sets(split, sigma, radius, alpha)
        rows.append((size(made, labels), coverage(made, labels)))
    return np.mean(rows, axis=0)


def attacked(run: Path, data: Path, places: IntArray, radius: float, steps: int, draws: int) -> FloatArray:
    """Return softmax scores ``[inputs, draws, classes]`` of fresh draws where an attack within the radius ends."""
    import torch  # noqa: PLC0415  (the other comparisons need no torch)

    from buckler.evaluate.attacks import Search  # noqa: PLC0415
    from buckler.sampling.modules import Gradients  # noqa: PLC0415

    spec, images = open_evidence(run).spec, open_dataset(data)
    assert images.labels is not None, "the images must have labels"
    x, labels = images.load(0, len(images))[places], images.labels[places]
    classifier = resolve_model(spec.model)
    engine = Engine(classifier, noise=spec.noise, num_classes=spec.num_classes, seed=ATTACK_SEED, batch_size=256)
    gradients, distance = Gradients(engine, [f"attacked {i}" for i in places]), np.full(len(x), 0.999 * radius)
    with gradients.session():
        search = Search(gradients, x, labels, distance, sigma=spec.noise.unit, reach=radius)
        rows = search.aim(1)
        for step in range(steps):
            search.turn(rows, 1 + step, COPIES, 0.5 + 0.5 * cos(pi * step / steps))
            rows.norm = search.start
        search.best = rows.direction
        points = search.points(np.arange(len(x)), distance)
        assert (distances_between(points, x) < radius).all()
        rng, found = np.random.default_rng(ATTACK_SEED), []
        for point in points:
            noisy = spec.noise.sample(point[None].repeat(draws, axis=0), rng)
            with torch.no_grad():
                logits = classifier.with_gradients(torch.as_tensor(noisy)).half().double()  # as the recorded ones
            found.append(torch.softmax(logits, dim=1).numpy())
    return np.array(found)


def compare_under_attack(run: Path, options: argparse.Namespace) -> None:
    """Print size and coverage of each method, at clean inputs and at the attacked ones."""
    scores, labels, sigma = recorded(run)
    tested, rest = np.split(np.random.default_rng(0).permutation(len(scores)), [options.images])
    moved = attacked(run, options.attack, tested, options.radius, options.steps, options.draws)
    none: Sets = lambda split, sigma, _, alpha: buckler_sets(split, sigma, 0.0, alpha, n=50, votes=False)  # noqa: E731
    print(f"{len(tested)} inputs, radius {options.radius:g}: size and coverage, clean and attacked")
    for (name, n), variants in {("no move, scores", 50): [none], **methods()}.items():
        if n > options.draws:
            continue
        rows = []
        for sets in variants:
            split = scores[rest], labels[rest], np.concatenate([scores[tested][:, : options.draws], moved])
            made, truth = np.split(sets(split, sigma, options.radius, options.alpha), 2), labels[tested]
            rows.append([f(part, truth) for part in made for f in (size, coverage)])
        best = min(rows, key=lambda row: row[0])
        print(f"{name:>20} {n:6} " + " ".join(f"{value:7.3f}" for value in best), flush=True)


def draw(path: Path) -> None:
    """Draw the curve s of a threshold and the polynomial below it, for 50 draws, k0 = 12 and r = sigma / 2."""
    n, k = 50, 12
    p = np.linspace(0.0, 1.0, 1001)
    shrinking = worst_move(Gaussian(0.5), 0.25)
    votes = np.random.default_rng(0).binomial(n, np.random.default_rng(1).beta(1.5, 0.5, 200))
    h = below_tail(k, shrinking, fitted_pmf(votes, n), 200)
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(np.arange(n + 1), h, "C0o-", lw=0.7, ms=3)
    right.plot(p, shrunk_tail(n, k, shrinking)(p, p)[0], "0.8", lw=5.0, label="s(p): in the set after the worst move")
    right.plot(p, binomial_pmf(n, p) @ h, "C0-", label="mean of h(K) at the clean input")
    right.plot(p, binomial_pmf(n, p)[:, k:].sum(axis=1), "k:", lw=0.9, label="in the set without a move")
    left.set(xlabel="count k of the true class", ylabel="h(k)", title=f"n = {n}, k0 = {k}, r = sigma / 2")
    right.set(xlabel="probability p of the true class", xlim=(0.0, 1.0), title="the polynomial below the curve")
    right.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Print one row for each method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tunings", action="store_true", help="compare shares of tuning inputs instead")
    parser.add_argument("--picture", type=Path, help="draw a polynomial and its curve instead, to this file")
    parser.add_argument("--attack", type=Path, help="the run's images: attack its network, and compare coverage")
    parser.add_argument("--radius", type=float, default=0.5, help="radius of the attack")
    parser.add_argument("--images", type=int, default=60, help="images to attack")
    parser.add_argument("--steps", type=int, default=10, help="steps of the attack")
    parser.add_argument("--draws", type=int, default=100, help="fresh draws at each attacked image")
    options = parser.parse_args()
    if options.picture is not None:
        draw(options.picture)
        return
    if options.run is None:
        parser.error("a run with scores, or --picture, must be given")
    if options.attack is not None:
        compare_under_attack(options.run, options)
        return
    scores, labels, sigma = recorded(options.run)
    splits: list[tuple[Split, IntArray]] = []
    for seed in range(options.splits):
        order = np.random.default_rng(seed).permutation(len(scores))
        used, test = np.split(order, [round(SHARE * len(scores))])
        splits.append(((scores[used], labels[used], scores[test]), labels[test]))
    if options.tunings:
        for share in (0.1, 0.2, 0.3, 0.4, 0.5):
            shown = []
            for radius in RADII:
                conformal = RobustConformal(sigma=sigma, radius=radius, alpha=options.alpha)
                made = [conformal.calibrate(s[0], s[1], n=50, tuning=share).predict_sets(s[2]) for s, _ in splits]
                shown.append(np.mean([sets.sum(axis=1).mean() for sets in made]))
            print(f"tuning {share:.1f}: " + " ".join(f"{size:6.3f}" for size in shown))
        return
    print(f"{'method':>20} {'draws':>6} " + " ".join(f"{f'size at {r:g}':>14} {'cover':>6}" for r in RADII))
    for (name, n), variants in methods().items():
        rows = []
        for radius in RADII:
            found = [averages(sets, splits, sigma, radius, options.alpha) for sets in variants]
            rows.append(min(found, key=lambda row: float(row[0])))
        print(f"{name:>20} {n:6} " + " ".join(f"{size:14.3f} {cover:6.3f}" for size, cover in rows), flush=True)


if __name__ == "__main__":
    main()
