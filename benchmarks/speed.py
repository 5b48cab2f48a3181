"""Time on one processor: of a limit from votes or scores, of ``certify`` of many inputs, and until the first answer.

    python benchmarks/speed.py votes [--pairs 60]
    python benchmarks/speed.py scores
    python benchmarks/speed.py batches [--images 200] [--n 1000] [--repeat 3]
    python benchmarks/speed.py batches --device cuda --batch-size 4096
    python benchmarks/speed.py start
    python benchmarks/speed.py busy [--loops 2]

``votes``: one exact limit, and its ratio to a general-purpose global optimiser at n = 100. Up to n = 1000 the first
limit in a plateau also finds that plateau; "first" and "again" are the same limits computed twice. The optimiser solves
the same two-variable programme, the supremum of the region's probability over {theta(q) <= L}, by differential
evolution with a bisection over L on top, to an accuracy of 1e-4 in L; it proves nothing.

``scores``: one limit from scores, the best of several calls, after compilation.

``batches``: ``certify`` of many digits beside a loop of it: the same certificates, by the clock. The best of
``--repeat`` timings of either is shown, each after one call that compiles and loads what is needed; both are run in
turn in one process. Beside them is what cannot be saved: the noise and the model alone, in large batches. Times are of
the processor. With ``--device`` a ResNet-110 with random weights stands in, on random images, and times are by the
clock.

``start``: processor time until the first answer of a command, an import, and a certificate with and without kept
kernels. Each line is a process of its own, the best of three. *Cold* processes compile their kernels into an empty
folder.

``busy``: rows a second of a ResNet-110 on all processors, in batches of 64, alone and beside ``--loops`` other programs
that take a processor each: with the spin count that ``buckler`` gives the threads of torch, and with their library's.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import Bounds, differential_evolution
from scipy.special import ndtr, ndtri, softmax

import buckler
from buckler.bounds.buehler import buehler_lower, outcome_region
from buckler.bounds.trinomial import Trinomial, make_region, region_probability
from buckler.certify.scores import as_scores, draws_of, limit_of
from buckler.cli.app import SPINS
from buckler.files import usable_cores
from buckler.sampling.architectures import build
from buckler.training.digits import digits_split, train_digits
from buckler.types import FloatArray, MarginKind

MARGINS: list[MarginKind] = ["probability", "quantile"]


def mixed_pairs(n: int, many: int, seed: int) -> list[tuple[int, int]]:
    """Return count pairs of confident, hesitant and lost inputs."""
    rng = np.random.default_rng(seed)
    p = np.sort(rng.dirichlet([1.5, 0.4, 0.4], size=many), axis=1)[:, ::-1]
    return [tuple(rng.multinomial(n, row)[:2].tolist()) for row in p]


def limits_timed(pairs: list[tuple[int, int]], n: int, alpha: float, margin: MarginKind) -> list[float]:
    """Return the milliseconds that each limit takes."""
    spent = []
    for x1, x2 in pairs:
        start = time.perf_counter()
        buehler_lower(x1, x2, n, alpha, margin)
        spent.append(1e3 * (time.perf_counter() - start))
    return spent


def by_global_optimiser(x1: int, x2: int, n: int, alpha: float) -> float:
    """Return the limit of the quantile margin as a general-purpose solver finds it."""
    region = make_region(n, outcome_region(x1, x2, n, alpha, "quantile")[0])

    def supremum(L: float) -> float:
        def loss(v: FloatArray) -> float:
            q2 = float(v[0])
            q1 = min(float(v[1]) * float(ndtr(ndtri(q2) + L)), 1.0 - q2)
            return -float(region_probability(region, Trinomial(q1, q2, max(1.0 - q1 - q2, 0.0)), 1e-30))

        bounds = Bounds([1e-9, 1e-9], [1.0 - 1e-9, 1.0])
        return -float(differential_evolution(loss, bounds, seed=0, tol=1e-8, popsize=15, maxiter=300).fun)

    low, high = -4.0, 4.0
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if supremum(middle) <= alpha else (low, middle)
    return low


def votes(options: argparse.Namespace) -> None:
    """Print medians and maxima of exact limits, then the ratio."""
    for margin in MARGINS:
        buehler_lower(7, 1, 10, options.alpha, margin)
    print(f"{'n':>8} {'margin':>12} {'median ms, first':>17} {'again':>9} {'largest ms, first':>18} {'again':>9}")
    typical = 0.0
    for n in options.sizes:
        for margin in MARGINS:
            pairs = mixed_pairs(n, options.pairs if n < 100_000 else max(options.pairs // 3, 1), n)
            first, again = limits_timed(pairs, n, options.alpha, margin), limits_timed(pairs, n, options.alpha, margin)
            medians = f"{np.median(first):17.3f} {np.median(again):9.3f}"
            print(f"{n:8d} {margin:>12} {medians} {max(first):18.3f} {max(again):9.3f}")
    for x1, x2 in mixed_pairs(100, options.optimiser, 1):
        start = time.perf_counter()
        ours = buehler_lower(x1, x2, 100, options.alpha, "quantile")
        middle = time.perf_counter()
        theirs = by_global_optimiser(x1, x2, 100, options.alpha)
        typical = (time.perf_counter() - middle) / (middle - start)
        print(f"n = 100, ({x1}, {x2}): exact {ours:.5f}, global optimiser {theirs:.4f}, {typical:.0f} times slower")


CASES: list[tuple[int, int, MarginKind, float | None]] = [
    (1000, 10, "probability", 3.0),
    (1000, 1000, "probability", 30.0),
    (100_000, 10, "probability", 150.0),
    (1000, 10, "quantile", None),
    (1000, 1000, "quantile", None),
    (100_000, 10, "quantile", None),
]


def scores(_options: argparse.Namespace) -> None:
    """Print wall and processor milliseconds of the limit ``star`` of one input's scores, beside the goal."""
    print(f"{'n':>7} {'m':>5} {'margin':>12} {'wall ms':>9} {'cpu ms':>9} {'goal':>7}")
    for n, m, margin, goal in CASES:
        z = np.random.default_rng(0).normal(size=(n, m)) * 1.5
        z[:, 0] += 3.0 + np.log(m / 10.0)
        rows = softmax(z, axis=1)[None]
        limit_of("star", draws_of(as_scores("scores", rows), 0, 0), 1e-3, margin)
        walls, works = [], []
        for _ in range(7):
            wall, work = time.perf_counter(), time.process_time()
            limit_of("star", draws_of(as_scores("scores", rows), 0, 0), 1e-3, margin)
            walls.append(time.perf_counter() - wall)
            works.append(time.process_time() - work)
        aim = f"{goal:7.0f}" if goal else "      -"
        print(f"{n:>7} {m:>5} {margin:>12} {1e3 * min(walls):9.2f} {1e3 * min(works):9.2f} {aim}")


def best(work: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    """Return the shortest time of several runs."""
    spent = []
    for _ in range(repeat):
        start = clock()
        work()
        spent.append(clock() - start)
    return min(spent)


def digits(images: int) -> tuple[Any, Any]:
    """Return the demo's perceptron and some digits."""
    training, test = digits_split()
    model = train_digits(training.inputs, training.labels, sigma=0.25, seed=0, epochs=20)
    return model, test.inputs[:images]


def on_device(device: str, images: int) -> tuple[Any, Any]:
    """Return a ResNet-110 on a device and random images."""
    return build("resnet110", 10).to(device), np.random.default_rng(0).random((images, 3, 32, 32), dtype=np.float32)


def batches(asked: argparse.Namespace) -> None:
    """Measure one call and a loop of calls, and print a table."""
    if asked.device is None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    model, x = digits(asked.images) if asked.device is None else on_device(asked.device, asked.images)
    clock = time.process_time if asked.device is None else time.perf_counter
    smoothed = buckler.Smoothed(model, sigma=0.25)
    batched = buckler.Smoothed(model, sigma=0.25, batch_size=asked.batch_size)
    together = batched.certify(x, n=asked.n)
    each = [smoothed.certify(point[None], n=asked.n)[0] for point in x]
    alone = best(lambda: [smoothed.certify(point[None], n=asked.n) for point in x], asked.repeat, clock)
    many = best(lambda: batched.certify(x, n=asked.n), asked.repeat, clock)
    same = np.mean([a == b for a, b in zip(together, each, strict=True)])
    print(f"{len(x)} images, n = {asked.n}; equal certificates {same:.3f}")
    print(f"loop of calls    {alone:8.2f} s  {1000 * alone / len(x):8.2f} ms an image")
    print(f"one call         {many:8.2f} s  {1000 * many / len(x):8.2f} ms an image, {alone / many:.1f} times as fast")
    if asked.device is None:
        noise = np.empty((len(x) * asked.n, x.shape[1]), dtype=np.float32)
        generator = np.random.Generator(np.random.Philox(0))
        drawing = best(lambda: generator.standard_normal(dtype=np.float32, out=noise), asked.repeat, clock)
        cuts = range(0, len(noise), 4096)
        running = best(lambda: [model.predict_proba(noise[i : i + 4096]) for i in cuts], asked.repeat, clock)
        print(f"noise and model  {drawing + running:8.2f} s")


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


def start(_options: argparse.Namespace) -> None:
    """Print a line for each program."""
    for name, program in PROGRAMS.items():
        cold, warm = [], []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(seconds(program, folder))
                warm.append(seconds(program, folder))
        print(f"{name:32} cold {min(cold):5.2f} s   warm {min(warm):5.2f} s")


ROWS_A_SECOND = """
import time, torch
from buckler.sampling.architectures import build
network, batch, took = build("resnet110", 10).eval(), torch.rand(64, 3, 32, 32), []
with torch.no_grad():
    network(batch)
    while len(took) < 5 or sum(took) < 5:
        began = time.perf_counter()
        network(batch)
        took.append(time.perf_counter() - began)
print(64 * len(took) / sum(took))
"""


def busy(asked: argparse.Namespace) -> None:
    """Print rows a second alone and beside other programs, with either spin count, and their ratio."""
    for loops in (0, asked.loops):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
        try:
            rates = []
            for spins in (SPINS, "300000"):
                environment = {**os.environ, "GOMP_SPINCOUNT": spins, "OMP_NUM_THREADS": str(usable_cores())}
                program = [sys.executable, "-c", ROWS_A_SECOND]
                done = subprocess.run(program, env=environment, capture_output=True, check=True)  # noqa: S603
                rates.append(float(done.stdout))
        finally:
            for other in others:
                other.kill()
        ours, theirs = rates
        print(
            f"{loops} others: {ours:7,.0f} rows a second; {theirs:7,.0f} with the library's; ratio {ours / theirs:.2f}"
        )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("votes")
    part.set_defaults(measure=votes)
    part.add_argument("--alpha", type=float, default=1e-3)
    part.add_argument("--pairs", type=int, default=40, help="count pairs at each n (fewer from n = 1e5)")
    part.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    part.add_argument("--optimiser", type=int, default=1, help="pairs given to the general-purpose optimiser")
    parts.add_parser("scores").set_defaults(measure=scores)
    part = parts.add_parser("batches")
    part.set_defaults(measure=batches)
    part.add_argument("--images", type=int, default=200)
    part.add_argument("--n", type=int, default=1000)
    part.add_argument("--repeat", type=int, default=3)
    part.add_argument("--batch-size", type=int, default=512, help="of the one call")
    part.add_argument("--device", help="a torch device, for a ResNet-110 in the place of the digits")
    parts.add_parser("start").set_defaults(measure=start)
    part = parts.add_parser("busy")
    part.set_defaults(measure=busy)
    part.add_argument("--loops", type=int, default=usable_cores(), help="programs that take a processor each")
    options = parser.parse_args()
    options.measure(options)


if __name__ == "__main__":
    main()
