"""A hash that changes when a classifier or a data set does.

Values are hashed by what they hold: array bytes with dtype and shape, file bytes, the attributes of an object, the
source text of a function with what it closes over and the constants and neighbours it names. Nothing is serialised, so
nothing needs to be trusted. What a function reads in other ways (files, other modules) is out of sight.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from buckler.errors import InvalidInput

_DEEPEST = 40


def fingerprint(kind: str, *values: object) -> str:
    """Return ``kind:hash`` of the values.

    >>> fingerprint("array", np.arange(3)) == fingerprint("array", np.arange(3))
    True
    >>> fingerprint("array", np.arange(3)) == fingerprint("array", np.arange(3.0))
    False
    """
    digest = hashlib.blake2b(digest_size=20)
    for value in values:
        _feed(digest.update, value, _DEEPEST, set())
    return f"{kind}:{digest.hexdigest()}"


def _feed(write: Callable[[bytes], None], value: Any, depth: int, above: set[int]) -> None:
    """Write a value, each with its type before it and containers with their length, so that no two look alike."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    write(f"<{name}>".encode())
    if depth == 0:
        raise InvalidInput(f"the model is nested more than {_DEEPEST} levels deep and cannot be fingerprinted")
    if id(value) in above:
        write(b"cycle")
        return
    inside = above | {id(value)}
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic, np.dtype)):
        write(repr(value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, np.ndarray) and value.dtype != object:
        write(f"{value.dtype.str}{value.shape}".encode())
        write(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Path):
        _feed_file(write, value)
    elif isinstance(value, Mapping):
        write(str(len(value)).encode())
        for key in sorted(value, key=repr):
            _feed(write, key, depth - 1, inside)
            _feed(write, value[key], depth - 1, inside)
    elif isinstance(value, (set, frozenset)):
        _feed(write, sorted(value, key=repr), depth - 1, inside)
    elif isinstance(value, (list, tuple, np.ndarray)):
        write(str(len(value)).encode())
        for item in value:
            _feed(write, item, depth - 1, inside)
    elif isinstance(value, np.random.RandomState):
        _feed(write, value.get_state(), depth - 1, inside)
    elif isinstance(value, (ModuleType, type)) or inspect.isbuiltin(value):
        write(getattr(value, "__qualname__", value.__name__).encode())
    elif inspect.ismethod(value):
        _feed(write, value.__func__, depth - 1, inside)
        _feed(write, value.__self__, depth - 1, inside)
    elif inspect.isfunction(value):
        _feed_function(write, value, depth, inside)
    else:
        _feed_object(write, value, depth, inside)


def _feed_function(write: Callable[[bytes], None], value: FunctionType, depth: int, inside: set[int]) -> None:
    """Write a function's source, what it closes over, and the arrays, numbers and functions it reads by name."""
    write(f"{value.__module__}.{value.__qualname__}".encode())
    try:
        write(inspect.getsource(value).encode("utf-8", "surrogatepass"))
    except (OSError, TypeError):
        write(value.__code__.co_code)
    _feed(write, value.__defaults__, depth - 1, inside)
    _feed(write, [cell.cell_contents for cell in value.__closure__ or ()], depth - 1, inside)
    named = {name: value.__globals__.get(name) for name in value.__code__.co_names}
    here = (bool, int, float, str, tuple, np.ndarray)
    read = {k: v for k, v in named.items() if isinstance(v, here) or (inspect.isfunction(v) and _is_near(v, value))}
    _feed(write, read, depth - 1, inside)


def _is_near(one: FunctionType, other: FunctionType) -> bool:
    return one.__module__ == other.__module__


def _feed_object(write: Callable[[bytes], None], value: Any, depth: int, inside: set[int]) -> None:
    call = inspect.getattr_static(type(value), "__call__", None)
    if inspect.isfunction(call) and not hasattr(value, "state_dict"):
        _feed(write, call, depth - 1, inside)
    if callable(getattr(value, "fingerprint", None)):
        write(value.fingerprint().encode())
    elif hasattr(value, "state_dict"):
        _feed(write, {k: _as_array(v) for k, v in value.state_dict().items()}, depth - 1, inside)
    elif type(value).__module__.startswith("torch") and hasattr(value, "detach"):
        _feed(write, _as_array(value), depth - 1, inside)
    elif hasattr(value, "__dict__") and vars(value):
        _feed(write, vars(value), depth - 1, inside)
    else:
        # Compiled objects (a scikit-learn tree) hold their arrays out of sight; their state is what they copy by.
        state = value.__reduce_ex__(2)
        _feed(write, state[1:3], depth - 1, inside)


def _as_array(value: Any) -> Any:
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu().contiguous()
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.numpy()
    import torch

    return ["bfloat16", tensor.view(torch.int16).numpy()]  # NumPy has no bfloat16


def _feed_file(write: Callable[[bytes], None], path: Path) -> None:
    write(str(path.stat().st_size).encode())
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            write(piece)
