"""``buckler demo``: from nothing to certificates on real data, in under a minute."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from buckler.certify.registry import sound_methods
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import Console
from buckler.errors import check_alpha, check_positive, check_whole
from buckler.evaluate.curves import certified_accuracy
from buckler.records import Certificate
from buckler.report.plots import accuracy_plot
from buckler.report.tables import accuracy_table, print_whole
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.certificates import write_certificates
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.training.digits import digits_split, train_digits

SHOWN_RADII = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def demo(
    out: Annotated[Path, option("Folder for the figure, the evidence and the certificates.")] = Path("demo"),
    sigma: Annotated[float, option("Noise, in units of the pixels, which go from 0 to 1.")] = 0.4,
    n: Annotated[int, option("Estimation draws for each image.")] = 1000,
    n0: Annotated[int, option("Selection draws for each image.")] = 100,
    alpha: Annotated[float, option("Error probability of each certificate.")] = 1e-3,
    images: Annotated[int, option("Test images, of the 1,797 bundled ones.")] = 500,
    epochs: Annotated[int, option("Training epochs.")] = 40,
    seed: Annotated[int, option("Seed of the split, the training and the noise.")] = 0,
    as_json: Annotated[bool, option("Print the accuracies as JSON lines, one a method.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a small classifier with Gaussian noise on scikit-learn's digits, and certify it with every method.

    Prints certified accuracy against radius, one row a method, and writes curves.png, certificates.parquet and the
    folder evidence/, as buckler sample does. Needs no download and no GPU.

    Example: buckler demo --sigma 0.25 --n 10000
    """
    check_alpha(alpha)
    check_positive("sigma", sigma)
    check_whole("n", n, 1)
    check_whole("n0", n0, 1)
    training, test = digits_split(images, seed)
    console = Console()
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or as_json) as progress:
        epoch_bar = progress.add_task("training", total=epochs)
        model = train_digits(
            training.inputs,
            training.labels,
            sigma=sigma,
            seed=seed,
            epochs=epochs,
            progress=lambda epoch, *_: progress.update(epoch_bar, completed=epoch),
        )

        draw_bar = progress.add_task("sampling", total=images * (n + n0))
        spec = RunSpec(
            model="perceptron of buckler demo", data="digits", sigma=sigma, num_classes=10, n=n, n0=n0, seed=seed
        )
        sample(
            spec,
            as_classifier(model),
            from_arrays(test.inputs.astype(np.float32), test.labels, ids=test.ids),
            out / "evidence",
            progress=lambda state: progress.update(draw_bar, completed=state.done),
        )
        progress.update(draw_bar, completed=images * (n + n0))

        evidence = open_evidence(out / "evidence")
        methods = sound_methods()
        method_bar = progress.add_task("certifying", total=len(methods))
        certificates: list[Certificate] = []
        curves, fine = [], []
        for method in methods:
            made, _ = certify_evidence(evidence, alpha=alpha, method=method.name)
            certificates += made
            curves.append(certified_accuracy(made, test.labels, SHOWN_RADII))
            fine.append(certified_accuracy(made, test.labels, np.linspace(0.0, 4.0 * sigma, 400)))
            progress.advance(method_bar)

    title = f"digits, sigma {sigma:g}, n {n}, alpha {alpha:g}"
    write_certificates(out / "certificates.parquet", certificates)
    accuracy_plot(fine, out / "curves.png", f"Certified accuracy on {title}")
    if as_json:
        for curve in curves:
            accuracy = {f"{r:g}": a for r, a in zip(curve.thresholds.tolist(), curve.accuracy.tolist(), strict=True)}
            print(json.dumps({"method": curve.name, "abstained": curve.abstained, "accuracy": accuracy}))
    if as_json or quiet:
        return
    print_whole(console, accuracy_table(curves), title)
    console.print(f"One of them: {certificates[0]}")
    console.print(f"Written: {out}/curves.png, {out}/certificates.parquet and the evidence, {out}/evidence")
    console.print(f"Certify it again, any way you like: buckler certify {out}/evidence --alpha 0.01")
