"""A specification in a file, run from a program: nothing of the command line is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from buckler.errors import InvalidInput
from buckler.runs.open_run import ExecutorOptions, open_run, read_settings

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
        ({}, ExecutorOptions(gpus_per_worker=1.0), "^gpus_per_worker must be .* for the executor 'ray'"),
        ({}, ExecutorOptions("ray", gpus_per_worker=-1.0), "^gpus_per_worker must be at least 0"),
        ({}, ExecutorOptions("thread"), "^executor must be one of"),
        ({}, ExecutorOptions(workers=3), "workers are for the executor 'ray'"),
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
