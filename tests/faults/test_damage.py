"""Every file of a run truncated, flipped or of another format: found, repaired or left alone; locks and time."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from buckler.certificate import Certificate
from buckler.noise import Gaussian
from buckler.runs.logs import radius_of
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import write_certificates
from tests.faults.run import (
    BRIGHT,
    FULL,
    HOLD,
    Ledger,
    arguments,
    call,
    contents,
    differing,
    environment,
    holding,
    lost,
    sealed,
    start,
)

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
