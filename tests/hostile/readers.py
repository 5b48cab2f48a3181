"""Every reader of foreign bytes, each as a function of those bytes, with sound files to start from.

A reader may return or raise a ``BucklerError``; anything else that comes out is a bug.
"""

import hashlib
import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import Bracket, PairTest, Refutation
from buckler.certify.votes import certify_votes
from buckler.errors import BucklerError
from buckler.files import read_sealed, write_sealed
from buckler.noise import Gaussian
from buckler.runs.identity import Identity
from buckler.runs.logs import read_log
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec, from_dict, read_toml
from buckler.runs.store import folder
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import open_writer
from buckler.runs.store.tables import (
    read_certificates,
    read_origin,
    read_refutations,
    write_certificates,
    write_refutations,
)
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays, open_dataset

SPEC = RunSpec(
    model="m", data="d", sigma=0.5, num_classes=3, n=20, n0=5, scores="softmax", shard_inputs=2, checkpoints=(10, 20)
)
FIRST = folder.ShardRange(0, 2)
NOBODY = Identity({"answers": "c", "weights": {}, "environment": {}}, "d")


@cache
def home() -> Path:
    """Return a folder with one sound run, for the whole process."""
    place = Path(tempfile.mkdtemp(prefix="buckler-hostile-"))
    x = np.random.default_rng(0).uniform(size=(4, 5)).astype("f4")
    sample(
        SPEC, as_classifier(lambda b: b[:, :3], num_classes=3), from_arrays(x, np.array([0, 1, 2, 0])), place / "run"
    )
    return place


def _with(name: str, data: bytes, use: Callable[[Path], Any], *, reseal: bool = False) -> None:
    """Call ``use`` on a copy of the run in which one file holds ``data``, sealed anew if asked for."""
    with tempfile.TemporaryDirectory(dir=home()) as scratch:
        root = Path(scratch) / "run"
        shutil.copytree(home() / "run", root)
        (root / name).write_bytes(data)
        if reseal:
            seal_path = FIRST.path(root, "seal")
            seal = read_sealed(seal_path)
            for part in seal["files"]:
                seal["files"][part] = folder.measure(FIRST.path(root, part))
            write_sealed(seal_path, seal)
        use(root)


def _read_all(root: Path) -> None:
    evidence = open_evidence(root)
    evidence.counts()
    for _ in evidence.scores():
        pass


def _go_on(root: Path) -> None:
    for repair in (False, True):
        with (
            warnings.catch_warnings(),
            open_writer(root, SPEC, NOBODY, inputs=4, repair=repair, allow_other_model=True),
        ):
            pass


def specification(data: bytes) -> None:
    spec = from_dict(read_toml(data.decode("utf-8", "surrogateescape")))
    assert from_dict(read_toml(spec.to_toml())) == spec


def _sealed_again(data: bytes) -> bytes:
    """Return JSON with a right checksum of itself, so that what lies behind the checksum is reached."""
    try:
        values = json.loads(data)
        values.pop("seal", None)
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return data
    return json.dumps({**values, "seal": hashlib.sha256(text.encode()).hexdigest()}).encode()


def manifest(data: bytes) -> None:
    for text in (data, _sealed_again(data)):
        for use in (_read_all, _go_on):
            _only_ours(partial(_with, folder.MANIFEST, text, use))


def seal(data: bytes) -> None:
    for text in (data, _sealed_again(data)):
        for use in (_read_all, _go_on):
            _only_ours(partial(_with, "shards/000000-000001.json", text, use))


def votes(data: bytes) -> None:
    _with("shards/000000-000001.parquet", data, _read_all, reseal=True)


def scores(data: bytes) -> None:
    _with("shards/000000-000001.scores.parquet", data, _read_all, reseal=True)


def _file(name: str, data: bytes, use: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory(dir=home()) as scratch:
        path = Path(scratch) / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
        use(path)


def certificates(data: bytes) -> None:
    _file("c.parquet", data, read_certificates)
    _file("c.parquet", data, read_origin)


def refutations(data: bytes) -> None:
    _file("r.parquet", data, read_refutations)


def _load(path: Path, **options: Any) -> None:
    dataset = open_dataset(path, **options)
    dataset.load(0, min(3, len(dataset)))


def npz(data: bytes) -> None:
    _file("x.npz", data, _load)


def npy(data: bytes) -> None:
    _file("x.npy", data, _load)


def cifar(data: bytes) -> None:
    _file("test_batch.bin", data, lambda path: _load(path.parent))


def image(data: bytes) -> None:
    for suffix in ("png", "jpg"):
        _only_ours(partial(_file, f"a/x.{suffix}", data, lambda path: _load(path.parent.parent)))


def image_list(data: bytes) -> None:
    _file("labels.csv", data, lambda path: _load(path.parent))


def log(data: bytes) -> None:
    _file("log.tsv", data, read_log)


def _only_ours(use: Callable[[], None]) -> None:
    with suppress(BucklerError):
        use()


READERS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f
    for f in (
        specification,
        manifest,
        seal,
        votes,
        scores,
        certificates,
        refutations,
        npz,
        npy,
        cifar,
        image,
        image_list,
        log,
    )
}


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    """Return sound files for a reader."""
    run = home() / "run"
    if name == "specification":
        return (SPEC.to_toml().encode(), b'model="a:b"\ndata="digits"\nsigma=1\nnum_classes=2\nn=10\nids=["1"]\n')
    if name == "manifest":
        return ((run / folder.MANIFEST).read_bytes(),)
    if name in {"seal", "votes", "scores"}:
        part = {"seal": "seal", "votes": "counts"}.get(name, name)
        return (FIRST.path(run, part).read_bytes(),)
    if name == "certificates":
        made = certify_votes([[90, 10], [50, 50]], sigma=0.5, labels=[0, 0], ids=["a", "b"])
        write_certificates(home() / "seed.parquet", made, {"spec": {"n": 1}})
        return ((home() / "seed.parquet").read_bytes(),)
    if name == "refutations":
        tried = (PairTest(0.7, 1, 100, 80, 10, refuted=True), PairTest(0.6, 1, 100, 40, 40, refuted=False))
        found = Refutation("a", 0, 0.7, 1, np.ones(3, dtype="f4"), 1e-3, Gaussian(0.5), tried)
        write_refutations(home() / "refuted.parquet", [Bracket(found, 0.4, 1e-3, 0)], {"alpha": 1e-3})
        return ((home() / "refuted.parquet").read_bytes(),)
    if name in {"npz", "npy"}:
        stream, x = io.BytesIO(), np.linspace(0, 1, 12).reshape(3, 4).astype("f4")
        if name == "npz":
            np.savez_compressed(stream, x=x, y=np.array([0, 1, 0]), index=np.array([4, 5, 6]))
        else:
            np.save(stream, x)
        return (stream.getvalue(),)
    if name == "log":
        return (b"idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t3\t3\t0.48\t1\t0:00:14.03\n1\t8\t-1\t0.0\t0\t1.5\n",)
    if name == "cifar":
        return (bytes(3073 * 2),)
    if name == "image_list":
        return (b"file,label\na.png,1\nb/c.jpg,2\n", b"file,label\n../up.png,1\n")
    return tuple(_images())


def _images() -> list[bytes]:
    from PIL import Image

    made = []
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "PPM"):
        stream = io.BytesIO()
        Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, kind)
        made.append(stream.getvalue())
    return made
