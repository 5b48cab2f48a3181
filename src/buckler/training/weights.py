"""Networks on disk: float16 safetensors, with what is needed to rebuild the network in the header."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from buckler.errors import BucklerError, InvalidInput, MissingExtra, show
from buckler.files import atomic_write, checksum
from buckler.sampling.architectures import Network, build
from buckler.sampling.weights import HEADER
from buckler.training.unet import UNet


def round_to_half(network: nn.Module) -> None:
    """Round every float weight and buffer to the nearest float16, in place: what will be saved is what is measured."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.half().to(value.dtype))
                if not torch.isfinite(value).all():
                    raise BucklerError(f"{name} does not fit float16; the training has diverged")


def save_network(path: Path, network: nn.Module, *, architecture: str, num_classes: int, sigma: float) -> str:
    """Write the weights as float16, whole or not at all, and return the file's sha256."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingExtra("safetensors", "torch") from None
    # One entry, since safetensors writes several in random order: the same weights must give the same checksum.
    header = {HEADER: json.dumps({"architecture": architecture, "num_classes": num_classes, "sigma": sigma})}
    with atomic_write(path) as temporary:
        kept = {name: _half(value) for name, value in network.state_dict().items()}
        temporary.write_bytes(save(kept, metadata=header))
    return checksum(path)


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


def _half(value: Tensor) -> Tensor:
    kept = value.detach().cpu().contiguous()
    return kept.half() if kept.is_floating_point() else kept
