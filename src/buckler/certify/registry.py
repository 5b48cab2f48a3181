"""The registry of methods: from a name to what it computes.

Ours are here from the start. ``register`` adds others: a user's own, and the paper's estimators, which live in a room
that this one does not import. Only sound methods reach a Certificate.
"""

from importlib import import_module
from typing import get_args

from buckler.certify.method import Draws, Method, Reads
from buckler.certify.vote_limits import METHODS
from buckler.errors import InvalidInput, UnsoundMethod, show
from buckler.soundness import SCORES, VOTES, declare_sound
from buckler.types import Limit, MarginKind

EXTENSIONS = ("buckler.paper.methods",)
"""Modules beyond this room whose ``METHODS`` are registered, before a name is called unknown; named, not imported."""

COMBINES = {
    "pairwise": "a limit at level alpha against each other class, and the smallest of them",
    "bonferroni": "a limit at level alpha/m for the mean of each class",
    "margin_variable": "a limit of the mean of X_A - max_j X_j",
}


def _scores_method(name: str) -> Method:
    combine, _, kind = name.partition("/")

    def limit(draws: Draws, alpha: float, margin: MarginKind, **options: object) -> float:
        from buckler.certify.continuous import limit_of  # compiled code, loaded only where it is used

        return limit_of(combine, kind, draws, alpha, margin, **options)  # type: ignore[arg-type]

    return Method(
        name=name,
        reads="scores",
        limit=limit,
        summary=f"{COMBINES[combine]}; limit {kind}",
        sound=True,
        margins=("probability",) if combine == "margin_variable" else get_args(MarginKind),
        parameters={"combine": combine, "limit": kind},
        options=("slope",) if combine == "pairwise" else (),
    )


_METHODS: dict[str, Method] = {method.name: method for method in (*METHODS, *(_scores_method(name) for name in SCORES))}


def register(method: Method) -> Method:
    """Add a method, and return it; a name may be given once.

    Without ``sound=True`` it can be audited, compared and swept, and issues no certificate. With it, whoever registers
    vouches for the proof: its name must begin with ``own:``, and certificates carry that name.
    """
    known = _METHODS.get(method.name)
    if known is not None and known != method:
        raise InvalidInput(f"there is already a method {method.name!r}")
    if method.sound and method.name not in {*VOTES, *SCORES}:
        declare_sound(method.name)
    _METHODS[method.name] = method
    return method


def methods(reads: Reads | None = None) -> tuple[Method, ...]:
    """Return every method, or those that read votes or scores; in the order they were registered."""
    for module in EXTENSIONS:
        for method in import_module(module).METHODS:
            register(method)
    return tuple(method for method in _METHODS.values() if reads in {None, method.reads})


def find(name: str, reads: Reads | None = None) -> Method:
    """Return a method by name: the one place where names are read.

    >>> find("exact").reads, find("pairwise/star").parameters["limit"]
    ('votes', 'star')
    """
    if not isinstance(name, str):
        raise InvalidInput(f"method must be a name; got {show(name)}")
    if name not in _METHODS:
        methods()
    method = _METHODS.get(name)
    if method is not None and reads in {None, method.reads}:
        return method
    votes = ", ".join(repr(known.name) for known in _METHODS.values() if known.reads == "votes")
    scores = f"COMBINE/LIMIT with COMBINE one of {', '.join(COMBINES)} and LIMIT one of {', '.join(get_args(Limit))}"
    allowed = {"votes": f"one of {votes}", "scores": scores, None: f"one of {votes}, or for scores {scores}"}
    raise InvalidInput(f"method must be {allowed[reads]}; got {show(name)}")


def sound_method(name: str, reads: Reads | None = None) -> Method:
    """Return a method by name, refusing one that has no guarantee, by whichever limit it is combined with."""
    refused = UnsoundMethod(f"method {show(name)} has no guarantee and cannot issue a certificate")
    try:
        method = find(name, reads)
    except InvalidInput:
        family = str(name).partition("/")[0]
        if any(not known.sound and known.name.partition("/")[0] == family for known in _METHODS.values()):
            raise refused from None
        raise
    if not method.sound:
        raise refused
    return method


def sound_methods(reads: Reads = "votes") -> tuple[Method, ...]:
    """Return those of our methods that may issue certificates; a user's own are asked for by name."""
    return tuple(method for method in methods(reads) if method.sound and not method.own)
