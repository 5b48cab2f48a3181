"""Show the cells of a sweep as a table, and as a figure for each setting with several values.

A cell is the certificates of one run under one combination of settings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import ENUMERATED_METHOD, rounded_down
from buckler.errors import InvalidInput, check_choice
from buckler.evaluate.curves import Curve, certified_accuracy
from buckler.noise import Gaussian, text_of
from buckler.report.plots import accuracy_plot
from buckler.report.tables import TextTable, relative_gain
from buckler.runs.sweep import SweptCell
from buckler.types import ArrayLike


def _temperature(cell: SweptCell) -> float | None:
    first = cell.certificates.first
    return (first.temperature or 1.0) if first.map == "softmax" else None


AXES: dict[str, Callable[[SweptCell], Any]] = {
    "run": lambda cell: cell.run,
    "noise": lambda cell: text_of(cell.certificates.first.noise, sigma=False),
    "sigma": lambda cell: cell.certificates.first.noise.parameters.get("sigma"),
    "n": lambda cell: cell.certificates.first.n,
    "alpha": lambda cell: cell.certificates.first.alpha,
    "margin": lambda cell: cell.certificates.first.margin_kind,
    "map": lambda cell: None if cell.certificates.first.map == "hardmax" else cell.certificates.first.map,
    "temperature": _temperature,
    "method": lambda cell: cell.certificates.first.method,
}
"""The settings a sweep can vary, outermost first; None where a setting has no meaning, such as a map for votes."""

CURVE_POINTS = 400
"""Points of a drawn curve."""


SWEEP_STEPS = (0.0, 0.5, 1.0, 2.0, 3.0)
"""Radii that are shown by default, in units of the largest sigma."""


def sweep_table(
    cells: Sequence[SweptCell], radii: Sequence[float] | None = None, *, baseline: str | None = None
) -> TextTable:
    """Return one row a cell, with the settings that vary and certified accuracy at each radius.

    Below each cell come its gains in percent over the cell with the method ``baseline`` and the same settings.
    """
    curves, what = _curves(cells, _radii(cells, radii))
    twins = _twins(cells, baseline)
    axes = [name for name in _varying(cells) if name != "method"] + ["method"]
    rows = []
    for i, (cell, curve) in enumerate(zip(cells, curves, strict=True)):
        names = [_text(AXES[name](cell)) for name in axes]
        rows.append((*names, f"{curve.abstained:.3f}", *(rounded_down(float(a)) for a in curve.accuracy)))
        if i in twins:
            base = curves[twins[i]]
            pairs = zip(base.accuracy.tolist(), curve.accuracy.tolist(), strict=True)
            rows.append((*names[:-1], f"  gain over {base.name}", "", *(relative_gain(a, b) for a, b in pairs)))
    header = (*axes, "abstained", *(f"r={radius:g}" for radius in curves[0].radii))
    return TextTable(header, tuple(rows), _caption(cells, axes, what), names=len(axes))


def sweep_records(
    cells: Sequence[SweptCell], radii: Sequence[float] | None = None, *, baseline: str | None = None
) -> list[dict[str, Any]]:
    """Return the cells of ``sweep_table`` as dictionaries, without rounding."""
    curves, _ = _curves(cells, _radii(cells, radii))
    twins = _twins(cells, baseline)
    records = []
    for i, (cell, curve) in enumerate(zip(cells, curves, strict=True)):
        record = {name: value(cell) for name, value in AXES.items()}
        record |= {
            "certified_class": _class(cell),
            "sound": _sound(cell),
            "inputs": curve.inputs,
            "abstained": curve.abstained,
        }
        at = [f"{radius:g}" for radius in curve.radii.tolist()]
        record["accuracy"] = dict(zip(at, curve.accuracy.tolist(), strict=True))
        if i in twins:
            pairs = zip(curves[twins[i]].accuracy.tolist(), curve.accuracy.tolist(), strict=True)
            record["gain"] = dict(zip(at, [None if a == 0.0 else (b - a) / a for a, b in pairs], strict=True))
        records.append(record)
    return records


def draw_axes(cells: Sequence[SweptCell], folder: Path) -> list[Path]:
    """Draw a figure for each axis with several values, a curve a value and method, as PNG and as PDF.

    All other settings stay at the first of their values, which the title says.
    """
    varying = _varying(cells)
    written = []
    for axis in varying or ["method"]:
        fixed = {name: _known(cells, name)[0] for name in varying if name not in {axis, "method"}}
        mine = [cell for cell in cells if all(AXES[name](cell) in {None, value} for name, value in fixed.items())]
        mine = [cell for cell in mine if AXES[axis](cell) is not None]
        reached = max(float(cell.certificates.radii.max()) for cell in mine)
        top = 1.05 * (reached or mine[0].certificates.first.noise.unit)
        curves, what = _curves(mine, np.linspace(0.0, top, CURVE_POINTS))
        if axis != "method":
            values = [f"{axis} {_text(AXES[axis](cell))}" for cell in mine]
            several = len({curve.name for curve in curves}) > 1
            names = [f"{v}, {curve.name}" if several else v for v, curve in zip(values, curves, strict=True)]
            curves = [replace(curve, name=name) for curve, name in zip(curves, names, strict=True)]
        title = ", ".join(f"{name} {_text(value)}" for name, value in _settings(cells, fixed, [axis, "method"]).items())
        for kind in ("png", "pdf"):
            path = folder / f"accuracy_by_{axis}.{kind}"
            accuracy_plot(curves, path, title, ylabel=what)
            written.append(path)
    return written


def _class(cell: SweptCell) -> str:
    first = cell.certificates.first
    if first.method == ENUMERATED_METHOD:
        return first.class_from
    return "winner" if first.winner_alpha else "selection" if first.n0 else "label"


def _sound(cell: SweptCell) -> bool:
    return cell.certificates.first.sound


def _radii(cells: Sequence[SweptCell], radii: Sequence[float] | None) -> Sequence[float]:
    if not cells:
        raise InvalidInput("a sweep must have at least one cell; got none")
    return (
        sorted(set(radii))
        if radii
        else [max(cell.certificates.first.noise.unit for cell in cells) * step for step in SWEEP_STEPS]
    )


def _curves(cells: Sequence[SweptCell], radii: ArrayLike) -> tuple[list[Curve], str]:
    """Return the curve of each cell, and its name: accuracy, or the share certified where a cell has no labels."""
    labelled = all(cell.certificates.labels is not None for cell in cells)
    curves = [
        certified_accuracy(made, made.labels if labelled else None, radii, name=AXES["method"](cell))
        for cell in cells
        for made in [cell.certificates]
    ]
    return curves, "certified accuracy" if labelled else "share certified"


def _twins(cells: Sequence[SweptCell], baseline: str | None) -> dict[int, int]:
    """Return cell number -> number of the cell with the baseline's method and otherwise the same settings."""
    if baseline is None:
        return {}
    check_choice("baseline", baseline, list(dict.fromkeys(map(AXES["method"], cells))))
    place = {tuple(value(cell) for value in AXES.values()): i for i, cell in enumerate(cells)}
    found = {}
    for i, cell in enumerate(cells):
        twin = (*(value(cell) for name, value in AXES.items() if name != "method"), baseline)
        if AXES["method"](cell) != baseline and twin in place:
            found[i] = place[twin]
    if not found:
        raise InvalidInput(f"baseline {baseline!r} must have another method to be compared with")
    return found


def _known(cells: Sequence[SweptCell], axis: str) -> list[Any]:
    return list(dict.fromkeys(value for cell in cells if (value := AXES[axis](cell)) is not None))


def _varying(cells: Sequence[SweptCell]) -> list[str]:
    """Return the axes with several values; runs are told apart by sigma where that is enough."""
    runs = len({cell.run for cell in cells})
    needless = "run" if len(_known(cells, "sigma")) == runs else "sigma"
    return [name for name in AXES if len(_known(cells, name)) > 1 and name != needless]


def _settings(cells: Sequence[SweptCell], fixed: Mapping[str, Any], shown: Sequence[str]) -> dict[str, Any]:
    """Return the settings for a caption: those held fixed, and those with a single value."""
    single = {name: found[0] for name in AXES if name not in shown and len(found := _known(cells, name)) == 1}
    both = {**single, **fixed}
    said = {name: both[name] for name in AXES if name in both and (name != "run" or name in fixed)}
    return {name: value for name, value in said.items() if (name, value) != ("noise", Gaussian.name)}


def _caption(cells: Sequence[SweptCell], axes: Sequence[str], what: str) -> str:
    settings = _settings(cells, {}, axes)
    listed = ", ".join(f"{name} {_text(value)}" for name, value in settings.items())
    unproved = dict.fromkeys(AXES["method"](cell) for cell in cells if not _sound(cell))
    caution = f"; no guarantee: {', '.join(unproved)}" if unproved else ""
    norm = cells[0].certificates.first.noise.norm
    return f"{what} at radius r{'' if norm == 'l2' else f' ({norm})'}, {listed}, class by {_class(cells[0])}{caution}"


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
