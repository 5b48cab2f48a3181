"""Settings of the whole test suite: the environment that tests see, their temporary folder, their random numbers."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

# How long one example takes says how loaded the machine is, not whether the code is right.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and so would the commands that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for variable in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE", "COLUMNS"):
    # Tests compare what commands print, and so print as into a file, whatever the user's terminal is.
    os.environ.pop(variable, None)

collect_ignore = [] if find_spec("triton") else ["src/buckler/sampling/kernels.py"]


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give programs that are killed a folder for temporary files that is removed at the end.

    Its path is short, since Ray puts sockets there, whose paths may have 107 characters.
    """
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where it is
    with (
        tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of what only Linux has on other systems."""
    needs = item.get_closest_marker("linux")
    if needs is not None and sys.platform != "linux":
        pytest.skip(f"needs {needs.args[0]}, which only Linux has")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shift-seeds``."""
    parser.addoption("--shift-seeds", type=int, default=0, help="add this to every seed of NumPy's and torch's")


def pytest_configure(config: pytest.Config) -> None:
    """Shift the seeds: a verdict of a test must not rest on the one seed, or version of NumPy, it was written under."""
    shift = int(config.getoption("--shift-seeds"))
    if shift:
        shift_seeds(shift)


def shift_seeds(shift: int) -> None:
    """Make every generator that is seeded with a number from here on start from another."""
    numpy_generator = np.random.default_rng

    def shifted(seed: Any = None) -> np.random.Generator:
        return numpy_generator(seed + 1_000_003 * shift if isinstance(seed, int) else seed)

    np.random.default_rng = shifted
    if find_spec("torch"):
        torch: Any = import_module("torch")
        torch_seed = torch.manual_seed
        torch.manual_seed = lambda seed: torch_seed(seed + 1_000_003 * shift)
