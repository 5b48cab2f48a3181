"""``buckler accuracy`` and ``buckler conformal`` as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

from buckler import RobustConformal, population_accuracy
from buckler.cli.app import run
from buckler.evaluate.population import plan_population
from buckler.noise import DerandomizedSplitting
from buckler.runs.logs import import_log
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.runs.victim import linear, spec

X = np.random.default_rng(0).random((90, 1, 8, 8)).astype(np.float32)
Y = linear(X).argmax(axis=1)
LOG = Path(__file__).parents[1] / "golden" / "usual_log.tsv"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs: 60 inputs with labels, 30 others, and ones that do not go with them."""
    home: Path = tmp_path_factory.mktemp("statements")
    settings = {"data": "x", "limit": None, "n": 100, "n0": 0, "scores": "logits", "runner_ups": None, "sigma": 0.1}
    classifier = as_classifier(linear, num_classes=10)
    for name, part, changes in (
        ("known", slice(0, 60), {}),
        ("new", slice(60, 90), {"seed": 1}),
        ("same noise", slice(60, 90), {}),
        ("overlapping", slice(59, 70), {"seed": 1}),
        ("noisier", slice(60, 90), {"sigma": 0.2, "seed": 1}),
        ("votes", slice(0, 60), {"scores": "none"}),
        ("fewer", slice(60, 90), {"seed": 1, "n": 60}),
    ):
        sample(spec(**{**settings, **changes}), classifier, from_arrays(X[part], Y[part]), home / name)
    sample(spec(**settings), classifier, from_arrays(X[:5]), home / "unlabelled")
    sample(spec(**settings), classifier, from_arrays(X[:60], Y[:60]), home / "begun", max_samples=4000)
    long = spec(**{**settings, "scores": "none", "n": 2000, "checkpoints": (2000,)})
    sample(long, classifier, from_arrays(X[:2], Y[:2]), home / "long")
    sample(long, classifier, from_arrays(X[:2], Y[:2]), home / "untouched", max_samples=1)
    values = {"scores": "none", "sigma": None, "noise": DerandomizedSplitting(0.5), "n": 255, "checkpoints": ()}
    same = as_classifier(lambda batch: np.tile(np.arange(10.0), (len(batch), 1)), num_classes=10)
    sample(spec(**{**settings, **values}), same, from_arrays(np.round(X[:2]), Y[:2]), home / "enumerated")
    import_log(LOG, alpha=0.01, n=100_000, sigma=0.5, out=home / "imported")
    return home


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run([str(word) for word in words]) == 0
    return capsys.readouterr().out


def mistake(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run([str(word) for word in words]) == 2
    return capsys.readouterr().err


def test_accuracy_is_that_of_the_function(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes = open_evidence(here / "known").counts(50)
    assert votes.labels is not None
    for flag in ([], ["--list"]):
        found = population_accuracy(
            votes.values, votes.labels, [0.01, 0.05], sigma=0.1, delta=0.1, seed=3, fixed_list=bool(flag)
        )
        line = ["accuracy", here / "known", "--radii", "0.01,0.05", "--delta", "0.1", "--n", "50", "--seed", "3", *flag]
        shown = json.loads(told(capsys, *line, "--json"))
        assert shown["low"] == found.low.tolist()
        assert shown["low"][0] > 0.3
        assert told(capsys, *line).strip() == str(found)


def test_a_plan_says_what_a_limit_takes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "--like", here / "known", "--radii", "0.01", "--accuracy"]
    made = json.loads(told(capsys, *line, "0.3", "--json"))
    votes = open_evidence(here / "known").counts(100)
    assert votes.labels is not None
    planned = plan_population(votes.values, votes.labels, 0.01, 0.3, sigma=0.1)
    assert made == [{"n": one.n, "inputs": one.inputs, "draws": one.n * one.inputs} for one in planned]
    assert [one.n for one in planned] == [20, 40, 80, 160, 320]
    assert f"{made[0]['draws']:,}" in told(capsys, *line, "0.3")
    assert "not expected to reach 0.999" in told(capsys, *line, "0.999")
    assert "one radius" in mistake(capsys, "plan", "--like", here / "known", "--radii", "0.1,0.2", "--accuracy", "0.3")
    assert "must have labels" in mistake(capsys, *("plan", "--like", here / "unlabelled"), *line[3:], "0.3")


def test_a_plan_takes_no_certificates_for_decisions(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made.parquet"
    told(capsys, "certify", here / "known", "--out", made)
    line = ["plan", "--inputs", "10", "--classes", "10", "--rate", "100", "--sigma", "0.1", "--like", made]
    assert "must be a file of buckler decide; it holds certificates" in mistake(capsys, *line)


def test_a_run_that_is_not_finished_is_used_and_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", str(here / "begun"), "--radii", "0.01", "--json"]) == 0
    shown = capsys.readouterr()
    done = json.loads(shown.out)["inputs"]
    assert 0 < done < 60
    assert f"not finished: {done} of 60 inputs" in shown.err


def test_accuracy_names_what_is_wrong(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lacking in (
        ("unlabelled", "must have labels (sample takes them from --data"),
        ("enumerated", "must have noise that is drawn at random, not splitting noise with lambda 0.5, each of"),
        ("long", "must have a checkpoint of at most 1,000 draws (its first is 2,000)"),
        ("untouched", "must have a finished shard"),
        ("imported", "must have votes that were counted, not recovered from a log"),
    ):
        said = mistake(capsys, "accuracy", here / name, "--radii", "0.1")
        assert lacking in said
        assert said.count("must have") == 1
    assert "n must be one of the checkpoints" in mistake(
        capsys, "accuracy", here / "known", "--radii", "0.1", "--n", "3"
    )
    assert "n must be a whole number from 1 to 1000" in mistake(
        capsys, "accuracy", here / "long", "--radii", "0.1", "--n", "2000"
    )
    assert "--radii" in mistake(capsys, "accuracy", here / "known")


def test_sets_are_those_of_the_class(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, new = (open_evidence(here / name).counts(20) for name in ("known", "new"))
    made = RobustConformal(sigma=0.1, radius=0.02, alpha=0.2).calibrate(known.values, Y[:60], seed=1)
    sets = made.predict_sets(new.values)
    line = ["conformal", here / "known", here / "new", "--radius", "0.02", "--alpha", "0.2", "--n", "20", "--seed", "1"]
    lines = [json.loads(text) for text in told(capsys, *line, "--json").splitlines()]
    assert [one["classes"] for one in lines] == [np.flatnonzero(row).tolist() for row in sets]
    assert [one["id"] for one in lines] == list(new.ids)
    text = told(capsys, *line)
    assert str(made) in text
    assert f"30 inputs, mean size of a set {sets.sum(axis=1).mean():.3f} of 10 classes" in text


def test_every_label_may_have_its_threshold(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, new = (open_evidence(here / name).counts(20).values for name in ("known", "new"))
    made = RobustConformal(sigma=0.1, radius=0.02, alpha=0.2).calibrate(known, Y[:60], by_label=True)
    line = ["conformal", here / "known", here / "new", "--radius", "0.02", "--alpha", "0.2", "--n", "20", "--by-label"]
    lines = [json.loads(text) for text in told(capsys, *line, "--json").splitlines()]
    assert [one["classes"] for one in lines] == [np.flatnonzero(row).tolist() for row in made.predict_sets(new)]
    text = told(capsys, *line)
    assert str(made) in text
    assert "probability at least 0.8, whichever class that is, over calibration inputs" in text
    assert "whichever" not in told(capsys, *line[:-1])


def test_by_default_both_runs_use_the_most_draws_that_both_have(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = told(capsys, "conformal", here / "known", here / "fewer", "--radius", "0.02", "--alpha", "0.2")
    assert "of 50 votes" in shared


def test_scores_of_stored_logits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["conformal", here / "known", here / "new", "--radius", "0.02", "--alpha", "0.2", "--scores", "--n", "20"]
    assert "of 20 scores of at least" in told(capsys, *line)


def test_conformal_names_what_is_wrong(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for known, new, named in (
        ("known", "noisier", "noise"),
        ("known", "overlapping", "different inputs"),
        ("known", "same noise", "share noise"),
        ("unlabelled", "new", "labels"),
    ):
        assert named in mistake(capsys, "conformal", here / known, here / new, "--radius", "0.02")
