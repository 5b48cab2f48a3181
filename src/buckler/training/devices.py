"""Where a network is trained: the choice of device, what it can do, and the streams of random draws on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from buckler.errors import InvalidInput, show
from buckler.types import AnyArray

STATISTICS, EVALUATION = 2**32, 2**32 + 1
"""Streams beside those of the epochs 0, 1, ..."""


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in {"cpu", "cuda"}:
        raise InvalidInput(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N'; got {show(name)}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidInput(f"device must be one of the {torch.cuda.device_count()} CUDA devices here; got {show(name)}")
    return device


def may_compile(device: torch.device, asked: bool | None) -> bool:
    """Return whether to compile the network; asking for it where it cannot be done is an error."""
    possible = device.type == "cuda" and find_spec("triton") is not None
    if asked and not possible:
        raise InvalidInput(f"compile must be off on {device} here: it needs a CUDA device and the package triton")
    return possible if asked is None else asked


def place(images: AnyArray, device: torch.device) -> Tensor:
    """Return the images as a tensor on the device, or in the host's memory where they would fill half of the device."""
    tensor = torch.from_numpy(images)
    if device.type == "cuda" and tensor.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return tensor
    return tensor.to(device)


def stream(device: torch.device, *numbers: int) -> torch.Generator:
    """Return a fresh generator of draws that depend on the numbers alone: the seed, then what the draws are for."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0]))


@contextmanager
def tuned() -> Iterator[None]:
    """Let cuDNN try its convolutions and keep the fastest while shapes stay the same; put the switch back after."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def describe(device: torch.device) -> str:
    """Return the device in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
