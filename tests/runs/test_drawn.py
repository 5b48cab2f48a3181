"""A run goes on with its own data, noise and environment alone; seals and readers say which models drew it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from buckler.cli.app import run
from buckler.errors import BucklerError, BucklerWarning, StoreError
from buckler.files import read_sealed
from buckler.noise import Splitting
from buckler.runs.decide import Target, decide
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import MANIFEST
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays, open_dataset
from buckler.types import AnyArray
from tests.runs.test_identity import SPEC, WEIGHTS, X, drawn_by, go_on, linear
from tests.runs.victim import rewrite

ABOUT = "Each certificate is about the model that drew its input."
MIXED = (
    f"Drawn by 2 models or environments (4, 2 inputs), as the user allowed: numpy: '1.0' at first, '2.0' later. {ABOUT}"
)
BOTH = (
    "Drawn by 3 models or environments (4, 2, 2 inputs), as the user allowed: numpy: '1.0' at first, '2.0' later; "
    f"then its logits for the same noisy inputs differ. {ABOUT}"
)
ENVIRONMENT = "buckler.runs.identity.environment"


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch, numpy: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(ENVIRONMENT, lambda _: {"numpy": numpy, "device": "cpu"})
        yield


def environments(home: Path) -> list[str]:
    """Return the version of NumPy that each shard's seal tells."""
    seals = [read_sealed(path) for path in sorted((home / "run" / "shards").glob("*.json"))]
    return [seal["drawn_by"]["environment"]["numpy"] for seal in seals]


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with two shards of one environment and one of another."""
    with elsewhere(monkeypatch, "1.0"):
        go_on(linear, tmp_path, shards=2)
    with elsewhere(monkeypatch, "2.0"):
        with pytest.raises(StoreError, match=r"another model: numpy: '1\.0' then, '2\.0' now; use another folder"):
            go_on(linear, tmp_path)
        assert go_on(linear, tmp_path, allow_other_model=True).samples == 100
    return tmp_path


def test_every_seal_names_its_environment(mixed: Path) -> None:
    assert environments(mixed) == ["1.0", "1.0", "2.0"]
    assert open_evidence(mixed / "run").provenance() == ({"numpy": "1.0, 2.0", "device": "cpu"}, MIXED)


def test_the_real_environment_is_told(tmp_path: Path) -> None:
    go_on(linear, tmp_path)
    told = drawn_by(tmp_path)[0]["environment"]
    assert told["numpy"] == np.__version__
    assert {"buckler", "machine", "device", "torch", "onnxruntime", "scikit-learn"} <= told.keys()
    assert all(isinstance(value, str) and value for value in told.values())


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_lost_manifest_does_not_relabel_shards(mixed: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = mixed / "run" / MANIFEST
    shards = {p: p.read_bytes() for p in (mixed / "run" / "shards").iterdir()}
    manifest.unlink() if how == "deleted" else manifest.write_text("{")
    with elsewhere(monkeypatch, "3.0"), pytest.raises(StoreError, match="another model: numpy"):
        go_on(linear, mixed, repair=True)
    with elsewhere(monkeypatch, "1.0"), pytest.raises(StoreError, match="another model: its logits"):
        go_on(lambda b: -linear(b), mixed, repair=True)
    told = nullcontext() if how == "deleted" else pytest.warns(BucklerWarning, match=r"damaged/manifest\.json\.1")
    with elsewhere(monkeypatch, "2.0"), told:
        assert go_on(linear, mixed, repair=True).samples == 100
    assert all(path.read_bytes() == was for path, was in shards.items())
    assert environments(mixed) == ["1.0", "1.0", "2.0", "2.0"]
    with elsewhere(monkeypatch, "1.0"):
        assert go_on(linear, mixed).samples == 100


def test_certify_and_report_say_so(
    mixed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with elsewhere(monkeypatch, "1.0"):
        go_on(lambda b: -linear(b), mixed, allow_other_model=True)
    monkeypatch.chdir(mixed)
    assert run(["certify", "run", "--out", "c.parquet"]) == 0
    said = capsys.readouterr().err
    assert BOTH in said
    for what in ("run", "c.parquet"):
        assert run(["report", what, "-o", "page.html", "--method", "exact"]) == 0
        page = (mixed / "page.html").read_text(encoding="utf-8")
        assert BOTH in unescape(page)
    capsys.readouterr()
    assert run(["sweep", "run", "--method", "top_class", "--out", "s.parquet", "--quiet"]) == 0
    assert BOTH in capsys.readouterr().err
    assert run(["certify", "run", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_inputs_that_were_drawn_are_compared(tmp_path: Path) -> None:
    model = as_classifier(linear, num_classes=3)
    go_on(linear, tmp_path)
    for changed, text in ((0, "other data"), (1, "'1' has other values"), (11, "other data")):
        x = X.copy()
        x[changed] = 0.5
        with pytest.raises(BucklerError, match=text):
            sample(SPEC, model, from_arrays(x), tmp_path / "run")
    x = X.copy()
    x[4] = 0.5  # neither drawn nor asked about: nothing is known of it, and nothing was made of it
    assert sample(SPEC, model, from_arrays(x), tmp_path / "run", max_samples=100).samples == 100
    with pytest.raises(StoreError, match="ids, labels or values"):
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
    if shards:
        with pytest.raises(StoreError, match="begun with other data"):
            draw(open_dataset(place))
    else:  # nothing was drawn, so anything may change
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
    assert "another model: its logits" in capsys.readouterr().err
    assert run([*start, *moved]) == 0
    again = ["--model", "model_of_test_drawn:make", "--data", "images"]
    assert run(["sample", "whole", *start[2:], *again]) == 0
    assert {p.name: p.read_bytes() for p in (here / "run" / "shards").iterdir()} == {
        p.name: p.read_bytes() for p in (here / "whole" / "shards").iterdir()
    }
    assert run(["sample", "run", *start[2:], "--model", "third_of_test_drawn:make", "--data", "images"]) == 2


def decide_here(*options: str, model: str = "model", data: str = "images") -> int:
    chosen = ["--model", f"{model}_of_test_drawn:make", "--data", data, "--max-n", "500", "--out", "t.parquet"]
    return run(["decide", "--radii", "0.05", *COMMON, *chosen, *options])


def test_decided_files_know_their_model_and_data(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decide_here() == 0
    assert decide_here(model="other", data=str(here / "images")) == 0
    capsys.readouterr()
    assert decide_here(model="third") == 2
    assert "another model: its logits" in capsys.readouterr().err
    with elsewhere(monkeypatch, "0.1"):
        assert decide_here() == 2
        assert "another model: " in capsys.readouterr().err
        assert decide_here("--allow-other-model") == 0
    black = Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8))
    black.save(here / "images" / "class0" / "02.bmp")
    for command in ([], ["report", "t.parquet", "-o", "page.html", "--data", "images"]):
        assert (run(command) if command else decide_here()) == 2
        assert "not that of 't.parquet': 'class0/02.bmp' has other values" in capsys.readouterr().err
    pictures(here, 0)
    assert run(["report", "t.parquet", "-o", "page.html", "--data", "images"]) == 0
    other = ["--allow-other-model", "--model", "m:m", "--data", "images"]
    assert run(["decide", "--radii", "1", *COMMON, *other]) == 2
    assert "--allow-other-model is for going on with the file of --out" in capsys.readouterr().err


def test_a_decided_file_of_two_origins_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(monkeypatch, "1.0"):
        assert decide_here() == 0
    rewrite(here / "t.parquet", pq.read_table(here / "t.parquet").slice(0, 5))
    with elsewhere(monkeypatch, "2.0"):
        assert decide_here("--allow-other-model") == 0
    rewrite(here / "t.parquet", pq.read_table(here / "t.parquet").slice(0, 10))
    with elsewhere(monkeypatch, "2.0"):
        assert decide_here("--allow-other-model", model="third") == 0
    assert run(["report", "t.parquet", "-o", "page.html"]) == 0
    page = (here / "page.html").read_text(encoding="utf-8")
    assert "Drawn by 3 models or environments (5, 5, 2 inputs), as the user allowed: numpy: " in page
    assert "1.0, 2.0" in page


INPUTS = 300
"""More than are compared at once."""
MANY = np.random.default_rng(0).uniform(size=(INPUTS, 4)).astype("f4")


def constant(batch: AnyArray) -> AnyArray:
    return np.tile(np.array([0.0, 1.0, 0.0], dtype=np.float32), (len(batch), 1))


def call(door: str, out: Path, x: AnyArray = MANY, **changes: Any) -> None:
    noise: dict[str, Any] = {} if "noise" in changes else {"sigma": 0.25}
    spec = RunSpec(model="m", data="d", num_classes=3, n=10, **noise | changes)
    data, model = from_arrays(x, np.zeros(len(x), dtype=np.int64)), as_classifier(constant, num_classes=3)
    if door == "sample":
        sample(spec, model, data, out)
    else:
        decide(spec, Target((0.05,)), model, data, out)


@pytest.mark.parametrize("changed", [1, 127, 130, 200, INPUTS - 2])
@pytest.mark.parametrize("door", ["sample", "decide"])
def test_another_value_of_any_input_is_refused(door: str, changed: int, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    call(door, out)
    call(door, out)
    other = MANY.copy()
    other[changed, 2] += 0.01
    with pytest.raises(BucklerError, match=f"'{changed}'"):
        call(door, out, other)


@pytest.mark.parametrize(
    "other",
    [{"sigma": 0.5}, {"sigma": np.nextafter(0.25, 1.0)}, {"noise": Splitting(1.0)}],
    ids=["sigma", "sigma, one bit", "kind"],
)
@pytest.mark.parametrize("door", ["sample", "decide"])
def test_other_noise_is_refused_though_the_model_answers_alike(
    door: str, other: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    call(door, out)
    with pytest.raises(BucklerError, match=r"sigma|noise"):
        call(door, out, **other)
