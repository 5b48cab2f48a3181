"""``buckler certify --target-radius``: draw from a model until a radius is decided, keeping what is decided."""

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from buckler.cli.interrupts import interruptible
from buckler.cli.sample import prepare
from buckler.errors import InvalidInput
from buckler.records import Certificate
from buckler.runs.anytime import certify_until_decided
from buckler.runs.sample import make_engine
from buckler.runs.store.certificates import read_certificates, read_origin, write_certificates
from buckler.types import IntArray

INTERRUPTED = 3
BATCHES_AT_ONCE = 4
"""Inputs in memory at once, in batches of the engine: enough that the last ones of a part seldom leave a batch thin."""

SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost."""


def certify_target(
    settings: dict[str, Any], target_radius: float, alpha: float, *, use_labels: bool, out: Path | None, quiet: bool
) -> tuple[list[Certificate], IntArray | None]:
    """Return a certificate for each input, those already in ``out`` included, and the labels where known."""
    spec, classifier, dataset = prepare(settings)
    if use_labels and dataset.labels is None:
        raise InvalidInput("--class label needs labels, and this data has none")
    origin = {
        "spec": spec.as_dict(), "classifier": classifier.fingerprint(), "data": dataset.fingerprint,
        "target_radius": target_radius, "alpha": alpha, "class": "label" if use_labels else "selection",
    }  # fmt: skip
    kept = _kept(out, origin)
    engine = make_engine(spec, classifier)
    saved = time.monotonic()

    def keep(certificate: Certificate) -> None:
        nonlocal saved
        kept[certificate.id] = certificate
        bar.update(task, completed=len(kept))
        if out is not None and time.monotonic() - saved > SAVE_EVERY:
            write_certificates(out, list(kept.values()), origin)
            saved = time.monotonic()

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[draws]}"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), disable=quiet
    ) as bar:
        task = bar.add_task("deciding", total=len(dataset), completed=len(kept), draws="")
        drawn = 0

        def count(draws: int) -> None:
            nonlocal drawn
            drawn += draws
            bar.update(task, draws=f"{drawn:,} draws")

        step = engine.rows * BATCHES_AT_ONCE
        with interruptible():
            try:
                for start in range(0, len(dataset), step):
                    names = dataset.ids[start : start + step]
                    open_ = np.array([i for i, name in enumerate(names) if name not in kept], dtype=np.int64)
                    if not open_.size:
                        continue
                    certify_until_decided(
                        engine,
                        dataset.load(start, start + len(names))[open_],
                        [names[i] for i in open_],
                        target_radius=target_radius,
                        alpha=alpha,
                        max_n=spec.n,
                        n0=spec.n0,
                        labels=dataset.labels[start:][open_] if use_labels and dataset.labels is not None else None,
                        finished=keep,
                        progress=count,
                    )
            except KeyboardInterrupt:
                where = "nothing is kept without --out" if out is None else f"{len(kept)} decided inputs are in {out}"
                if out is not None:
                    write_certificates(out, list(kept.values()), origin)
                command = shlex.join(["buckler", *sys.argv[1:]])
                print(f"buckler: interrupted; {where}. Go on with: {command}", file=sys.stderr)
                raise typer.Exit(INTERRUPTED) from None
    certificates = [kept[name] for name in dataset.ids]
    if out is not None:
        write_certificates(out, certificates, origin)
    return certificates, dataset.labels


def _kept(out: Path | None, origin: dict[str, Any]) -> dict[str, Certificate]:
    """Return the certificates of an earlier call with the same settings; others in that place are not overwritten."""
    if out is None or not out.exists():
        return {}
    found = read_origin(out)
    if found != origin:
        differing = [key for key in origin if (found or {}).get(key) != origin[key]]
        raise InvalidInput(f"--out holds certificates of another run (another {', '.join(differing)}): {out}")
    return {certificate.id: certificate for certificate in read_certificates(out)}
