"""Connecting to a Ray cluster, or starting one here: loopback alone, with a token, and without a word on stdout."""

import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from buckler.errors import InvalidInput, MissingExtra, StoreError, WorkerLost

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # What Ray has to say of the cluster's errors it prints on stdout, which is ours; lines that match are left out.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",
}


ENDED = "Ray's own process on this machine (the raylet) has ended; what was finished is kept"

_MADE: list[str] = []
"""The token made by this process, if any: Ray's library reads it once, so all clusters started here share it."""

_WATCH = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.SIG_IGN)
if not sys.stdin.buffer.read():
    mark = ("RAY_AUTH_TOKEN=" + os.environ.get("RAY_AUTH_TOKEN", "")).encode()
    for name in os.listdir("/proc") if sys.argv[2] == "own" and os.path.isdir("/proc") else ():
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if int(name) != os.getpid() and mark in file.read().split(bytes(1)):
                    os.kill(int(name), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    sys.stderr.write(sys.argv[1])
"""


class Watch:
    """A process beside this one that says what happened if Ray ends this one without a word.

    Ray's library does so, with exit code 1, when it finds its store gone before we find the raylet gone. Of a Ray that
    was started here, known by its token, what is left is ended too (where there is a /proc to find it).
    """

    def __init__(self, *, started_here: bool) -> None:
        """Start to watch: the pipe ends with this process, however that ends."""
        own = started_here and os.environ.get("RAY_AUTH_TOKEN") in _MADE
        words = f"buckler: error: {ENDED}; or this process was killed\n"
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-c", _WATCH, words, "own" if own else "theirs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """End it: this process is well."""
        if self._process.poll() is None:
            self._process.communicate(b".")


def connect(address: str | None, workers: int | None) -> Any:
    """Return the ray module, connected to the cluster at an address or to one started here."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    here: dict[str, Any] = {"address": address}
    if address is None:
        # Read at import: without it Ray replaces 127.0.0.1 by the machine's own address and listens to the network.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Other users of this machine reach loopback too. A token of our own needs no file in the home folder.
        os.environ["RAY_AUTH_MODE"] = "token"
        if "RAY_AUTH_TOKEN" not in os.environ:
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            _MADE.append(os.environ["RAY_AUTH_TOKEN"])
        count = workers or os.cpu_count() or 1
        here = {"address": "local", "num_cpus": count, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        here["_system_config"] = {"health_check_period_ms": 1000}  # a raylet that ended is missed after five of these
    try:
        with _signals_kept():
            import ray
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _signals_kept():
            ray.init(**here, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as problem:
        reason = " ".join(str(problem).split())[:300]
        if address is None:
            raise StoreError(f"Ray cannot be started here: {reason}") from None
        raise InvalidInput(f"address must be that of a running Ray cluster; {address!r} gave: {reason}") from None
    return ray


def check_node(ray: Any, node: str) -> None:
    """Raise if the node through which this process talks to the cluster is gone: nothing would ever come again."""
    if not any(found["NodeID"] == node and found["Alive"] for found in ray.nodes()):
        raise WorkerLost(ENDED)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put the handler of SIGTERM back: Ray brings its own, which would end the process without a word."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
