"""How far the answers of one network lie apart in different arithmetic: the reason of ``sampling.probe.CLOSE``.

    python benchmarks/probe_distance.py models/*.safetensors

Prints, for each network, the largest difference of a logit from float32 on the CPU, as a share of the largest logit,
over the batch that a run would ask (noise around random images at sigma 0.25).
"""

import sys
from pathlib import Path

import numpy as np
import torch

from buckler.noise import Gaussian
from buckler.sampling.classifiers import Dtype
from buckler.sampling.models import resolve_model
from buckler.sampling.probe import INPUTS, Answers, Probe

WAYS: tuple[tuple[str, Dtype, bool], ...] = (
    ("cpu", "float32", True), ("cpu", "bfloat16", False), ("cpu", "float16", False), ("cuda", "float32", False),
    ("cuda", "float32", True), ("cuda", "bfloat16", False), ("cuda", "float16", False),
)  # fmt: skip


def main() -> None:
    """Print one line for each network and way to run it; the last column is the threads, or whether TF32 is on."""
    x = np.random.default_rng(0).random((INPUTS, 3, 32, 32)).astype(np.float32)
    probe = Probe(tuple(map(str, range(INPUTS))), x, Gaussian(0.25), 10, 0, 256)
    for path in map(Path, sys.argv[1:]):
        reference = ask(probe, path, "cpu", "float32")
        for device, dtype, flag in WAYS:
            if device == "cuda" and not torch.cuda.is_available():
                continue
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = flag
            torch.set_num_threads(1 if flag else 2)
            apart = reference.distance(ask(probe, path, device, dtype))[0]
            share = apart / float(np.abs(reference.logits).max())
            print(f"{path.stem:<34} {device:<5} {dtype:<9} {flag!s:<6} {share:.2e}")


def ask(probe: Probe, path: Path, device: str, dtype: Dtype) -> Answers:
    """Return the answers of a network run in this way."""
    return probe.ask(resolve_model(f"resnet110:{path}", device=device, dtype=dtype))


if __name__ == "__main__":
    main()
