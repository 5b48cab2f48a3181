"""What the paper prints: the numbers of its three tables, and the settings of its figures. None of it is computed here.

The paper is "Enhanced Estimation Techniques for Certified Radii in Randomized Smoothing". Its tables give certified
accuracy on CIFAR-10 at values "r" of the *margin* (its curves "are based on margins instead of radii"). It does not
state alpha; 0.001 fits its figures. Captions list sample sizes, sigmas and temperatures only "on the columns" of
figures that are not in the text: where the text names no value, the value here is ours, and ``Figure`` says so.
"""

from dataclasses import dataclass, replace
from typing import Literal

from buckler.types import MarginKind

ALPHA = 1e-3
"""Error probability of a limit in the paper's tables and figures: it does not state it, and 0.001 fits its figures."""

Case = Literal["discrete", "continuous"]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """A table of the paper as printed: certified accuracy at each of ``margins``, of its baseline and of its method.

    ``rows[n]`` holds a row for each of the two, from n draws. ``names`` says what the paper calls them, the baseline
    first; its keys are the names of the same methods here. ``temperature`` is None for votes.
    """

    name: str
    number: int
    case: Case
    margin: MarginKind
    sigma: float
    temperature: float | None
    margins: tuple[float, ...]
    names: dict[str, str]
    rows: dict[int, tuple[tuple[float, ...], tuple[float, ...]]]


TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

TABLES: dict[str, PrintedTable] = {
    table.name: table
    for table in (
        PrintedTable(
            "table1", 1, "discrete", "quantile", 0.12, None, (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
            {"bonferroni": "CP + Bonferroni", "published": "Ours"},
            {
                100: (
                    (0.774, 0.744, 0.720, 0.662, 0.582, 0.000, 0.000, 0.000, 0.000),
                    (0.780, 0.746, 0.726, 0.670, 0.614, 0.538, 0.538, 0.538, 0.538),
                ),
            },
        ),
        PrintedTable(
            "table2", 2, "continuous", "probability", 0.5, 1.0, TENTHS,
            {"baseline/sequence": "CS + Bonferroni", "cited/sequence": "CS + Ours"},
            {
                100: (
                    (0.400, 0.347, 0.289, 0.220, 0.157, 0.066, 0.000, 0.000, 0.000),
                    (0.419, 0.362, 0.303, 0.239, 0.173, 0.092, 0.000, 0.000, 0.000),
                ),
                300: (
                    (0.526, 0.464, 0.411, 0.354, 0.296, 0.233, 0.173, 0.101, 0.000),
                    (0.536, 0.471, 0.416, 0.361, 0.301, 0.239, 0.179, 0.105, 0.000),
                ),
                500: (
                    (0.560, 0.490, 0.434, 0.379, 0.322, 0.261, 0.199, 0.133, 0.050),
                    (0.568, 0.497, 0.442, 0.383, 0.329, 0.266, 0.202, 0.136, 0.054),
                ),
            },
        ),
        PrintedTable(
            "table3", 3, "continuous", "quantile", 0.5, 1.0, TENTHS,
            {"baseline/sequence": "CS + Bonferroni", "cited/sequence": "CS + Ours"},
            {
                100: (
                    (0.436, 0.415, 0.393, 0.369, 0.352, 0.328, 0.305, 0.284, 0.259),
                    (0.437, 0.418, 0.401, 0.383, 0.373, 0.364, 0.359, 0.354, 0.347),
                ),
                300: (
                    (0.572, 0.545, 0.518, 0.493, 0.471, 0.451, 0.431, 0.413, 0.391),
                    (0.572, 0.547, 0.523, 0.500, 0.481, 0.465, 0.451, 0.439, 0.427),
                ),
                500: (
                    (0.600, 0.578, 0.553, 0.525, 0.500, 0.478, 0.457, 0.437, 0.419),
                    (0.600, 0.578, 0.556, 0.530, 0.509, 0.489, 0.473, 0.461, 0.448),
                ),
            },
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the paper: accuracy against the probability margin on top, against the quantile margin below.

    It has a column for each value in ``columns`` of the setting ``axis``; the other two settings are fixed.
    """

    name: str
    number: int
    data: str
    case: Case
    axis: Literal["n", "sigma", "temperature"]
    columns: tuple[float, ...]
    n: int | None = None
    sigma: float | None = None
    temperature: float | None = None

    def at(self, value: float) -> "Figure":
        """Return the figure with the setting ``axis`` fixed at ``value`` too."""
        if self.axis == "n":
            return replace(self, n=int(value))
        return replace(self, sigma=value) if self.axis == "sigma" else replace(self, temperature=value)


FIGURES: tuple[Figure, ...] = (
    Figure("discrete_sigma", 3, "cifar10", "discrete", "sigma", (0.12, 0.25, 0.5, 1.0), n=100),
    Figure("discrete_n", 4, "cifar10", "discrete", "n", (100, 500, 1000), sigma=0.12),
    Figure("continuous_n", 5, "cifar10", "continuous", "n", (100, 300, 500), sigma=0.5, temperature=1.0),
    Figure("continuous_sigma", 6, "cifar10", "continuous", "sigma", (0.12, 0.25, 0.5, 1.0), n=100, temperature=0.1),
    Figure("continuous_temperature", 7, "cifar10", "continuous", "temperature", (0.1, 0.5, 1.0, 5.0), n=100, sigma=0.5),
    Figure("discrete_n", 8, "imagenet", "discrete", "n", (100, 500, 1000), sigma=0.25),
    Figure("discrete_sigma", 9, "imagenet", "discrete", "sigma", (0.12, 0.25, 0.5, 1.0), n=100),
    Figure("continuous_sigma", 10, "imagenet", "continuous", "sigma", (0.12, 0.25, 0.5, 1.0), n=100, temperature=0.5),
    Figure(
        "continuous_temperature", 11, "imagenet", "continuous", "temperature", (0.1, 0.5, 1.0, 5.0), n=100, sigma=0.5
    ),
)
"""The paper's figures of accuracy against margins, numbered in the order in which they stand. The columns are our
choice, except n = 100, 300, 500 of Figure 5, which its tables give; a column without a recorded run is left out. Where
a fixed sigma has no run, the largest that has is drawn, and the title says so."""
