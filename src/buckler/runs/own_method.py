"""A method by name, the user's own included: ``package.module:function``, or any name that is registered."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from buckler.certify.method import Method, Reads, own_method
from buckler.certify.registry import find, register
from buckler.sampling.models import find_function, modules_here
from buckler.soundness import OWN


def method_named(name: str, reads: Reads | None = None, *, pairs: bool = False) -> Method:
    """Return the method of a name, if it reads what is asked for.

    ``package.module:function`` is a user's own bound: a function ``(counts, alpha) -> lows`` without a guarantee
    (with ``pairs`` one of ``(top, runner_up, n, alpha)``), or a ``Method`` made in that module, which is registered
    under the name that it gives itself, sound if it says so. Its module is found beside the user's terminal too, and
    is run as the program it is.
    """
    if ":" not in name or name.startswith(OWN):
        return find(name, reads)
    found = find_function(name, "method")
    if isinstance(found, Method):
        return find(register(found).name, reads)
    return own_method(name, _run_here(found), pairs=pairs)


def _run_here(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*given: Any) -> Any:
        with modules_here():
            return function(*given)

    return run
