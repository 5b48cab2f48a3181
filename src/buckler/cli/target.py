"""``buckler certify --target-radius``: draw from a model until a radius is decided, keeping what is decided."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from buckler.cli.executors import Where, prepared
from buckler.cli.interrupts import interruptible
from buckler.errors import BucklerError
from buckler.records import Certificate
from buckler.runs.admission import Allowed
from buckler.runs.decided import DecidedFile
from buckler.runs.identity import expected_of, identify
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
    allowed: Allowed,
) -> tuple[list[Certificate], IntArray | None]:
    """Return a certificate for each input, those already in ``out`` included, and the labels where known."""
    file: DecidedFile | None = None
    saved = time.monotonic()
    with interruptible():
        try:
            with prepared(settings, where) as (spec, executor, dataset), _bar(len(dataset), quiet) as (count, show):
                asked = {
                    "spec": spec.as_dict(), "target_radius": target_radius, "alpha": alpha,
                    "class": "label" if use_labels else "selection",
                }  # fmt: skip
                identity, probe = identify(spec, executor, dataset)
                file = opened = DecidedFile(out, asked, identity, dataset, allowed)

                def keep(certificate: Certificate) -> None:
                    nonlocal saved
                    opened.add(certificate)
                    show(len(opened.kept))
                    if time.monotonic() - saved > SAVE_EVERY:
                        opened.save()
                        saved = time.monotonic()

                decide(
                    spec,
                    executor,
                    dataset,
                    target_radius=target_radius,
                    alpha=alpha,
                    use_labels=use_labels,
                    skip=frozenset(opened.kept),
                    finished=keep,
                    loaded=opened.loaded,
                    tick=count,
                    expected=expected_of(identity, probe, spec, any_environment=False),
                )
        except KeyboardInterrupt:
            kept = 0 if file is None else len(file.kept)
            place = "nothing is kept without --out" if out is None else f"{kept} decided inputs are in {out}"
            if file is not None and kept:
                file.save()
            command = shlex.join(["buckler", *sys.argv[1:]])
            print(f"buckler: interrupted; {place}. Go on with: {command}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BucklerError:
            if file is not None and file.kept:
                file.save()
            raise
    file.kept = {name: file.kept[name] for name in dataset.ids}
    file.save()
    return list(file.kept.values()), dataset.labels


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
