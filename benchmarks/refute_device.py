"""Refuted against certified radius, and seconds an image, for several attacks in one process on one network.

    python benchmarks/refute_device.py --model resnet110:models/cifar10-resnet110-sigma0.50.safetensors \
        --data cifar10_test500.npz --sigma 0.5 --device cuda
    python benchmarks/refute_device.py --model resnet110:models/cifar10-resnet110-sigma0.50.safetensors \
        --data cifar10_test500.npz --images 1 --n 200 --max-n 500 --attack decoupled:searches=1,steps=9,draws=4
    python benchmarks/refute_device.py
    python benchmarks/refute_device.py --draw refuted.npz --figure bracket.png

The first ``--images`` of the data that ``--n`` draws certify are attacked; an attack is NAME:key=value,key=value, and
may be given several times. Images are attacked ``--group`` at a time; after each group a line about all so far is
printed, and the file of ``--out`` is written. Shown are the refuted radius over the certified one (median, quartiles,
smallest; one that is not refuted counts as infinite), how many were, the search's noisy copies an image and its rate a
second, and seconds an image by the clock: of the search alone, and of everything. Certifying and compiling are not
counted. ``--draw`` shows both sides that a file of ``--out`` holds, over the images up to the last one attacked: those
that are not certified, or wrongly classified, among them. Without a model, a small untrained network and random images
stand in: they run anywhere, and say nothing about a trained network.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from buckler.certificate import Certificate, Refutation
from buckler.certificates import Certificates
from buckler.certify.votes import certify_votes
from buckler.evaluate.attacks import attack_named
from buckler.evaluate.refutations import CANDIDATE_DRAWS, BracketCurve, RefutationSettings, bracket_curve
from buckler.noise.gaussian import Gaussian
from buckler.runs.open_run import open_run
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.engine import Engine, exhaust
from buckler.sampling.modules import Gradients
from buckler.types import AnyArray, FloatArray, IntArray

SELECTION = 100


def stand_in(images: int) -> tuple[Classifier, AnyArray]:
    """Return a small untrained network, and random images in [0, 1]."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 10))
    x = np.random.default_rng(0).uniform(0.0, 1.0, (images, 3, 8, 8)).astype(np.float32)
    return as_classifier(module.eval(), num_classes=10), x


def main() -> None:
    """Certify, attack, and print a line for each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as for buckler sample; none: a small stand-in")
    parser.add_argument("--data", help="as for buckler sample, with --model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--max-n", type=int, default=CANDIDATE_DRAWS, help="draws that judge a candidate, at most")
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, help="rows of a batch")
    parser.add_argument("--attack", action="append", help="decoupled or pgd, or with sizes: pgd:steps=160,draws=64")
    parser.add_argument("--group", type=int, default=50, help="images attacked together")
    parser.add_argument("--out", help="write the radii of the first attack to this .npz file")
    parser.add_argument("--draw", type=Path, help="attack nothing: draw what such a file holds")
    parser.add_argument("--figure", type=Path, help="with --draw: the PNG, PDF or SVG file to draw to")
    options = parser.parse_args()
    if (options.draw is None) != (options.figure is None):
        parser.error("--draw and --figure belong together")
    if options.draw is not None and (options.model or options.out or options.attack):
        parser.error("--draw attacks nothing: --model, --attack and --out do not apply")
    if options.draw is not None:
        draw(options.draw, options.figure)
        return
    if options.model is None:
        classifier, x = stand_in(4 * options.images)
        measure(classifier, x, None, options.batch_size or 512, options)
        return
    cuda = options.device.startswith("cuda")
    settings: dict[str, Any] = {
        "model": options.model, "data": options.data, "sigma": options.sigma, "n": options.n, "num_classes": 10,
        "limit": 4 * options.images, "device": options.device,
        "batch_size": options.batch_size or (4096 if cuda else 256),
        **({"dtype": "bfloat16", "channels_last": True, "compile": True} if cuda else {}),
    }  # fmt: skip
    with open_run(settings) as run:
        classifier = run.executor.classifier
        images = run.dataset
        measure(classifier, images.load(0, len(images)), images.labels, run.spec.batch_size, options)


def draw(path: Path, figure: Path) -> None:
    """Draw both sides from a file."""
    from buckler.report.plots import bracket_plot  # noqa: PLC0415  (matplotlib: a device may not have it)

    with np.load(path, allow_pickle=False) as file:
        if "curve" not in file:
            raise SystemExit(f"{path} has no accuracies: the data had no labels")
        radii, certified, refuted = file["curve"]
        attacked, images, sigma = len(file["ids"]), int(file["images"]), float(file["sigma"])
    curve = BracketCurve(radii, certified, refuted, attacked, images)
    bracket_plot(curve, figure, f"{attacked} of {images} images attacked, Gaussian noise, sigma {sigma:g}")


def certified(engine: Engine, x: AnyArray, options: argparse.Namespace) -> list[Certificate]:
    """Return the certificates of the images up to the last one that is to be attacked."""
    ids = [str(i) for i in range(len(x))]
    with engine.session():
        chosen = engine.votes(x, ids, "selection", SELECTION)
        votes = engine.votes(x, ids, "estimation", options.n)
    made = certify_votes(votes, selection=chosen, sigma=options.sigma, alpha=options.alpha, ids=ids)
    assert not isinstance(made, Certificate)
    kept = [i for i, c in enumerate(made) if c.predicted is not None][: options.images]
    return list(made)[: kept[-1] + 1] if kept else []


def measure(
    classifier: Classifier, x: AnyArray, truth: IntArray | None, rows: int, options: argparse.Namespace
) -> None:
    """Refute by each attack and print a line."""
    engine = Engine(classifier, sigma=options.sigma, batch_size=rows)
    looked_at = certified(engine, x, options)
    certificates = [c for c in looked_at if c.predicted is not None]
    if not certificates:
        raise SystemExit("no image is certified")
    x = x[[int(c.id) for c in certificates]]
    ids = [c.id for c in certificates]
    labels = np.array([c.predicted for c in certificates])
    radii = np.array([c.radius for c in certificates])
    print(
        f"{len(x)} certified images, {classifier.device}, batch {rows}, sigma {options.sigma:g}, n {options.n}, median "
        f"certified radius {np.median(radii):.4f}",
        flush=True,
    )
    for number, text in enumerate(options.attack or ["decoupled"]):
        how = RefutationSettings(
            Gaussian(options.sigma), options.alpha, options.max_n, 8.0 * options.sigma, (0.0, 1.0), attack_named(text)
        )
        looked, searching, took = 0, 0.0, 0.0
        made: list[Refutation] = []
        for first in range(0, len(x), options.group):
            some = slice(first, first + options.group)
            model, start = Gradients(engine, ids[some]), time.perf_counter()
            before, goal = searching, looked + how.attack.looks * len(ids[some])

            def tick(draws: int) -> None:
                nonlocal looked, searching
                if looked < goal:  # noqa: B023  (called before the next group)
                    looked += draws
                    searching = before + time.perf_counter() - start  # noqa: B023

            with model.session():
                made += exhaust(how.refute(model, ids[some], x[some], labels[some], radii[some]), tick)
            took += time.perf_counter() - start
            refuted = np.array([np.inf if r.radius is None else r.radius for r in made])
            print_line(text, made, refuted / radii[: len(made)], (looked, searching, took))
            if options.out and number == 0:
                done = len(made)
                both: dict[str, Any] = {"ids": ids[:done], "certified": radii[:done], "refuted": refuted}
                if truth is not None:
                    seen = looked_at[: int(ids[done - 1]) + 1]
                    farthest = max(float(refuted[np.isfinite(refuted)].max(initial=0.0)), float(radii[:done].max()))
                    run = Certificates.of(seen, labels=truth[: len(seen)])
                    curve = bracket_curve(run, made, np.linspace(0.0, 1.05 * farthest, 200))
                    both |= {"curve": np.stack([curve.radii, curve.certified, curve.refuted]), "images": len(seen)}
                np.savez(options.out, **both, sigma=options.sigma)


def print_line(text: str, made: list[Refutation], ratios: FloatArray, spent: tuple[int, float, float]) -> None:
    """Print the line of an attack, of the images so far."""
    (looked, searching, took), ratio, images = spent, np.sort(ratios), len(made)
    low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75], method="higher")
    print(
        f"{text:24} {images} images: ratio median {middle:.3f}, quartiles {low:.3f} {high:.3f}, smallest "
        f"{ratio[0]:.3f}; {np.isfinite(ratio).sum()} refuted; {looked / images:,.0f} copies an image "
        f"at {looked / searching:,.0f}/s, {sum(r.n for r in made) / images:,.0f} draws to judge; "
        f"{searching / images:.3f} s an image to search, {took / images:.3f} s in all",
        flush=True,
    )


if __name__ == "__main__":
    main()
