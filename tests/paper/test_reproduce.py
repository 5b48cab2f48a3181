"""``buckler reproduce`` as a user types it, on small evidence of its own."""

import csv
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from buckler import certificate
from buckler.certify import methods
from buckler.certify.methods import own_method
from buckler.cli.app import run
from buckler.paper.library import open_library
from buckler.paper.page import page_facts, reproduction_page
from buckler.paper.peers import expected_accuracy, peer_summary, peer_table
from buckler.paper.printed import FIGURES, TABLES
from buckler.paper.reproduced import INVALID, PRINTED, VALID, Line, Reproduced, reproduce_figure, reproduce_table
from buckler.runs.logs import read_log
from buckler.runs.sample import sample
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.types import AnyArray
from tests.runs.victim import spec

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
    assert "](../out/cifar10_continuous_n.png)" in text
    assert "no valid bound at level 0.001 can exceed 3.000" in text
    assert "*Figure 5 of the paper, for different numbers of samples: CIFAR-10, continuous case, sigma 0.5," in text
    assert "A the true label. EfficientNet-Lite0: not trained with noise, and not the ResNet-50 of the paper." in text
    assert re.search(r"differ from the printed ones by 0\.\d{3} on average", text)
    assert "{{" not in text
    assert "\n\n\n" not in text


def test_the_page_shows_the_selected_class_only_where_it_differs(evidence: Path) -> None:
    library = open_library(evidence)
    own = reproduce_table(TABLES["table1"], library, "label")
    assert own is not None
    rest = tuple(line for line in own.lines if line.standing != PRINTED)
    same = replace(own, name="table1_selected", lines=rest, selected=True)
    first = same.lines[0]
    other = replace(first, accuracy=(first.accuracy[0] + 0.002, *first.accuracy[1:]))
    for again, differs in ((same, False), (replace(same, lines=(other, *same.lines[1:])), True)):
        facts = page_facts(library, [own, again], [])
        text = reproduction_page([own, again], {}, facts, folder="tables", command="buckler")
        assert ("### Selected class\n" in text) == differs
        assert ("every cell is the same (`table1_selected.csv`)" in text) != differs
        assert ("| 1, selected class | 100 |" in text) == differs


def test_figures_of_the_selected_class_are_named(evidence: Path) -> None:
    facts = page_facts(open_library(evidence), [], [])
    both = {"a.png": "Caption.", "a_selected.png": "Other."}
    text = reproduction_page([], both, facts, folder="out", command="buckler")
    assert "![Caption.](out/a.png)" in text
    assert "The same with the selected class: `a_selected.png`" in text
    assert "![Other.]" not in text
    alone = reproduction_page([], {"a_selected.png": "Other."}, facts, folder="out", command="buckler")
    assert "![Other.](out/a_selected.png)" in alone


def test_the_page_shows_logs_of_the_sigma_that_was_trained_with() -> None:
    shares = {"exact": (0.5, 0.25), "top_class": (0.5, 0.25), "bonferroni": (0.5, 0.2)}
    rows = tuple(Line(100, name, name, "expected", share) for name, share in shares.items())
    names = [f"cohen2019_cifar10_resnet110_noise_{end}" for end in (
        "0.25_test_sigma_0.25", "0.25_test_sigma_0.50", "0.25_all10000_sigma_0.25", "0.25_train_sigma_0.25"
    )]  # fmt: skip
    made = [Reproduced(name, "", (0.5, 1.0), rows, "bonferroni", "exact") for name in [*names, "mine"]]
    table, others = peer_summary(made)
    assert others == names[1:]
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ("CIFAR-10, ResNet-110, sigma 0.25", "exact, top_class"),
        ("CIFAR-10, ResNet-110, sigma 0.25", "bonferroni"),
        ("mine", "exact, top_class"),
        ("mine", "bonferroni"),
    ]
    assert table.rows[0][3:] == ("0.500", "0.250")
    assert peer_summary(made[1:2]) == (None, names[1:2])


def test_table_1_beside_the_paper(evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table1", "--evidence", str(evidence), "--out", str(tmp_path)]
    assert run(command) == 0
    assert "| 100 | paper: Ours | printed in the paper | 0.780 |" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"table1{of}.{kind}" for of in ("", "_selected") for kind in ("csv", "md", "tex")
    ]
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


def test_a_figure_for_the_selected_class(evidence: Path) -> None:
    figure = next(figure for figure in FIGURES if figure.label == "fig:cont_num")
    found = reproduce_figure(figure, open_library(evidence), "selection")
    assert found is not None
    columns, title = found
    assert [name for name, _, _ in columns] == ["n 100", "n 300", "n 500"]
    assert title.endswith("A selected on separate draws")
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
    assert not any(row["standing"] == PRINTED for row in rows(tmp_path / "table3_selected.csv"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["table4"], "part must be one of"),
        (["table1", "--evidence", "nowhere"], "evidence must be a folder that holds finished runs"),
        (["table1", "--page", "p.md"], "page is for 'all'"),
        (["table1", "--log", "empty"], "log must name logs"),
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
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "evidence").symlink_to(evidence)
    (tmp_path / "other" / "cifar10-sigma0.12").symlink_to(evidence / "cifar10-sigma0.12")
    assert run(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.strip().splitlines()) == 1


def test_a_log_of_our_own(evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A method that a user has registered, here one for the other margin, is none of the paper's.
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))
    monkeypatch.setattr(certificate, "_TIES", dict(certificate._TIES))
    nothing = own_method("own:nothing", lambda _, alpha: alpha, margins=("probability",), sound=True)
    methods.register(nothing)
    log = Path(__file__).parents[1] / "golden" / "usual_log.tsv"
    assert run(["reproduce", "table1", "--evidence", str(evidence), "--out", str(tmp_path), "--log", str(log)]) == 0
    table = rows(tmp_path / "usual_log.csv")
    assert {row["row"] for row in table} >= {"exact", "bonferroni", "top_class", "published"}
    assert {row["standing"] for row in table if row["row"] == "published"} == {f"expected; {INVALID}"}


@pytest.mark.skipif("BUCKLER_RECORDED_LOGS" not in os.environ, reason="needs the folder of recorded logs")
def test_the_logs_of_others() -> None:
    path = Path(os.environ["BUCKLER_RECORDED_LOGS"]) / "cohen2019_cifar10_resnet110_noise_0.12_test_sigma_0.12.tsv"
    log, margins = read_log(path), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    # An independent computation took Phi(radius / sigma), a lower limit, for p_A; its figures come out to the digit.
    right = log.certified & (log.predicted == log.labels)
    p = np.where(right, ndtr((log.low + log.high) / 2.0 / 0.12), 0.0)
    known: dict[str, list[float]] = {
        "bonferroni": [0.742, 0.714, 0.679, 0.633, 0.573, 0.0],
        "top_class": [0.744, 0.718, 0.687, 0.643, 0.573, 0.515],
    }
    lines = {line.method: line.accuracy for line in peer_table(path).lines if line.n == 100}
    for method, figures in known.items():
        lower = expected_accuracy(p, margins, 100, method=method, num_classes=10)
        assert np.abs(lower - figures).max() < 6e-4
        # The table takes the share of votes itself, which is a little more.
        assert all(a >= b for a, b in zip(lines[method], lower, strict=False))
    assert all(a >= b for a, b in zip(lines["exact"], lines["bonferroni"], strict=True))
