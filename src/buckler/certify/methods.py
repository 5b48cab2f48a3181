"""The registry of methods, and the doors from evidence to certificates.

A ``Method`` is a name, what it does in a line, and whether it is sound. Only sound methods reach a Certificate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args, overload

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.certify.radii import FOLLOWS_FROM, default_radius, radius_from_margin
from buckler.certify.ties import tie_breaker
from buckler.errors import (
    InvalidInput,
    UnsoundMethod,
    check_alpha,
    check_choice,
    check_counts,
    check_label,
    check_positive,
    first_repeated,
    show,
)
from buckler.records import Certificate, MarginBound
from buckler.types import AnyArray, ArrayLike, DiscreteMethod, IntArray, MarginKind, RadiusKind


@dataclass(frozen=True, slots=True)
class Method:
    """A way from evidence to a margin's lower limit."""

    name: DiscreteMethod
    summary: str
    sound: bool = True


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("exact", "Buehler's limit under the likelihood-ratio ordering of outcomes: the tightest"),
        Method("bonferroni", "Clopper-Pearson at alpha/2 for the class and alpha/2 for the runner-up"),
        Method("bonferroni_all", "Clopper-Pearson at alpha/m for every class"),
        Method("top_class", "Clopper-Pearson at alpha for the class alone"),
        Method("published", "the paper's Algorithms 4 and 6 as printed, for reproduction alone", sound=False),
    )
}


def sound_methods() -> tuple[Method, ...]:
    """Return the methods that may issue certificates, in registry order."""
    return tuple(method for method in METHODS.values() if method.sound)


def sound_method(name: str) -> Method:
    """Return a registered method by name, refusing one that has no guarantee."""
    method = METHODS[check_choice("method", name, tuple(METHODS))]
    if not method.sound:
        raise UnsoundMethod(f"method {name!r} has no guarantee and cannot issue a certificate")
    return method


@overload
def certify_counts(
    counts: Sequence[int],
    *,
    sigma: float,
    alpha: float = ...,
    label: int | None = ...,
    selection: ArrayLike | None = ...,
    margin: MarginKind = ...,
    method: str = ...,
    radius: RadiusKind | None = ...,
    ids: Sequence[str] | None = ...,
    tie_seed: int | None = ...,
) -> Certificate: ...


@overload
def certify_counts(
    counts: Sequence[Sequence[int]],
    *,
    sigma: float,
    alpha: float = ...,
    label: ArrayLike | None = ...,
    selection: ArrayLike | None = ...,
    margin: MarginKind = ...,
    method: str = ...,
    radius: RadiusKind | None = ...,
    ids: Sequence[str] | None = ...,
    tie_seed: int | None = ...,
) -> list[Certificate]: ...


@overload
def certify_counts(
    counts: AnyArray,
    *,
    sigma: float,
    alpha: float = ...,
    label: ArrayLike | None = ...,
    selection: ArrayLike | None = ...,
    margin: MarginKind = ...,
    method: str = ...,
    radius: RadiusKind | None = ...,
    ids: Sequence[str] | None = ...,
    tie_seed: int | None = ...,
) -> Certificate | list[Certificate]: ...


def certify_counts(
    counts: ArrayLike,
    *,
    sigma: float,
    alpha: float = 1e-3,
    label: ArrayLike | None = None,
    selection: ArrayLike | None = None,
    margin: MarginKind = "quantile",
    method: str = "exact",
    radius: RadiusKind | None = None,
    ids: Sequence[str] | None = None,
    tie_seed: int | None = None,
) -> Certificate | list[Certificate]:
    """Return the certificate of counts ``[m]``, or a list of them for counts ``[inputs, m]``.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind ``counts``. The
    certified class is ``label``, fixed beforehand, or the top class of ``selection``, counts of *separate* draws; it
    is never read off ``counts``, which would fail with probability up to 1.8 alpha.

    ``radius`` is R2 for the quantile margin; for the probability margin R1+ (the default) or R1. ``tie_seed`` asks for
    the randomised form of ``exact``: ties between outcomes are broken by one uniform number for each input, made from
    the seed and the input's id (so give ``ids``) and recorded in the certificate. Fix it before looking at the counts.

    >>> certify_counts([100, 0, 0], sigma=0.25, alpha=1e-3, label=0, method="top_class").radius
    0.3751187560301544
    """
    values = check_counts("counts", counts)
    batch = np.atleast_2d(values)
    chosen, n0 = _certified_class(values, label, selection)
    names = _names(ids, len(batch))
    check_positive("sigma", sigma)
    check_alpha(alpha)
    check_choice("margin", margin, get_args(MarginKind))
    rule = sound_method(method)
    kind = default_radius(margin) if radius is None else check_choice("radius", radius, get_args(RadiusKind))
    if FOLLOWS_FROM[kind] != margin:
        raise InvalidInput(f"radius {kind!r} follows from the {FOLLOWS_FROM[kind]} margin; got margin {margin!r}")

    rows = np.arange(len(batch))
    others = batch.copy()
    others[rows, chosen] = -1
    uniforms = None if tie_seed is None else [tie_breaker(tie_seed, name) for name in names]
    lows = margin_lower(
        batch[rows, chosen],
        others.max(axis=1),
        batch.sum(axis=1),
        alpha=alpha,
        margin=margin,
        method=rule.name,
        num_classes=batch.shape[1],
        uniform=uniforms,
    )
    # Python numbers all at once, and one bound for all inputs that share it: a million inputs are not rare.
    bounds = {low: MarginBound(kind=margin, low=low, alpha=alpha, method=rule.name) for low in set(lows.tolist())}
    each = zip(names, lows.tolist(), chosen.tolist(), batch.sum(axis=1).tolist(), n0.tolist(), strict=True)
    certificates = [
        certificate_from_bound(
            bounds[low],
            id=name,
            label=label_,
            sigma=sigma,
            radius=kind,
            n=n,
            n0=selected,
            uniform=None if uniforms is None else uniforms[i],
        )
        for i, (name, low, label_, n, selected) in enumerate(each)
    ]
    return certificates if values.ndim == 2 else certificates[0]


def certificate_from_bound(
    bound: MarginBound,
    *,
    id: str,  # noqa: A002  (the record's own name for it)
    label: int,
    sigma: float,
    radius: RadiusKind,
    n: int,
    n0: int,
    uniform: float | None = None,
) -> Certificate:
    """Return what a sound margin bound certifies for discrete votes; an abstention if it is not positive."""
    certified = radius_from_margin(bound.low, sigma, radius)
    return Certificate(
        id=id,
        predicted=label if certified > 0.0 else None,
        radius=certified,
        radius_kind=radius,
        margin_kind=bound.kind,
        margin=bound.low,
        alpha=bound.alpha,
        n=n,
        n0=n0,
        sigma=float(sigma),
        map="hardmax",
        temperature=None,
        method=bound.method,
        sound=bound.sound,
        uniform=uniform,
    )


def _certified_class(
    counts: IntArray, label: ArrayLike | None, selection: ArrayLike | None
) -> tuple[IntArray, IntArray]:
    inputs = None if counts.ndim == 1 else len(counts)
    if (label is None) == (selection is None):
        came = "neither" if label is None else "both"
        raise InvalidInput(
            f"exactly one of label and selection (counts of n0 > 0 separate draws) must be given; got {came}"
        )
    if selection is None:
        chosen = np.atleast_1d(check_label(label, counts.shape[-1], inputs))  # type: ignore[arg-type]
        return chosen, np.zeros(len(chosen), dtype=np.int64)
    votes = check_counts("selection", selection)
    if votes.shape != counts.shape:
        raise InvalidInput(f"selection must have the shape of counts, {counts.shape}; got {votes.shape}")
    votes = np.atleast_2d(votes)
    return votes.argmax(axis=1), votes.sum(axis=1)


def _names(ids: Sequence[str] | None, inputs: int) -> Sequence[str]:
    if ids is None:
        return ["input"] if inputs == 1 else [f"input {i}" for i in range(inputs)]
    if len(ids) != inputs:
        raise InvalidInput(f"ids must hold one name for each of the {inputs} inputs; got {len(ids)}")
    if (twice := first_repeated(ids)) is not None:  # two inputs of one name would share their noise and their ties
        raise InvalidInput(f"ids must be different names; got {show(twice)} twice")
    return ids
