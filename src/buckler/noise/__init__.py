"""Noise: how copies of an input are drawn, and the radius that a margin under this noise certifies.

Each noise is a frozen record with the members of ``buckler.types.Noise``. ``radius(margin)`` converts a margin to a
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
- ``BaseNoise``: base class for a noise of your own.
- ``noise.sample(batch, generator)``: noisy copies for training, of torch tensors or NumPy arrays; every noise has it.
- ``named(name, parameters)`` makes a noise from its name, ``parse(text)`` reads ``NAME:key=value``, ``text_of(noise)``
  writes it, and ``as_noise(sigma, noise, parameters)`` takes what a caller gave.

May import: the root modules.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any

from buckler.errors import InvalidInput, check_choice, show
from buckler.noise.ablation import Ablation as Ablation
from buckler.noise.base import BaseNoise as BaseNoise
from buckler.noise.gaussian import Gaussian as Gaussian
from buckler.noise.grid import GridGaussian as GridGaussian
from buckler.noise.splitting import DerandomizedSplitting as DerandomizedSplitting
from buckler.noise.splitting import Splitting as Splitting
from buckler.noise.uniform import Uniform as Uniform
from buckler.types import MarginKind, Noise

NOISES: dict[str, type[Any]] = {
    noise.name: noise for noise in (Gaussian, GridGaussian, Uniform, Splitting, DerandomizedSplitting, Ablation)
}
"""Name of a noise in commands, manifests and tables -> its class."""


def named(name: str, parameters: Mapping[str, Any]) -> BaseNoise:
    """Return the noise called ``name`` with these ``parameters``; a parameter that is not given has its default.

    >>> named("gaussian", {"sigma": 0.25})
    Gaussian(sigma=0.25)
    """
    kind = NOISES[check_choice("noise (--noise)", name, tuple(NOISES))]
    takes = [field.name for field in fields(kind)]
    unfit = [key for key in parameters if key not in takes]
    if unfit:
        raise InvalidInput(f"noise (--noise) {name!r} takes the parameters {', '.join(takes)}; got {unfit[0]!r}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in parameters]
    if missing:
        came = ", ".join(parameters) or "none"
        raise InvalidInput(f"noise (--noise) {name!r} needs the parameter {missing[0]}; got {came}")
    try:
        noise: BaseNoise = kind(**parameters)
    except TypeError:
        came = show(dict(parameters))
        raise InvalidInput(f"the parameters of noise (--noise) {name!r} must be numbers; got {came}") from None
    return noise


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a noise written as ``NAME`` or ``NAME:key=value,key=value``.

    A value may be a fraction, such as 1/2. Whether there is such a noise with such parameters, ``named`` checks.

    >>> parse("ablation:keep=75,pixels=1024,mark=-1/2")
    ('ablation', {'keep': 75, 'pixels': 1024, 'mark': -0.5})
    """
    name, _, rest = text.partition(":")
    found: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or key in found:
            raise InvalidInput(
                f"noise (--noise) must be NAME or NAME:key=value,key=value, each value one number; got {show(text)}. "
                "A scale goes into noise_parameters of a --spec file, or into Gaussian(sigma, scale) in Python"
            )
        found[key] = _number(value)
    return name.strip(), found


def text_of(noise: Noise, *, sigma: bool = True) -> str:
    """Return a noise as text that ``parse`` reads; parameters at their defaults, and sigma if False, are left out.

    >>> text_of(Splitting(2.5)), text_of(GridGaussian(0.25)), text_of(GridGaussian(0.25), sigma=False)
    ('splitting:lam=2.5', 'grid:sigma=0.25', 'grid')
    """
    usual = {f.name: f.default for f in fields(NOISES[noise.name])} if noise.name in NOISES else {}
    said = {key: value for key, value in noise.parameters.items() if sigma or key != "sigma"}
    listed = ",".join(f"{key}={value}" for key, value in said.items() if usual.get(key, MISSING) != value)
    return f"{noise.name}:{listed}" if listed else noise.name


def _number(text: str) -> Any:
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return text
    return int(number) if number.denominator == 1 and not set(text) & set(".eE/") else float(number)


def default_margin(noise: Noise) -> MarginKind:
    """Return the kind of margin, probability or quantile, that is used for a noise unless the caller names one."""
    return noise.margins[0]


def as_noise(sigma: float | None, noise: Noise | str | None, parameters: Mapping[str, Any] | None = None) -> BaseNoise:
    """Return the noise that a caller gave: the record ``noise``, the one of that name, or Gaussian noise of ``sigma``.

    A name may carry parameters, as ``parse`` reads them; ``sigma`` and ``parameters`` may add others. Without a name,
    exactly one of ``sigma`` and ``noise`` must be given.

    >>> as_noise(None, "splitting:lam=2.5"), as_noise(0.25, "grid:step=1/16")
    (Splitting(lam=2.5), GridGaussian(sigma=0.25, step=0.0625))
    """
    if parameters is not None and not (isinstance(noise, str) and isinstance(parameters, Mapping)):
        raise InvalidInput(
            f"noise_parameters must be a table of numbers by name, beside the name of a noise; got {show(parameters)}"
        )
    if isinstance(noise, str):
        name, said = parse(noise)
        given: dict[str, Any] = {} if sigma is None else {"sigma": sigma}
        for more in (said, parameters or {}):
            twice = sorted(given.keys() & more.keys())
            if twice:
                raise InvalidInput(f"{twice[0]} must be given once, in sigma, noise or noise_parameters; got it twice")
            given |= more
        return named(name, given)
    if noise is not None and not isinstance(noise, BaseNoise):
        raise InvalidInput(f"noise must be a noise such as noise.Splitting(2.5), or its name; got {show(noise)}")
    if (sigma is None) == (noise is None):
        raise InvalidInput(
            f"exactly one of sigma and noise must be given; got {'neither' if noise is None else 'both'}"
        )
    return Gaussian(sigma) if noise is None else noise  # type: ignore[arg-type]  # one of both is given


def check_margin(noise: Noise, margin: MarginKind) -> None:
    """Raise InvalidInput unless ``noise`` has a radius for this kind of margin, probability or quantile."""
    if margin not in noise.margins:
        allowed = " or ".join(map(repr, noise.margins))
        raise InvalidInput(f"margin must be {allowed} under {noise.describe()}; got {margin!r}")
