"""What the bytes of a run depend on beside its specification: versions, the kind of device, the processor's set."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from buckler.sampling.classifiers import Classifier, EstimatorClassifier
from buckler.sampling.onnx_files import OnnxClassifier


def environment(classifier: Classifier) -> dict[str, str]:
    """Return the versions, the device and the instruction set that a classifier's draws depend on."""
    found = {
        "buckler": _version("buckler"),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "instructions": _instructions(),
        "device": "cpu",
    }
    if classifier.backend == "torch":
        import torch

        found["torch"] = torch.__version__
        found["device"] = classifier.device
        if classifier.device.startswith("cuda"):
            found["device"] = torch.cuda.get_device_name(classifier.device)
        else:
            found["torch instructions"] = torch.backends.cpu.get_cpu_capability()
        if coarse := _coarse_products(torch, classifier.device.startswith("cuda")):
            found["float32 products"] = coarse
    else:
        # A callable may call any of them, so all that are installed count.
        known: dict[type, list[str]] = {OnnxClassifier: ["onnxruntime"], EstimatorClassifier: ["scikit-learn"]}
        for library in known.get(type(classifier), ["onnxruntime", "scikit-learn", "torch"]):
            found[library] = _version(library)
    return found


def _coarse_products(torch: Any, cuda: bool) -> str:
    """Return which products of float32 numbers may keep fewer bits than those have, TF32 say; empty for none."""
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:  # where flags of single backends were set too, there is no one answer
        matmul = (torch.backends.cuda if cuda else torch.backends.mkldnn).matmul.fp32_precision
    coarse = [] if matmul in {"highest", "ieee", "none"} else [f"matmul {matmul}"]
    if cuda and torch.backends.cudnn.allow_tf32:
        coarse.append("convolutions tf32")
    return ", ".join(coarse)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _instructions() -> str:
    """Return the instruction sets of this processor that NumPy's kernels choose between."""
    shown = np.show_config(mode="dicts")
    found = shown.get("SIMD Extensions", {}).get("found", []) if isinstance(shown, dict) else []
    return " ".join(map(str, found)) or "baseline"


def peak_memory() -> int | None:
    """Return the most bytes of a CUDA device that this process has had at once; ``None`` where it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())
