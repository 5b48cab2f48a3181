"""Formats, locks and shards by time: another format is left alone, no child keeps a folder, draws are the same."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.sealed import FORMAT, read_sealed, write_sealed
from tests.faults.run import HOLD, Ledger, arguments, call, contents, differing, holding, lost, sealed, start

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("name", ["manifest.json", "shards/000012-000015.json"])
def test_another_format_is_left_alone(home: Path, undisturbed: Path, ledger: Ledger, name: str) -> None:
    shutil.copytree(undisturbed, home / "run")
    values = read_sealed(home / "run" / name)
    write_sealed(home / "run" / name, {**values, "format": FORMAT + 1, "version": "9.8.7"})
    before = contents(home / "run")
    for command in (["certify", "run"], ["compact", "run"], arguments("run"), [*arguments("run"), "--repair"]):
        code, said = call(home, command, apart=False)
        assert code == 2
        assert f"has format {FORMAT + 1}, written by buckler '9.8.7'" in said
        assert "damaged" not in said
    changed = differing(contents(home / "run"), before)
    ledger.add("manifest or seal of another format: refused, not repaired", 4, int(changed > 0), 0)
    assert changed == 0


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


def test_a_second_writer_is_told_who_the_first_is(home: Path, ledger: Ledger) -> None:
    process = start(home, arguments("run"), HOLD)
    holding(home, process)
    code, said = call(home, arguments("run"))
    process.kill()
    process.communicate()
    assert code == 2
    assert f"(process {process.pid} on " in said
    ledger.add("folder held by another: told who, where and since when", 1, 0, 0)


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
