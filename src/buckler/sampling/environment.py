"""What the bytes of a run depend on beside its specification: versions of the libraries, and the kind of device."""

import platform
from importlib.metadata import PackageNotFoundError, version

from buckler.sampling.classifiers import Classifier, EstimatorClassifier, OnnxClassifier


def environment(classifier: Classifier) -> dict[str, str]:
    """Return the versions and the device that a classifier's draws depend on."""
    found = {"numpy": version("numpy"), "machine": platform.machine(), "device": "cpu"}
    if classifier.backend == "torch":
        import torch

        found["torch"] = torch.__version__
        if classifier.device.startswith("cuda"):
            found["device"] = torch.cuda.get_device_name(classifier.device)
        else:
            found["device"] = classifier.device
    library = {OnnxClassifier: "onnxruntime", EstimatorClassifier: "scikit-learn"}.get(type(classifier))
    if library is not None:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "unknown"
    return found
