"""How long one input takes on one core: the best of several calls, after compilation; prints a table.

Run: OMP_NUM_THREADS=1 python benchmarks/continuous_speed.py
"""

from time import perf_counter, process_time

import numpy as np
from scipy.special import softmax

from buckler.certify.scores import score_margin_lower
from buckler.types import MarginKind

CASES: list[tuple[int, int, MarginKind, float | None]] = [
    (1000, 10, "probability", 3.0),
    (1000, 1000, "probability", 30.0),
    (100_000, 10, "probability", 150.0),
    (1000, 10, "quantile", None),
    (1000, 1000, "quantile", None),
    (100_000, 10, "quantile", None),
]


def main() -> None:
    """Print wall and processor milliseconds of ``score_margin_lower`` with its defaults, beside the goal."""
    print(f"{'n':>7} {'m':>5} {'margin':>12} {'wall ms':>9} {'cpu ms':>9} {'goal':>7}")
    for n, m, margin, goal in CASES:
        z = np.random.default_rng(0).normal(size=(n, m)) * 1.5
        z[:, 0] += 3.0 + np.log(m / 10.0)
        rows = softmax(z, axis=1)
        score_margin_lower(rows, 0, 1e-3, margin)
        walls, works = [], []
        for _ in range(7):
            wall, work = perf_counter(), process_time()
            score_margin_lower(rows, 0, 1e-3, margin)
            walls.append(perf_counter() - wall)
            works.append(process_time() - work)
        aim = f"{goal:7.0f}" if goal else "      -"
        print(f"{n:>7} {m:>5} {margin:>12} {1e3 * min(walls):9.2f} {1e3 * min(works):9.2f} {aim}")


if __name__ == "__main__":
    main()
