"""``buckler certify --target-radius``: draw from a model until a radius is decided, keeping what is decided."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from buckler.cli.executors import Where, prepared
from buckler.cli.interrupts import interruptible
from buckler.cli.terminal import Console
from buckler.errors import BucklerError, InvalidInput
from buckler.records import Certificate
from buckler.runs.store.certificates import read_certificates, read_origin, write_certificates
from buckler.runs.target import decide
from buckler.types import IntArray

INTERRUPTED = 3
SAVE_EVERY = 10.0
"""Seconds of work that a kill can cost."""


def certify_target(
    settings: dict[str, Any],
    where: Where,
    target_radius: float,
    alpha: float,
    *,
    use_labels: bool,
    out: Path | None,
    quiet: bool,
) -> tuple[list[Certificate], IntArray | None]:
    """Return a certificate for each input, those already in ``out`` included, and the labels where known."""
    kept: dict[str, Certificate] = {}
    origin: dict[str, Any] = {}
    saved = time.monotonic()

    def save() -> None:
        nonlocal saved
        if out is not None:
            write_certificates(out, list(kept.values()), origin)
        saved = time.monotonic()

    with interruptible():
        try:
            with prepared(settings, where) as (spec, executor, dataset), _bar(len(dataset), quiet) as (count, show):
                runs = executor.describe()
                origin = {
                    "spec": spec.as_dict(), "classifier": runs.fingerprint, "data": dataset.fingerprint,
                    "target_radius": target_radius, "alpha": alpha, "class": "label" if use_labels else "selection",
                }  # fmt: skip
                kept.update(_kept(out, origin))

                def keep(certificate: Certificate) -> None:
                    kept[certificate.id] = certificate
                    show(len(kept))
                    if time.monotonic() - saved > SAVE_EVERY:
                        save()

                decide(
                    spec,
                    executor,
                    dataset,
                    target_radius=target_radius,
                    alpha=alpha,
                    use_labels=use_labels,
                    skip=frozenset(kept),
                    finished=keep,
                    tick=count,
                )
        except KeyboardInterrupt:
            place = "nothing is kept without --out" if out is None else f"{len(kept)} decided inputs are in {out}"
            if kept:
                save()
            command = shlex.join(["buckler", *sys.argv[1:]])
            print(f"buckler: interrupted; {place}. Go on with: {command}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BucklerError:
            if kept:
                save()
            raise
    kept = {name: kept[name] for name in dataset.ids}
    save()
    return list(kept.values()), dataset.labels


@contextmanager
def _bar(inputs: int, quiet: bool) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Yield what counts draws, and what shows the number of inputs decided."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[draws]}"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), disable=quiet
    ) as bar:
        task = bar.add_task("deciding", total=inputs, draws="")
        drawn = 0

        def count(draws: int) -> None:
            nonlocal drawn
            drawn += draws
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f", {drawn / elapsed:,.0f} a second" if elapsed > 0 else ""
            bar.update(task, draws=f"{drawn:,} draws{rate}")

        yield count, lambda decided: bar.update(task, completed=decided)


def _kept(out: Path | None, origin: dict[str, Any]) -> dict[str, Certificate]:
    """Return the certificates of an earlier call with the same settings; others in that place are not overwritten."""
    if out is None or not out.exists():
        return {}
    found = read_origin(out)
    if found != origin:
        differing = [key for key in origin if (found or {}).get(key) != origin[key]]
        raise InvalidInput(f"--out holds certificates of another run (another {', '.join(differing)}): {out}")
    return {certificate.id: certificate for certificate in read_certificates(out)}
