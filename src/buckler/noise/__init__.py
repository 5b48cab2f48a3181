"""How noise is drawn, and what a margin under that noise certifies.

A law is a small frozen record that fulfils ``buckler.types.Law``: its name and parameters (JSON, for manifests and
tables), its norm and units, whether its balls are closed, the margins that a radius follows from, ``radius``
(margin -> radius, rounded down), ``margin`` (radius -> the margin it needs, rounded up), ``describe`` (the noise in
words, for the sentence of a certificate), and ``idealised`` (what that sentence leaves out). ``draws`` says how
``sampling`` draws it: from normals (``spread``), from random words (``words``, ``noisy``), or every copy by its number
(``numbered``).

- ``Gaussian(sigma)``: independent normal noise of standard deviation sigma; l2.
- ``GridGaussian(sigma, step)``: the same, rounded to the grid of 8-bit images, say, and exact on it; l2.
- ``Uniform(lam)``: uniform noise on a grid; l1. ``Splitting(lam)``: splitting noise of 8-bit images; l1.
- ``DerandomizedSplitting(lam)``: splitting noise, every offset once, nothing left to chance; l1.
- ``Ablation(keep, pixels)``: all but a few pixels marked as missing; l0.
- ``FirstMarginLaw``: a base for a law of one's own.
- ``named(name, parameters)``: the law that a manifest, a table or an option names; ``text_of(law)``: the other way.

May import: the root modules.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any

from buckler.errors import InvalidInput, check_choice, show
from buckler.noise.ablation import Ablation as Ablation
from buckler.noise.first_margin import FirstMarginLaw as FirstMarginLaw
from buckler.noise.gaussian import Gaussian as Gaussian
from buckler.noise.grid import GridGaussian as GridGaussian
from buckler.noise.splitting import DerandomizedSplitting as DerandomizedSplitting
from buckler.noise.splitting import Splitting as Splitting
from buckler.noise.uniform import Uniform as Uniform
from buckler.types import Law, MarginKind

LAWS: dict[str, type[Any]] = {
    law.name: law for law in (Gaussian, GridGaussian, Uniform, Splitting, DerandomizedSplitting, Ablation)
}
"""Every law by its name in manifests and tables."""


def named(name: str, parameters: Mapping[str, Any]) -> Law:
    """Return a law from its name and its parameters; what is left out has the law's default.

    >>> named("gaussian", {"sigma": 0.25})
    Gaussian(sigma=0.25)
    """
    kind = LAWS[check_choice("law", name, tuple(LAWS))]
    takes = [field.name for field in fields(kind)]
    unfit = [key for key in parameters if key not in takes]
    if unfit:
        raise InvalidInput(f"law {name!r} takes {', '.join(takes)}; got {unfit[0]!r}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in parameters]
    if missing:
        raise InvalidInput(f"law {name!r} takes {', '.join(takes)}, and needs {', '.join(missing)}")
    try:
        law: Law = kind(**parameters)
    except TypeError:
        raise InvalidInput(f"law {name!r} takes numbers for {', '.join(takes)}; got {show(dict(parameters))}") from None
    return law


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters in ``NAME`` or ``NAME:key=value,key=value``; a number may be a fraction.

    >>> parse("grid:step=1/65535,clip=65535")
    ('grid', {'step': 1.5259021896696422e-05, 'clip': 65535})
    """
    name, _, rest = text.partition(":")
    found: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or key in found:
            raise InvalidInput(f"law must be NAME or NAME:key=value,key=value; got {show(text)}")
        found[key] = _number(value)
    return name.strip(), found


def text_of(law: Law, *, sigma: bool = True) -> str:
    """Return a law as ``parse`` reads it, without what has its default, and without its ``sigma`` if that is unwanted.

    >>> text_of(Splitting(2.5)), text_of(GridGaussian(0.25)), text_of(GridGaussian(0.25), sigma=False)
    ('splitting:lam=2.5', 'grid:sigma=0.25', 'grid')
    """
    usual = {f.name: f.default for f in fields(LAWS[law.name])} if law.name in LAWS else {}
    said = {key: value for key, value in law.parameters.items() if sigma or key != "sigma"}
    listed = ",".join(f"{key}={value}" for key, value in said.items() if usual.get(key, MISSING) != value)
    return f"{law.name}:{listed}" if listed else law.name


def _number(text: str) -> Any:
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return text
    return int(number) if number.denominator == 1 and not set(text) & set(".eE/") else float(number)


def settled(sigma: float | None, law: str | None, parameters: Mapping[str, Any] | None = None) -> Law:
    """Return the law of a specification: a sigma alone is Gaussian; what is given twice, or to no law, is refused.

    >>> settled(0.25, "grid:step=1/16")
    GridGaussian(sigma=0.25, step=0.0625, clip=None)
    """
    if law is not None and not isinstance(law, str):
        raise InvalidInput(f"law must be a name; got {show(law)}")
    if parameters is not None and (law is None or not isinstance(parameters, Mapping)):
        raise InvalidInput(f"law_parameters must be a table, for a law that is named; got {show(parameters)}")
    name, said = parse(law or Gaussian.name)
    given: dict[str, Any] = {} if sigma is None else {"sigma": sigma}
    for more in (said, parameters or {}):
        twice = sorted(given.keys() & more.keys())
        if twice:
            raise InvalidInput(f"a parameter of the law must be given once; got {twice[0]} twice")
        given |= more
    return named(name, given)


def default_margin(law: Law) -> MarginKind:
    """Return the first of the margins that a radius of a law follows from."""
    return law.margins[0]


def law_of(sigma: float | None, law: Law | str | None) -> Law:
    """Return the law that a caller gave, by itself or as the sigma of Gaussian noise: exactly one of both.

    A text names one as for the commands.

    >>> law_of(None, "splitting:lam=2.5"), law_of(0.25, "grid:step=1/16")
    (Splitting(lam=2.5), GridGaussian(sigma=0.25, step=0.0625, clip=None))
    """
    if isinstance(law, str):
        return settled(sigma, law)
    if law is not None and (isinstance(law, type) or not hasattr(law, "describe")):
        raise InvalidInput(f"law must be a law of noise, such as noise.Splitting(2.5), or its name; got {show(law)}")
    if (sigma is None) == (law is None):
        raise InvalidInput(f"exactly one of sigma and noise must be given; got {'neither' if law is None else 'both'}")
    return Gaussian(sigma) if law is None else law  # type: ignore[arg-type]


def check_margin(law: Law, margin: MarginKind) -> None:
    """Refuse a margin that no radius of the noise follows from."""
    if margin not in law.margins:
        raise InvalidInput(f"margin must be one that {law.describe()} has a radius for; got {margin!r}")
