"""Certificates -> sentences: what a run certifies and with what guarantee, and what to call each of its curves."""

from collections.abc import Sequence
from decimal import Decimal
from math import ceil, log10

from buckler.records import Certificate
from buckler.rounding import rounded_down


def series_names(run_names: Sequence[str], groups: Sequence[tuple[int, Certificate]]) -> list[str]:
    """Return a name for each group of certificates, given its run and one of its members.

    The method, then only what is needed to tell it from the others of its run.
    """
    several = len({run for run, _ in groups}) > 1
    details = [
        ("margin_kind", "{} margin"),
        ("alpha", "alpha {:g}"),
        ("law", "{}"),
        ("radius_kind", "radius {}"),
        ("map", "{}"),
        ("temperature", "T {:g}"),
    ]
    names = []
    for run, member in groups:
        beside = [other for place, other in groups if place == run]
        parts = [run_names[run], member.method] if several else [member.method]
        for field, text in details:
            if len({getattr(other, field) for other in beside}) > 1 and getattr(member, field) is not None:
                parts.append(_law(member, beside) if field == "law" else text.format(getattr(member, field)))
        names.append(", ".join(parts))
    return names


def _law(member: Certificate, beside: Sequence[Certificate]) -> str:
    """Return what tells a law from those beside it."""
    if {(other.law.name, len(other.law.parameters)) for other in beside} == {("gaussian", 1)}:
        return f"sigma {member.sigma:g}"
    return member.law.describe()


def confidence(delta: float) -> str:
    """Return ``1 - delta`` in as many digits as it takes, rounded down.

    >>> confidence(0.001), confidence(1e-7)
    ('0.999', '0.9999999')
    """
    # Subtracted in decimals: in binary, 1 - 0.001 is a little less than 0.999 and would be shown as 0.998.
    return rounded_down(1 - Decimal(repr(delta)), max(3, ceil(-log10(delta))))


def guarantee(groups: Sequence[Sequence[Certificate]], model: str, data: str, delta: float, wrong: int) -> str:
    """Return what the certificates of one run say, in one paragraph; ``groups`` holds those of each method.

    ``wrong`` is how many of a method's certificates may be wrong with probability at least ``1 - delta``.
    """
    every = [certificate for group in groups for certificate in group]
    total, alpha = len(groups[0]), max(certificate.alpha for certificate in every)
    draws = sorted({certificate.n for certificate in every})
    count = f"{draws[0]:,} draws" if len(draws) == 1 else f"{draws[0]:,} to {draws[-1]:,} draws"
    laws = {certificate.law.describe(): certificate.law for certificate in every}
    noises = " or ".join(laws)
    ball = " or ".join(dict.fromkeys(f"{'a closed' if law.closed else 'an open'} {law.norm}" for law in laws.values()))
    other = sorted({certificate.n0 for certificate in every} - {0})
    ways = ["fixed beforehand (a given label)"] if any(certificate.n0 == 0 for certificate in every) else []
    ways += [f"selected on {' or '.join(f'{n0:,}' for n0 in other)} other draws"] if other else []
    if alpha == 0.0:
        risk = f"without an error probability: its {draws[0]:,} copies are all there are, and the class is theirs"
        return (
            f"{model}, smoothed with {noises}, was certified on {total:,} inputs of {data}: each certificate says that "
            f"the smoothed classifier, not the model itself, predicts one class everywhere in {ball} ball around the "
            f"input, {risk}. There is no band."
        )
    size = f"{total:,} input{'' if total == 1 else 's'}"
    return (
        f"{model}, smoothed with {noises}, was certified on {size} of {data}: each certificate "
        f"says that the smoothed classifier, not the model itself, predicts one class everywhere in {ball} ball "
        f"around the input, and is wrong with probability at most {alpha:g} over its {count} of noise. The class was "
        f"{' or '.join(ways)}. With probability at least {confidence(delta)} over all draws, no more than {wrong:,} of "
        f"a method's {total:,} certificates are wrong: that is the shaded band."
    )
