"""A run knows its data and says who drew it: environments in every seal, contents compared, manifests lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from buckler.cli.app import run
from buckler.errors import BucklerError, StoreError
from buckler.runs.certify import certify_evidence
from buckler.runs.provenance import who_drew
from buckler.runs.sample import sample
from buckler.runs.store.compact import compact
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import MANIFEST
from buckler.runs.store.sealed import read_sealed, write_sealed
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays, open_dataset
from buckler.types import AnyArray
from tests.runs.test_identity import SPEC, WEIGHTS, X, drawn_by, go_on, linear

ENVIRONMENT = "buckler.runs.executor.environment"


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch, numpy: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(ENVIRONMENT, lambda _: {"numpy": numpy, "device": "cpu"})
        yield


def seal(home: Path, shard: int) -> dict[str, Any]:
    return read_sealed(home / "run" / "shards" / f"{shard:06d}.json")


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with two shards of one environment and one of another."""
    with elsewhere(monkeypatch, "1.0"):
        go_on(linear, tmp_path, shards=2)
    with elsewhere(monkeypatch, "2.0"):
        with pytest.raises(StoreError, match=r"another environment: numpy: '1\.0' in the folder, '2\.0' asked for"):
            go_on(linear, tmp_path)
        assert go_on(linear, tmp_path, any_environment=True).difference == 0.0
    return tmp_path


def test_every_seal_names_its_environment(mixed: Path) -> None:
    assert [seal(mixed, i)["environment"]["numpy"] for i in range(3)] == ["1.0", "1.0", "2.0"]
    first, second = drawn_by(mixed)
    assert [first["environment"]["numpy"], second["environment"]["numpy"]] == ["1.0", "2.0"]
    assert second["because"] == "any_environment"
    drawn = who_drew(open_evidence(mixed / "run"))
    assert drawn.sentence() == "It was drawn in 2 environments: numpy 1.0 (4 inputs), 2.0 (2 inputs)."
    assert drawn.facts() == {"device": "cpu", "numpy": "1.0 (4 inputs), 2.0 (2 inputs)"}


def test_the_real_environment_is_told(tmp_path: Path) -> None:
    go_on(linear, tmp_path)
    told = seal(tmp_path, 0)["environment"]
    assert told["numpy"] == np.__version__
    assert {"buckler", "machine", "instructions", "device", "torch", "onnxruntime", "scikit-learn"} <= told.keys()
    assert all(isinstance(value, str) and value for value in told.values())


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_lost_manifest_does_not_relabel_shards(mixed: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = mixed / "run" / MANIFEST
    shards = {p: p.read_bytes() for p in (mixed / "run" / "shards").iterdir()}
    manifest.unlink() if how == "deleted" else manifest.write_text("{")
    with elsewhere(monkeypatch, "3.0"), pytest.raises(StoreError, match="another environment"):
        go_on(linear, mixed, repair=True)
    with elsewhere(monkeypatch, "1.0"), pytest.raises(StoreError, match="none can be compared"):
        go_on(lambda b: -linear(b), mixed, repair=True)
    with elsewhere(monkeypatch, "2.0"):
        assert go_on(linear, mixed, repair=True).samples == 100
    assert all(path.read_bytes() == was for path, was in shards.items())
    assert [seal(mixed, i)["environment"]["numpy"] for i in range(4)] == ["1.0", "1.0", "2.0", "2.0"]
    assert [entry["environment"]["numpy"] for entry in drawn_by(mixed)] == ["1.0", "2.0"]
    with elsewhere(monkeypatch, "1.0"):
        assert go_on(linear, mixed).samples == 100


def test_certify_and_report_say_so(
    mixed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with elsewhere(monkeypatch, "1.0"):
        go_on(lambda b: -linear(b), mixed, another_model=True)
    monkeypatch.chdir(mixed)
    assert run(["certify", "run", "--out", "c.parquet"]) == 0
    said = capsys.readouterr().err
    assert "drawn in 2 environments: numpy 1.0 (6 inputs), 2.0 (2 inputs)" in said
    assert "drawn by 2 different classifiers (6, 2 inputs): each certificate is about the one" in said
    for what in ("run", "c.parquet"):
        assert run(["report", what, "-o", "page.html", "--method", "exact"]) == 0
        page = (mixed / "page.html").read_text(encoding="utf-8")
        assert "It was drawn in 2 environments: numpy 1.0 (6 inputs), 2.0 (2 inputs)." in page
        assert "2 different classifiers" in page
    capsys.readouterr()
    assert run(["certify", "run", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def old_version(home: Path) -> None:
    """Take away what an earlier version did not write."""
    manifest = read_sealed(home / "run" / MANIFEST)
    del manifest["drawn_by"]
    manifest["owner"] = {**manifest["owner"], "classifier": "callable:0123", "data": "array:4567"}
    write_sealed(home / "run" / MANIFEST, manifest)
    for path in (home / "run" / "shards").glob("*.json"):
        values = {k: v for k, v in read_sealed(path).items() if k not in {"environment", "classifier"}}
        write_sealed(path, {**values, "owner": manifest["owner"]})


def test_runs_of_an_earlier_version(tmp_path: Path) -> None:
    go_on(linear, tmp_path, shards=2)
    before = certify_evidence(open_evidence(tmp_path / "run"))[0]
    old_version(tmp_path)
    evidence = open_evidence(tmp_path / "run")
    assert certify_evidence(evidence)[0] == before
    assert who_drew(evidence).sentence() == ""
    assert who_drew(evidence).facts()["numpy"] == np.__version__
    with pytest.raises(StoreError, match="earlier version"):
        go_on(linear, tmp_path)
    assert go_on(linear, tmp_path, another_model=True).samples == 100
    assert certify_evidence(open_evidence(tmp_path / "run"))[0][: len(before)] == before
    with pytest.raises(StoreError, match="other values"):
        sample(SPEC, as_classifier(linear, num_classes=3), from_arrays(X * 0.5), tmp_path / "run", another_model=True)


def test_inputs_that_were_drawn_are_compared(tmp_path: Path) -> None:
    model = as_classifier(linear, num_classes=3)
    go_on(linear, tmp_path)
    for changed, text in ((0, "another data set: input '0'"), (1, "'1' has other values"), (11, "input '11'")):
        x = X.copy()
        x[changed] = 0.5
        with pytest.raises(BucklerError, match=text):
            sample(SPEC, model, from_arrays(x), tmp_path / "run")
    x = X.copy()
    x[4] = 0.5  # neither drawn nor asked about: nothing is known of it, and nothing was made of it
    assert sample(SPEC, model, from_arrays(x), tmp_path / "run", max_samples=100).samples == 100
    with pytest.raises(StoreError, match="ids or labels"):
        sample(SPEC, model, from_arrays(X, np.zeros(12, dtype=np.int64)), tmp_path / "run")


def pictures(home: Path, seed: int) -> Path:
    """Write a folder of bitmaps, all files of one size."""
    rng = np.random.default_rng(seed)
    for i in range(12):
        place = home / "images" / f"class{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(place / f"{i:02d}.bmp")
    return home / "images"


def classify_pictures(batch: AnyArray) -> AnyArray:
    return batch[:, 0].reshape(len(batch), -1) @ WEIGHTS


@pytest.mark.parametrize("shards", [0, 2])
def test_a_folder_whose_files_were_replaced(tmp_path: Path, shards: int) -> None:
    place = pictures(tmp_path, 0)
    sizes = {path.stat().st_size for path in place.rglob("*.bmp")}
    model = as_classifier(classify_pictures, num_classes=3)

    def draw(dataset: Dataset) -> Any:
        return sample(SPEC, model, dataset, tmp_path / "run", max_samples=100 * shards + 1)

    draw(open_dataset(place))
    assert len(open_evidence(tmp_path / "run").shards) == shards
    pictures(tmp_path, 1)
    assert {path.stat().st_size for path in place.rglob("*.bmp")} == sizes
    with pytest.raises(StoreError, match=r"another data set: input 'class0/00\.bmp' has other values"):
        draw(open_dataset(place))
    pictures(tmp_path, 0)
    draw(open_dataset(place))


MODEL = """
import numpy as np
SCALE = 1.0
def make():
    return lambda batch: batch[:, 0].reshape(len(batch), -1) @ np.sin(np.arange(48.0)).reshape(16, 3) * SCALE
"""
COMMON = ["--sigma", "0.25", "--num-classes", "3", "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pictures(tmp_path, 0)
    (tmp_path / "model_of_test_drawn.py").write_text(MODEL)
    (tmp_path / "other_of_test_drawn.py").write_text(MODEL + "# renamed\n")
    (tmp_path / "third_of_test_drawn.py").write_text(MODEL.replace("1.0", "2.0"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_of_model_and_data_do_not_matter(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["sample", "run", *COMMON, "--n", "40", "--n0", "10", "--shard-inputs", "2"]
    assert run([*start, "--model", "model_of_test_drawn:make", "--data", "images", "--max-samples", "200"]) == 3
    moved = ["--model", "other_of_test_drawn:make", "--data", str(here / "images")]
    capsys.readouterr()
    assert run([*start, "--model", "third_of_test_drawn:make", "--data", "images"]) == 2
    assert "another classifier" in capsys.readouterr().err
    assert run([*start, *moved]) == 0
    again = ["--model", "model_of_test_drawn:make", "--data", "images"]
    assert run(["sample", "whole", *start[2:], *again]) == 0
    assert {p.name: p.read_bytes() for p in (here / "run" / "shards").iterdir()} == {
        p.name: p.read_bytes() for p in (here / "whole" / "shards").iterdir()
    }
    assert run(["sample", "run", *start[2:], "--model", "third_of_test_drawn:make", "--data", "images"]) == 2


def decide(*options: str, model: str = "model", data: str = "images") -> int:
    chosen = ["--model", f"{model}_of_test_drawn:make", "--data", data, "--max-n", "500", "--out", "t.parquet"]
    return run(["decide", "--target-radius", "0.05", *COMMON, *chosen, *options])


def test_decided_files_know_their_model_and_data(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decide() == 0
    assert decide(model="other", data=str(here / "images")) == 0
    capsys.readouterr()
    assert decide(model="third") == 2
    assert "another classifier: its logits differ by up to" in capsys.readouterr().err
    with elsewhere(monkeypatch, "0.1"):
        assert decide() == 2
        assert "another environment" in capsys.readouterr().err
        assert decide("--any-environment") == 0
    black = Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8))
    black.save(here / "images" / "class0" / "02.bmp")
    for command in ([], ["report", "t.parquet", "-o", "page.html", "--data", "images"]):
        assert (run(command) if command else decide()) == 2
        assert "not what was certified in 't.parquet': 'class0/02.bmp' has other values" in capsys.readouterr().err
    pictures(here, 0)
    assert run(["report", "t.parquet", "-o", "page.html", "--data", "images"]) == 0
    assert (
        run(["decide", "--target-radius", "1", *COMMON, "--another-model", "--model", "m:m", "--data", "images"]) == 2
    )
    assert "--another-model is for going on with --out" in capsys.readouterr().err


def test_a_decided_file_of_two_origins_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(monkeypatch, "1.0"):
        assert decide() == 0
    pq.write_table(pq.read_table(here / "t.parquet").slice(0, 5), here / "t.parquet")
    with elsewhere(monkeypatch, "2.0"):
        assert decide("--any-environment") == 0
    pq.write_table(pq.read_table(here / "t.parquet").slice(0, 10), here / "t.parquet")
    with elsewhere(monkeypatch, "2.0"):
        assert decide("--another-model", model="third") == 0
    assert run(["report", "t.parquet", "-o", "page.html"]) == 0
    page = (here / "page.html").read_text(encoding="utf-8")
    assert "It was drawn in 2 environments: numpy 1.0 (5 inputs), 2.0 (7 inputs)." in page
    assert "It was drawn by 2 different classifiers (10, 2 inputs)" in page


def test_merged_shards_keep_who_drew_them(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compact(mixed / "run").after == 1
    told = "It was drawn in 2 environments: numpy 1.0 (4 inputs), 2.0 (2 inputs)."
    assert who_drew(open_evidence(mixed / "run")).sentence() == told
    (mixed / "run" / MANIFEST).unlink()
    with elsewhere(monkeypatch, "1.0"):
        assert go_on(linear, mixed).samples == 100
    assert [entry["environment"]["numpy"] for entry in drawn_by(mixed)] == ["1.0", "2.0"]
    assert who_drew(open_evidence(mixed / "run")).facts()["numpy"] == "1.0 (6 inputs), 2.0 (2 inputs)"
