"""``buckler sweep``: certify runs under every combination of settings."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.certify.budget import split_alpha
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import interruptible, say, stop
from buckler.errors import InvalidInput, check_choice
from buckler.files import atomic_write
from buckler.progress import bar
from buckler.report import tables
from buckler.report.sweeps import draw_axes, sweep_records, sweep_table
from buckler.runs.open_run import settings_from
from buckler.runs.spec import distinct_values
from buckler.runs.sweep import Grid, sweep_runs

SETTINGS_GROUP = "Settings (several values, separated by commas)"
SWEEP_SETTINGS = ("runs", "n", "alpha", "method", "margin", "map", "temperature", "class", "radii", "baseline")


def sweep_command(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders written by buckler sample.")] = None,
    spec: Annotated[
        Path | None,
        option(
            "TOML file with these settings; an option on the command line replaces its value.", group=SETTINGS_GROUP
        ),
    ] = None,
    n: Annotated[
        str | None,
        option(
            "Numbers of first draws, 100,200,500, or all checkpoints: all.",
            "all draws",
            name="--n",
            group=SETTINGS_GROUP,
        ),
    ] = None,
    alpha: Annotated[str | None, option("Error probabilities.", "0.001", group=SETTINGS_GROUP)] = None,
    method: Annotated[
        str | None,
        option(
            "Methods: exact,bonferroni,pairwise/star ...", "exact; top_class for an imported log", group=SETTINGS_GROUP
        ),
    ] = None,
    margin: Annotated[
        str | None, option("quantile,probability.", "quantile, or what the noise certifies", group=SETTINGS_GROUP)
    ] = None,
    map: Annotated[  # noqa: A002
        str | None, option("For stored logits: softmax,sparsemax.", "softmax", group=SETTINGS_GROUP)
    ] = None,
    temperature: Annotated[
        str | None, option("For stored logits: temperatures of the softmax.", "1", group=SETTINGS_GROUP)
    ] = None,
    certified_class: Annotated[
        str | None,
        option(
            "winner, selection or label.", "selection, if there are such draws", name="--class", group=SETTINGS_GROUP
        ),
    ] = None,
    radii: Annotated[str | None, option("Radii to show.", "multiples of sigma", group=options.OUTPUT_GROUP)] = None,
    baseline: Annotated[
        str | None, option("Method from which gains are measured.", "no gains", group=options.OUTPUT_GROUP)
    ] = None,
    out: Annotated[Path, option("Write all certificates to this table (Parquet).", group=options.OUTPUT_GROUP)] = Path(
        "sweep.parquet"
    ),
    table: Annotated[
        Path | None, option("Write what is shown to FILE.md, FILE.tex or FILE.csv.", group=options.OUTPUT_GROUP)
    ] = None,
    plots: Annotated[
        Path | None,
        option("Folder for figures (PNG, PDF), one for each setting with several values.", group=options.OUTPUT_GROUP),
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print the cells as JSON, one a line.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Certify runs under many settings, into one table.

    Every combination of the values, separated by commas, is a cell; the table has a row for each run, cell and input.

    A bound of your own is package.module:function, as for buckler audit; its rows are marked sound = false.

    Each cell holds alone. If you pick the best of k cells after seeing them, certify each at alpha / k.

    Examples:

      buckler sweep run/ --n 100,1000,10000 --method exact,bonferroni
        --baseline bonferroni
      buckler sweep s12/ s25/ s50/ --alpha 0.001,0.01 --plots figures/
      buckler sweep run/ --method pairwise/star --temperature 0.1,0.5,1
        --margin probability --table sweep.tex
    """
    given = {
        "runs": runs or None, "n": n, "alpha": alpha, "method": method, "margin": margin, "map": map,
        "temperature": temperature, "class": certified_class, "radii": radii, "baseline": baseline,
    }  # fmt: skip
    options.check_outputs(out=out, table=table)
    settings = settings_from(spec, given, SWEEP_SETTINGS)
    grid = Grid.from_settings(settings)
    shown, against = distinct_values("radii", settings.get("radii"), float), settings.get("baseline")
    _check(grid, against, table, unseen=quiet and table is None and bool(shown or against))
    with interruptible():
        try:
            with bar("certifying cells", quiet=quiet or as_json) as advance:
                cells = sweep_runs(distinct_values("runs", settings.get("runs"), str), grid, out, progress=advance)
        except KeyboardInterrupt:
            stop(f"interrupted; {out} was not written")
    text = sweep_table(cells, shown, baseline=against)
    if table is not None:
        with atomic_write(table) as temporary:
            temporary.write_text(tables.format_of(table)(text), encoding="utf-8")
    drawn = [] if plots is None else draw_axes(cells, plots)
    if as_json:
        for record in sweep_records(cells, shown, baseline=against):
            say(json.dumps(record))
    elif not quiet:
        say(text.to_text())
        for path in (out, table, *drawn):
            if path is not None:
                say(f"Written: {path}")
    if len(cells) > 1 and not quiet:
        say(_reminder(len(cells), max(grid.alpha)), error=True)


def _check(grid: Grid, baseline: str | None, table: Path | None, *, unseen: bool) -> None:
    """Check --baseline, --table and --radii before the work begins."""
    if baseline is not None:
        if grid.method:
            check_choice("baseline", baseline, grid.method)
        if len(grid.method) < 2:
            raise InvalidInput(f"--baseline must have another --method to be compared with; got {baseline!r} alone")
    if table is not None:
        tables.format_of(table)
    if unseen:
        raise InvalidInput(
            "--radii and --baseline are for the table shown: with --quiet, give --table or leave them out"
        )


def _reminder(cells: int, alpha: float) -> str:
    return (
        f"buckler: each of these {cells} cells holds alone. Picking the best of them afterwards costs alpha: choose "
        f"beforehand, or certify each at {alpha:g} / {cells} = {split_alpha(alpha, cells):.3g}."
    )
