"""Methods: from a name to a limit, ours and a user's own; without error probability for all copies of a noise alone."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import buckler
from buckler import certificate
from buckler.certificate import ENUMERATED_METHOD, RANDOMISED, SCORE_METHOD_NAMES, VOTE_METHOD_NAMES, tie_of
from buckler.certificates import Certificates
from buckler.certify import Method, register
from buckler.certify import methods as registry
from buckler.certify.ladder import Ladder
from buckler.certify.methods import ScoreDraws, Votes, find, methods, own_method, sound_method, sound_methods
from buckler.certify.scores import certify_scores
from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput, UnsoundMethod
from buckler.evaluate.curves import certified_accuracy
from buckler.noise import Ablation, DerandomizedSplitting, Splitting
from buckler.types import FloatArray, MarginKind, Noise


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
    with pytest.raises(
        UnsoundMethod, match=r"'own:elsewhere' cannot .* it is not registered in this process: import the module"
    ):
        replace(certificate, method="own:elsewhere")
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
    for margins in (("quantil",), "probability", ["quantile"], ()):
        with pytest.raises(InvalidInput, match="margins of method 'own:x' must be a tuple of 'probability' or 'quant"):
            own_method("own:x", len, margins=margins)  # type: ignore[arg-type]


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


LAW = DerandomizedSplitting(0.5)
COUNTS = np.array([[200, 55, 0], [55, 200, 0], [85, 85, 85], [129, 126, 0], [129, 127, 0], [128, 127, 0]])
COUNTS[4, 1] -= 1  # 129 + 126


def certificates(counts: np.ndarray = COUNTS[:4], noise: Noise = LAW) -> Certificates:
    return certify_votes(counts, noise=noise)


def test_votes_are_the_margin_and_choose_the_class() -> None:
    first, second, tied, close = certificates()
    assert (first.predicted, second.predicted, tied.predicted) == (0, 1, None)
    assert [c.alpha for c in (first, second, tied, close)] == [0.0] * 4
    # 200 - 55 = 145 votes: 2 k < 145 for k = 72.
    assert first.radius == second.radius == 72 / 255
    assert (first.margin, first.n, first.n0, first.method, first.winner_alpha) == (
        145 / 255,
        255,
        0,
        ENUMERATED_METHOD,
        0.0,
    )
    assert close.radius == 1 / 255  # three votes
    assert certify_votes([[128, 127, 0]], noise=LAW)[0].abstained  # one vote certifies the input itself, no step
    assert certify_votes([[200, 55, 0]], noise=LAW, labels=[1])[0].abstained


def test_the_sentence_says_exact() -> None:
    first, _, tied, _ = certificates()
    assert str(first) == (
        "input 0: the smoothed classifier predicts class 0 at every 8-bit input (the grid of step 1/255 from 0 to 1) "
        "in the closed l1 ball of radius 0.2823, in the units of the input; exact, without error probability, from all "
        "255 copies under splitting noise "
        "with lambda 0.5, each of its 255 offsets once (probability margin 0.5686; exact in floating point if the "
        "model gives an input the same logits every time)"
    )
    assert "abstained; exact" in str(tied)


def test_no_wrong_certificate_is_allowed_for() -> None:
    curve = certified_accuracy(certificates(), [0, 1, 0, 0], [0.0, 0.1])
    assert curve.accuracy.tolist() == curve.low.tolist() == [0.75, 0.5]
    assert curve.norm == "l1"


def test_norms_do_not_mix() -> None:
    other = certify_votes([[90, 5, 5]], noise=Ablation(2, 64), labels=[0], ids=["other"])[0]
    with pytest.raises(InvalidInput, match="one norm"):
        certified_accuracy([certificates()[0], other], [0, 0], [0.0])


def test_alpha_zero_is_for_all_copies_alone() -> None:
    with pytest.raises(InvalidInput, match="alpha must be at least 1e-200"):
        certify_votes([[90, 5, 5]], sigma=0.5, labels=[0], alpha=0.0)[0]
    first = certificates()[0]
    for change, message in (
        ({"alpha": 0.001}, "alpha must be 0"),
        ({"n": 254}, "all copies"),
        ({"method": "exact"}, "alpha must be at least 1e-200"),
        ({"method": "exact", "alpha": 0.001}, "all copies"),
        ({"method": "exact", "alpha": 0.001, "n": 100}, "all copies"),
        ({"noise": Splitting(0.5)}, "all copies"),
        ({"radius": 73 / 255}, "radius must be what margin"),
    ):
        with pytest.raises(InvalidInput, match=message):
            replace(first, **change)


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ([200, 54, 0], {}, "counts must add up to 255 for each input"),
        ([200, 55, 0], {"method": "bonferroni"}, "method and scores must be left out"),
        ([200, 55, 0], {"margin": "quantile"}, "margin must be"),
        ([200, 55, 0], {"selection": [[9, 1, 0]]}, "selection must be left out"),
        ([200, 55, 0], {"alpha": 2.0}, "alpha"),
    ],
)
def test_what_does_not_apply_is_refused(counts: list[int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        certify_votes([counts], noise=LAW, **options)


def test_scores_and_ladders_are_refused() -> None:
    with pytest.raises(InvalidInput, match="method and scores must be left out"):
        certify_scores(np.full((1, 255, 2), 0.5), noise=LAW, labels=[0])
    with pytest.raises(InvalidInput, match="cannot be decided draw by draw"):
        Ladder((0.1,), LAW)


def bright(batch: np.ndarray) -> np.ndarray:
    mean = batch.reshape(len(batch), -1).mean(axis=1)
    return np.stack([1.0 - mean, mean, np.full(len(batch), 0.45)], axis=1)


def test_smoothed_runs_every_copy_once() -> None:
    x = np.array([[9, 250], [130, 20]], dtype=np.float32) / np.float32(255)
    seen: list[bytes] = []

    def model(batch: np.ndarray) -> np.ndarray:
        seen.extend(row.tobytes() for row in batch)
        return bright(batch)

    smoothed = buckler.Smoothed(model, noise=LAW, num_classes=3)
    certificate = smoothed.certify(x[None])[0]
    copies = LAW.numbered(x, np.arange(255))
    assert sorted(seen[:255]) == sorted(row.tobytes() for row in copies)
    votes = np.bincount(bright(copies).argmax(axis=1), minlength=3)
    top = np.sort(votes)
    assert certificate.margin == (top[-1] - top[-2]) / 255
    assert certificate == smoothed.certify(x[None], n=255, alpha=0.5, seed=7)[0]  # nothing is drawn
    for options, message in (
        ({"n": 100}, "n must be 255"),
        ({"n0": 10}, "n0 must be 0"),
        ({"method": "bonferroni"}, "method and scores must be left out"),
    ):
        with pytest.raises(InvalidInput, match=message):
            smoothed.certify(x[None], **options)
