"""An interrupt in its place: before a chosen line of a chosen function."""

import sys
from collections.abc import Callable
from typing import Any


def interrupted(call: Callable[[], object], function: Callable[..., object], line: int) -> bool:
    """Make a call, with an interrupt before the n-th line that ``function`` runs in it; return whether it came."""
    left, before, code = line, sys.gettrace(), function.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        left -= event == "line"
        if left == 0:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
