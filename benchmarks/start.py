"""Processor time until the first answer: commands, import, and the first certificates with and without kept kernels.

    python benchmarks/start.py

Each line is a process of its own, the best of three. *Cold* processes compile their kernels into an empty folder.
"""

import os
import subprocess
import sys
import tempfile

HEAD = "import time, resource, buckler, numpy as np\n"
TAIL = "\nused = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime)"
SCORES = "np.random.default_rng(0).dirichlet([8, 1, 1], (1, 300))"
PROGRAMS = {
    "buckler --help": "import sys; from buckler.cli import main\nsys.argv[1:] = ['--help']\ntry: main()\n"
    "except SystemExit: pass\nimport resource",
    "import buckler": HEAD,
    "first certificate from votes": HEAD + "buckler.certify_votes([[900, 50, 50]], sigma=1.0)",
    "first certificate from scores": HEAD + f"buckler.certify_scores({SCORES}, sigma=1.0)",
}


def seconds(program: str, folder: str) -> float:
    """Return the processor time of a program in a fresh process, whose kernels are kept in a folder."""
    variables = {**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program + TAIL], env=variables, capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a line for each program."""
    for name, program in PROGRAMS.items():
        cold, warm = [], []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(seconds(program, folder))
                warm.append(seconds(program, folder))
        print(f"{name:32} cold {min(cold):5.2f} s   warm {min(warm):5.2f} s")


if __name__ == "__main__":
    main()
