"""How noise is drawn, and what a margin under that noise certifies.

A law is a small frozen record that fulfils ``buckler.types.Law``: its name and parameters (JSON, for manifests and
tables), its norm and units, whether its balls are closed, which kinds of radius follow from which margin, ``radius``
(margin -> radius, rounded down), ``margin`` (radius -> the margin it needs, rounded up) and ``describe`` (the noise in
words, for the sentence of a certificate).

- ``Gaussian(sigma)``: independent normal noise of standard deviation sigma; l2.
- ``Uniform(lam)``: uniform noise on a grid; l1. ``Splitting(lam)``: splitting noise of 8-bit images; l1.
- ``DerandomizedSplitting(lam)``: splitting noise, every offset once, nothing left to chance; l1.
- ``Ablation(keep, pixels)``: all but a few pixels marked as missing; l0.
- ``FirstMarginLaw``: a base for a law of one's own.
- ``named(name, parameters)``: the law that a manifest or a table names.

Drawing on a device is done in ``sampling``, from the parameters.

May import: the root modules.
"""

from collections.abc import Mapping
from typing import Any

from buckler.errors import InvalidInput, check_choice
from buckler.laws.ablation import Ablation as Ablation
from buckler.laws.first_margin import FirstMarginLaw as FirstMarginLaw
from buckler.laws.gaussian import Gaussian as Gaussian
from buckler.laws.splitting import DerandomizedSplitting as DerandomizedSplitting
from buckler.laws.splitting import Splitting as Splitting
from buckler.laws.uniform import Uniform as Uniform
from buckler.types import Law

LAWS = {law.name: law for law in (Gaussian, Uniform, Splitting, DerandomizedSplitting, Ablation)}
"""Every law by its name in manifests and tables."""


def named(name: str, parameters: Mapping[str, Any]) -> Law:
    """Return a law from its name and its parameters.

    >>> named("gaussian", {"sigma": 0.25})
    Gaussian(sigma=0.25)
    """
    law = LAWS[check_choice("law", name, tuple(LAWS))]
    try:
        return law(**parameters)
    except TypeError:
        raise InvalidInput(f"law {name!r} does not take the parameters {sorted(parameters)}") from None


def law_of(sigma: float | None, law: Law | None) -> Law:
    """Return the law that a caller gave, by itself or as the sigma of Gaussian noise: exactly one of both."""
    if (sigma is None) == (law is None):
        raise InvalidInput(f"exactly one of sigma and law must be given; got {'neither' if law is None else 'both'}")
    return Gaussian(sigma) if law is None else law  # type: ignore[arg-type]
