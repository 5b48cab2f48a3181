"""``buckler sample`` and ``buckler certify`` as a user types them."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from buckler.cli.app import run
from buckler.runs.store.tables import read_certificates

MODELS = """
import time
import numpy as np
WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype("f4")
class Linear:
    num_classes = 10
    def __call__(self, batch):
        return batch.reshape(len(batch), -1) @ WEIGHTS
class Slow(Linear):
    def __call__(self, batch):
        time.sleep(0.05)
        return super().__call__(batch)
def linear():
    return Linear()
def slow():
    return Slow()
class Counted(Linear):
    rows = 0
    def __call__(self, batch):
        Counted.rows += len(batch)
        if Counted.rows > 900:
            raise KeyboardInterrupt
        return super().__call__(batch)
def counted():
    return Counted()
def images():
    return lambda batch: batch.reshape(len(batch), -1)[:, :3]
"""
SAMPLE = ["--data", "digits", "--sigma", "0.25", "--n", "100", "--n0", "20", "--num-classes", "10"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_models_for_sample.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sample(*options: str, model: str = "linear") -> int:
    return run(["sample", "run", "--model", f"test_models_for_sample:{model}", *SAMPLE, *options])


def test_sample_then_certify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample("--every", "50", "--limit", "30", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["complete"]
    assert summary["samples"] == 30 * 120
    assert sample("--every", "50", "--limit", "30", "--quiet") == 0
    for options in ([], ["--n", "50"], ["--class", "label"], ["--margin", "probability"], ["--method", "top_class"]):
        assert run(["certify", "run", "--alpha", "0.01", "--out", "c.parquet", *options]) == 0
        certificates = read_certificates(here / "c.parquet")
        assert len(certificates) == 30
        assert certificates[1].id == "50"
        assert {c.n for c in certificates} == {50 if "--n" in options else 100}
        assert {c.n0 for c in certificates} == {0 if "label" in options else 20}
        assert "30 inputs" in capsys.readouterr().out
    assert run(["certify", "run", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [str(50 * i) for i in range(30)]


def test_a_limit_is_resumable(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--limit", "8", "--shard-inputs", "2", "--quiet"]
    assert sample(*options, "--max-samples", "500") == 3
    assert "Go on with: buckler sample run" in capsys.readouterr().err
    assert run(["certify", "run"]) == 0
    assert "4 of 8 inputs" in capsys.readouterr().err
    for reads in (["sweep", "run"], ["report", "run", "-o", "page.html"]):
        assert run(reads) == 0
        assert "'run' is not finished: 4 of 8 inputs" in capsys.readouterr().err
    assert sample(*options) == 0
    assert run(["report", "run", "-o", "page.html"]) == 0
    assert capsys.readouterr().err == ""
    del here


def test_an_interrupt_in_the_middle_of_an_input_names_the_draws_that_are_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock stands still but for the rows that the model is given: a twentieth of a second for each."""

    def now() -> float:
        counted = getattr(sys.modules.get("test_models_for_sample"), "Counted", None)
        return getattr(counted, "rows", 0) / 20

    monkeypatch.setattr("time.monotonic", now)
    assert sample("--limit", "5", "--n", "5000", "--batch-size", "32", "--quiet", model="counted") == 3
    begun = json.loads((here / "run" / "begun-000000.json").read_text())
    assert begun["done"] > 0
    said = capsys.readouterr().err
    assert f"run keeps 0 of 5 inputs in 0 shards and {begun['done']:,} draws of the input under way" in said
    assert "draws are lost" not in said


def test_a_table_of_labels_is_taken_as_it_is_meant(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "images").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(here / "images" / name)
    table = here / "images" / "labels.csv"
    classes = ["--num-classes", "3", "--model", "test_models_for_sample:images"]
    for rows, named in (
        ("a.png,cat", "must give each class as a whole number, from 0 on; got 'cat' for 'a.png'"),
        ("a.png,3\nb.png,1", "above the largest label, 3; got 3: labels begin at 0, and these seem to begin at 1"),
        ("a.png,3\nb.png,0", "above the largest label, 3; got 3\n"),
        ("a.png,1", "leaves out 1 of 2 images, such as 'b.png': they are not taken\n"),
    ):
        table.write_text(f"file,label\n{rows}\n")
        code = run(["sample", "r" + str(len(rows)), *SAMPLE, "--data", "images", *classes, "--quiet"])
        assert code == (0 if "leaves out" in named else 2)
        assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kept", "chosen"),
    [
        (["--scores", "softmax", "--runner-ups", "2"], []),
        (["--scores", "logits"], ["--map", "softmax", "--temperature", "2"]),
        (["--scores", "sparsemax"], ["--method", "pairwise/bernstein", "--class", "label", "--margin", "probability"]),
    ],
)
def test_scores_are_certified(
    here: Path, kept: list[str], chosen: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample("--limit", "6", "--quiet", *kept) == 0
    method = [] if "--method" in chosen else ["--method", "pairwise/star"]
    assert run(["certify", "run", "--alpha", "0.05", "--out", "c.parquet", *method, *chosen]) == 0
    certificates = read_certificates(here / "c.parquet")
    assert [c.id for c in certificates] == [str(i) for i in range(6)]
    assert {c.map for c in certificates} == {"sparsemax" if "sparsemax" in kept else "softmax"}
    assert {c.temperature for c in certificates} == {2.0 if "2" in chosen else None if "sparsemax" in kept else 1.0}
    assert "label" in chosen or any(not c.abstained for c in certificates)
    assert "6 inputs" in capsys.readouterr().out
    assert run(["certify", "run", "--map", "softmax"]) == 2
    assert run(["certify", "run", "--method", "magic/star"]) == 2


def test_a_file_where_a_run_is_expected_is_pointed_to_what_reads_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decide = ["decide", "--radii", "0.01", "--model", "test_models_for_sample:linear", "--limit", "2"]
    assert run([*decide, *SAMPLE[:4], *SAMPLE[-2:], "--max-n", "64", "--out", "d.parquet", "--quiet"]) == 0
    for command in (["certify"], ["sweep"], ["accuracy", "--radii", "0.1"]):
        assert run([*command, "d.parquet"]) == 2
        assert "a run is a folder that buckler sample wrote; buckler report and buckler" in capsys.readouterr().err
    assert run(["certify", "nowhere"]) == 2
    assert "not a run" in capsys.readouterr().err
    (here / "c.csv").write_text("id,predicted\n")
    assert run(["report", "c.csv"]) == 2
    told = capsys.readouterr().err
    assert "must be a folder of buckler sample or a Parquet file of certificates" in told
    assert "does not exist" not in told
    assert run(["report", "nowhere.parquet"]) == 2
    assert "got 'nowhere.parquet', which does not exist" in capsys.readouterr().err
    assert run(["sample", "c.csv", *SAMPLE, "--model", "test_models_for_sample:linear"]) == 2
    assert "OUT must be a folder; got 'c.csv', which is a file" in capsys.readouterr().err
