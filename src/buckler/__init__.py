"""Certify classifiers by randomized smoothing.

This file is the index of the public names and nothing else; each name is loaded from its room when first used,
so that ``import buckler`` stays quick and loads neither torch nor numba nor matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buckler import compat as compat
    from buckler import noise as noise
    from buckler.certificate import Certificate as Certificate
    from buckler.certificate import Refutation as Refutation
    from buckler.certificates import Certificates as Certificates
    from buckler.certify.scores import certify_scores as certify_scores
    from buckler.certify.settings import Softmax as Softmax
    from buckler.certify.settings import Sparsemax as Sparsemax
    from buckler.certify.votes import certify_votes as certify_votes
    from buckler.errors import BucklerError as BucklerError
    from buckler.errors import BucklerWarning as BucklerWarning
    from buckler.errors import InvalidInput as InvalidInput
    from buckler.errors import UnsoundMethod as UnsoundMethod
    from buckler.evaluate.attacks import DecoupledAttack as DecoupledAttack
    from buckler.evaluate.attacks import PGDAttack as PGDAttack
    from buckler.evaluate.conformal import RobustConformal as RobustConformal
    from buckler.evaluate.population import PopulationAccuracy as PopulationAccuracy
    from buckler.evaluate.population import population_accuracy as population_accuracy
    from buckler.routed import Routed as Routed
    from buckler.sampling.classifiers import Normalized as Normalized
    from buckler.sampling.denoised import Denoised as Denoised
    from buckler.smoothed import Smoothed as Smoothed

__version__ = "0.2.0"

_ROOMS = ("compat", "noise")
_HOME = {
    "BucklerError": "errors",
    "BucklerWarning": "errors",
    "Certificate": "certificate",
    "Certificates": "certificates",
    "DecoupledAttack": "evaluate.attacks",
    "Denoised": "sampling.denoised",
    "InvalidInput": "errors",
    "Normalized": "sampling.classifiers",
    "PGDAttack": "evaluate.attacks",
    "PopulationAccuracy": "evaluate.population",
    "Refutation": "certificate",
    "RobustConformal": "evaluate.conformal",
    "Routed": "routed",
    "Smoothed": "smoothed",
    "Softmax": "certify.settings",
    "Sparsemax": "certify.settings",
    "UnsoundMethod": "errors",
    "certify_votes": "certify.votes",
    "certify_scores": "certify.scores",
    "population_accuracy": "evaluate.population",
}

__all__ = ["__version__", *_ROOMS, *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"buckler.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'buckler' has no attribute {name!r}")
    return getattr(import_module(f"buckler.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
