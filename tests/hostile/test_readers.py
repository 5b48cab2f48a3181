"""Foreign bytes: only our own errors come out, in bounded time and memory, and nothing is read outside of the run."""

import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buckler.certify.votes import certify_votes
from buckler.errors import BucklerError, DamagedEvidence, InvalidInput, UnsoundMethod
from buckler.runs.store import folder
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.parquet import RECORD
from buckler.runs.store.tables import read_certificates, read_origin, write_certificates
from buckler.sampling.datasets import open_dataset
from tests.hostile.readers import READERS, _sealed_again, home, seeds
from tests.runs.victim import rewrite

ROUNDS = int(os.environ.get("BUCKLER_HOSTILE_ROUNDS", "60"))


@st.composite
def mangled(draw: st.DrawFn, sources: tuple[bytes, ...]) -> bytes:
    """A sound file with pieces overwritten, cut out, repeated or cut off."""
    data = bytearray(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["set", "flip", "cut", "repeat", "end", "number"]))
        size = draw(st.integers(1, 16))
        if kind == "set":
            data[at : at + size] = draw(st.binary(max_size=16))
        elif kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at : at + size]
        elif kind == "repeat":
            data[at:at] = data[at : at + size] * draw(st.integers(1, 4))
        elif kind == "end":
            del data[at:]
        else:
            data[at : at + size] = str(draw(st.integers(-(2**70), 2**70))).encode()
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
def test_only_our_errors_come_out(name: str) -> None:
    reader = READERS[name]

    @settings(max_examples=ROUNDS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.one_of(mangled(seeds(name)), st.binary(max_size=200)))
    def attempt(data: bytes) -> None:
        with suppress(BucklerError):
            reader(data)

    for seed in seeds(name):
        try:
            reader(seed)
        except BucklerError:
            assert name == "image_list"  # its images are not there
    attempt()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("name", ["manifest", "seal"])
def test_any_value_at_any_place_of_a_sealed_file(name: str) -> None:
    sound = json.loads(seeds(name)[0])
    places = [(k,) for k in sound] + [(k, j) for k, v in sound.items() if isinstance(v, dict) for j in v]

    @settings(max_examples=2 * ROUNDS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(places), VALUES, st.booleans())
    def attempt(place: tuple[str, ...], value: object, remove: bool) -> None:
        changed = json.loads(seeds(name)[0])
        inner = changed if len(place) == 1 else changed[place[0]]
        if remove:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        READERS[name](json.dumps(changed).encode())

    attempt()


def _within(megabytes: int, program: str, *words: str) -> None:
    """Run a small program that may use so much memory and no more."""
    path = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    limit = f"if sys.platform == 'linux': resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20},) * 2)"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", f"import resource, sys\n{program.replace('LIMIT', limit)}", *words],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


OPEN = """
from buckler.errors import InvalidInput
from buckler.sampling.datasets import open_dataset
from PIL import Image
import numpy as np
LIMIT
for path, word in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    try:
        open_dataset(path).load(0, 1)
    except InvalidInput as problem:
        assert word in str(problem), problem
    else:
        raise SystemExit(f"{path} was not refused")
"""


@pytest.mark.faults
def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x.npy", "w") as x:
        np.lib.format.write_array_header_1_0(x, {"descr": "|u1", "fortran_order": False, "shape": (4, 225 << 20)})
        for _ in range(900):
            x.write(bytes(1 << 20))
    (tmp_path / "images" / "a").mkdir(parents=True)
    header = b"P5 60000 60000 255\n"
    (tmp_path / "images" / "a" / "x.ppm").write_bytes(header)
    _within(1000, OPEN, str(bomb), "unfolds", str(tmp_path / "images"), "pixels")


def test_a_table_that_unfolds_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sound = pq.read_table(home() / "run" / "shards" / "000000-000001.parquet")
    many = pa.concat_tables([sound] * 5_000)
    stream = io.BytesIO()
    pq.write_table(many, stream, compression="zstd")
    with pytest.raises(DamagedEvidence, match="rows"):
        READERS["votes"](stream.getvalue())
    long = sound.set_column(0, "id", pa.array(["x" * 100_000_000, *["y"] * (len(sound) - 1)]))
    stream = io.BytesIO()
    pq.write_table(long, stream, compression="zstd")
    assert len(stream.getvalue()) < 1_000_000
    with pytest.raises(DamagedEvidence, match="unfolds"):
        READERS["votes"](stream.getvalue())
    del tmp_path


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[print, print]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([[print, print]], dtype=object))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InvalidInput, match="pickle"):
            open_dataset(tmp_path / name)


@pytest.mark.parametrize(
    "link", ["shards", "manifest.json", "shards/000000-000001.json", "shards/000000-000001.parquet"]
)
def test_links_do_not_lead_out(tmp_path: Path, link: str) -> None:
    root = tmp_path / "run"
    shutil.copytree(home() / "run", root)
    (root / link).rename(tmp_path / "outside")
    (root / link).symlink_to(tmp_path / "outside")
    with pytest.raises(BucklerError):
        open_evidence(root).counts()


def test_names_are_made_of_numbers(tmp_path: Path) -> None:
    for number in (0, 7, 10**9):
        for part in ("seal", "counts", "scores"):
            place = folder.ShardRange(number, number + 3)
            assert place.path(tmp_path, part).parent == tmp_path / "shards"
    (tmp_path / "shards").mkdir()
    for name in ("..", "0", "000000", "000000-", "-1", "000000-0000x1", "\u0660\u0660\u0660\u0660\u0660\u0660"):
        Path(os.fsdecode(f"{tmp_path}/shards/{name}.json".encode())).touch()  # also where the locale has ASCII alone
    assert folder.sealed_names(tmp_path) == []


@pytest.mark.faults
@pytest.mark.linux("memory counted in kilobytes")
def test_peak_memory_of_the_readers() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    checks: list[Callable[[bytes], None]] = list(READERS.values())
    for reader, name in zip(checks, READERS, strict=True):
        for seed in seeds(name):
            try:
                reader(seed)
            except BucklerError:
                continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.mark.parametrize("rows", [0, 1, 49, 51])
def test_a_sealed_file_with_another_number_of_scores_is_named(rows: int) -> None:
    """Sealed anew, so the checksum is right: two inputs with 5 and 20 draws each must have 50 rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = pq.read_table(home() / "run" / "shards" / "000000-000001.scores.parquet")
    assert len(whole) == 50
    changed = pa.concat_tables([whole, whole]).slice(0, rows)
    buffer = io.BytesIO()
    pq.write_table(changed, buffer)
    with pytest.raises(DamagedEvidence, match=r"000000-000001\.scores\.parquet"):
        READERS["scores"](buffer.getvalue())


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
