"""A law by its text, the user's own included: ``NAME:key=value,...``, or ``package.module:LAW``."""

from typing import Any

from buckler.errors import InvalidInput, show
from buckler.laws import LAWS, named, parse
from buckler.sampling.models import find_function, modules_here


def law_named(text: str) -> Any:
    """Return a law that lists its copies (``every``, ``points``), from one of ours or from the user's module.

    ``package.module:LAW`` is a class or a function that makes the law without arguments. Its module is found beside the
    user's terminal too, and is run as the program it is.
    """
    if text.partition(":")[0] in LAWS:
        law: Any = named(*parse(text))
    else:
        make = find_function(text, "law")
        with modules_here():
            try:
                law = make()
            except Exception as problem:
                told = show(" ".join(str(problem).split()), 160)
                raise InvalidInput(f"law {text} cannot be made: {type(problem).__name__}: {told}") from problem
    if not hasattr(law, "every") or not hasattr(law, "points"):
        raise InvalidInput(f"law {text} must list its copies to be audited: every(x) and points(); it does not")
    return law
