"""Time and peak memory on a CPU beside the Adversarial Robustness Toolbox, each in an environment of its own.

    python benchmarks/art_cpu.py --art /path/to/python/with/art

Both certify the same images on the same small convolutional network with the same number of draws, one process each;
ART by ``PyTorchRandomizedSmoothing.certify``, ours by drawing the votes that a certificate needs. Peak memory is that
of the process; its growth from n = 1,000 to n = 100,000 draws is what matters. The growth of ART at 100,000 draws is
gigabytes, so it is measured at ``--art-large`` draws.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, os, resource, sys, time
import numpy as np
import torch
from torch import nn
which, n, images, threads = sys.argv[1], *map(int, sys.argv[2:5])
torch.set_num_threads(threads)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(32 * 36, 10),
).eval()
x = np.random.default_rng(0).random((images, 3, 28, 28), dtype=np.float32)
if which == "art":
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    smoothed = PyTorchRandomizedSmoothing(
        model=net, loss=nn.CrossEntropyLoss(), input_shape=(3, 28, 28), nb_classes=10, clip_values=(0, 1),
        sample_size=100, scale=0.25, alpha=0.001, device_type="cpu",
    )
    def work(x, n):
        smoothed.certify(x, n=n, batch_size=256)
else:
    from buckler.sampling.classifiers import as_classifier
    from buckler.sampling.engine import Engine
    def work(x, n):
        ids = [str(i) for i in range(len(x))]
        engine = Engine(as_classifier(net, num_classes=10), sigma=0.25, batch_size=256)
        with engine.session():
            for stream, draws in (("selection", 100), ("estimation", n)):
                engine.votes(x, ids, stream, draws)
work(x[:1], 200)
start, used = time.perf_counter(), time.process_time()
work(x, n)
seconds, used = time.perf_counter() - start, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "cpu": used, "peak_mb": peak}))
"""


def measure(python: str, which: str, n: int, images: int, threads: int) -> dict[str, float]:
    """Return the seconds by the clock and of the processor, and the peak memory in MB, of one process."""
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if which == "ours":
        environment["PYTHONPATH"] = source
    command = [python, "-c", WORKER, which, str(n), str(images), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SystemExit(f"{which} failed:\n{done.stderr[-2000:]}")
    return {key: float(value) for key, value in json.loads(done.stdout.strip().splitlines()[-1]).items()}


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--art", help="python of an environment with adversarial-robustness-toolbox 1.20 and torch")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--large", type=int, default=100_000, help="draws at which the growth of memory is measured")
    parser.add_argument("--art-large", type=int, default=20_000, help="the same for ART")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="the best of this many timings is shown, for both")
    options = parser.parse_args()
    pairs = [("ours", sys.executable, options.large)]
    if options.art:
        pairs.append(("art", options.art, options.art_large))
    print(f"small network, 3 x 28 x 28, {options.images} images, {options.threads} threads")
    print(f"{'':<6}{'n':>9}{'seconds':>10}{'CPU s':>8}{'draws/s':>12}{'peak MB':>10}{'growth MB, one image':>34}")
    best: dict[str, dict[str, float]] = {}
    for which, python, large in pairs:
        runs = [measure(python, which, options.n, options.images, options.threads) for _ in range(options.repeat)]
        best[which] = {key: min(run[key] for run in runs) for key in runs[0]}
        small_peak = measure(python, which, options.n, 1, options.threads)["peak_mb"]
        growth = measure(python, which, large, 1, options.threads)["peak_mb"] - small_peak
        seconds, used, peak = (best[which][key] for key in ("seconds", "cpu", "peak_mb"))
        rate = options.images * (options.n + 100) / seconds
        text = f"{growth:.0f} from n {options.n:,} to {large:,}"
        print(f"{which:<6}{options.n:>9,}{seconds:>10.3f}{used:>8.3f}{rate:>12,.0f}{peak:>10.0f}{text:>34}")
    if "art" in best:
        clock, used = (best["art"][key] / best["ours"][key] for key in ("seconds", "cpu"))
        print(f"ours is {clock:.2f} times as fast by the clock, {used:.2f} times by processor time")


if __name__ == "__main__":
    main()
