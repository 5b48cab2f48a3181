"""The door from counts to certificates: ``certify_counts``."""

from collections.abc import Sequence
from typing import TypedDict, Unpack, overload

import numpy as np

from buckler.certificates import Certificates
from buckler.certify.discrete import limits_by
from buckler.certify.make_certificates import MarginLimits, Terms, issue, terms_of
from buckler.certify.method import Votes
from buckler.certify.registry import sound_method
from buckler.errors import InvalidInput, check_counts, check_label
from buckler.records import Certificate, Counts
from buckler.types import AnyArray, ArrayLike, IntArray, Law, MarginKind


class CountsOptions(TypedDict, total=False):
    """The keywords of ``certify_counts``."""

    sigma: float | None
    law: Law | None
    alpha: float
    label: ArrayLike | None
    selection: ArrayLike | Counts | None
    margin: MarginKind | None
    method: str
    ids: Sequence[str] | None


@overload
def certify_counts(counts: Sequence[int], **options: Unpack[CountsOptions]) -> Certificate: ...
@overload
def certify_counts(counts: Sequence[Sequence[int]] | Counts, **options: Unpack[CountsOptions]) -> Certificates: ...
@overload
def certify_counts(counts: AnyArray, **options: Unpack[CountsOptions]) -> Certificate | Certificates: ...


def certify_counts(
    counts: ArrayLike | Counts,
    *,
    sigma: float | None = None,
    law: Law | None = None,
    alpha: float = 1e-3,
    label: ArrayLike | None = None,
    selection: ArrayLike | Counts | None = None,
    margin: MarginKind | None = None,
    method: str = "exact",
    ids: Sequence[str] | None = None,
) -> Certificate | Certificates:
    """Return the certificate of counts ``[m]``, or ``Certificates`` for counts ``[inputs, m]`` or a ``Counts`` record.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind ``counts``. The
    certified class is ``label``, fixed beforehand, or the top class of ``selection``, counts of *separate* draws; it
    is never read off ``counts``, which would fail with probability up to 1.8 alpha.

    The noise is Gaussian of standard deviation ``sigma``, or follows ``law``: give one of both. The
    radius is R2 for the quantile margin and R1+ for the probability margin (``Gaussian.radius``).

    >>> certify_counts([100, 0, 0], sigma=0.25, alpha=1e-3, label=0, method="top_class").radius
    0.3751187560301544
    """
    rule = sound_method(method, "votes")
    terms = terms_of(rule, sigma=sigma, law=law, alpha=alpha, margin=margin)
    limits = limits_of_counts(counts, terms, label=label, selection=selection, ids=ids)
    made = issue(terms, limits)
    return Certificates(made) if isinstance(counts, Counts) or np.ndim(counts) == 2 else made[0]


def limits_of_counts(
    counts: ArrayLike | Counts,
    terms: Terms,
    *,
    label: ArrayLike | None = None,
    selection: ArrayLike | Counts | None = None,
    ids: Sequence[str] | None = None,
) -> MarginLimits:
    """Return the limit of each input's margin by a method that reads votes, and the class it is about.

    **Guarantee.** Where the method is sound, each limit exceeds the margin of its class with probability at most
    ``terms.alpha``, the allowance for drawing included.
    """
    if isinstance(counts, Counts):
        ids = counts.ids if ids is None else ids
        if isinstance(selection, Counts) and selection.ids != counts.ids:
            raise InvalidInput("selection must be of the inputs of counts, in their order; its ids differ")
        values = counts.values
    else:
        values = check_counts("counts", counts)
    batch = np.atleast_2d(values)
    drawn = selection.values if isinstance(selection, Counts) else selection
    if terms.law.total is None or label is not None or drawn is not None:
        chosen, n0 = _certified_class(values, label, drawn)
    else:  # votes that are probabilities may choose the class themselves
        chosen, n0 = batch.argmax(axis=1), np.zeros(len(batch), dtype=np.int64)
    if terms.law.total is not None and drawn is not None:
        raise InvalidInput(f"selection must not be given for {terms.law.describe()}: its votes choose the class")
    names = _names(ids, len(batch))
    terms.check_draws(batch.sum(axis=1))
    low = limits_by(terms.method, votes_of(batch, chosen), terms.level, terms.margin)
    return MarginLimits(names, chosen, low, batch.sum(axis=1), n0)


def votes_of(counts: IntArray, chosen: IntArray) -> Votes:
    """Return what a method reads of counts ``[inputs, m]``, given the class of each input."""
    rows = np.arange(len(counts))
    ordered = counts.copy()
    ordered[rows, chosen] = counts[:, 0]
    ordered[:, 0] = counts[rows, chosen]
    return Votes(ordered[:, 0], ordered[:, 1:].max(axis=1), counts.sum(axis=1), counts.shape[1], ordered)


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
    return ids
