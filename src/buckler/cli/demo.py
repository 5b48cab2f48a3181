"""``buckler demo``: train, sample and certify on bundled digits."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np

from buckler.certificate import Certificate
from buckler.certify.methods import sound_methods
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import check_positive, check_whole
from buckler.evaluate.curves import certified_accuracy
from buckler.progress import bar
from buckler.report.plots import accuracy_plot
from buckler.report.tables import accuracy_table
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import write_certificates
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.training.digits import digits_split, train_digits

DEMO_ALPHA = 1e-3
SHOWN_RADII = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def demo_command(
    out: Annotated[Path, option("Folder for what is written.", group=options.OUTPUT_GROUP)] = Path("demo"),
    as_json: Annotated[bool, options.as_json_option("Print the accuracies as JSON, one line a method.")] = False,
    quiet: options.Quiet = False,
    sigma: Annotated[float, option("Standard deviation of the noise; pixels go from 0 to 1.")] = 0.4,
    n: Annotated[int, option("Draws for each image.")] = 1000,
    images: Annotated[int, option("Test images, of 1,797.")] = 500,
    epochs: Annotated[int, option("Training epochs.")] = 40,
) -> None:
    """Train a small network on bundled digits and certify it, in a minute.

    Prints certified accuracy against radius for every method, and writes curves.png, certificates.parquet and the
    folder evidence/, as buckler sample does. Needs scikit-learn, no download and no GPU.

    Example:

      buckler demo --sigma 0.25 --n 10000
    """
    check_positive("sigma", sigma)
    check_whole("n", n, 1)
    training, test = digits_split(images)
    hidden = quiet or as_json
    with bar("training", quiet=hidden) as advance:
        model = train_digits(
            training.inputs,
            training.labels,
            sigma=sigma,
            seed=0,
            epochs=epochs,
            progress=lambda epoch, *_: advance(epoch, epochs),
        )
    spec = RunSpec(model="perceptron of buckler demo", data="digits", sigma=sigma, num_classes=10, n=n)
    with bar("sampling", quiet=hidden, unit="draws") as advance:
        sample(
            spec,
            as_classifier(model),
            from_arrays(test.inputs.astype(np.float32), test.labels, ids=test.ids),
            out / "evidence",
            progress=lambda state: advance(state.done, state.total, state.drawn),
        )
    evidence = open_evidence(out / "evidence")
    methods = sound_methods()
    certificates: list[Certificate] = []
    curves, fine = [], []
    with bar("certifying", quiet=hidden) as advance:
        for method in methods:
            made, _ = certify_evidence(evidence, alpha=DEMO_ALPHA, method=method.name)
            certificates += made
            curves.append(certified_accuracy(made, test.labels, SHOWN_RADII))
            fine.append(certified_accuracy(made, test.labels, np.linspace(0.0, 4.0 * sigma, 400)))
            advance(len(curves), len(methods))

    title = f"digits, sigma {sigma:g}, n {n}, alpha {DEMO_ALPHA:g}"
    write_certificates(out / "certificates.parquet", certificates)
    accuracy_plot(fine, out / "curves.png", f"Certified accuracy on {title}")
    if as_json:
        for curve in curves:
            accuracy = {f"{r:g}": a for r, a in zip(curve.radii.tolist(), curve.accuracy.tolist(), strict=True)}
            say(json.dumps({"method": curve.name, "abstained": curve.abstained, "accuracy": accuracy}))
    if as_json or quiet:
        return
    say(accuracy_table(curves).to_text(title))
    say(f"One of them: {certificates[0]}")
    say(f"Written: {out}/curves.png, {out}/certificates.parquet and the run, {out}/evidence")
    say(f"Certify the run in another way: buckler certify {out}/evidence --alpha 0.01")
