"""Files made to exhaust whoever reads them: refused in one line, in bounded time and memory."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckler.certify.votes import certify_votes
from buckler.errors import DamagedEvidence, InvalidInput, UnsoundMethod
from buckler.runs.store import folder
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.parquet import RECORD
from buckler.runs.store.tables import read_certificates, read_origin, write_certificates
from buckler.sampling.datasets import open_dataset
from tests.hostile.readers import _sealed_again, home
from tests.runs.forging import rewrite

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
LIMITED = """
import resource, sys
from pathlib import Path
from buckler.cli.app import COMMANDS, load, run
for word in sys.argv[2:]:
    if word in COMMANDS:
        load(word)  # what a command imports is not what a file makes it take
if sys.platform == "linux":  # others have no /proc, or do not keep the limit
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
sys.exit(run(sys.argv[2:]))
"""
PATIENCE = 120
"""Seconds: a hundred times what refusing takes, and far less than what obeying would."""


def refused(*arguments: str, megabytes: int = 400) -> str:
    """Return the one line with which a command refuses, using little more memory than it has when it starts."""
    path = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LIMITED, str(megabytes), *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")  # nobody ever writes to it
    return tmp_path / "fifo"


@pytest.mark.faults
def test_a_log_without_an_end(fifo: Path) -> None:
    assert "a device, not a file" in refused("import", "/dev/zero")
    assert "a FIFO, not a file" in refused("import", str(fifo))


@pytest.mark.faults
def test_a_log_of_many_lines_with_a_name_twice(tmp_path: Path) -> None:
    lines = [f"{i}\t1\t1\t0.5\t1\t0\n" for i in range(300_000)]
    (tmp_path / "log.tsv").write_text(HEADER + "".join(lines) + lines[-1])
    assert "'299999' has several" in refused("import", str(tmp_path / "log.tsv"))


@pytest.mark.faults
@pytest.mark.linux("a limit of memory that is kept")
def test_a_log_that_does_not_fit_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "log.tsv").open("w") as file:
        file.write(HEADER)
        file.writelines(f"{i}\t1\t1\t0.5\t1\t0\n" for i in range(1_500_000))
    assert "not enough memory" in refused("import", str(tmp_path / "log.tsv"), megabytes=60)


@pytest.mark.faults
@pytest.mark.parametrize(
    "line", ["0\t2000000000\t1\t0.5", "0\t1\t2000000000\t0.5", "0\t1\t1\t1e308", "0\t1\t1\t1e400", "0\t1\t1\t1e9999999"]
)
def test_a_log_of_absurd_numbers(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.tsv").write_text(f"{HEADER}{line}\t1\t0\n")
    said = refused("import", str(tmp_path / "log.tsv"), "--sigma", "0.5", "--out", str(tmp_path / "run"))
    assert "line 2 of the log" in said


@pytest.mark.faults
def test_a_log_of_many_classes(tmp_path: Path) -> None:
    """Each class is sensible, and votes for all of them in a thousand inputs would take 16 GB."""
    lines = [f"{i}\t999998\t999998\t0.5\t1\t0\n" for i in range(1000)]
    (tmp_path / "log.tsv").write_text(HEADER + "".join(lines))
    made = ("--sigma", "0.5", "--n", "100000", "--alpha", "0.001", "--out", str(tmp_path / "run"))
    said = refused("import", str(tmp_path / "log.tsv"), *made)
    assert "votes; got" in said


def certificates(path: Path) -> pa.Table:
    made = certify_votes([[990, 10], [1000, 0], [500, 500]], sigma=0.5, labels=[0, 0, 0], ids=["a", "b", "c"])
    write_certificates(path, made)
    return pq.read_table(path)


@pytest.mark.faults
def test_a_table_of_millions_of_rows_in_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    one = certificates(path).slice(0, 1)
    group = one.take(pa.array([0] * 1_000_000))
    with pq.ParquetWriter(path, group.schema, compression="zstd") as writer:
        for _ in range(8):
            writer.write_table(group)
    assert path.stat().st_size < 1_000_000
    assert "rows" in refused("report", str(path), "--out", str(tmp_path / "r.html"))


def test_a_row_that_contradicts_itself_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    sound = certificates(path)
    for column, value, kind in (
        ("radius", -1.0, InvalidInput),
        ("radius", 50.0, InvalidInput),
        ("method", "published", UnsoundMethod),
    ):
        values = sound[column].to_pylist()
        values[1] = value
        place = sound.column_names.index(column)
        rewrite(path, sound.set_column(place, sound.field(column), pa.array(values)))
        with pytest.raises(kind, match=r"row 1 of .*c\.parquet \('b'\)"):
            read_certificates(path)


def test_keys_given_twice(tmp_path: Path) -> None:
    for name in (folder.MANIFEST, "shards/000000-000001.json"):
        root = tmp_path / Path(name).stem
        shutil.copytree(home() / "run", root)
        text = (root / name).read_text()
        key, value = next(iter(json.loads(text).items()))
        # The second is the one that was sealed: a reader that takes the last of them finds nothing amiss.
        (root / name).write_text(f'{{"{key}": 7, {text.lstrip()[1:]}')
        assert json.loads((root / name).read_text())[key] == value
        with pytest.raises(DamagedEvidence):
            open_evidence(root).counts()
    path = tmp_path / "c.parquet"
    table = certificates(path)
    pq.write_table(table.replace_schema_metadata({RECORD: b'{"n": 1, "n": 2}'}), path)
    with pytest.raises(InvalidInput, match="the key 'n' twice"):
        read_origin(path)


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity"])
def test_numbers_without_an_end(tmp_path: Path, number: str) -> None:
    path = tmp_path / "c.parquet"
    table = certificates(path)
    pq.write_table(table.replace_schema_metadata({RECORD: f'{{"n": {number}}}'.encode()}), path)
    with pytest.raises(InvalidInput, match="holds the number"):
        read_origin(path)


@pytest.mark.faults
def test_a_manifest_of_a_billion_classes(tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(home() / "run", root)
    manifest = json.loads((root / folder.MANIFEST).read_text())
    manifest["spec"]["num_classes"] = 10**9
    text = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
    manifest["owner"]["spec"] = hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-spec-1").hexdigest()
    (root / folder.MANIFEST).write_bytes(_sealed_again(json.dumps(manifest).encode()))
    for path in (root / "shards").glob("*.json"):  # nothing but the number itself is amiss
        seal = {**json.loads(path.read_text()), "owner": manifest["owner"]}
        path.write_bytes(_sealed_again(json.dumps(seal).encode()))
    assert "num_classes" in refused("certify", str(root))


@pytest.mark.faults
def test_special_files_within_a_run(tmp_path: Path) -> None:
    for name in ("shards/000000-000001.json", "shards/000000-000001.parquet"):
        root = tmp_path / name.replace("/", "-")
        shutil.copytree(home() / "run", root)
        (root / name).unlink()
        os.mkfifo(root / name)
        assert name in refused("certify", str(root))


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_data_that_is_no_file(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"x.{suffix}")
    with pytest.raises(InvalidInput, match="a FIFO, not a file"):
        open_dataset(tmp_path / f"x.{suffix}")


@pytest.mark.faults
def test_settings_that_are_no_file(fifo: Path) -> None:
    for command in (
        ["sample", "run", "--spec", str(fifo)],
        ["sweep", str(home() / "run"), "--spec", str(fifo)],
        ["report", str(home() / "run"), "--classes", str(fifo)],
        ["plan", "--inputs", "3", "--classes", "2", "--n", "10", "--rate", "10", "--like", str(fifo)],
    ):
        assert "a FIFO, not a file" in refused(*command), command
