"""Formats, locks and shards by time: another format is left alone, no child keeps a folder, draws are the same."""

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from buckler.certificate import Certificate
from buckler.noise import Gaussian
from buckler.runs.logs import radius_of
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.sealed import SEALED_FORMAT, read_sealed, write_sealed
from buckler.runs.store.tables import write_certificates
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.faults.run import HOLD, Ledger, arguments, call, contents, differing, holding, lost, sealed, start

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("name", ["manifest.json", "shards/000012-000015.json"])
def test_another_format_is_left_alone(home: Path, undisturbed: Path, ledger: Ledger, name: str) -> None:
    shutil.copytree(undisturbed, home / "run")
    values = read_sealed(home / "run" / name)
    write_sealed(home / "run" / name, {**values, "format": SEALED_FORMAT + 1, "version": "9.8.7"})
    before = contents(home / "run")
    for command in (["certify", "run"], arguments("run"), [*arguments("run"), "--repair"]):
        code, said = call(home, command, apart=False)
        assert code == 2
        assert f"has format {SEALED_FORMAT + 1}, written by buckler '9.8.7'" in said
        assert "damaged" not in said
    changed = differing(contents(home / "run"), before)
    ledger.add("manifest or seal of another format: refused, not repaired", 3, int(changed > 0), 0)
    assert changed == 0


def test_a_resumed_run_indexes_its_inputs_once(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    shutil.copytree(undisturbed, home / "run")
    arrays = np.load(home / "data.npz")
    spec, passes = open_evidence(home / "run").spec, [0]

    class Counted(tuple[str, ...]):
        def __iter__(self) -> Iterator[str]:
            passes[0] += 1
            return super().__iter__()

    data = from_arrays(arrays["x"], arrays["y"])
    data = replace(data, ids=Counted(data.ids))
    weights = np.load(home / "weights.npy")
    model = as_classifier(lambda b: b.reshape(len(b), -1) @ weights, num_classes=10)
    passes[0] = 0
    assert sample(spec, model, data, home / "run").samples == 0
    ledger.add("resume: ids of the data are indexed once, not for each shard", 1, 0, int(passes[0] >= 10))
    assert passes[0] < 10  # the run has ten shards


@pytest.mark.parametrize("given", ["--n 400 --sigma 0.25", "--alpha 0.3 --sigma 0.25", "--alpha 0.3 --n 400"])
def test_a_log_without_its_settings_is_not_imported(home: Path, ledger: Ledger, given: str) -> None:
    """A log made at alpha 0.3: read at any smaller level, its votes would be too many."""
    k = np.arange(250, 400, 10)
    radii = radius_of(k, 400, 0.3, 0.25)
    lines = [f"{i}\t0\t0\t{radius:.3g}\t1\t0\n" for i, radius in enumerate(radii.tolist())]
    (home / "log.tsv").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n" + "".join(lines))
    code, said = call(home, ["import", "log.tsv", "--out", "votes", *given.split()], apart=False)
    wrong = int(code != 2 or (home / "votes").exists())
    ledger.add("import: votes are not written at a guessed alpha, n or sigma", 1, 0, wrong)
    assert wrong == 0, said


def test_impossible_certificates_are_refused(home: Path, ledger: Ledger) -> None:
    """Fields that agree with one another, and that no votes can give."""
    noise, wrong = Gaussian(0.25), 0
    for n, alpha, radius in ((1, 1e-9, 1000.0), (1, 0.05, 0.1), (100, 1e-3, 0.5), (10_000, 1e-9, 0.9)):
        margin = noise.margin(radius, "quantile")
        given = noise.radius(margin, "quantile")
        forged = Certificate("a", 0, given, "quantile", margin, alpha, n, 0, noise, "hardmax", None, "exact")
        write_certificates(home / "c.parquet", [forged])
        code, said = call(home, ["report", "c.parquet", "-o", "page.html"], apart=False)
        wrong += code != 2 or "margin must be at most" not in said
    ledger.add("certificates beyond what unanimous votes give: refused", 4, 0, wrong)
    assert wrong == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_of_the_model_does_not_keep_the_folder(home: Path, ledger: Ledger) -> None:
    command = arguments("run", model="fault_models:forking")
    process = start(home, command, HOLD)
    holding(home, process)
    before = sealed(home / "run")
    process.kill()
    process.wait()
    child = int((home / "child").read_text())
    os.kill(child, 0)  # it lives on
    code, said = call(home, command)
    os.kill(child, signal.SIGKILL)
    process.communicate()
    gone = lost(before, sealed(home / "run"))
    ledger.add("killed while a child of the model lives on: gone on with", 1, gone, 0)
    assert (code, gone) == (0, 0), said


def test_shards_by_time_are_gone_on_with(home: Path, undisturbed_by_time: Path, ledger: Ledger) -> None:
    command = arguments("run", shard_inputs=None)
    process = start(home, command, HOLD)
    holding(home, process)
    process.kill()
    process.communicate()
    before = sealed(home / "run")
    assert not open_evidence(home / "run").complete
    assert call(home, command)[0] == 0
    gone = lost(before, sealed(home / "run"))
    wrong = int(open_evidence(home / "run").digest() != open_evidence(undisturbed_by_time).digest())
    ledger.add("SIGKILL, shards by time: the same evidence", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)
