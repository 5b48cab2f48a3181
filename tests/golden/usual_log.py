"""Makes ``usual_log.tsv``, a log as the field's tools print it, and ``usual_log_votes.csv``, the votes behind it.

    python tests/golden/usual_log.py

Votes of 240 inputs are drawn from easy and hard truths; radii come from SciPy's own beta quantile and are printed with
three significant digits, rounded to nearest. The level is 0.01.
"""

from pathlib import Path

import numpy as np
from scipy import stats

N, ALPHA, SIGMA, CLASSES = 100_000, 0.01, 0.5, 10


def main() -> None:
    """Write both files beside this script."""
    rng = np.random.default_rng(20_240_501)
    lines, votes = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"], ["idx,votes"]
    for i in range(240):
        label = int(rng.integers(CLASSES))
        top = label if rng.random() < 0.8 else int(rng.integers(CLASSES))
        p = 1.0 - rng.beta(0.25, 2.0)
        k = int(rng.binomial(N, p))
        low = stats.beta.ppf(ALPHA, k, N - k + 1)
        certified = low > 0.5
        radius = SIGMA * stats.norm.ppf(low) if certified else 0.0
        predict = top if certified else -1
        lines.append(f"{20 * i}\t{label}\t{predict}\t{radius:.3}\t{int(predict == label)}\t0:00:14.{i:06d}")
        votes.append(f"{20 * i},{k}")
    here = Path(__file__).parent
    (here / "usual_log.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (here / "usual_log_votes.csv").write_text("\n".join(votes) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
