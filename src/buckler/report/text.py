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
    """A table of texts: the first ``names`` columns hold names, the others numbers, already rounded as to be shown."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    names: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InvalidInput(f"rows must have {len(self.header)} cells, as the header; got {len(row)}")

    def to_text(self, title: str = "") -> str:
        """Return the table as aligned text for a terminal, names to the left, numbers to the right, the caption below.

        >>> print(TextTable(("method", "r=0.5"), (("exact", "0.91"), ("top_class", "0.9")), "of 100 inputs"))
        method     r=0.5
        ---------  -----
        exact       0.91
        top_class    0.9
        of 100 inputs
        """
        lines = [tuple(cell.replace("\n", " ") for cell in line) for line in (self.header, *self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        lines.insert(1, tuple("-" * width for width in widths))

        def aligned(cells: Sequence[str]) -> str:
            pairs = enumerate(zip(cells, widths, strict=True))
            return "  ".join(c.ljust(w) if i < self.names else c.rjust(w) for i, (c, w) in pairs).rstrip()

        return "\n".join([*([title] if title else []), *map(aligned, lines), *([self.caption] if self.caption else [])])

    def to_markdown(self) -> str:
        """Return the table as a text in Markdown, the caption below."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"

        rule = ["---" if i < self.names else "---:" for i in range(len(self.header))]
        body = line(self.header) + line(rule) + "".join(map(line, self.rows))
        return body + (f"\n{self.caption}\n" if self.caption else "")

    def to_latex(self) -> str:
        """Return the table as a text in LaTeX, which needs the package booktabs."""

        def line(cells: Sequence[str]) -> str:
            return " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in cells) + r" \\" + "\n"

        columns = "l" * self.names + "r" * (len(self.header) - self.names)
        caption = f"\\caption{{{''.join(_LATEX.get(c, c) for c in self.caption)}}}\n" if self.caption else ""
        body = "\\toprule\n" + line(self.header) + "\\midrule\n" + "".join(map(line, self.rows)) + "\\bottomrule\n"
        inner = f"\\begin{{tabular}}{{{columns}}}\n{body}\\end{{tabular}}\n"
        return f"\\begin{{table}}\n\\centering\n{caption}{inner}\\end{{table}}\n"

    def to_csv(self) -> str:
        """Return the table as CSV; a cell that a spreadsheet would run as a formula gets an apostrophe in front."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_inert, self.header))
        writer.writerows([*map(_inert, row)] for row in self.rows)
        return text.getvalue()

    def __str__(self) -> str:
        return self.to_text()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def relative_gain(baseline: float, value: float) -> str:
    """Return by how many percent ``value`` exceeds ``baseline``, as a text.

    It is ∞ if only the baseline is 0, and a dash if both are.

    >>> relative_gain(0.774, 0.780), relative_gain(0.5, 0.45), relative_gain(0.0, 0.538), relative_gain(0.0, 0.0)
    ('+0.78%', '-10.00%', '∞', '-')
    """
    if baseline == 0.0:
        return "-" if value == 0.0 else "∞"
    return f"{100.0 * (value - baseline) / baseline:+.2f}%"


def accuracy_table(curves: Sequence[Curve], *, labelled: bool = True) -> TextTable:
    """Return a table of certified accuracy, one row for each curve (method) and a column for each radius, rounded down.

    ``labelled`` says whether the curves show accuracy, or without labels the share certified.
    """
    radii = curves[0].radii
    if any(not np.array_equal(curve.radii, radii) for curve in curves):
        raise InvalidInput("curves must share their radii")
    header = ("method", "abstained", *(f"r={radius:g}" for radius in radii))
    rows = [(c.name, f"{c.abstained:.3f}", *(rounded_down(float(a)) for a in c.accuracy)) for c in curves]
    norm = "" if curves[0].norm in {None, "l2"} else f" ({curves[0].norm})"
    right = "predicted right and " if labelled else ""
    caption = f"share of {curves[0].inputs} inputs {right}certified to radius r{norm}"
    return TextTable(header, tuple(rows), caption)


def _inert(cell: str) -> str:
    formula = cell[:1] in {"=", "+", "-", "@", "\t", "\r"} and len(cell) > 1
    return f"'{cell}" if formula and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell.removesuffix("%"))
    except ValueError:
        return False
    return True


TABLE_FORMATS = {".md": TextTable.to_markdown, ".tex": TextTable.to_latex, ".csv": TextTable.to_csv}
"""Ending of a file's name -> function that turns a ``TextTable`` into text in that format."""


def format_of(path: Path) -> Callable[[TextTable], str]:
    """Return the function that turns a ``TextTable`` into text in the format of ``path``, by its ending."""
    if path.suffix not in TABLE_FORMATS:
        raise InvalidInput(f"a table's file must end in {', '.join(TABLE_FORMATS)}; got {str(path)!r}")
    return TABLE_FORMATS[path.suffix]
