"""Both sides of the accuracy, and the alarm's threshold."""

from math import comb

import numpy as np
import pytest

from buckler.certificate import Bracket, PairTest, Refutation
from buckler.certificates import Certificates
from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput
from buckler.evaluate.refutations import alarm, bracket_curve
from buckler.noise.gaussian import Gaussian


def bracket(name: str, certified: float, refuted: float | None, alpha: float = 1e-3) -> Bracket:
    tried = () if refuted is None else (PairTest(refuted, 1, 100, 90, 10, refuted=True),)
    point = None if refuted is None else np.zeros(2)
    rival = None if refuted is None else 1
    return Bracket(Refutation(name, 0, refuted, rival, point, alpha, Gaussian(0.5), tried), certified, alpha, 0)


def test_the_alarm_is_the_quantile() -> None:
    """P(Binomial(100, 0.002) > 3) is 5e-5 and P(... > 2) is 1.1e-3: three are allowed at delta .001."""
    fine = [bracket(str(i), 1.0, 1.5) for i in range(97)]
    inside = [bracket(f"in {i}", 1.0, 0.5) for i in range(4)]
    assert alarm(fine, 100, 1e-3) is None
    assert alarm([*fine, *inside[:3]], 100, 1e-3) is None
    said = alarm([*fine[:96], *inside], 100, 1e-3)
    assert said is not None
    assert said.startswith("ALARM: 4 of 100 ")
    assert "of 100 inputs" in said
    assert "'in 0'" in said
    assert alarm([bracket("edge", 1.0, 1.0)] * 5, 5, 1e-3) is None  # an open ball
    with pytest.raises(InvalidInput, match="inputs"):
        alarm(inside, 3, 1e-3)


def test_abstentions_count_among_the_inputs_that_could_have_been_certified_falsely() -> None:
    """Of inputs whose class is on the edge, all certificates there are may be false, and each of them be refuted."""
    total, level, delta = 2000, 1e-3, 1e-3
    chance = [comb(total, k) * level**k * (1.0 - level) ** (total - k) for k in range(16)]
    raised = [alarm([bracket(str(i), 1.0, 0.5) for i in range(k)], total, delta) is not None for k in range(16)]
    assert raised == sorted(raised)
    assert raised[-1]
    assert 1.0 - sum(p for p, loud in zip(chance, raised, strict=True) if not loud) <= delta


def test_both_sides() -> None:
    votes = [[1000, 0], [1000, 0], [0, 1000], [520, 480], [1000, 0]]
    made = certify_votes(votes, sigma=0.5, alpha=1e-3, labels=[0, 0, 1, 0, 0], ids=list("abcde"))
    group = Certificates.of(made, labels=np.array([0, 0, 0, 0, 0]))
    brackets = [bracket("a", made[0].radius, 2.0), bracket("b", made[1].radius, None)]
    found = [b.refutation for b in brackets]
    curve = bracket_curve(group, found, [0.0, 1.0, 2.0, 3.0])
    assert curve.certified.tolist() == [0.6, 0.6, 0.0, 0.0]
    # c is certified of the wrong class; d is not certified, e not attacked, b not refuted: unknown.
    assert curve.refuted.tolist() == [0.8, 0.8, 0.6, 0.6]
    assert curve.known.tolist() == [0.6, 0.0, 0.0, 0.0]  # from 1 to 2 nothing is certified all the way
    assert (curve.attacked, curve.inputs) == (2, 5)
    with pytest.raises(InvalidInput, match="labels"):
        bracket_curve(Certificates.of(made), found, [0.0])
