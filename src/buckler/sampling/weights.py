"""Files of weights: their hashes, and the tensors and networks in them. Loads torch only where tensors are read.

Weights are read from safetensors, or by ``torch.load(weights_only=True)``: neither can run a program. The hash of a
model without files, a fitted estimator, is that of the arrays it holds.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, show
from buckler.files import atomic_write, checksum, parse_json

if TYPE_CHECKING:
    from torch import nn

    from buckler.sampling.architectures import Network, UNet

HEADER = "buckler"
"""The entry of a safetensors file's metadata that says, as JSON, which network the weights belong to."""

_LOCATION = b"\n\x08location\x12"
"""Bytes before the name of a file of weights in an ONNX file, a protocol buffer: the key, then the value's tag."""

_IN_A_FOLDER = {".json", ".safetensors"}
"""Endings of the files in a folder of transformers that are hashed."""


def weight_files(path: Path) -> dict[str, str]:
    """Return name -> SHA-256 of the file of weights at ``path`` and the files that it names, or of those in a folder.

    Names are relative to the folder, or to that of the file, so that a model that was moved is still the same.
    """
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in _IN_A_FOLDER and p.is_file())
    else:
        found = [path, *(_external(path) if path.suffix == ".onnx" else [])]
    return {p.relative_to(path if path.is_dir() else path.parent).as_posix(): checksum(p) for p in found}


TREE_ARRAYS = ("children_left", "children_right", "feature", "threshold", "value")
"""Arrays of a scikit-learn decision tree, an extension type whose attributes ``vars`` does not list."""


def fitted_hash(estimator: Any) -> str:
    """Return the SHA-256 of all arrays in a scikit-learn estimator's attributes, and in what these hold; no pickle.

    Parameters that are not arrays are left out, since they show in the model's outputs. So is ``cv_results_`` of a
    search, which holds the seconds of its fits.
    """
    digest, seen = hashlib.sha256(), set[int]()

    def walk(name: str, value: Any) -> None:
        if id(value) in seen or name == "cv_results_":
            return
        inside: list[tuple[str, Any]] = []
        if isinstance(value, np.ndarray) and value.dtype.names:
            inside = [(field, value[field]) for field in value.dtype.names]
        elif isinstance(value, np.ndarray) and value.dtype != object:
            digest.update(f"{name}:{value.dtype.str}{value.shape};".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            inside = [(str(key), item) for key, item in value.items()]
        elif isinstance(value, (list, tuple, np.ndarray)):
            inside = [(name, item) for item in (value.ravel() if isinstance(value, np.ndarray) else value)]
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            inside = sorted(vars(value).items())
        elif all(hasattr(value, array) for array in TREE_ARRAYS):
            inside = [(array, getattr(value, array)) for array in TREE_ARRAYS]
        if inside:
            seen.add(id(value))
        for key, item in inside:
            walk(key, item)

    walk("", estimator)
    return digest.hexdigest()


def _external(path: Path) -> list[Path]:
    """Return the files beside an ONNX file in which it keeps its tensors."""
    _, *rest = path.read_bytes().split(_LOCATION)
    names = {_text(part).decode("utf-8", "surrogateescape") for part in rest}
    beside = (path.parent / name for name in sorted(names) if "\0" not in name and ".." not in Path(name).parts)
    return [p for p in beside if p.is_relative_to(path.parent) and p.is_file()]


def _text(field: bytes) -> bytes:
    """Return a text that follows its length, which is written seven bits at a time."""
    size = shift = at = 0
    while at < len(field):
        size |= (field[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if field[at - 1] < 0x80:
            break
    return field[at : at + size]


def load_network(path: Path | str, architecture: str | None = None, num_classes: int | None = None) -> "Network":
    """Return the network, a classifier, whose weights are in a file: float32, on the CPU, in evaluation mode.

    ``architecture`` is for files that do not name it. ``num_classes`` is by default what the file says, or else the
    number of rows of its last matrix.
    """
    header, tensors = read_weights(Path(path))
    named = _agreed(header, architecture, path)
    if named == "unet":
        raise InvalidInput(f"path must hold a classifier; {path} holds a denoiser")
    matrices = [len(value) for value in tensors.values() if value.dim() == 2]
    classes = num_classes or header.get("num_classes") or (matrices[-1] if matrices else None)
    if classes is None:
        raise InvalidInput(f"weights {str(path)!r} must hold a last linear layer; got none")
    from buckler.sampling.architectures import build

    network = build(named, classes)
    _fill(network, tensors, named, path)
    return network.eval()


def load_denoiser(path: Path | str) -> "UNet":
    """Return the denoiser whose weights are in a file: float32, on the CPU, in evaluation mode."""
    header, tensors = read_weights(Path(path))
    if (named := _agreed(header, None, path)) != "unet":
        raise InvalidInput(f"path must hold a denoiser; {path} holds a classifier, {show(named)}")
    from buckler.sampling.architectures import UNet

    network = UNet()
    _fill(network, tensors, "unet", path)
    return network.eval()


def read_weights(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header, and the tensors by name, of a ``.safetensors`` file or a torch file of tensors alone.

    The header names architecture, number of classes and sigma; it is empty unless this package wrote the file. A prefix
    ``module.`` of the tensors' names is dropped.
    """
    if not path.is_file():
        raise InvalidInput(f"weights must be an existing file; got {str(path)!r}")
    try:
        import torch
        from safetensors import safe_open
    except ImportError as missing:
        raise MissingExtra(missing.name or "torch", "torch") from None
    header: Any = {}
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                header = parse_json((file.metadata() or {}).get(HEADER, "{}"))
                loaded: Any = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise InvalidInput(f"weights {str(path)!r} cannot be read: {show(str(problem), 160)}") from None
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise InvalidInput(f"weights {str(path)!r} must hold tensors by name; got {show(loaded)}")
    if not isinstance(header, dict):
        raise InvalidInput(f"weights {str(path)!r} must have a JSON object as header; got {show(header)}")
    return header, {str(key).removeprefix("module."): value for key, value in loaded.items()}


def save_network(path: Path, network: "nn.Module", *, architecture: str, num_classes: int, sigma: float) -> str:
    """Write the network's weights to a safetensors file, as float16, whole or not at all; return the file's SHA-256.

    ``architecture``, ``num_classes`` and ``sigma``, that of the training, are written to the file's header.
    """
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingExtra("safetensors", "torch") from None
    # One entry, since safetensors writes several in random order: the same weights must give the same checksum.
    header = {HEADER: json.dumps({"architecture": architecture, "num_classes": num_classes, "sigma": sigma})}
    with atomic_write(path) as temporary:
        kept = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        halves = {name: value.half() if value.is_floating_point() else value for name, value in kept.items()}
        temporary.write_bytes(save(halves, metadata=header))
    return checksum(path)


def _agreed(header: dict[str, Any], architecture: str | None, path: Path | str) -> str:
    """Return the architecture that the file or the caller names; where both do, they must agree."""
    named = header.get("architecture", architecture)
    if not isinstance(named, str):
        raise InvalidInput(
            f"weights {str(path)!r} must name an architecture in the header, or be given one; got {show(named)}"
        )
    if architecture not in {None, named}:
        raise InvalidInput(f"weights {str(path)!r} must be those of {architecture}; the file says {show(named)}")
    return named


def _fill(network: "nn.Module", tensors: dict[str, Any], named: str, path: Path | str) -> None:
    try:
        network.load_state_dict(tensors)
    except RuntimeError as problem:
        text = show(" ".join(str(problem).split()), 200)
        raise InvalidInput(f"weights {str(path)!r} do not fit the architecture {named}: {text}") from None
