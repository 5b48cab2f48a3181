"""Places that are not what they seem: outputs that are links, devices or FIFOs, and machine code that is not kept."""

import os
import shutil
from pathlib import Path

import pytest

from buckler.runs.store.tables import read_certificates
from tests.bounds.test_compiled import EVERY_TIME, ONCE, lay_out, result
from tests.faults.run import Ledger, call, contents, differing

pytestmark = pytest.mark.faults


def test_special_files_as_outputs(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    shutil.copytree(undisturbed, home / "run")
    os.mkfifo(home / "fifo")
    (home / "folder").mkdir()
    (home / "link.parquet").symlink_to("real.parquet")
    command = ["certify", "run", "--method", "top_class", "--quiet", "--out"]
    places = ["fifo", "folder", os.devnull]
    for place in places:
        code, said = call(home, [*command, place])
        assert (code, said.count("\n")) == (2, 1), said
        assert "not a file" in said
    assert call(home, [*command, "link.parquet"]) == (0, "")
    assert (home / "link.parquet").is_symlink()
    assert len(read_certificates(home / "real.parquet")) == 40
    assert not list(home.glob(".*.part"))
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("output is a FIFO, folder or device: refused; link: kept", len(places) + 1, 0, wrong)
    assert wrong == 0


def test_without_a_place_every_process_compiles(tmp_path: Path, ledger: Ledger) -> None:
    home = lay_out(tmp_path)
    (home / "room" / "__pycache__").touch()  # a file, so that there can be no folder
    for _ in range(2):
        assert result(home).splitlines() == [EVERY_TIME, "3.0"]
    assert result(home, XDG_CACHE_HOME=str(home / "cache")).splitlines() == [ONCE, "3.0"]
    assert result(home, XDG_CACHE_HOME=str(home / "cache")) == "3.0"
    assert result(home, NUMBA_CACHE_DIR=str(home / "chosen")).splitlines() == [ONCE, "3.0"]
    assert result(home, NUMBA_CACHE_DIR=str(home / "chosen"), XDG_CACHE_HOME=str(home / "cache")) == "3.0"
    ledger.add("machine code can be kept nowhere: compiled in every process", 2)
