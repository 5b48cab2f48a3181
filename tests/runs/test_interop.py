"""The field's log: what it can have been made with, the votes behind it, and writing it."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput, StoreError
from buckler.noise import Gaussian
from buckler.runs.certify import certify_evidence
from buckler.runs.logs import (
    Log,
    fewest_votes,
    find_fits,
    fit,
    import_log,
    radius_of,
    read_log,
    write_evidence,
    write_log,
)
from buckler.runs.store.evidence import open_evidence
from buckler.types import IntArray

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = os.environ.get("BUCKLER_RECORDED_LOGS")
"""A folder of logs recorded by others, named like ``..._sigma_0.50.tsv``; they are not part of this repository."""

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


@pytest.fixture(scope="module")
def log() -> Log:
    return read_log(GOLDEN / "usual_log.tsv")


@pytest.fixture(scope="module")
def votes() -> IntArray:
    with (GOLDEN / "usual_log_votes.csv").open() as file:
        return np.array([int(row["votes"]) for row in csv.DictReader(file)])


def test_the_level_is_found(log: Log) -> None:
    fits = find_fits(log, sigma=0.5)
    assert [(f.alpha, f.n, f.sigma) for f in fits] == [(0.01, 100_000, 0.5)]
    assert find_fits(log)[0] == fits[0]
    claimed = fit(log, 0.001, 100_000, 0.5)
    assert claimed.misfits > 10
    assert claimed.largest == pytest.approx(0.5 * 3.8115, abs=1e-4)
    assert find_fits(replace(log, low=log.low * 50, high=log.high * 50)) == []
    for claim in ({"alpha": 0.001, "sigma": 0.5}, {"n": 10_000, "sigma": 0.5}, {"sigma": 0.25}):
        assert find_fits(log, **claim) == []  # type: ignore[arg-type]


def test_the_votes_are_recovered_from_below(log: Log, votes: IntArray) -> None:
    found, possible = fewest_votes(log, 100_000, 0.01, 0.5)
    certified = log.certified
    assert possible[certified].all()
    assert (found[certified] <= votes[certified]).all()
    assert (radius_of(found, 100_000, 0.01, 0.5) >= log.low)[certified].all()
    assert (found[certified] == votes[certified]).mean() > 0.05
    assert (found == votes)[votes == 100_000].all()
    assert 100 * (votes - found)[certified].max() < 100_000


def first(log: Log, lines: int) -> Log:
    return Log(log.ids[:lines], log.labels[:lines], log.predicted[:lines], log.low[:lines], log.high[:lines])


@pytest.mark.parametrize(("method", "lines"), [("top_class", 240), ("exact", 25)])
def test_what_is_certified_from_a_log_is_never_more_than_from_its_votes(
    method: str, lines: int, log: Log, votes: IntArray, tmp_path: Path
) -> None:
    few, held = first(log, lines), votes[:lines]
    write_evidence(few, find_fits(log, sigma=0.5)[0], tmp_path / "run", source="usual_log.tsv")
    evidence = open_evidence(tmp_path / "run")
    assert evidence.complete
    certificates = certify_evidence(evidence, alpha=0.001, method=method)
    np.testing.assert_array_equal(certificates.labels, few.labels)
    assert tuple(c.id for c in certificates) == few.ids
    zero = np.zeros(lines, dtype=np.int64)
    table = np.stack([held, 100_000 - held, zero], axis=1)
    best_possible = certify_votes(table, sigma=0.5, alpha=0.001, labels=zero, method="top_class")
    for line, made, top in zip(few.predicted, certificates, best_possible, strict=True):
        assert made.radius <= top.radius
        assert made.predicted in {None, int(line)}
    assert np.mean([c.radius for c in certificates]) > 0.98 * np.mean([c.radius for c in best_possible])


def test_evidence_of_a_log_for_the_label_and_twice(log: Log, tmp_path: Path) -> None:
    best = find_fits(log, sigma=0.5)[0]
    write_evidence(log, best, tmp_path / "run", source="usual_log.tsv")
    by_label = certify_evidence(
        open_evidence(tmp_path / "run"), alpha=0.001, method="top_class", certified_class="label"
    )
    for made, label, predicted in zip(by_label, log.labels, log.predicted, strict=True):
        assert made.predicted == (None if predicted != label or made.abstained else int(label))
    # The same again is no mistake; another log or another sigma in the same place is.
    write_evidence(log, best, tmp_path / "run", source="usual_log.tsv")
    with pytest.raises(StoreError, match=r"sigma: 0\.5 in the folder"):
        write_evidence(log, fit(log, 0.01, 100_000, 1.0), tmp_path / "run", source="usual_log.tsv")
    with pytest.raises(StoreError, match="other data"):
        write_evidence(first(log, 240 - 1), best, tmp_path / "run", source="usual_log.tsv")


def test_a_log_that_does_not_fit_is_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not fit"):
        write_evidence(log, fit(log, 0.001, 100_000, 0.5), tmp_path / "run", source="x")


def test_what_is_written_is_rounded_down_and_read_back(log: Log, votes: IntArray, tmp_path: Path) -> None:
    table = np.stack([votes, 100_000 - votes], axis=1)
    certificates = certify_votes(
        table, sigma=0.5, alpha=0.01, labels=np.zeros(len(votes), dtype=np.int64), method="top_class", ids=log.ids
    )
    write_log(tmp_path / "log.tsv", certificates, log.labels)
    lines = (tmp_path / "log.tsv").read_text().splitlines()
    assert lines[0].startswith(HEADER.strip() + "\tmethod\t")
    for line, certificate, label in zip(lines[1:], certificates, log.labels.tolist(), strict=True):
        name, truth, predicted, radius, correct, *_ = line.split("\t")
        assert (name, int(truth)) == (certificate.id, label)
        assert float(radius) <= certificate.radius < float(radius) + 1.001e-6
        assert int(predicted) == (-1 if certificate.predicted is None else certificate.predicted)
        assert int(correct) == int(certificate.predicted == label)
    again = read_log(tmp_path / "log.tsv")
    assert find_fits(again, sigma=0.5)[0].alpha == 0.01
    found, _ = fewest_votes(again, 100_000, 0.01, 0.5)
    assert (found == votes)[again.certified].all()


@pytest.mark.parametrize("sigma", [0.12345678901234567, 1 / 3, 1e-7, 123456.789])
@pytest.mark.parametrize("alpha", [0.001, 0.1 / 3])
def test_sigma_and_alpha_are_written_to_the_last_digit(sigma: float, alpha: float, tmp_path: Path) -> None:
    write_log(tmp_path / "log.tsv", certify_votes([[50, 0]], sigma=sigma, alpha=alpha, labels=[0]), [0])
    head, row = (line.split("\t") for line in (tmp_path / "log.tsv").read_text(encoding="utf-8").splitlines())
    written = dict(zip(head, row, strict=True))
    assert (float(written["sigma"]), float(written["alpha"]), int(written["n"])) == (sigma, alpha, 50)


@pytest.mark.parametrize("sigma", [1e9, 1e23, 1e299])
def test_what_is_written_can_be_read_however_large(sigma: float, tmp_path: Path) -> None:
    certificates = certify_votes([[50, 0], [9, 9]], sigma=sigma, labels=[0, 0])
    write_log(tmp_path / "log.tsv", certificates, [0, 0])
    log = read_log(tmp_path / "log.tsv")
    assert log.low[0] <= certificates[0].radius <= log.high[0] < float("inf")


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    certificates = certify_votes([[50, 0]], sigma=1e301, labels=[0])
    with pytest.raises(InvalidInput, match=r"below 1e\+300"):
        write_log(tmp_path / "log.tsv", certificates, [0])
    assert not (tmp_path / "log.tsv").exists()


def test_names_that_are_no_numbers_become_positions(tmp_path: Path) -> None:
    certificates = certify_votes([[50, 0], [60, 1]], sigma=1.0, labels=[0, 0], ids=["a\tb", "7"])
    write_log(tmp_path / "log.tsv", certificates, [0, 1])
    assert [line.split("\t")[0] for line in (tmp_path / "log.tsv").read_text().splitlines()[1:]] == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "must begin with the line idx"),
        ("a\tb\n", "must begin with the line idx"),
        (HEADER, "at least one line"),
        (HEADER + "0\t1\n", "line 2"),
        (HEADER + "0\t1\t1\tmuch\t1\t0\n", "line 2"),
        (HEADER + "0\t1\t1\tnan\t1\t0\n", "line 2"),
        (HEADER + "0\t1\t1\t-0.5\t1\t0\n", "line 2"),
        (HEADER + "0\t-3\t1\t0.5\t1\t0\n", "line 2"),
        (HEADER + "0\t1\t1\t0.5\t1\t0\n0\t1\t1\t0.5\t1\t0\n", "several"),
    ],
)
def test_a_log_that_is_none_is_named(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text(text)
    with pytest.raises(InvalidInput, match=named):
        read_log(tmp_path / "log.tsv")


def test_digits_are_read_off_the_file(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text(HEADER + "0\t1\t1\t0.36\t1\t0\n1\t1\t1\t1.24\t1\t0\n2\t1\t1\t0.0734\t1\t0\n")
    log = read_log(tmp_path / "log.tsv")
    assert (log.high - log.low) == pytest.approx([0.001, 0.01, 0.0001], rel=1e-3)
    (tmp_path / "log.tsv").write_text(HEADER + "0\t1\t1\t0.5\t1\t0\n1\t1\t1\t1.234\t1\t0\n2\t1\t1\t0.073\t1\t0\n")
    log = read_log(tmp_path / "log.tsv")
    assert (log.high - log.low) == pytest.approx([0.001, 0.001, 0.001], rel=1e-3)


@pytest.mark.skipif(RECORDED is None, reason="BUCKLER_RECORDED_LOGS names no folder of recorded logs")
def test_recorded_logs_fit_one_of_two_levels() -> None:
    """Every recorded log fits 0.001 or 0.01 without a single impossible radius, and most of them only 0.01."""
    paths = sorted(Path(str(RECORDED)).glob("*_sigma_*.tsv"))
    assert paths
    for path in paths:
        log = read_log(path)
        sigma = float(path.stem.rsplit("_", 1)[1])
        fitting = {f.alpha for f in find_fits(log, sigma=sigma) if f.n == 100_000 and f.sigma == sigma}
        assert fitting & {0.001, 0.01}, path.name
        if "all10000" in path.name:
            assert fitting == {0.001}, path.name
        if "imagenet" in path.name:
            assert fitting == {0.01}, path.name


STATED = {"method": "top_class", "margin": "quantile", "alpha": "0.01", "n": "100", "sigma": "0.5", "noise": "gaussian"}


def stating(path: Path, *settings: dict[str, str]) -> Path:
    """Write a log of one line for each of some settings, its radius that of 80 votes of 100."""
    radius = f"{float(radius_of(80, 100, 0.01, 0.5)) - 1e-7:.6f}"
    lines = ["\t".join((f"{i}\t1\t1\t{radius}\t1\t0", *one.values())) for i, one in enumerate(settings)]
    path.write_text("\n".join([HEADER.strip() + "\t" + "\t".join(STATED), *lines]))
    return path


def test_a_log_of_ours_states_its_settings(tmp_path: Path) -> None:
    path = stating(tmp_path / "log.tsv", STATED)
    found = import_log(path, out=tmp_path / "run")
    assert [(one.alpha, one.n, one.sigma) for one in found.fits] == [(0.01, 100, 0.5)]
    assert open_evidence(tmp_path / "run").counts().values.tolist() == [[0, 80, 20]]
    for claim in ({"alpha": 0.02}, {"n": 101}, {"sigma": 0.25}):
        with pytest.raises(InvalidInput, match="as the log says"):
            import_log(path, **claim)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("method", "exact"),
        ("method", "pairwise/star"),
        ("margin", "probability"),
        ("n", "many"),
        ("alpha", "2"),
        ("noise", "gaussian:scale=2.0"),
        ("noise", "splitting:lam=2.5"),
        ("sigma", "-"),
    ],
)
def test_a_log_whose_votes_cannot_be_recovered_is_refused(column: str, value: str, tmp_path: Path) -> None:
    other = {**STATED, column: value}
    for lines in ([other], [STATED, other]):
        with pytest.raises(InvalidInput, match="the log must be of one alpha, n and sigma"):
            import_log(stating(tmp_path / "log.tsv", *lines), alpha=0.01, n=100, sigma=0.5, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_votes_of_an_unknown_number_of_draws_are_not_written(tmp_path: Path) -> None:
    """A log of 10,000 draws fits 100,000 as well; votes of those would certify more at 1e-6 than its own ever did."""
    n, sigma, votes = 10_000, 0.5, np.arange(6000, 9900, 13)
    radii = radius_of(votes, n, 1e-3, sigma)
    lines = [f"{i}\t0\t0\t{radius:.3g}\t1\t0\n" for i, radius in enumerate(radii.tolist())]
    (tmp_path / "log.tsv").write_text(HEADER + "".join(lines))
    guessed = import_log(tmp_path / "log.tsv", sigma=sigma).fits[0]
    assert guessed.n == 100_000
    few, _ = fewest_votes(read_log(tmp_path / "log.tsv"), guessed.n, guessed.alpha, sigma)
    assert (radius_of(few, guessed.n, 1e-6, sigma) > radius_of(votes, n, 1e-6, sigma)).any()
    for given in ({"sigma": sigma}, {"sigma": sigma, "n": n}, {"alpha": 1e-3, "n": n}, {"alpha": 1e-3, "sigma": sigma}):
        with pytest.raises(InvalidInput, match="alpha, n and sigma of the log must be given"):
            import_log(tmp_path / "log.tsv", out=tmp_path / "run", **given)  # type: ignore[arg-type]
    import_log(tmp_path / "log.tsv", alpha=1e-3, sigma=sigma, n=n, out=tmp_path / "run")
    for alpha in (1e-6, 0.1):
        certificates = certify_evidence(open_evidence(tmp_path / "run"), alpha=alpha, method="top_class")
        own = np.maximum(radius_of(votes, n, alpha, sigma), 0.0)
        assert (np.array([c.radius for c in certificates]) <= own * (1.0 + 1e-12)).all()


def test_a_log_holds_plain_l2_radii_alone(tmp_path: Path) -> None:
    """It has no place for the scale of an ellipsoid: read again, such a radius would be a ball's."""
    made = certify_votes([[990, 10]], noise=Gaussian(scale=[0.5, 0.25]), labels=[0], ids=["0"])
    with pytest.raises(InvalidInput, match="scaled l2"):
        write_log(tmp_path / "log.tsv", made, [0])
