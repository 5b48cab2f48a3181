"""``buckler sweep``: grids over n, sigma, temperature, map, method, margin and alpha, from evidence already drawn."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from buckler.certify.budget import split
from buckler.cli.interrupts import interruptible
from buckler.cli.sweep_view import baseline_of, curves_of, draw_axes, sweep_table, values
from buckler.cli.waiting import bar
from buckler.errors import InvalidInput
from buckler.files import atomic_write
from buckler.report import tables
from buckler.runs.grid import Grid
from buckler.runs.spec import read_toml
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.sweeps import SweepTable
from buckler.runs.sweep import sweep as certify_all
from buckler.runs.sweep import tasks_of

INTERRUPTED = 3
SETTINGS = ("runs", "n", "alpha", "method", "margin", "map", "temperature", "class", "radii", "baseline")


def sweep(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders written by buckler sample.")] = None,
    out: Annotated[Path, typer.Option(help="The table; cells already in it are kept.")] = Path("sweep.parquet"),
    spec: Annotated[Path | None, typer.Option(help="TOML file with these settings; options win over it.")] = None,
    n: Annotated[
        str | None, typer.Option("--n", help="First draws to use: 100,200,500, or all checkpoints: all.")
    ] = None,
    alpha: Annotated[str | None, typer.Option(help="Error probabilities.  [default: 0.001]")] = None,
    method: Annotated[str | None, typer.Option(help="exact,bonferroni,pairwise/star ...  [default: exact]")] = None,
    margin: Annotated[str | None, typer.Option(help="quantile,probability.  [default: quantile]")] = None,
    map: Annotated[str | None, typer.Option(help="For stored logits: softmax,sparsemax.")] = None,  # noqa: A002
    temperature: Annotated[str | None, typer.Option(help="For stored logits: temperatures of the softmax.")] = None,
    certified_class: Annotated[str | None, typer.Option("--class", help="label or selection.")] = None,
    radii: Annotated[str | None, typer.Option(help="Radii to show.  [default: multiples of sigma]")] = None,
    baseline: Annotated[str | None, typer.Option(help="Method whose accuracies the gains are measured from.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write what is shown to FILE.md, FILE.tex or FILE.csv.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for one figure an axis that has several values.")] = None,
    figures: Annotated[str, typer.Option("--format", help="Formats of the figures: png,pdf,svg.")] = "png",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line a cell.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Certify one or more runs in every combination of settings, from their evidence, into one table.

    The table has a row for each run, cell and input. Values are separated by commas; the runs are the axis of sigma.
    The same command again certifies only the cells that are missing.

    A bound of your own is package.module:function, as for buckler audit. Its rows are claims, not certificates, marked
    sound = false.

    Each cell holds alone. Picking the best of k cells after seeing them costs alpha: certify each at alpha / k, or
    choose the cell beforehand.

    Examples:

      buckler sweep run/ --n 100,1000,10000 --method exact,bonferroni,top_class --baseline bonferroni

      buckler sweep s12/ s25/ s50/ --alpha 0.001,0.01 --out sweep.parquet --plots figures/ --format pdf,png

      buckler sweep run/ --method pairwise/star --temperature 0.1,0.5,1 --margin probability --table sweep.tex
    """
    given = {
        "runs": runs, "n": n, "alpha": alpha, "method": method, "margin": margin, "map": map,
        "temperature": temperature, "class": certified_class, "radii": radii, "baseline": baseline,
    }  # fmt: skip
    settings = _settings(spec, {key: value for key, value in given.items() if value})
    folders = [Path(str(folder)) for folder in values("runs", settings.get("runs"), str)]
    if not folders:
        raise InvalidInput("at least one RUN, a folder written by buckler sample, must be given")
    grid = _grid(settings)
    if table is not None and table.suffix not in tables.FORMATS:
        raise InvalidInput(f"--table must end in {', '.join(tables.FORMATS)}; got {str(table)!r}")
    kinds = [f".{kind.strip()}" for kind in figures.split(",")]
    tasks = tasks_of([open_evidence(folder) for folder in folders], grid)
    reference = baseline_of(tasks, settings.get("baseline"))
    shown = sorted({float(r) for r in values("radii", settings.get("radii"), float)})
    kept = SweepTable(out)
    with interruptible():
        try:
            with bar("certifying cells", quiet=quiet or as_json) as advance:
                certify_all(tasks, grid, kept, progress=lambda done: advance(done, len(tasks)))
        except KeyboardInterrupt:
            command = shlex.join(["buckler", *sys.argv[1:]])
            print(f"buckler: interrupted; finished cells are kept in {out}. Go on with: {command}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
    if not shown:
        smallest = min(task.evidence.spec.sigma for task in tasks)
        shown = [smallest * step for step in (0.0, 0.5, 1.0, 2.0, 3.0)]
    curves, what = curves_of(tasks, kept, shown)
    text = sweep_table(tasks, curves, reference, what)
    if table is not None:
        with atomic_write(table) as temporary:
            temporary.write_text(tables.FORMATS[table.suffix](text), encoding="utf-8")
    drawn = [] if plots is None else draw_axes(tasks, kept, plots, kinds)
    if as_json:
        for task, curve in zip(tasks, curves, strict=True):
            cell = {"run": str(task.evidence.root), "sigma": task.evidence.spec.sigma, **asdict(task.cell)}
            accuracy = {f"{r:g}": a for r, a in zip(curve.radii.tolist(), curve.accuracy.tolist(), strict=True)}
            cell["sound"] = task.sound
            print(json.dumps({**cell, "inputs": curve.inputs, "abstained": curve.abstained, "accuracy": accuracy}))
    elif not quiet:
        console = Console()
        tables.print_whole(console, text)
        for path in (out, table, *drawn):
            if path is not None:
                console.print(f"Written: {path}", soft_wrap=True)
    if len(tasks) > 1 and not quiet:
        print(_reminder(len(tasks), max(task.cell.alpha for task in tasks)), file=sys.stderr)


def _reminder(cells: int, alpha: float) -> str:
    return (
        f"buckler: each of these {cells} cells holds alone. Picking the best of them afterwards costs alpha: choose "
        f"beforehand, or certify each at {alpha:g} / {cells} = {split(alpha, cells):.3g}."
    )


def _settings(path: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    try:
        found = {} if path is None else read_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"--spec must be a readable TOML file; got {str(path)!r} ({problem})") from None
    unknown = sorted(found.keys() - set(SETTINGS))
    if unknown:
        raise InvalidInput(f"a sweep has no setting {unknown[0]!r}; it has {', '.join(SETTINGS)}")
    return {**found, **given}


def _grid(settings: dict[str, Any]) -> Grid:
    axes: dict[str, Any] = {}
    for name, kind in (("alpha", float), ("method", str), ("margin", str), ("map", str), ("temperature", float)):
        if name in settings:
            axes[name] = values(name, settings[name], kind)
    if "n" in settings:
        axes["n"] = None if settings["n"] == "all" else values("n", settings["n"], int)
    return Grid(certified_class=settings.get("class"), **axes)
