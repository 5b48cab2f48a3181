"""Commands that read what they should not print, and places that are not what they seem: links, devices, FIFOs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from buckler.cli.app import run
from buckler.runs.store.tables import read_certificates
from tests.bounds.test_compiled import EVERY_TIME, ONCE, lay_out, result
from tests.faults.run import Ledger, call, contents, differing
from tests.runs.test_results import many


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ledger: Ledger,
) -> None:
    """Names of files, ids, seals and cards may hold any bytes: what a terminal would obey is printed as an escape."""
    monkeypatch.chdir(tmp_path)
    # Where names of files are ASCII, the others cannot be in one.
    evil = "evil\x1b[2J\x07" + ("\x9b31m\u202e" if sys.getfilesystemencoding() == "utf-8" else "")
    shutil.copytree(undisturbed, evil)
    assert run(["certify", evil, "--method", "top_class", "--tsv", f"{evil}.tsv"]) == 0
    assert run(["report", evil, "--method", "top_class", "--out", f"{evil}.html"]) == 0
    assert run(["sweep", evil, "--method", "top_class", "--out", f"{evil}.parquet"]) == 0
    assert run(["certify", f"{evil}.nowhere"]) == 2
    manifest = Path(evil) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 0', '"seed": "\\u001b[2J"'))
    assert run(["certify", evil]) == 2
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{evil}.json").write_text("{}")
    run(["models", "--folder", "models"])
    seen = capsys.readouterr()
    assert evil.encode("unicode_escape").decode() in seen.out
    assert "\\x1b" in seen.err
    shown = len(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", seen.out + seen.err))
    ledger.add("escape sequences in names and contents of files: not printed", 6, 0, shown)
    assert shown == 0


@pytest.mark.slow
@pytest.mark.linux("memory counted in kilobytes")
def test_a_report_of_a_million_certificates(tmp_path: Path, ledger: Ledger) -> None:
    """Below 60 seconds of processor time and 1.5 GB, all margins different.

    The peak is VmHWM: ru_maxrss counts what the parent of a process held when it started it.
    """
    many(tmp_path / "many.parquet", 1_000_000, 1_000_000)
    code = (
        "import sys, time; from buckler.cli.app import run; code = run(sys.argv[1:]);"
        "status = open('/proc/self/status');"
        "print(code, time.process_time(), next(float(line.split()[1]) / 1e6 for line in status if 'VmHWM' in line))"
    )
    command = [sys.executable, "-c", code, "report", "many.parquet", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    code_, seconds, gigabytes = map(float, done.stdout.split())
    assert code_ == 0
    assert seconds < 60.0
    assert gigabytes < 1.5
    ledger.add("a report of a million certificates: under 60 s and 1.5 GB")


@pytest.mark.slow
def test_a_report_without_docstrings(tmp_path: Path, ledger: Ledger) -> None:
    many(tmp_path / "many.parquet", 100, 10)
    command = [sys.executable, "-OO", "-m", "buckler", "report", "many.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    ledger.add("Python without docstrings and assertions (-OO)")


@pytest.mark.faults
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


@pytest.mark.faults
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
