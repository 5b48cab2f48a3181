"""The specification: TOML and back, mistakes named, run from a program, and with a seed of the operating system."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckler
from buckler.errors import BucklerError, InvalidInput
from buckler.runs.decide import Target, decide
from buckler.runs.open_run import ExecutorOptions, open_run, read_settings
from buckler.runs.results import read_result
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec, difference, from_dict, geometric, read_toml
from buckler.runs.store.evidence import open_evidence

GOOD: dict[str, Any] = {"model": "m:f", "data": "digits", "sigma": 0.25, "num_classes": 10, "n": 1000}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3),
    st.floats(1e-9, 1e9),
    st.integers(1, 10**9),
)
@settings(max_examples=100, deadline=None)
def test_toml_and_back(name: str, ids: list[str], sigma: float, n: int) -> None:
    spec = RunSpec(**{**GOOD, "model": name, "ids": tuple(ids), "sigma": sigma, "n": n})
    again = from_dict(read_toml(spec.to_toml()))
    assert again == spec
    assert again.hash() == spec.hash()


def test_the_hash_is_of_the_content() -> None:
    spec = from_dict(GOOD)
    assert spec.hash() == from_dict(dict(reversed(GOOD.items()))).hash() == from_dict({**GOOD, "n0": 0}).hash()
    changes: list[dict[str, Any]] = [
        {"sigma": 0.5}, {"n": 2000}, {"seed": 1}, {"batch_size": 64}, {"dtype": "bfloat16"}, {"generator": "cuda"},
        {"every": 2}, {"scores": "softmax"}, {"mean": [0.5], "std": [0.5]},
    ]  # fmt: skip
    hashes = {from_dict({**GOOD, **change}).hash() for change in changes}
    assert len(hashes | {spec.hash()}) == len(changes) + 1


def test_checkpoints_are_geometric() -> None:
    assert geometric(100_000)[-4:] == (10_000, 20_000, 50_000, 100_000)
    assert geometric(7) == (7,)
    assert from_dict({**GOOD, "checkpoints": [100, 1000]}).checkpoints == (100, 1000)


def test_differences_are_shown() -> None:
    text = difference(from_dict(GOOD).as_dict(), from_dict({**GOOD, "seed": 4, "limit": 3}).as_dict())
    assert text == "seed: 0 in the folder, 4 asked for; limit: None in the folder, 3 asked for"


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": -1}, {"sigma": "much"}, {"n": 0}, {"n": 1.5}, {"n0": -1}, {"num_classes": 1}, {"seed": -1},
        {"scores": "all"}, {"temperature": 2.0}, {"runner_ups": 2}, {"scores": "logits", "runner_ups": 2},
        {"scores": "softmax", "runner_ups": 2, "n0": 0}, {"checkpoints": [10, 20]}, {"checkpoints": [20, 10, 1000]},
        {"checkpoints": "10"}, {"mean": [0.5]}, {"value_range": [1, 0]}, {"value_range": [0]}, {"compile": "yes"},
        {"model": ""}, {"data": 3}, {"ids": [1]}, {"limit": 0}, {"noise": "pink"}, {"dtype": "float64"},
        {"shard_inputs": -1}, {"colour": "red"}, {"mean": [True], "std": [1.0]}, {"mean": [float("inf")], "std": [1.0]},
    ],
)  # fmt: skip
def test_mistakes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        from_dict({**GOOD, **change})


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_hostile_toml_gives_our_errors(text: str) -> None:
    with pytest.raises(BucklerError):
        from_dict(read_toml(text))


MODEL = """
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
def make():
    x, y = load_digits(return_X_y=True)
    return GaussianNB().fit(x[:300] / 16, y[:300])
def silent():
    return lambda batch: batch.reshape(len(batch), -1)[:, :10]
"""
SETTINGS = {"model": "model_to_open:make", "data": "digits", "sigma": 0.25, "n": 20, "every": 300}
PROGRAM = """
import sys
from buckler.runs.open_run import open_run, read_settings
from buckler.runs.sample import sample
with open_run(read_settings("run.toml")) as run:
    assert sample(run.spec, run.executor, run.dataset, "folder").complete
assert not [name for name in sys.modules if name.startswith("buckler.cli")]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model_to_open.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_runs_a_specification_without_the_command_line(here: Path) -> None:
    (here / "run.toml").write_text("".join(f"{key} = {value!r}\n" for key, value in SETTINGS.items()))
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)  # noqa: S603
    assert (here / "folder").is_dir()


def test_what_is_left_out_is_filled_in() -> None:
    with open_run(SETTINGS) as run:
        assert (run.spec.num_classes, run.spec.device, run.spec.batch_size) == (10, "cpu", 512)
        assert run.dataset.ids == ("0", "300", "600", "900", "1200", "1500")
        assert run.executor.call(lambda classifier, _: classifier.num_classes) == 10
    with open_run({**SETTINGS, "batch_size": 7}) as run:
        assert run.spec.batch_size == 7


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"model": "model_to_open:silent"}, ExecutorOptions(), "^num_classes must be given"),
        ({"sigma": -1.0}, ExecutorOptions(), "^sigma must be above 0"),
        ({"colour": 1}, ExecutorOptions(), "no field 'colour'"),
        ({}, ExecutorOptions(gpus_per_worker=1.0), "gpus_per_worker are for the executor 'ray'"),
        ({}, ExecutorOptions("ray", gpus_per_worker=-1.0), "^gpus_per_worker must be at least 0"),
        ({}, ExecutorOptions("thread"), "^executor must be one of"),
        ({}, ExecutorOptions(workers=3), "workers and gpus_per_worker are for the executor 'ray'"),
    ],
)
def test_mistakes_are_named_in_words_of_the_library(
    change: dict[str, object], where: ExecutorOptions, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught, open_run({**SETTINGS, **change}, where):
        pass
    assert "--" not in str(caught.value)


def test_an_unreadable_file_is_named(here: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^spec must be a readable TOML file"):
        read_settings(here / "nowhere.toml")
    (here / "odd.toml").write_text("import numpy")
    with pytest.raises(InvalidInput, match=r"^spec must be a readable TOML file; got .*odd.toml' \(not TOML"):
        read_settings(here / "odd.toml")


EVENTS: list[str] = []
"""What happened, in order: the factory of the model, and the drawing of a seed."""


def make() -> Any:
    EVENTS.append("model")
    return lambda batch: np.stack([batch[:, 0], 0 * batch[:, 0]], axis=1)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    np.save(tmp_path / "x.npy", np.full((2, 3), 0.25, dtype=np.float32))
    EVENTS.clear()
    seeds = iter([11, 22, 33, 44])

    def drawn(_: int) -> int:
        EVENTS.append("seed")
        return next(seeds)

    monkeypatch.setattr("secrets.randbelow", drawn)
    return {
        "model": f"{__name__}:make", "data": str(tmp_path / "x.npy"), "sigma": 0.5, "n": 50, "num_classes": 2,
        "fresh_seed": True,
    }  # fmt: skip


def test_it_is_drawn_after_the_model_and_recorded(asked: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with open_run(asked, out=folder) as run:
        assert EVENTS.index("model") < EVENTS.index("seed")
        assert run.spec.seed == 11
        sample(run.spec, run.executor, run.dataset, folder)
    kept = open_evidence(folder).spec
    assert (kept.seed, kept.fresh_seed) == (11, True)
    with open_run(asked, out=folder) as again:
        assert again.spec == run.spec
        assert sample(again.spec, again.executor, again.dataset, folder).samples == 0
    with open_run(asked, out=tmp_path / "another") as other:
        assert other.spec.seed == 22


def test_what_a_report_says_makes_the_same_draws_again(asked: dict[str, Any], tmp_path: Path) -> None:
    for folder in ("run", "again"):
        with open_run(asked, out=tmp_path / folder) as run:
            sample(run.spec, run.executor, run.dataset, tmp_path / folder)
        found = read_result(tmp_path / folder)
        assert found.spec_toml is not None
        asked = tomllib.loads(found.spec_toml)
    first, second = (open_evidence(tmp_path / folder) for folder in ("run", "again"))
    assert (first.spec.seed, second.spec.seed) == (11, 11)
    assert first.spec.fresh_seed
    assert not second.spec.fresh_seed
    assert first.digest() == second.digest()


def test_decisions_go_on_with_it(asked: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    with open_run(asked, out=out) as run:
        first = decide(run.spec, Target((0.1,)), run.executor, run.dataset, out)
    with open_run(asked, out=out) as run:
        assert run.spec.seed == 11
        assert decide(run.spec, Target((0.1,)), run.executor, run.dataset, out) == first


def test_a_model_that_takes_long_for_a_row_gets_batches_of_one(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buckler.runs.open_run.measure_rate", lambda *_: 0.1)
    with open_run({name: value for name, value in asked.items() if name != "batch_size"}) as run:
        assert run.spec.batch_size == 1


@pytest.mark.parametrize("sigma", [1.5, 2e6])
def test_a_sigma_wider_than_the_range_of_the_inputs_warns(asked: dict[str, Any], sigma: float) -> None:
    opened = open_run({**asked, "sigma": sigma})
    with pytest.warns(buckler.BucklerWarning, match=r"is larger than the range of the inputs, 0 to 1:"), opened as run:
        assert run.spec.sigma == sigma


def test_a_seed_that_is_known_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    known = open_run({**asked, "seed": 3}, out=tmp_path / "run")
    with pytest.raises(buckler.InvalidInput, match="seed and fresh_seed exclude one another"), known:
        pass
    plain = {key: value for key, value in asked.items() if key != "fresh_seed"}
    folder = tmp_path / "run"
    with open_run({**plain, "seed": 3}, out=folder) as run:
        sample(run.spec, run.executor, run.dataset, folder)
    # A run begun with a known seed is not gone on with as if it were fresh.
    with open_run(asked, out=folder) as run, pytest.raises(buckler.BucklerError, match="fresh_seed"):
        sample(run.spec, run.executor, run.dataset, folder)
