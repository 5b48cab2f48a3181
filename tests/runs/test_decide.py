"""Drawing until decided into a file: from a program, resumed, refused where it is another run."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.certify.decided import Decided
from buckler.errors import BucklerError, InvalidInput, StoreError
from buckler.runs import decide as module
from buckler.runs import decided
from buckler.runs.decide import Target, decide, settings_to_decide
from buckler.runs.results import CertifyOptions, read_result
from buckler.runs.spec import RunSpec
from buckler.runs.store.certificates import read_certificates, read_origin, write_certificates
from buckler.runs.store.decisions import Drawing, read_decisions, read_drawings, write_decisions
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays
from buckler.types import AnyArray

WEIGHTS = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
X = np.random.default_rng(1).uniform(size=(40, 6)).astype("f4")
LABELS = (X @ WEIGHTS).argmax(axis=1)
TARGET = Target((0.05, 0.1, 0.2))


def linear(batch: AnyArray) -> AnyArray:
    return np.asarray(batch @ WEIGHTS)


def spec(**changes: Any) -> RunSpec:
    fields: dict[str, Any] = {"model": "m", "data": "d", "sigma": 0.25, "num_classes": 4, "n": 800, "n0": 30}
    return RunSpec(batch_size=64, **fields | changes)


def data() -> Dataset:
    return from_arrays(X, LABELS)


def call(out: Path | None = None, target: Target = TARGET, model: Any = linear, **changes: Any) -> list[Decided]:
    return decide(spec(**changes), target, as_classifier(model, num_classes=4), data(), out)


def test_every_input_is_decided_and_kept_with_its_votes(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    found = call(out)
    assert [d.certificate.id for d in found] == [str(i) for i in range(40)]
    assert {d.decision for d in found} == {"certified", "hopeless"}
    assert {d.certificate.radius for d in found} == {0.0, 0.05, 0.1, 0.2}
    assert read_decisions(out) == found
    assert read_certificates(out) == [d.certificate for d in found]
    assert call() == found


def test_what_is_there_is_not_drawn_again_and_the_rest_comes_to_the_same(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    whole = call(out)
    bytes_ = out.read_bytes()
    pq.write_table(pq.read_table(out).slice(5, 25), out)
    watched: list[tuple[int, int]] = []
    again = decide(
        spec(), TARGET, as_classifier(linear, num_classes=4), data(), out, progress=lambda *told: watched.append(told)
    )
    assert again == whole
    assert out.read_bytes() == bytes_
    assert watched[0] == (25, 0)
    assert watched[-1] == (40, sum(d.certificate.n for d in [*whole[:5], *whole[30:]]))
    before = out.stat().st_mtime_ns
    assert call(out) == whole
    assert out.stat().st_mtime_ns == before


class Stops:
    """Raises in the course of drawing, once half of the inputs may have been decided."""

    def __init__(self, problem: type[BaseException], after: int) -> None:
        self.problem, self.left = problem, after

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.left -= 1
        if self.left < 0:
            raise self.problem
        return linear(batch)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_or_an_error_keeps_what_is_decided(tmp_path: Path, problem: type[BaseException]) -> None:
    out, whole = tmp_path / "decided.parquet", call()
    watched: list[tuple[int, int]] = []
    with pytest.raises((KeyboardInterrupt, BucklerError)):
        decide(
            spec(),
            TARGET,
            as_classifier(Stops(problem, 60), num_classes=4),
            data(),
            out,
            progress=lambda *told: watched.append(told),
        )
    kept = read_decisions(out)
    assert 0 < len(kept) < 40
    assert watched[-1][0] == len(kept)
    assert all(decided in whole for decided in kept)
    assert call(out) == whole


def test_work_in_hand_is_saved_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = write_decisions

    def spy(path: Path, decisions: list[Decided], *rest: Any) -> None:
        sizes.append(len(decisions))
        real(path, decisions, *rest)

    monkeypatch.setattr(decided, "write_decisions", spy)
    monkeypatch.setattr(decided, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(decided, "SAVING_SHARE", 1e9)
    call(tmp_path / "decided.parquet")
    assert sizes == sorted(sizes)
    assert len(sizes) > 20


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sigma": 0.3}, "sigma: 0.25 in the folder, 0.3 asked for"),
        ({"n": 900}, "n: 800 in the folder, 900 asked for"),
        ({"target": Target((0.05, 0.1))}, "another radii"),
        ({"target": Target((0.05, 0.1, 0.2), alpha=0.01)}, "another alpha"),
        ({"target": Target((0.05, 0.1, 0.2), certified_class="label"), "n0": 0}, "another spec, class"),
    ],
)
def test_another_run_is_refused_and_not_overwritten(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    out = tmp_path / "decided.parquet"
    call(out)
    before = out.read_bytes()
    with pytest.raises(InvalidInput, match=named):
        call(out, **change)
    assert out.read_bytes() == before


def test_another_environment_is_refused_or_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "decided.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("buckler.runs.executors.protocol.environment", lambda _: {"numpy": "0.9"})
        found = call(out)
    pq.write_table(pq.read_table(out).slice(0, 20), out)
    with pytest.raises(StoreError, match=r"another environment: numpy: '0\.9' in the folder"):
        call(out)
    classifier = as_classifier(linear, num_classes=4)
    assert decide(spec(), TARGET, classifier, data(), out, any_environment=True) == found
    origin = read_origin(out)
    assert origin is not None
    assert [entry["environment"]["numpy"] for entry in origin["drawn_by"]] == ["0.9", np.__version__]
    assert [drawing.drawn_by for drawing in read_drawings(out, 2)] == [0] * 20 + [1] * 20
    assert call(out) == found


def test_certificates_that_are_not_decisions_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    found = call(out)
    origin = read_origin(out)
    assert origin is not None
    write_certificates(out, [d.certificate for d in found], origin)
    with pytest.raises(InvalidInput, match="decisions must be a Parquet table"):
        call(out)
    write_decisions(out, call(target=Target((0.07,))), [Drawing("x", 0)] * 40, origin)
    with pytest.raises(InvalidInput, match="not of this run"):
        call(out)
    out.write_text("something else")
    with pytest.raises(InvalidInput):
        call(out)
    assert out.read_text() == "something else"


def test_the_class_is_selected_or_the_label() -> None:
    selected = call()
    labelled = call(target=Target(TARGET.radii, certified_class="label"), n0=0)
    assert {d.certificate.n0 for d in selected} == {30}
    assert {d.certificate.n0 for d in labelled} == {0}
    assert [d.label for d in labelled] == LABELS.tolist()
    with pytest.raises(InvalidInput, match="n0 must be 0"):
        call(target=Target(TARGET.radii, certified_class="label"))
    with pytest.raises(InvalidInput, match="n0 must be at least 1"):
        call(n0=0)
    with pytest.raises(InvalidInput, match="class must be one of"):
        Target((0.5,), certified_class="lable")  # type: ignore[arg-type]
    unlabelled = from_arrays(X)
    with pytest.raises(InvalidInput, match="needs labels"):
        decide(spec(n0=0), Target((0.1,), certified_class="label"), as_classifier(linear, num_classes=4), unlabelled)


def test_settings_that_do_not_apply_are_named() -> None:
    good = {"model": "m", "data": "d", "sigma": 0.25}
    assert settings_to_decide(good, TARGET) == {**good, "n": 100_000}
    assert settings_to_decide({**good, "n": 5, "n0": 7}, TARGET) == {**good, "n": 5, "n0": 7}
    labelled = Target((0.1,), certified_class="label")
    assert settings_to_decide(good, labelled)["n0"] == 0
    with pytest.raises(InvalidInput, match="n0 is for a class that is selected"):
        settings_to_decide({**good, "n0": 7}, labelled)
    for name in module.FOR_EVIDENCE:
        with pytest.raises(InvalidInput, match=f"{name} is for evidence"):
            settings_to_decide({**good, name: 3}, TARGET)
    # A report writes the whole specification out, and the command beside it must take it.
    written = tomllib.loads(spec().to_toml())
    assert settings_to_decide(written, TARGET) == {k: v for k, v in written.items() if k not in module.FOR_EVIDENCE}


def test_a_report_names_the_command_behind_the_file(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    call(out, target=Target((0.1,)))
    result = read_result(out, CertifyOptions())
    assert result.commands == (
        f"buckler decide --target-radius 0.1 --spec spec.toml --alpha 0.001 --class selection --out {out}",
    )
    assert result.spec_toml is not None
    assert settings_to_decide(tomllib.loads(result.spec_toml), Target((0.1,)))["n"] == 800


PROGRAM = """
import sys
import tomllib
from buckler.runs.decide import Target, decide, settings_to_decide
from buckler.runs.opening import open_run, read_settings
target = Target((0.05, 0.1))
with open_run(settings_to_decide(read_settings("run.toml"), target)) as run:
    first = decide(run.spec, target, run.executor, run.dataset, "out.parquet")
    assert decide(run.spec, target, run.executor, run.dataset, "out.parquet") == first
assert not [name for name in sys.modules if name.startswith("buckler.cli")]
"""


def test_a_program_needs_nothing_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("def make():\n    return lambda batch: batch.reshape(len(batch), -1)[:, 20:30]\n")
    (tmp_path / "run.toml").write_text(
        'model = "made:make"\ndata = "digits"\nsigma = 0.25\nn = 500\nevery = 200\nnum_classes = 10\n'
    )
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120, cwd=tmp_path)  # noqa: S603
    assert len(read_decisions(tmp_path / "out.parquet")) == 9
