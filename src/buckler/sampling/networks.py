"""Files of weights that this package wrote -> the networks in them. Loads torch."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from buckler.errors import InvalidInput, MissingExtra, show
from buckler.sampling.architectures import Network, build
from buckler.sampling.unet import UNet
from buckler.sampling.weights import HEADER


def load_network(path: Path | str) -> Network:
    """Return the classifier in a weights file: float32, on the CPU, in evaluation mode."""
    header, weights = _read(path)
    if header["architecture"] == "unet":
        raise InvalidInput(f"path must hold a classifier; {path} holds a denoiser")
    network = build(header["architecture"], header["num_classes"])
    _fill(network, weights, header["architecture"], path)
    return network.eval()


def load_denoiser(path: Path | str) -> UNet:
    """Return the denoiser in a weights file: float32, on the CPU, in evaluation mode."""
    header, weights = _read(path)
    if header["architecture"] != "unet":
        raise InvalidInput(f"path must hold a denoiser; {path} holds a classifier, {show(header['architecture'])}")
    network = UNet()
    _fill(network, weights, "unet", path)
    return network.eval()


def _read(path: Path | str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra("safetensors", "torch") from None
    if not Path(path).is_file():
        raise InvalidInput(f"path must be a .safetensors file; nothing is at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(HEADER, "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not readable as safetensors: {error}") from None
    if not isinstance(header, dict) or not {"architecture", "num_classes"} <= header.keys():
        raise InvalidInput(f"{path} must name its architecture and num_classes in the header; it was not written here")
    return header, weights


def _fill(network: nn.Module, weights: dict[str, Tensor], architecture: str, path: Path | str) -> None:
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise InvalidInput(f"{path} does not hold the weights of {architecture}") from None
