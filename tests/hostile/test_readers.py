"""Foreign bytes: only our own errors come out, memory stays bounded, and nothing is read outside of the run folder."""

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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buckler.errors import BucklerError, DamagedEvidence, InvalidInput
from buckler.runs.store import folder
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.datasets import open_dataset
from tests.hostile.readers import READERS, home, seeds

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
