"""Certificates refuse what contradicts itself, round down, say what their theorem says, and make arrays and frames."""

import re
import sys
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from math import nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import buckler
from buckler.certificate import Claim, rounded_down
from buckler.certificates import Certificates
from buckler.certify.ladder import Ladder
from buckler.certify.methods import sound_methods
from buckler.certify.sequential import AnytimeTest
from buckler.noise import NOISES as BUILT_IN
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.runs.certify import certify_evidence
from buckler.runs.decide import Target, decide
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import read_certificates, write_certificates
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.types import AnyArray, MarginKind
from tests.balls import normal_cdf


def test_frozen_and_slotted() -> None:
    certificate = buckler.certify_votes([[90, 10]], sigma=1.0, labels=[0])[0]
    assert not hasattr(certificate, "__dict__")
    with pytest.raises(FrozenInstanceError):
        certificate.id = "other"  # type: ignore[misc]


def test_a_certificate_cannot_contradict_itself() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=1.0, labels=[0])[0]
    for change in ({"predicted": None}, {"radius": 0.0}, {"radius": np.inf}, {"margin": -1.0}, {"margin_kind": "wide"}):
        with pytest.raises(buckler.InvalidInput):
            replace(good, **change)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("factor", [100.0, 1.0 + 1e-14, 1.0 - 1e-14, 0.5])
def test_a_radius_is_tied_to_its_margin(margin: MarginKind, factor: float) -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin=margin)[0]
    assert replace(good) == good
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, radius=factor * good.radius)
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, noise=Gaussian(0.7 / factor))


def test_the_last_digits_of_another_machine_are_allowed() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin="probability")[0]
    near = replace(good, radius=float(np.nextafter(good.radius, np.inf)))
    # Still below the radius that the margin gives in exact arithmetic.
    assert normal_cdf(arb(near.radius) / arb(0.7)) <= (1 + arb(near.margin)) / 2


@pytest.mark.parametrize("noise", [Uniform(0.5), Splitting(0.5), DerandomizedSplitting(0.5), Ablation(2, 9)])
def test_a_law_of_whole_numbers_has_no_last_digits(noise: Any) -> None:
    """Its radius is the largest float that holds: the next one above may reach a point of the ball's edge."""
    good = buckler.certify_votes([[noise.total or 1000, 0, 0]], noise=noise, labels=[0])[0]
    assert replace(good) == good
    for towards in (0.0, np.inf):
        with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
            replace(good, radius=float(np.nextafter(good.radius, towards)))


def test_an_abstention_hides_no_margin_that_certifies() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(good, predicted=None, radius=0.0)


def test_a_probability_margin_is_at_most_one() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0], margin="probability")[0]
    with pytest.raises(buckler.InvalidInput, match="at most 1"):
        replace(good, margin=5.0, radius=good.radius)


def test_a_target_is_tied_to_the_margin_it_needs() -> None:
    test = AnytimeTest(Ladder((0.1,), Gaussian(0.3), alpha=0.01), [0, 1], 2)
    test.update([0, 1], [[100, 0], [100, 0]])
    good = test.decided(0, "a").certificate
    assert test.decided(1, "b").certificate.abstained
    assert good.radius == 0.1
    for change in ({"radius": 0.2}, {"radius": float(np.nextafter(0.1, 1.0))}, {"margin": 9.0}, {"method": "exact"}):
        with pytest.raises(buckler.InvalidInput, match="must be what"):
            replace(good, **change)


@pytest.mark.parametrize("method", ["wald", "Published", "published", "published/star", "pairwise", "own:mine", ""])
def test_a_certificate_names_a_method_that_is_known_to_be_sound(method: str) -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.UnsoundMethod, match="cannot issue a certificate"):
        replace(good, method=method)


def test_votes_are_no_scores() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    with pytest.raises(buckler.InvalidInput, match="which reads votes"):
        replace(good, map="softmax", temperature=1.0)


def test_a_claim_promises_nothing_and_says_so() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    claim = Claim(**values | {"method": "mine:wald", "sound": False})
    assert "a promised, not proved, error probability at most 0.001" in str(claim)
    assert not isinstance(claim, buckler.Certificate)
    with pytest.raises(buckler.InvalidInput, match="radius must be what margin"):
        replace(claim, radius=2.0 * claim.radius)
    with pytest.raises(buckler.UnsoundMethod):
        replace(claim, sound=True)


def test_fields_as_columns() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7, labels=[0])[0]
    assert list(good.as_dict()) == [
        *("id", "predicted", "radius", "margin_kind", "margin", "alpha", "n", "n0", "sigma"),
        *("map", "temperature", "method", "sound", "winner_alpha", "score_dtype", "noise", "noise_parameters"),
        "seed",
    ]


def test_a_winner_is_tested_at_a_part_of_alpha_on_the_same_draws() -> None:
    good = buckler.certify_votes([[90, 10]], sigma=0.7)[0]
    assert good.class_from == "winner of the same draws"
    assert "for the winner of the same draws, tested at 0.0001, from 100 draws" in str(good)
    for change in ({"winner_alpha": 0.01}, {"winner_alpha": -0.1}, {"n0": 5}):
        with pytest.raises(buckler.InvalidInput, match="winner_alpha"):
            replace(good, **change)


def test_one_ulp_below_a_short_decimal() -> None:
    for k in range(1, 40_000):
        below = nextafter(k / 1e4, 0.0)
        shown = rounded_down(below, 4)
        assert Decimal(shown) < Decimal(below), k
        assert shown == f"{(k - 1) // 10_000}.{(k - 1) % 10_000:04d}"


@given(value=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(0, 12))
def test_never_more_than_the_value(value: float, digits: int) -> None:
    shown = rounded_down(value, digits)
    assert float(shown) <= value
    assert Fraction(repr(value)) - Fraction(shown) < Fraction(1, 10**digits)


@given(k=st.integers(0, 10**7), digits=st.integers(0, 7))
def test_what_has_so_few_digits_is_shown_as_it_is(k: int, digits: int) -> None:
    assert Decimal(rounded_down(k / 10**digits, digits)) == Decimal(k).scaleb(-digits)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.000"), (-0.0, "0.000"), (1e23, "1" + "0" * 23 + ".000"), (5e-324, "0.000"), (-1e-9, "-0.001")],
)
def test_ends(value: float, shown: str) -> None:
    assert rounded_down(value) == shown


def test_what_is_not_finite_is_named() -> None:
    assert [rounded_down(float(text)) for text in ("inf", "-inf", "nan")] == ["inf", "-inf", "nan"]


FLOATS = "idealised: real-valued noise, drawn and added in float32"
BITS = "exact in floating point if the model gives an input the same logits every time"
EIGHT_BIT = "at every 8-bit input (the grid of step 1/255 from 0 to 1)"

THEOREMS: list[tuple[Any, str, str]] = [
    # T1: Cohen et al.; at the radius two classes may tie. Real numbers, where float32 is computed.
    (Gaussian(0.25), "everywhere in the open l2 ball of radius {}, in the units of the input", FLOATS),
    # T31: the length of delta / scale.
    (
        Gaussian(0.25, scale=[0.5, 1.0]),
        "everywhere in the open scaled l2 ball of radius {}, after division by the scale of the noise",
        FLOATS,
    ),
    # T23: whole numbers of steps, exactly drawn; points of the grid alone.
    (
        GridGaussian(0.25, 1 / 16),
        "at every point of the grid of step 1/16 in the open l2 ball of radius {}, in the units of the input",
        BITS,
    ),
    # T27, T28: grid points at less than lambda M.
    (
        Uniform(0.5),
        "at every point of the grid of step 1/255 in the open l1 ball of radius {}, in the units of the input",
        BITS,
    ),
    (Splitting(0.5), EIGHT_BIT + " in the open l1 ball of radius {}, in the units of the input", BITS),
    # T29: at most k steps, those at k steps included; alpha is 0.
    (DerandomizedSplitting(0.5), EIGHT_BIT + " in the closed l1 ball of radius {}, in the units of the input", BITS),
    # T30: at most rho pixels differ.
    (Ablation(1, 27), "everywhere in the closed l0 ball of radius {}, in single values", BITS),
    (
        Ablation(1, 9, channels=3),
        "everywhere in the closed l0 ball of radius {}, in pixels, each with all its 3 channels",
        BITS,
    ),
]
NOISES = [noise for noise, _, _ in THEOREMS]


def test_every_noise_is_in_the_table() -> None:
    assert {noise.name for noise in NOISES} == BUILT_IN.keys()


def check(certificate: buckler.Certificate, *, chosen: str, scores: str) -> None:
    """Compare a sentence with the table, and with the record for what the table leaves open."""
    noise, method = certificate.noise, certificate.method
    ((where, condition),) = [(ball, condition) for law, ball, condition in THEOREMS if law == noise]
    radius = f"{np.floor(certificate.radius * 1e4) / 1e4:.4f}"
    margin = f"{np.floor(certificate.margin * 1e4) / 1e4:.4f}"
    says = f"{certificate.id}: the smoothed classifier predicts class {certificate.predicted} {where.format(radius)}"
    if noise.total is not None:
        assert certificate.alpha == 0.0
        expected = (
            f"{says}; exact, without error probability, from all {certificate.n} copies under {noise.describe()} "
            f"(probability margin {margin}; {condition})"
        )
    else:
        method += ", randomised once after the last draw" if "randomised" in method else ""
        expected = (
            f"{says}, with error probability at most {certificate.alpha:g} for {chosen}, from {certificate.n} draws of "
            f"{noise.describe()} ({scores}, method {method}, {certificate.margin_kind} margin at least {margin}; "
            f"{condition})"
        )
    assert str(certificate) == expected
    assert ("closed" in says) == noise.closed


GIVEN, SELECTED = "a class fixed beforehand", "a class selected on 100 other draws"
WINNER = "the winner of the same draws, tested at 0.0001"


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_methods_that_read_votes(noise: Any) -> None:
    total = noise.total or 1000
    counts, first = [[total - 8, 5, 3]], [[98, 1, 1]]
    ways: Any = [(WINNER, {}), (GIVEN, {"labels": [0]}), (SELECTED, {"selection": first})]
    for method in [m.name for m in sound_methods("votes")] if noise.total is None else [None]:
        for margin in noise.margins:
            for chosen, how_chosen in ways if noise.total is None else ways[:2]:
                (made,) = buckler.certify_votes(counts, noise=noise, method=method, margin=margin, **how_chosen)
                check(made, chosen=chosen, scores="hardmax")


@pytest.mark.parametrize("noise", [noise for noise in NOISES if noise.total is None], ids=str)
def test_methods_that_read_scores(noise: Any) -> None:
    rows = np.tile([[0.99, 0.008, 0.002]], (1, 1000, 1))
    first = np.tile([[0.98, 0.01, 0.01]], (1, 100, 1))
    ways: Any = [(WINNER, {}), (GIVEN, {"labels": [0]}), (SELECTED, {"selection": first})]
    for rule in sound_methods("scores"):
        for margin in noise.margins:
            for chosen, how_chosen in ways if margin in rule.margins else ():
                how: Any = {"noise": noise, "method": rule.name, "margin": margin, "scoring": buckler.Softmax(0.5)}
                drawn: Any = {"seed": 1, "ids": ["a"]} if rule.randomised else {}
                (made,) = buckler.certify_scores(rows, **how_chosen, **how, **drawn)
                check(made, chosen=chosen, scores="softmax at temperature 0.5")


def first_class(batch: Any) -> Any:
    """Class 0, whatever the input."""
    rows = np.zeros((len(batch), 3))
    rows[:, 0] = 9.0
    return rows


def point(noise: Any) -> Any:
    """Return a batch of one input that the noise takes."""
    shape = (1, 3, 3, 3) if isinstance(noise, Ablation) else (1, 2)
    return np.zeros(shape, dtype=np.float32)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_model_in_hand(noise: Any) -> None:
    def smoothed(scores: Any = None) -> buckler.Smoothed:
        return buckler.Smoothed(first_class, noise=noise, num_classes=3, scores=scores)

    x = point(noise)
    check(smoothed().certify(x)[0], chosen=WINNER, scores="hardmax")
    check(smoothed().certify(x, labels=[0])[0], chosen=GIVEN, scores="hardmax")
    if noise.total is not None:
        return
    until: Any = {"radii": [noise.radius(0.5, "probability")], "margin": "probability"}
    ways: Any = [(WINNER, {}), (GIVEN, {"labels": [0]}), (SELECTED, {"n0": 100})]
    for chosen, how_chosen in ways:
        check(smoothed().certify_until(x, **how_chosen, **until)[0], chosen=chosen, scores="hardmax")
        at_two = smoothed(buckler.Softmax(2.0))
        check(at_two.certify(x, **how_chosen)[0], chosen=chosen, scores="softmax at temperature 2")
        check(at_two.certify_until(x, **how_chosen, **until)[0], chosen=chosen, scores="softmax at temperature 2")
    check(smoothed(buckler.Sparsemax()).certify(x)[0], chosen=WINNER, scores="sparsemax")


@pytest.mark.parametrize("dtype", [None, "float32", "float16"])
def test_runs(dtype: Any, tmp_path: Path) -> None:
    data = from_arrays(np.zeros((2, 2), dtype=np.float32), np.array([0, 0]))
    model = as_classifier(first_class, num_classes=3)
    options: Any = {"model": "m", "data": "d", "num_classes": 3, "n": 200, "sigma": 0.25}
    sample(RunSpec(**options, scores="softmax", score_dtype=dtype), model, data, tmp_path / "run")
    evidence = open_evidence(tmp_path / "run")
    kept = " kept as float16" if dtype == "float16" else ""
    for method, scores in (("exact", "hardmax"), ("pairwise/star", f"softmax at temperature 1{kept}")):
        made = certify_evidence(evidence, method=method)
        check(made[0], chosen=WINNER, scores=scores)
        write_certificates(tmp_path / "c.parquet", made)
        assert read_certificates(tmp_path / "c.parquet") == made
    for decided in decide(RunSpec(**options), Target((0.05,)), model, data, tmp_path / "d.parquet"):
        check(decided.certificate, chosen=WINNER, scores="hardmax")


def test_abstentions() -> None:
    (none,) = buckler.certify_votes([[50, 50]], sigma=0.5, labels=[0])
    assert str(none) == (
        "input 0: abstained at error probability 0.001 for a class fixed beforehand, from 100 draws of Gaussian noise "
        f"with sigma 0.5 (hardmax, method exact, quantile margin may be 0 or below; {FLOATS})"
    )


def test_another_alpha_class_or_level_is_another_sentence() -> None:
    """Planted bugs: fields that the sentence must not take from somewhere else."""
    (good,) = buckler.certify_votes([[990, 6, 4]], sigma=0.25, labels=[0])
    changes: Any = ({"alpha": 0.002}, {"id": "other"}, {"n0": 7}, {"predicted": 2}, {"winner_alpha": 1e-4})
    for change in changes:
        assert str(replace(good, **change)) != str(good)


POINTS = np.linspace(-1.0, 1.0, 41)[:, None]


def half_space(batch: AnyArray) -> AnyArray:
    return np.stack([batch[:, 0], -batch[:, 0]], axis=1)


def drawn(points: AnyArray = POINTS, n: int = 300) -> Certificates:
    return buckler.Smoothed(half_space, sigma=0.5, num_classes=2).certify(points, n=n)


def three() -> Certificates:
    return buckler.certify_votes([[99, 1], [60, 40], [1, 99]], sigma=0.5, labels=[0, 0, 1])


def test_frames_hold_what_the_files_hold(tmp_path: Path) -> None:
    made = drawn()
    table = made.to_arrow()
    assert isinstance(table, pa.Table)
    frame, other = made.to_pandas(), made.to_polars()
    assert list(frame["radius"]) == other["radius"].to_list() == made.radii.tolist()
    assert frame["predicted"].isna().tolist() == made.abstained.tolist()
    assert other["id"].to_list() == list(made.ids)
    assert table.num_rows == 41
    assert set(frame["seed"]) == {0}
    assert three().to_arrow()["seed"].null_count == 3
    made.save(tmp_path / "c.parquet")
    assert [one.seed for one in read_certificates(tmp_path / "c.parquet")] == [0] * 41


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_a_frame_that_is_not_installed_is_named(frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, frame, None)
    made = drawn(POINTS[:2], 20)
    with pytest.raises(ImportError, match=rf"{frame} is needed here; in a clone of buckler: pip install '.\[frames\]'"):
        getattr(made, f"to_{frame}")()


def test_accuracy_counts_abstentions_and_wrong_classes() -> None:
    made = three()
    assert made.accuracy([0, 0, 0], [0.0, 0.5, 1.0]).tolist() == [1 / 3, 1 / 3, 0.0]
    assert made.accuracy([0, 0, 1]).tolist() == [2 / 3]
    curve = made.curve([0, 0, 1], [0.0, 0.5])
    assert (curve.low < curve.accuracy).all()
    assert made.curve().accuracy[0] == 2 / 3
    with pytest.raises(buckler.InvalidInput, match="labels must hold one class for each of 3"):
        made.accuracy([0, 1])
    with pytest.raises(buckler.InvalidInput, match="labels must be the true classes"):
        made.accuracy(None)
    with pytest.raises(buckler.InvalidInput, match="at least one certificate"):
        Certificates.of([]).curve()


def test_a_plot_is_a_figure_that_notebooks_show() -> None:
    figure = three().plot([0, 0, 1], title="three")
    assert figure.axes[0].get_ylabel() == "certified accuracy"
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert three().plot().axes[0].get_ylabel() == "share certified"


def test_pictures_in_words() -> None:
    made = buckler.certify_votes(
        [[99, 1]] * 12, sigma=0.5, labels=[0] * 12, ids=["<b>bold</b>", *(str(i) for i in range(11))]
    )
    assert repr(made) == "Certificates(12 inputs, 0 abstained, median radius 0.6746)"
    assert repr(Certificates.of([])) == "Certificates(none)"
    html = made._repr_html_()
    assert "&lt;b&gt;bold" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 11
    assert "and 2 more" in html
    assert re.search(r"<td>0\.6746</td>", html)


def test_some_of_them_are_certificates_too() -> None:
    made = buckler.certify_votes([[99, 1]] * 12, sigma=0.5, labels=[0] * 12, ids=[str(i) for i in range(12)])
    assert isinstance(made[2:4], Certificates)
    assert made[-1].id == "11"
    for where in (np.arange(12) > 9, np.array([10, 11]), [10, -1], [False] * 10 + [True, True]):
        chosen = made[where]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ("10", "11")
    for nothing in (list(range(0)), np.zeros(12, dtype=bool)):
        chosen = made[nothing]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ()
    with pytest.raises(IndexError):
        made[np.array([True])]


def test_a_table_for_papers_and_pages() -> None:
    table = three().table([0, 0, 1], [0.0, 0.5, 1.0])
    assert str(table).splitlines()[2].split() == ["exact", "0.333", "0.666", "0.666", "0.000"]
    assert "exact & 0.333 & 0.666 & 0.666 & 0.000" in table.to_latex()
    assert "| exact | 0.333 | 0.666 | 0.666 | 0.000 |" in table.to_markdown()
    assert "inputs certified to radius r" in str(three().table())


def test_a_curve_at_given_radii_is_drawn_from_zero() -> None:
    """What is certified to the first radius is certified to all below it."""
    (line,) = three().plot([0, 0, 1], [0.25, 0.5]).axes[0].get_lines()
    accuracy = three().accuracy([0, 0, 1], [0.25, 0.5])
    assert line.get_xdata().tolist() == [0.0, 0.25, 0.5]
    assert line.get_ydata().tolist() == [accuracy[0], *accuracy]


def test_two_curves_share_axes() -> None:
    figure = three().plot([0, 0, 1], label="first")
    axes = figure.axes[0]
    assert three()[:2].plot([0, 0], ax=axes, label="second") is figure
    for wrong in (3, figure, np.array([axes])):
        with pytest.raises(buckler.InvalidInput, match="ax must be axes of matplotlib"):
            three().plot(ax=wrong)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]
    assert len({line.get_color() for line in axes.get_lines()}) == 2
    assert three().curve([0, 0, 1], [0.0, 0.5]).radii.tolist() == [0.0, 0.5]


def test_predicted_is_a_whole_number_in_pandas() -> None:
    frame = three().to_pandas()
    assert str(frame["predicted"].dtype) == "Int64"
    assert frame["predicted"].tolist()[::2] == [0, 1]
    assert frame["predicted"].isna().tolist() == [False, True, False]


def test_saved_as_parquet_or_csv(tmp_path: Path) -> None:
    made = replace(three(), labels=np.array([0, 0, 1]))
    made.save(tmp_path / "c.parquet")
    again = read_certificates(tmp_path / "c.parquet")
    assert again == made
    assert again.labels is not None
    assert again.labels.tolist() == [0, 0, 1]
    made.save(str(tmp_path / "c.csv"))
    head, first, second, _ = (tmp_path / "c.csv").read_text().splitlines()
    assert head.startswith('"id","predicted","radius"')
    assert head.endswith('"label"')
    assert first.startswith(f'"input 0",0,{float(made.radii[0])!r}')
    assert second.startswith('"input 1",,0')
    with pytest.raises(buckler.InvalidInput, match=r"ends in \.parquet or \.csv; got '.*c\.tsv'"):
        made.save(tmp_path / "c.tsv")
