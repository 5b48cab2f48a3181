"""``buckler reproduce`` on small evidence, limits of recorded runs, and docs/reproduction.md, which it wrote."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.cli.app import run
from buckler.errors import InvalidInput
from buckler.paper.estimators import ESTIMATES, is_limit, method_of
from buckler.paper.library import open_library, recorded_limits
from buckler.paper.printed import ALPHA, FIGURES, TABLES
from buckler.paper.reproduced import INVALID, PRINTED, VALID, Reproduced, reproduce_figure, reproduce_table, text_table
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.types import AnyArray, MarginKind
from tests.runs.victim import run as run_here
from tests.runs.victim import spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")

LOGITS: dict[str, Any] = {"scores": "logits", "runner_ups": None, "limit": 8, "n": 500, "n0": 30, "shard_inputs": 8}


def draw(folder: Path, means: AnyArray, *, max_samples: int | None = None, **changes: Any) -> None:
    def classify(batch: AnyArray) -> AnyArray:
        return np.asarray(4.0 * (batch.reshape(len(batch), -1) @ means.T - (means**2).sum(axis=1) / 2.0))

    data = open_dataset("digits").select(limit=8)
    made = spec(**{**LOGITS, **changes})
    sample(made, as_classifier(classify, num_classes=10), data, folder, max_samples=max_samples)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("reproduce") / "evidence"
    digits = open_dataset("digits")
    assert digits.labels is not None
    # The nearest class mean: a classifier that is mostly right, under noise too, in one line.
    x = digits.load(0, len(digits)).reshape(len(digits), -1)
    means = np.stack([x[digits.labels == k].mean(axis=0) for k in range(10)]).astype(np.float32)
    draw(home / "cifar10-sigma0.12", means, sigma=0.12, score_dtype="float16", score_draws=100)
    draw(home / "cifar10-sigma0.50", means, sigma=0.5, score_dtype="float16")
    votes: dict[str, Any] = {"scores": "none", "n": 10_000}
    draw(home / "cifar10-sigma0.12-counts", means, sigma=0.12, **votes)
    draw(home / "cifar10-sigma0.50-counts", means, sigma=0.5, **votes, shard_inputs=4, max_samples=41_000)
    thousand: dict[str, Any] = {"scores": "softmax", "temperature": 0.5, "runner_ups": 2, "score_draws": 100}
    draw(home / "imagenet-sigma0.25-T0.5", means, sigma=0.25, **thousand, model="examples.efficientnet_lite0:make")
    return home


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_everything(evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    page = tmp_path / "docs" / "reproduction.md"
    command = ["reproduce", "all", "--evidence", str(evidence), "--out", str(out), "--page", str(page)]
    assert run([*command]) == 0
    shown = capsys.readouterr()
    assert f"Written: {page}" in shown.out
    assert "cifar10-sigma0.50-counts is not finished" in shown.err
    names = {path.name for path in out.iterdir()}
    assert {f"table{k}{end}" for k in (1, 2, 3) for end in (".md", ".tex", ".csv")} < names
    figures = ("discrete_n", "discrete_sigma", "continuous_n", "continuous_sigma", "continuous_temperature")
    assert {f"cifar10_{f}{end}" for f in figures for end in (".png", ".pdf")} < names
    assert {f"imagenet_{f}.png" for f in figures if f != "continuous_n"} < names
    text = page.read_text(encoding="utf-8")
    assert "](../out/figures.png)" in text
    assert "figures.png" in names
    assert "no valid bound at level 0.001 can exceed 3.000" in text
    assert ". `cifar10_continuous_n`: Figure 5 of the paper, for different numbers of samples: CIFAR-10," in text
    assert "A the true label. EfficientNet-Lite0: not trained with noise, and not the ResNet-50 of the paper." in text
    assert re.search(r"differ from the printed ones by 0\.\d{3} on average", text)
    assert "{{" not in text
    assert "\n\n\n" not in text


def test_table_1_beside_the_paper(evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table1", "--evidence", str(evidence), "--out", str(tmp_path)]
    assert run(command) == 0
    assert "| 100 | paper: Ours | printed in the paper | 0.780 |" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table1.csv", "table1.md", "table1.tex"]
    table = {(row["n"], row["row"]): row for row in rows(tmp_path / "table1.csv")}
    printed = TABLES["table1"].rows[100]
    for name, numbers in zip(("CP + Bonferroni", "Ours"), printed, strict=True):
        row = table["100", f"paper: {name}"]
        assert row["standing"] == PRINTED
        assert [float(row[f"{m:g}"]) for m in TABLES["table1"].margins] == list(numbers)
    exact, published = table["100", "exact (ours)"], table["100", "paper's method as printed"]
    assert (exact["standing"], published["standing"]) == (VALID, INVALID)
    assert [float(exact[m]) for m in ("3.5", "4", "4.5")] == [0.0, 0.0, 0.0]
    assert float(published["4.5"]) == float(published["3.5"]) > 0.0
    assert all(float(exact[m]) >= float(table["100", "CP + Bonferroni"][m]) for m in ("0.5", "1", "2", "3"))
    assert float(table["10000", "margin of the frequencies"]["0.5"]) >= float(exact["0.5"])


def test_a_figure_marks_what_is_no_certificate(evidence: Path) -> None:
    figure = next(figure for figure in FIGURES if figure.number == 5)
    found = reproduce_figure(figure, open_library(evidence))
    assert found is not None
    columns, title = found
    assert [name for name, _, _ in columns] == ["n 100", "n 300", "n 500"]
    assert title.endswith("A the true label")
    first, second = columns[0][1:]
    assert not any("not a certificate" in curve.name for curve in first)
    assert [curve.name for curve in second if "not a certificate" in curve.name] == [
        "paper's method, CS (not a certificate)",
        "paper's method, Bernstein (not a certificate)",
    ]
    assert all((curve.low == curve.accuracy).all() for curve in second if "not a certificate" in curve.name)


def test_table_3_says_what_is_no_certificate(
    evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", "table3", "--evidence", str(evidence), "--out", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    found = rows(tmp_path / "table3.csv")
    assert {row["n"] for row in found} == {"100", "300", "500"}
    standing = {row["row"]: row["standing"] for row in found}
    assert standing["paper's method, CS"] == INVALID
    assert standing["pairwise/star (ours)"] == standing["CS + Bonferroni"] == VALID


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["table4"], "part must be one of"),
        (["table1", "--evidence", "nowhere"], "evidence must be a folder that holds finished runs"),
        (["table1", "--page", "p.md"], "page is for 'all'"),
        (["table2", "--evidence", "other"], "no run that table2 could be made from"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    text: str,
    evidence: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "evidence").symlink_to(evidence)
    (tmp_path / "other" / "cifar10-sigma0.12").symlink_to(evidence / "cifar10-sigma0.12")
    assert run(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.strip().splitlines()) == 1


def test_what_the_paper_prints_hangs_together() -> None:
    for table in TABLES.values():
        for baseline, own in table.rows.values():
            assert len(baseline) == len(own) == len(table.margins) == 9
            assert all(a <= b for a, b in zip(baseline, own, strict=True))
            for row in (baseline, own):
                assert list(row) == sorted(row, reverse=True)
    assert [figure.number for figure in FIGURES] == list(range(3, 12))
    assert FIGURES[1].at(500).n == 500


def shown(table: Reproduced) -> list[str]:
    """Return the lines of a table as they stand on the page, without its header."""
    return [line for line in text_table(table).to_markdown().splitlines()[2:] if line.startswith("|")]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_on_the_page_are_those_of_the_evidence(name: str) -> None:
    # n = 100 and the last rows, to be quick.
    printed = replace(TABLES[name], rows={100: TABLES[name].rows[100]})
    made = reproduce_table(printed, open_library(ROOT / "evidence"))
    assert made is not None
    found = shown(made)
    assert len(found) > 6
    for row in found:
        assert row in PAGE
    # One image more, in one cell, would be noticed.
    line = made.lines[-2]
    other = replace(line, accuracy=(line.accuracy[0] + 1 / 500, *line.accuracy[1:]))
    stale = replace(made, lines=(*made.lines[:-2], other, made.lines[-1]))
    assert not all(row in PAGE for row in shown(stale))


def test_saturated_scores_of_the_evidence_are_answered() -> None:
    """Of an image whose scores never vary, as many selection draws have the same ones."""
    (figure,) = (figure for figure in FIGURES if figure.number == 11)
    found = reproduce_figure(replace(figure, columns=(0.1,)), open_library(ROOT / "evidence"))
    assert found is not None
    assert [name for name, _, _ in found[0]] == ["temperature 0.1"]


def test_the_page_names_every_figure_in_order() -> None:
    assert re.findall(r"^\d+\. `(\w+)`: Figure", PAGE, re.MULTILINE) == [f"{f.data}_{f.name}" for f in FIGURES]


BASE: dict[str, Any] = {"scores": "logits", "runner_ups": None, "limit": 6, "n": 200, "n0": 30}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("limits")
    run_here(str(folder / "digits-sigma0.25"), spec=spec(**BASE))
    run_here(str(folder / "digits-sigma0.25-kept"), spec=spec(**{**BASE, "scores": "softmax", "runner_ups": 2}))
    return folder


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_sound_limits_are_those_of_certificates(home: Path, margin: MarginKind) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    for methods, temperature in ((("exact", "bonferroni"), None), (("pairwise/star",), 0.5)):
        limits = recorded_limits(evidence, [method_of(name) for name in methods], margin, 100, temperature)
        for name, found in zip(methods, limits, strict=True):
            certificates = certify_evidence(
                evidence, alpha=ALPHA, method=name, margin=margin, n=100, certified_class="label",
                temperature=temperature,
            )  # fmt: skip
            assert found.sound, name
            assert found.low.tolist() == [c.margin for c in certificates], name


def test_which_of_the_papers_are_limits() -> None:
    assert not is_limit(method_of("published"), "probability")
    assert is_limit(method_of("baseline/sequence"), "quantile")
    for method in ("cited/sequence", "cited/bernstein", "published/sequence"):
        assert is_limit(method_of(method), "probability")
        assert not is_limit(method_of(method), "quantile")
    assert not is_limit(method_of("published/bernstein"), "probability")
    for estimate in ESTIMATES.values():
        assert not is_limit(estimate, "probability")


def test_kept_columns_and_all_classes_give_the_same(home: Path) -> None:
    """The maximum of the rest is the runner-up of the classes left out, and alpha is shared by all ten of them."""
    names = ("cited/sequence", "baseline/bernstein", "published/sequence")
    both = (
        recorded_limits(
            open_evidence(home / f"digits-sigma0.25{end}"), [method_of(name) for name in names], "probability", 200, 1.0
        )
        for end in ("", "-kept")
    )
    for name, whole, kept in zip(names, *both, strict=True):
        assert np.isfinite(whole.low).all(), name
        assert kept.low == pytest.approx(whole.low, abs=1e-4), name


def test_estimates_are_margins_of_means(home: Path) -> None:
    evidence = open_evidence(home / "digits-sigma0.25")
    (found,) = recorded_limits(evidence, [ESTIMATES["votes"]], "probability", 200, None)
    votes = evidence.counts()
    labels = votes.labels
    assert labels is not None
    rows = votes.values / 200
    own = rows[np.arange(len(rows)), labels]
    rows[np.arange(len(rows)), labels] = -1.0
    assert found.low.tolist() == (own - rows.max(axis=1)).tolist()
    assert not found.sound
    means = [scores.values[0].mean(axis=0) for scores, _, _ in evidence.scores(temperature=1.0)]
    (seems,) = recorded_limits(evidence, [ESTIMATES["scores"]], "probability", 200, 1.0)
    for low, mean, label in zip(seems.low, means, labels, strict=True):
        assert low == pytest.approx(mean[label] - np.delete(mean, label).max(), abs=1e-12)


def test_a_library_finds_the_smallest_run_that_answers(home: Path, tmp_path: Path) -> None:
    library = open_library(home)
    assert library.sigmas("digits") == (0.25,)
    found = library.find("digits", 0.25, 100, 0.1)
    assert found is not None
    assert found.root.name == "digits-sigma0.25"
    assert library.find("digits", 0.25, 100, None) is not None
    assert library.find("digits", 0.5, 100, None) is None
    assert library.find("digits", 0.25, 150, None) is None
    assert library.nearest_truth("digits", 0.25, 201) is None
    with pytest.raises(InvalidInput, match="does not hold"):
        recorded_limits(
            open_evidence(home / "digits-sigma0.25-kept"), [method_of("pairwise/star")], "quantile", 100, 0.1
        )
    run_here(str(tmp_path / "digits-sigma0.25"), spec=spec(**BASE), max_samples=1000)
    with pytest.raises(InvalidInput, match="not being finished"):
        open_library(tmp_path)
