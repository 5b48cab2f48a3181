"""Every file of a run, truncated or with a flipped bit: found, named, repaired, never used."""

import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.run import BRIGHT, FULL, Ledger, arguments, call, contents, differing, environment, lost, sealed

pytestmark = pytest.mark.faults


def test_damage_is_found_named_and_repaired(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    shutil.copytree(undisturbed, home / "run")
    expected = contents(undisturbed)
    chance = random.Random(0)  # noqa: S311
    names = [name for name in expected if name != ".lock"]
    chosen = names if FULL else [*chance.sample(names, 4), "manifest.json"]
    used = unnamed = wrong = tried = 0
    for name in chosen:
        whole = expected[name]
        at = chance.randrange(len(whole))
        flipped = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        for broken in [flipped, whole[:at]]:
            tried += 1
            (home / "run" / name).write_bytes(broken)
            code, said = call(home, ["certify", "run", "--quiet"], apart=False)
            # Votes are certified without opening the scores; those are checked with their shard all the same.
            used += code == 0
            code, said = call(home, arguments("run"), apart=False)
            unnamed += code != 2 or Path(name).name not in said
            code, said = call(home, [*arguments("run"), "--repair"], apart=False)
            unnamed += code != 0 or f"damaged/{Path(name).name}.1" not in said
            shutil.rmtree(home / "run" / "damaged")
            wrong += differing(contents(home / "run"), expected)
    ledger.add("file truncated or a bit flipped: named, set aside, drawn again", tried, used + unnamed, wrong)
    assert (used, unnamed, wrong) == (0, 0, 0)


def test_flipped_bits_of_tables_are_refused(home: Path, ledger: Ledger) -> None:
    """No flip ends the process, and none is read as other certificates or decisions."""
    flips = 3000 if FULL else 1000
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "tests.faults.flips", str(home), str(flips)],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    found = json.loads(done.stdout)
    assert found["refused"] > flips / 2
    ledger.add("a bit of certificates or decisions flipped: refused", 2 * flips, 0, found.get("accepted", 0))
    assert "accepted" not in found


def test_files_that_cannot_be_read_are_kept(
    home: Path, undisturbed: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error or missing permission is no damage: repair names the file and touches nothing."""
    shutil.copytree(undisturbed, home / "run")
    expected, digest = contents(undisturbed), hashlib.file_digest
    broken: list[OSError] = []

    def failing(file: Any, name: str) -> Any:
        if "000012-000015" in file.name:
            raise broken[0]
        return digest(file, name)

    monkeypatch.setattr("hashlib.file_digest", failing)
    unnamed = gone = 0
    for number in (errno.EIO, errno.EACCES):
        broken[:] = [OSError(number, os.strerror(number))]
        for command in (["certify", "run"], arguments("run"), [*arguments("run"), "--repair"]):
            code, said = call(home, command, apart=False)
            unnamed += code != 2 or "cannot read" not in said or "000012-000015.parquet" not in said
        gone += lost(sealed(undisturbed), sealed(home / "run"))
    wrong = differing(contents(home / "run"), expected)
    ledger.add("file that cannot be read (EIO, EACCES): named, never repaired", 6, gone + unnamed, wrong)
    assert (unnamed, gone, wrong) == (0, 0, 0)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("raises", "RuntimeError: this image is too bright"),
        ("nan", "NaN or infinite logit"),
        ("classes", "must return 10 classes; got 9"),
        ("rows", "one row of logits for each"),
    ],
)
def test_a_faulty_model_names_the_input(home: Path, ledger: Ledger, model: str, text: str) -> None:
    code, said = call(home, arguments("run", model=f"fault_models:{model}"))
    assert code == 2
    assert f"input '{BRIGHT}'" in said
    assert text in said
    assert "Traceback" not in said
    before = sealed(home / "run")
    assert len({name.split(".")[0] for name in before}) == BRIGHT // 4
    assert call(home, arguments("run", model=f"fault_models:{model}"))[0] == 2
    gone = lost(before, sealed(home / "run"))
    ledger.add("model raises, NaN, wrong classes or rows: input named", 1, gone, 0)
    assert gone == 0
