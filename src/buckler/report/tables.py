"""Tables as text, Markdown, LaTeX (booktabs) or CSV; certified accuracies are rounded down."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from buckler.certificate import rounded_down
from buckler.errors import InvalidInput
from buckler.evaluate.curves import Curve

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "∞": r"$\infty$",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text: the first columns are names, the others numbers, already rounded as they should be shown."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    names: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InvalidInput(f"rows must have {len(self.header)} cells, as the header; got {len(row)}")


def gain(baseline: float, value: float) -> str:
    """Return by how many percent ``value`` exceeds ``baseline``, relative to it; a dash if both are 0.

    >>> gain(0.774, 0.780), gain(0.5, 0.45), gain(0.0, 0.538), gain(0.0, 0.0)
    ('+0.78%', '-10.00%', '∞', '-')
    """
    if baseline == 0.0:
        return "-" if value == 0.0 else "∞"
    return f"{100.0 * (value - baseline) / baseline:+.2f}%"


def accuracy_table(curves: Sequence[Curve]) -> TextTable:
    """Return certified accuracy against radius, one row a method; accuracies are rounded down."""
    radii = curves[0].thresholds
    if any(not np.array_equal(curve.thresholds, radii) for curve in curves):
        raise InvalidInput("curves must share their radii")
    header = ("method", "abstained", *(f"r={radius:g}" for radius in radii))
    rows = [(c.name, f"{c.abstained:.3f}", *(rounded_down(float(a)) for a in c.accuracy)) for c in curves]
    norm = "" if curves[0].norm in {None, "l2"} else f" ({curves[0].norm})"
    caption = f"share of {curves[0].inputs} inputs predicted right and certified to radius r{norm}"
    return TextTable(header, tuple(rows), caption)


def to_text(table: TextTable, title: str = "") -> str:
    """Return a table as aligned text for a terminal, names to the left and numbers to the right, the caption below.

    >>> print(to_text(TextTable(("method", "r=0.5"), (("exact", "0.91"), ("top_class", "0.9")), "of 100 inputs")))
    method     r=0.5
    ---------  -----
    exact       0.91
    top_class    0.9
    of 100 inputs
    """
    lines = [tuple(cell.replace("\n", " ") for cell in line) for line in (table.header, *table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    lines.insert(1, tuple("-" * width for width in widths))

    def aligned(cells: Sequence[str]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True))
        return "  ".join(c.ljust(w) if i < table.names else c.rjust(w) for i, (c, w) in pairs).rstrip()

    return "\n".join([*([title] if title else []), *map(aligned, lines), *([table.caption] if table.caption else [])])


def to_markdown(table: TextTable) -> str:
    """Return a table in Markdown, the caption below."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"

    rule = ["---" if i < table.names else "---:" for i in range(len(table.header))]
    body = line(table.header) + line(rule) + "".join(map(line, table.rows))
    return body + (f"\n{table.caption}\n" if table.caption else "")


def to_latex(table: TextTable) -> str:
    """Return a table in LaTeX, for the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in cells) + r" \\" + "\n"

    columns = "l" * table.names + "r" * (len(table.header) - table.names)
    caption = f"\\caption{{{''.join(_LATEX.get(c, c) for c in table.caption)}}}\n" if table.caption else ""
    body = "\\toprule\n" + line(table.header) + "\\midrule\n" + "".join(map(line, table.rows)) + "\\bottomrule\n"
    inner = f"\\begin{{tabular}}{{{columns}}}\n{body}\\end{{tabular}}\n"
    return f"\\begin{{table}}\n\\centering\n{caption}{inner}\\end{{table}}\n"


def to_csv(table: TextTable) -> str:
    """Return a table as CSV. A cell that a spreadsheet would run as a formula gets an apostrophe in front."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_inert, table.header))
    writer.writerows([*map(_inert, row)] for row in table.rows)
    return text.getvalue()


def _inert(cell: str) -> str:
    formula = cell[:1] in {"=", "+", "-", "@", "\t", "\r"} and len(cell) > 1
    return f"'{cell}" if formula and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell.removesuffix("%"))
    except ValueError:
        return False
    return True


TABLE_FORMATS = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv}
"""Ending of a file -> function that writes a table."""


def format_of(path: Path) -> Callable[[TextTable], str]:
    """Return the function that writes a table in the format of ``path``, by its ending."""
    if path.suffix not in TABLE_FORMATS:
        raise InvalidInput(f"a table's file must end in {', '.join(TABLE_FORMATS)}; got {str(path)!r}")
    return TABLE_FORMATS[path.suffix]
