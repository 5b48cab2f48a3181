"""Sentences of the page: what a run certifies, with what guarantee, and the names of its curves."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile
from math import ceil, log10

import numpy as np

from buckler.certificate import ANYTIME, ENUMERATED_METHOD, Certificate, ball, rounded_down
from buckler.certificates import CertificateArrays
from buckler.certify.methods import methods
from buckler.evaluate.curves import false_certificates

FOLDERS = re.compile(r"(?:\b[A-Za-z]:(?=[/\\]))?[^:]*[/\\](?=[^/\\])")
"""Folders of a path, with a drive letter; what stands before another colon is the kind of a model, and stays."""


def kinds_of(members: Sequence[Certificate]) -> list[str]:
    """Return a name for each group of certificates of one run, given one of its members.

    The method, then only what is needed to tell it from the others.
    """
    details = [
        ("margin_kind", "{} margin"),
        ("alpha", "alpha {:g}"),
        ("noise", "{}"),
        ("map", "{}"),
        ("temperature", "T {:g}"),
    ]
    names = []
    for member in members:
        parts = [member.method]
        for field, text in details:
            values = [getattr(other, field) for other in members]
            if any(value != values[0] for value in values) and (mine := getattr(member, field)) is not None:
                parts.append(text.format(mine.describe() if field == "noise" else mine))
        names.append(", ".join(parts))
    return names


def series_names(run_names: Sequence[str], runs: Sequence[int], kinds: Sequence[str]) -> list[str]:
    """Return the shortest names that tell the curves apart, by run and by kind.

    >>> series_names(["a", "b"], [0, 1], ["exact", "exact"]), series_names(["a"], [0], ["exact"])
    (['a', 'b'], ['exact'])
    """
    several, one_kind = len(set(runs)) > 1, len(set(kinds)) == 1
    pairs = [(run_names[run], kind) for run, kind in zip(runs, kinds, strict=True)]
    return [", ".join(((run,) if several else ()) + (() if several and one_kind else (kind,))) for run, kind in pairs]


def shortened(names: Sequence[str]) -> list[str]:
    """Return names without the words that all of them begin or end with.

    >>> shortened(["cifar10-sigma0.25-counts", "cifar10-sigma0.50-counts"])
    ['sigma0.25', 'sigma0.50']
    >>> shortened(["run", "run-2"]), shortened(["alone-here"])
    (['run', 'run-2'], ['alone-here'])
    """
    words = [re.findall(r"[^-_ /]+|[-_ /]", name) for name in names]
    for _ in range(2):  # from the front, then from the back
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
        words = [parts[shared:][::-1] for parts in words]
    short = ["".join(parts).strip("-_ /") for parts in words]
    return short if len(names) > 1 and all(short) and len(set(short)) == len(names) else list(names)


def brief(name: str) -> str:
    """Return the name of a model or of data without the folders of its path.

    >>> brief("resnet110:/home/me/nets/a.safetensors"), brief("C:\\\\data\\\\x.npz"), brief("mymodels:make")
    ('resnet110:a.safetensors', 'x.npz', 'mymodels:make')
    """
    return FOLDERS.sub("", name)


def explained(method: str) -> str:
    """Return what a method does, in one sentence."""
    beside = {
        ANYTIME: "draws until radii fixed beforehand are decided; valid whenever one stops",
        ENUMERATED_METHOD: "the votes of every noisy copy that there is: no estimate, and no error probability",
    }
    known = beside | {rule.name: rule.summary for rule in methods()}
    return known.get(method, "a bound of the user's own")


def confidence(delta: float) -> str:
    """Return ``1 - delta`` in as many digits as it takes, rounded down.

    >>> confidence(0.001), confidence(1e-7)
    ('0.999', '0.9999999')
    """
    # In decimals: 1 - 0.001 in binary is slightly below 0.999 and would be rounded down to 0.998.
    return rounded_down(1 - Decimal(repr(delta)), max(3, ceil(-log10(delta))))


def promise(groups: Sequence[CertificateArrays], delta: float) -> str:
    """Return the guarantee of every certificate of a page, and of all of a method together at ``1 - delta``."""
    alpha, noise = max(group.first.alpha for group in groups), groups[0].first.noise
    sizes = dict.fromkeys((len(group), group.first.alpha) for group in groups)
    wrong = [f"{false_certificates(size, level, delta):,} of {size:,}" for size, level in sizes if level]
    risk = (
        f"is wrong with probability at most {alpha:g} over its draws of noise. With probability at least "
        f"{confidence(delta)}, no more than {' or '.join(wrong)} certificates of a run by one method are wrong: that "
        "is the shaded band"
    )
    return (
        f"Each certificate says that the smoothed classifier, not the model itself, predicts one class {ball(noise)}, "
        f"around the input, and "
        f"{risk if alpha else 'is exact: no error probability is left'}."
    )


def described(groups: Sequence[CertificateArrays], model: str, data: str) -> str:
    """Return what was certified in one run; ``groups`` holds the certificates of each method."""
    total = len(groups[0])
    draws = min(int(group.n.min()) for group in groups), max(int(group.n.max()) for group in groups)
    count = f"{draws[0]:,} draws" if draws[0] == draws[1] else f"{draws[0]:,} to {draws[1]:,} draws"
    noise = " or ".join(dict.fromkeys(group.first.noise.describe() for group in groups))
    other = sorted({n0 for group in groups for n0 in np.unique(group.n0).tolist()} - {0})
    given = any(group.first.n0 == 0 and group.first.winner_alpha == 0.0 for group in groups)
    ways = ["fixed beforehand (a given label)"] if given else []
    ways += ["the winner of the same draws"] if any(group.first.winner_alpha for group in groups) else []
    ways += [f"selected on {' or '.join(f'{n0:,}' for n0 in other)} other draws"] if other else []
    size = f"{total:,} input{'' if total == 1 else 's'}"
    if all(group.first.method == ENUMERATED_METHOD for group in groups):
        return (
            f"{model}, smoothed by {noise}, was certified on {size} of {data}, from all {draws[0]:,} copies of each, "
            "which are all there are: they name the class, nothing was left to chance, and there is no band."
        )
    return (
        f"{model}, smoothed by {noise}, was certified on {size} of {data}, with {count} each; the class was "
        f"{' or '.join(ways)}."
    )
