"""Methods and noises by name, the user's own included: ``package.module:NAME``.

The module is imported, with the working directory on sys.path.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from buckler.certificate import OWN
from buckler.certify.methods import Method, Reads, find, own_method, register
from buckler.errors import InvalidInput
from buckler.noise import NOISES, named, parse
from buckler.sampling.models import errors_in_one_line, find_function, modules_here


def method_named(name: str, reads: Reads | None = None, *, pairs: bool = False) -> Method:
    """Return the method of a name, if it reads what is asked for.

    ``package.module:function`` is a user's own bound: a function ``(counts, alpha) -> lows`` without a guarantee
    (with ``pairs`` one of ``(top, runner_up, n, alpha)``), or a ``Method`` made in that module, which is registered
    under the name that it gives itself, sound if it says so.
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


def noise_named(text: str) -> Any:
    """Return a noise that lists its copies (``every``, ``points``): ours, ``NAME:key=value,...``, or a user's own.

    ``package.module:NOISE`` is a class or a function that makes the noise without arguments.
    """
    if text.partition(":")[0] in NOISES:
        noise: Any = named(*parse(text))
    else:
        make = find_function(text, "noise")
        with errors_in_one_line(f"noise {text} cannot be made"):
            noise = make()
    if not hasattr(noise, "every") or not hasattr(noise, "points"):
        raise InvalidInput(f"noise {text} must list its copies to be audited: every(x) and points(); it does not")
    return noise
