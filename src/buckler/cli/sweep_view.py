"""What ``buckler sweep`` shows of its cells: one table, and one figure for each axis that has several values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, check_choice, show
from buckler.evaluate.curves import Curve, certified_accuracy, certified_share
from buckler.report.plots import FORMATS, accuracy_panels
from buckler.report.tables import TextTable, gain
from buckler.rounding import rounded_down
from buckler.runs.store.sweeps import SweepTable
from buckler.runs.sweep import Task
from buckler.types import ArrayLike

AXES: dict[str, Callable[[Task], Any]] = {
    "run": lambda task: task.evidence.root.name or str(task.evidence.root),
    "sigma": lambda task: task.evidence.spec.sigma,
    "n": lambda task: task.cell.n,
    "alpha": lambda task: task.cell.alpha,
    "margin": lambda task: task.cell.margin,
    "map": lambda task: None if task.cell.map == "hardmax" else task.cell.map,
    "temperature": lambda task: (task.cell.temperature or 1.0) if task.cell.map == "softmax" else None,
    "method": lambda task: task.cell.method,
}
"""The settings a sweep can vary, outermost first; None where a setting has no meaning, such as a map for votes."""

FINE = 400
"""Points of a drawn curve."""


def values(name: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return the values of a setting: from ``a,b,c``, from a list of a TOML file, or from one value."""
    if given is None:
        return ()
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    try:
        made = tuple(kind(part.strip() if isinstance(part, str) else part) for part in parts)
    except (TypeError, ValueError):
        wanted = {int: "whole numbers", float: "numbers"}.get(kind, "names")
        raise InvalidInput(f"{name} must be {wanted} separated by commas; got {show(given)}") from None
    if len(set(made)) != len(made):
        raise InvalidInput(f"{name} must not hold a value twice; got {show(given)}")
    return made


def baseline_of(tasks: Sequence[Task], method: str | None) -> dict[int, int]:
    """Return for each task the one that differs from it in nothing but the baseline's method."""
    if method is None:
        return {}
    check_choice("baseline", method, list(dict.fromkeys(task.cell.method for task in tasks)))
    place = {task.id: i for i, task in enumerate(tasks)}
    found = {}
    for i, task in enumerate(tasks):
        twin = replace(task, cell=replace(task.cell, method=method))
        if task.cell.method != method and twin.id in place:
            found[i] = place[twin.id]
    return found


def curves_of(tasks: Sequence[Task], table: SweepTable, radii: ArrayLike) -> tuple[list[Curve], str]:
    """Return certified accuracy of each cell, or the share certified where labels are not known; and which it is."""
    made, what = [], "certified accuracy"
    for task in tasks:
        certificates, labels = table.read(task.id)
        name = task.cell.method
        if labels is None:
            made.append(certified_share(certificates, radii, name=name))
            what = "share certified"
        else:
            made.append(certified_accuracy(certificates, labels, radii, name=name))
    return made, what


def sweep_table(tasks: Sequence[Task], curves: Sequence[Curve], baseline: dict[int, int], what: str) -> TextTable:
    """Return one row a cell, with the settings that vary; below it, where there is a baseline, its gains in percent."""
    axes = [name for name in _varying(tasks) if name != "method"] + ["method"]
    rows = []
    for i, (task, curve) in enumerate(zip(tasks, curves, strict=True)):
        cells = [_text(AXES[name](task)) for name in axes]
        rows.append((*cells, f"{curve.abstained:.3f}", *(rounded_down(float(a)) for a in curve.accuracy)))
        if i in baseline:
            base = curves[baseline[i]]
            pairs = zip(base.accuracy.tolist(), curve.accuracy.tolist(), strict=True)
            rows.append((*cells[:-1], f"  gain over {base.name}", "", *(gain(a, b) for a, b in pairs)))
    header = (*axes, "abstained", *(f"r={radius:g}" for radius in curves[0].radii))
    return TextTable(header, tuple(rows), _caption(tasks, axes, what), names=len(axes))


def draw_axes(tasks: Sequence[Task], table: SweepTable, folder: Path, endings: Sequence[str]) -> list[Path]:
    """Draw a figure for each axis with several values, a panel a value and a curve a method; return the files.

    All other settings stay at the first of their values, which the title says.
    """
    for ending in endings:
        check_choice("format", ending.removeprefix("."), FORMATS)
    varying = _varying(tasks)
    written = []
    for axis in varying or ["method"]:
        fixed = {name: _known(tasks, name)[0] for name in varying if name not in {axis, "method"}}
        mine = [task for task in tasks if all(AXES[name](task) in {None, value} for name, value in fixed.items())]
        mine = [task for task in mine if AXES[axis](task) is not None]
        reached = max(c.radius for task in mine for c in table.read(task.id)[0])
        top = 1.05 * (reached or mine[0].evidence.spec.sigma)
        curves, what = curves_of(mine, table, np.linspace(0.0, top, FINE))
        panels: dict[str, list[Curve]] = {}
        for task, curve in zip(mine, curves, strict=True):
            name = "" if axis == "method" else f"{axis} {_text(AXES[axis](task))}"
            panels.setdefault(name, []).append(curve)
        title = ", ".join(f"{name} {_text(value)}" for name, value in _settings(tasks, fixed, [axis, "method"]).items())
        for ending in endings:
            path = folder / f"accuracy_by_{axis}{ending}"
            accuracy_panels(list(panels.items()), path, title, ylabel=what)
            written.append(path)
    return written


def _known(tasks: Sequence[Task], axis: str) -> list[Any]:
    return list(dict.fromkeys(value for task in tasks if (value := AXES[axis](task)) is not None))


def _varying(tasks: Sequence[Task]) -> list[str]:
    """Return the axes with several values; runs are told apart by sigma where that is enough."""
    runs = len({task.run for task in tasks})
    needless = "run" if len(_known(tasks, "sigma")) == runs else "sigma"
    return [name for name in AXES if len(_known(tasks, name)) > 1 and name != needless]


def _settings(tasks: Sequence[Task], fixed: Mapping[str, Any], shown: Sequence[str]) -> dict[str, Any]:
    """Return the settings that are not shown elsewhere: those held at a value, and those that have but one."""
    single = {name: found[0] for name in AXES if name not in shown and len(found := _known(tasks, name)) == 1}
    both = {**single, **fixed}
    return {name: both[name] for name in AXES if name in both and (name != "run" or name in fixed)}


def _caption(tasks: Sequence[Task], axes: Sequence[str], what: str) -> str:
    settings = _settings(tasks, {}, axes)
    listed = ", ".join(f"{name} {_text(value)}" for name, value in settings.items())
    unproved = dict.fromkeys(task.cell.method for task in tasks if not task.sound)
    caution = f"; no guarantee: {', '.join(unproved)}" if unproved else ""
    return f"{what} at radius r, {listed}, class by {tasks[0].cell.certified_class}{caution}"


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
