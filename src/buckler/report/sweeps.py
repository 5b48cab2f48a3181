"""The cells of a sweep as a table, and as a figure for each setting with several values.

A cell is the certificates of one run under one combination of settings.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import ENUMERATED_METHOD, rounded_down
from buckler.errors import InvalidInput, check_choice
from buckler.evaluate.curves import Curve, certified_accuracy
from buckler.noise import Gaussian, text_of
from buckler.report.plots import accuracy_plot
from buckler.report.text import TextTable, relative_gain
from buckler.runs.sweep import SweptCell
from buckler.types import ArrayLike

CURVE_POINTS = 400
"""Number of radii in a drawn curve."""

SWEEP_STEPS = (0.0, 0.5, 1.0, 2.0, 3.0)
"""Default radii of the table, in units of the largest sigma."""

CellSettings = dict[str, Any]


def settings_of(cell: SweptCell) -> CellSettings:
    """Return a cell's settings that a sweep can vary, by name; None for one without meaning, as a map for votes."""
    first = cell.certificates.first
    return {
        "run": cell.run,
        "noise": text_of(first.noise, sigma=False),
        "sigma": first.noise.parameters.get("sigma"),
        "n": first.n,
        "alpha": first.alpha,
        "margin": first.margin_kind,
        "map": None if first.map == "hardmax" else first.map,
        "temperature": (first.temperature or 1.0) if first.map == "softmax" else None,
        "method": first.method,
    }


def sweep_table(
    cells: Sequence[SweptCell], radii: Sequence[float] | None = None, *, baseline: str | None = None
) -> TextTable:
    """Return a table with one row for each cell: the settings that vary, and certified accuracy at each of ``radii``.

    Below each cell come its gains in percent over the cell with the method ``baseline`` and otherwise the same
    settings.
    """
    curves, what = _curves(cells, _radii(cells, radii))
    settings = [settings_of(cell) for cell in cells]
    twins = _twins(settings, baseline)
    axes = [name for name in _varying(settings) if name != "method"] + ["method"]
    rows = []
    for i, (mine, curve) in enumerate(zip(settings, curves, strict=True)):
        names = [_text(mine[name]) for name in axes]
        rows.append((*names, f"{curve.abstained:.3f}", *(rounded_down(float(a)) for a in curve.accuracy)))
        if i in twins:
            base = curves[twins[i]]
            pairs = zip(base.accuracy.tolist(), curve.accuracy.tolist(), strict=True)
            rows.append((*names[:-1], f"  gain over {base.name}", "", *(relative_gain(a, b) for a, b in pairs)))
    header = (*axes, "abstained", *(f"r={radius:g}" for radius in curves[0].radii))
    return TextTable(header, tuple(rows), _caption(cells, settings, axes, what), names=len(axes))


def sweep_records(
    cells: Sequence[SweptCell], radii: Sequence[float] | None = None, *, baseline: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of ``sweep_table`` as dictionaries, without rounding."""
    curves, _ = _curves(cells, _radii(cells, radii))
    settings = [settings_of(cell) for cell in cells]
    twins = _twins(settings, baseline)
    records = []
    for i, (cell, curve) in enumerate(zip(cells, curves, strict=True)):
        at = [f"{radius:g}" for radius in curve.radii.tolist()]
        record = settings[i] | {
            "certified_class": _class(cell),
            "sound": cell.certificates.first.sound,
            "inputs": curve.inputs,
            "abstained": curve.abstained,
            "accuracy": dict(zip(at, curve.accuracy.tolist(), strict=True)),
        }
        if i in twins:
            pairs = zip(curves[twins[i]].accuracy.tolist(), curve.accuracy.tolist(), strict=True)
            record["gain"] = dict(zip(at, [None if a == 0.0 else (b - a) / a for a, b in pairs], strict=True))
        records.append(record)
    return records


def draw_axes(cells: Sequence[SweptCell], folder: Path) -> list[Path]:
    """Draw a figure for each setting with several values, to ``folder``, as PNG and as PDF; return the paths.

    It has a curve for each value and method. All other settings stay at the first of their values, as the title says.
    """
    settings = [settings_of(cell) for cell in cells]
    varying = _varying(settings)
    written = []
    for axis in varying or ["method"]:
        fixed = {name: _known(settings, name)[0] for name in varying if name not in {axis, "method"}}
        mine = [
            cell
            for cell, its in zip(cells, settings, strict=True)
            if its[axis] is not None and all(its[name] in {None, value} for name, value in fixed.items())
        ]
        reached = max(float(cell.certificates.radii.max()) for cell in mine)
        top = 1.05 * (reached or mine[0].certificates.first.noise.unit)
        curves, what = _curves(mine, np.linspace(0.0, top, CURVE_POINTS))
        if axis != "method":
            several = len({curve.name for curve in curves}) > 1
            values = [f"{axis} {_text(settings_of(cell)[axis])}" for cell in mine]
            names = [f"{v}, {curve.name}" if several else v for v, curve in zip(values, curves, strict=True)]
            curves = [replace(curve, name=name) for curve, name in zip(curves, names, strict=True)]
        told = _told(settings, fixed, [axis, "method"])
        for kind in ("png", "pdf"):
            path = folder / f"accuracy_by_{axis}.{kind}"
            accuracy_plot(curves, path, told, ylabel=what)
            written.append(path)
    return written


def _class(cell: SweptCell) -> str:
    first = cell.certificates.first
    if first.method == ENUMERATED_METHOD:
        return first.class_from
    return "winner" if first.winner_alpha else "selection" if first.n0 else "label"


def _radii(cells: Sequence[SweptCell], radii: Sequence[float] | None) -> Sequence[float]:
    if not cells:
        raise InvalidInput("a sweep must have at least one cell; got none")
    largest = max(cell.certificates.first.noise.unit for cell in cells)
    return sorted(set(radii)) if radii else [largest * step for step in SWEEP_STEPS]


def _curves(cells: Sequence[SweptCell], radii: ArrayLike) -> tuple[list[Curve], str]:
    """Return the curve of each cell, and its name: accuracy, or the share certified where a cell has no labels."""
    labelled = all(cell.certificates.labels is not None for cell in cells)
    curves = [
        certified_accuracy(made, made.labels if labelled else None, radii, name=made.first.method)
        for made in (cell.certificates for cell in cells)
    ]
    return curves, "certified accuracy" if labelled else "share certified"


def _twins(settings: Sequence[CellSettings], baseline: str | None) -> dict[int, int]:
    """Return cell number -> number of the cell with the baseline's method and otherwise the same settings."""
    if baseline is None:
        return {}
    check_choice("baseline", baseline, _known(settings, "method"))
    found = {
        i: settings.index(mine | {"method": baseline})
        for i, mine in enumerate(settings)
        if mine["method"] != baseline and mine | {"method": baseline} in settings
    }
    if not found:
        raise InvalidInput(f"baseline {baseline!r} must have another method to be compared with")
    return found


def _known(settings: Sequence[CellSettings], axis: str) -> list[Any]:
    return list(dict.fromkeys(mine[axis] for mine in settings if mine[axis] is not None))


def _varying(settings: Sequence[CellSettings]) -> list[str]:
    """Return the axes with several values; runs are told apart by sigma where that is enough."""
    needless = "run" if len(_known(settings, "sigma")) == len(_known(settings, "run")) else "sigma"
    return [name for name in settings[0] if len(_known(settings, name)) > 1 and name != needless]


def _told(settings: Sequence[CellSettings], fixed: CellSettings, shown: Sequence[str]) -> str:
    """Return the settings for a caption: those held fixed, and those with a single value."""
    told = []
    for name in settings[0]:
        found = [fixed[name]] if name in fixed else [] if name in shown else _known(settings, name)
        if len(found) == 1 and (name != "run" or name in fixed) and (name, found[0]) != ("noise", Gaussian.name):
            told.append(f"{name} {_text(found[0])}")
    return ", ".join(told)


def _caption(cells: Sequence[SweptCell], settings: Sequence[CellSettings], axes: Sequence[str], what: str) -> str:
    unproved = dict.fromkeys(cell.certificates.first.method for cell in cells if not cell.certificates.first.sound)
    caution = f"; no guarantee: {', '.join(unproved)}" if unproved else ""
    classes = " or ".join(dict.fromkeys(map(_class, cells)))
    norm = cells[0].certificates.first.noise.norm
    at = f"at radius r{'' if norm == 'l2' else f' ({norm})'}"
    return f"{what} {at}, {_told(settings, {}, axes)}, class by {classes}{caution}"


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
