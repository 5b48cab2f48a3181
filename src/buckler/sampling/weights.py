"""Hashes of a model's weights: of the files that it was loaded from, or of an estimator's fitted arrays."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from buckler.files import checksum, parse_json

HEADER = "buckler"
"""The entry of a safetensors file's metadata that says, as JSON, which network the weights belong to."""

_LOCATION = b"\n\x08location\x12"
"""How an ONNX file (a protocol buffer) begins to name a file of weights beside it: the key, then the value's tag."""

_IN_A_FOLDER = {".json", ".safetensors"}
"""What is read from a folder of transformers."""


def weight_files(path: Path) -> dict[str, str]:
    """Return the name and hash of a file of weights and of the files that it names, or of a folder's files of weights.

    Names are relative to the file or folder, so that a model that was moved is still the same.
    """
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in _IN_A_FOLDER and p.is_file())
    else:
        found = [path, *(_external(path) if path.suffix == ".onnx" else [])]
    return {p.relative_to(path if path.is_dir() else path.parent).as_posix(): checksum(p) for p in found}


TREE_ARRAYS = ("children_left", "children_right", "feature", "threshold", "value")
"""Arrays of a scikit-learn decision tree, an extension type whose attributes ``vars`` does not list."""


def fitted_hash(estimator: Any) -> str:
    """Return the hash of all arrays that an estimator holds, in its attributes and in what these hold; no pickle.

    Parameters that are not arrays are left out: they are seen in the model's answers. So is ``cv_results_`` of a
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


def named_architecture(path: Path) -> str | None:
    """Return the architecture that a safetensors file written by this package names, ``None`` where none is named."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        text = (file.metadata() or {}).get(HEADER, "")
    try:
        return str(parse_json(text)["architecture"])
    except (ValueError, TypeError, KeyError):
        return None


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
