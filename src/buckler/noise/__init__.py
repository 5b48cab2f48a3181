"""Noise: how copies of an input are drawn, and the radius that a margin under this noise certifies.

Each noise is a frozen record with the members of ``buckler.types.Law``. ``radius(margin)`` converts a margin to a
certified radius, rounded down; ``margin(radius)`` returns the margin that a radius needs, rounded up. ``norm``,
``units``, ``holds_at`` and ``closed`` name the ball, ``describe()`` the noise, ``idealised`` what a certificate leaves
out: the sentence of a certificate is made of them. ``draws`` says how ``sampling`` makes copies: from normal numbers
(``spread``), from random words (``words``, ``noisy``), or all copies by their numbers (``numbered``).

- ``Gaussian(sigma)``: normal noise of standard deviation sigma; l2.
- ``GridGaussian(sigma, step)``: normal noise rounded to the grid of the inputs, such as 8-bit images; l2.
- ``Uniform(lam)``: uniform noise on a grid; l1.
- ``Splitting(lam)``: splitting noise of 8-bit images; l1.
- ``DerandomizedSplitting(lam)``: splitting noise whose copies are enumerated, so that alpha is 0; l1.
- ``Ablation(keep, pixels)``: hides all but a few pixels; l0.
- ``FirstMarginLaw``: base class for a noise of your own.
- ``named(name, parameters)`` makes a noise from its name, ``parse(text)`` reads ``NAME:key=value``, ``text_of(noise)``
  writes it, and ``law_of(sigma, noise)`` takes what a caller gave.

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
"""The noises by their names in commands, manifests and tables."""


def named(name: str, parameters: Mapping[str, Any]) -> Law:
    """Return the noise of this name with these parameters; others have their defaults.

    >>> named("gaussian", {"sigma": 0.25})
    Gaussian(sigma=0.25)
    """
    kind = LAWS[check_choice("noise (--law)", name, tuple(LAWS))]
    takes = [field.name for field in fields(kind)]
    unfit = [key for key in parameters if key not in takes]
    if unfit:
        raise InvalidInput(f"noise (--law) {name!r} takes the parameters {', '.join(takes)}; got {unfit[0]!r}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in parameters]
    if missing:
        came = ", ".join(parameters) or "none"
        raise InvalidInput(f"noise (--law) {name!r} needs the parameter {missing[0]}; got {came}")
    try:
        law: Law = kind(**parameters)
    except TypeError:
        came = show(dict(parameters))
        raise InvalidInput(f"the parameters of noise (--law) {name!r} must be numbers; got {came}") from None
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
            raise InvalidInput(f"noise (--law) must be NAME or NAME:key=value,key=value; got {show(text)}")
        found[key] = _number(value)
    return name.strip(), found


def text_of(law: Law, *, sigma: bool = True) -> str:
    """Return a noise as text that ``parse`` reads, without defaults; ``sigma=False`` leaves sigma out too.

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


def noise_from_spec(sigma: float | None, law: str | None, parameters: Mapping[str, Any] | None = None) -> Law:
    """Return the noise that a specification names; sigma alone is Gaussian noise.

    >>> noise_from_spec(0.25, "grid:step=1/16")
    GridGaussian(sigma=0.25, step=0.0625, clip=None)
    """
    if law is not None and not isinstance(law, str):
        raise InvalidInput(f"law must be the name of a noise; got {show(law)}")
    if parameters is not None and (law is None or not isinstance(parameters, Mapping)):
        raise InvalidInput(f"law_parameters must be a table, and law be given; got {show(parameters)}")
    name, said = parse(law or Gaussian.name)
    given: dict[str, Any] = {} if sigma is None else {"sigma": sigma}
    for more in (said, parameters or {}):
        twice = sorted(given.keys() & more.keys())
        if twice:
            raise InvalidInput(f"{twice[0]} must be given once, in sigma, law or law_parameters; got it twice")
        given |= more
    return named(name, given)


def default_margin(law: Law) -> MarginKind:
    """Return the margin that is used unless the caller names one: the first of the noise."""
    return law.margins[0]


def law_of(sigma: float | None, law: Law | str | None) -> Law:
    """Return the noise that a caller gave: a record, its name as in commands, or the sigma of Gaussian noise.

    >>> law_of(None, "splitting:lam=2.5"), law_of(0.25, "grid:step=1/16")
    (Splitting(lam=2.5), GridGaussian(sigma=0.25, step=0.0625, clip=None))
    """
    if isinstance(law, str):
        return noise_from_spec(sigma, law)
    if law is not None and (isinstance(law, type) or not hasattr(law, "describe")):
        raise InvalidInput(f"noise must be a noise such as noise.Splitting(2.5), or its name; got {show(law)}")
    if (sigma is None) == (law is None):
        raise InvalidInput(f"exactly one of sigma and noise must be given; got {'neither' if law is None else 'both'}")
    return Gaussian(sigma) if law is None else law  # type: ignore[arg-type]


def check_margin(law: Law, margin: MarginKind) -> None:
    """Raise InvalidInput for a margin that the noise has no radius for."""
    if margin not in law.margins:
        raise InvalidInput(f"margin must be one that {law.describe()} has a radius for; got {margin!r}")
