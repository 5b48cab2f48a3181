"""Methods: from a name to a limit, ours and a user's own."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import buckler
from buckler import certificate
from buckler.certificate import RANDOMISED, SCORE_METHOD_NAMES, VOTE_METHOD_NAMES, tie_of
from buckler.certify import Method, register
from buckler.certify import methods as registry
from buckler.certify.methods import ScoreDraws, Votes, find, methods, own_method, sound_method, sound_methods
from buckler.errors import InvalidInput, UnsoundMethod
from buckler.types import FloatArray, MarginKind


@pytest.fixture(autouse=True)
def _own_methods_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setattr(certificate, "_TIES", dict(certificate._TIES))


def half(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return half of what ``top_class`` proves: a limit as well."""
    limits: FloatArray = find("top_class").limit(votes, alpha, margin)
    return np.where(limits > 0.0, 0.5 * limits, limits)


def test_names_that_certificates_may_carry_are_those_of_sound_methods() -> None:
    ours = [method.name for method in methods() if method.sound and not method.own]
    assert tuple(ours) == (*VOTE_METHOD_NAMES, *SCORE_METHOD_NAMES)
    assert all(tie_of(name) == "radius" for name in ours)
    assert [method.name for method in sound_methods()][:4] == list(VOTE_METHOD_NAMES)


def test_what_a_name_says() -> None:
    assert find("exact").reads == "votes"
    assert find("pairwise/star").reads == "scores"
    assert [method.name for method in methods() if method.randomised] == [RANDOMISED]


@pytest.mark.parametrize(
    ("name", "reads", "error", "text"),
    [
        ("magic", None, InvalidInput, "method must be one of 'exact', .*scores 'pairwise/star'"),
        ("pairwise/star", "votes", InvalidInput, "method must be one of 'exact'"),
        ("exact", "scores", InvalidInput, "method must be one of 'pairwise/star'"),
        ("pairwise/magic", None, InvalidInput, "'pairwise/star', 'pairwise/sequence'"),
        ("mine:half", None, UnsoundMethod, "no guarantee"),
        (None, None, InvalidInput, "method must be"),
    ],
)
def test_a_name_that_cannot_certify(name: str, reads: object, error: type[Exception], text: str) -> None:
    register(Method("mine:half", "votes", half))
    with pytest.raises(error, match=text):
        sound_method(name, reads)  # type: ignore[arg-type]


def test_a_method_declared_sound_by_name_issues_certificates_under_that_name() -> None:
    register(Method("own:half", "votes", half, sound=True))
    certificate = buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0], method="own:half")[0]
    whole = buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0], method="top_class")[0]
    assert (certificate.method, certificate.margin) == ("own:half", 0.5 * whole.margin)
    assert register(Method("own:half", "votes", half, sound=True)).sound  # the same again is no harm
    with pytest.raises(InvalidInput, match="already a method"):
        register(Method("own:half", "votes", lambda *_: np.zeros(1), sound=True))


def test_a_method_of_ones_own_reads_scores_too() -> None:
    def limit(draws: ScoreDraws, alpha: float, margin: MarginKind) -> float:
        return 0.5 * float(find("pairwise/hoeffding").limit(draws, alpha, margin))

    register(Method("own:scores", "scores", limit, sound=True, margins=("probability",)))
    rows = np.tile([[0.9, 0.08, 0.02], [0.8, 0.1, 0.1]], (500, 1))
    certificate, whole = (
        buckler.certify_scores([rows], sigma=0.5, labels=[0], margin="probability", method=method)[0]
        for method in ("own:scores", "pairwise/hoeffding")
    )
    assert certificate.margin == 0.5 * whole.margin
    with pytest.raises(InvalidInput, match="margin must be 'probability'"):
        buckler.certify_scores([rows], sigma=0.5, labels=[0], method="own:scores")


def test_nothing_is_sound_unless_it_says_so_under_a_name_of_its_own() -> None:
    register(Method("mine:half", "votes", half))
    with pytest.raises(UnsoundMethod):
        buckler.certify_votes([[90, 10]], sigma=0.5, labels=[0], method="mine:half")[0]
    with pytest.raises(InvalidInput, match="must begin with 'own:'"):
        register(Method("half", "votes", half, sound=True))
    with pytest.raises(InvalidInput, match="already a method"):
        register(replace(find("exact"), limit=half))
    for name in ("", "two words", "a,b"):
        with pytest.raises(InvalidInput, match="one word"):
            Method(name, "votes", half)
    with pytest.raises(InvalidInput, match="callable"):
        Method("own:x", "votes", 3)  # type: ignore[arg-type]


def test_a_users_function_is_checked() -> None:
    votes = Votes(np.array([9]), np.array([1]), np.array([10]), 2, np.array([[9, 1]]))
    assert own_method("mine:f", lambda counts, alpha: counts[:, 0] * alpha).limit(votes, 0.5, "quantile").tolist() == [
        4.5
    ]
    for function, text in (
        (lambda counts, alpha: 1 / 0, "ZeroDivisionError"),  # noqa: ARG005
        (lambda counts, alpha: [1.0, 2.0], "shape"),  # noqa: ARG005
        (lambda counts, alpha: [float("nan")], "NaN"),  # noqa: ARG005
    ):
        with pytest.raises(InvalidInput, match=text):
            own_method("mine:f", function).limit(votes, 0.5, "quantile")
    with pytest.raises(InvalidInput, match="counts of all classes"):
        own_method("mine:f", len).limit(votes._replace(counts=None), 0.5, "quantile")


def test_the_record_knows_the_names_before_any_method_is_loaded() -> None:
    probe = (
        "import sys\n"
        "from buckler.noise import Gaussian\n"
        "from buckler.certificate import Certificate\n"
        "radius = Gaussian(1.0).radius(2.0)\n"
        "Certificate('a', 0, radius, 'quantile', 2.0, 0.1, 9, 0, Gaussian(1.0), 'hardmax', None, 'exact')\n"
        "print([name for name in sys.modules if name.startswith('buckler.certify')])\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
