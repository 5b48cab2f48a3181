"""Which files are not looked at for tests: the kernels, where Triton is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/buckler/sampling/kernels.py"]
