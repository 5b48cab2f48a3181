"""Evidence survives kills, damage and second writers; another specification or format is refused and left alone."""

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckler import __version__
from buckler.errors import BucklerError, BucklerWarning, ClassifierError, DamagedEvidence, InvalidInput, StoreError
from buckler.files import SEALED_FORMAT, read_sealed, write_sealed, writing
from buckler.runs.sample import choose_columns, sample
from buckler.runs.spec import hash_of
from buckler.runs.store import folder
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.shard import encode
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays, open_dataset
from buckler.types import AnyArray
from tests.runs.victim import linear, run, spec
from tests.sampling.test_engine import draw_counts, draw_scores


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(str(home)).complete
    return home


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    shutil.copytree(undisturbed, tmp_path / "run")
    return tmp_path / "run"


def test_evidence_is_what_the_engine_draws(undisturbed: Path) -> None:
    evidence = open_evidence(undisturbed)
    assert evidence.complete
    data = open_dataset("digits").select(limit=40)
    options: dict[str, Any] = {"sigma": 0.25, "num_classes": 10, "seed": 0, "input_id": data.ids}
    x = data.load(0, 40)
    for n in (10, 100, 400):
        votes = evidence.counts(n)
        assert votes.ids == data.ids
        np.testing.assert_array_equal(votes.values, draw_counts(linear, x, n=n, stream="estimation", **options))
    np.testing.assert_array_equal(votes.selection, draw_counts(linear, x, n=50, stream="selection", **options))
    np.testing.assert_array_equal(votes.labels, data.labels)
    with pytest.raises(InvalidInput, match="checkpoints 10, 20, 50, 100, 200, 400"):
        evidence.counts(300)


def test_votes_of_other_checkpoints_do_not_stay_in_memory(undisturbed: Path) -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    shards = list(open_evidence(undisturbed).read_shards())
    assert pa.total_allocated_bytes() > before, "votes are read without a copy"
    held = [replace(shard, counts=shard.counts[:, 0].copy()) for shard in shards]
    del shards
    assert held[0].selection is not None
    assert pa.total_allocated_bytes() <= before


def test_scores_are_kept_in_draw_order(undisturbed: Path, tmp_path: Path) -> None:
    data = open_dataset("digits").select(limit=40)
    options: dict[str, Any] = {"sigma": 0.25, "num_classes": 10, "seed": 0, "input_id": data.ids}
    full = draw_scores(linear, data.load(0, 40), n=400, stream="estimation", **options)
    count = 0
    for i, (scores, selection, label) in enumerate(open_evidence(undisturbed).scores(n=300)):
        assert label is not None
        assert selection is not None
        assert scores.columns[0, 0] == label
        assert scores.columns.shape == (1, 5)
        assert scores.values.shape == (1, 300, 5)
        assert selection.values.shape == (1, 50, 5)
        named = scores.columns[0, :-1]
        assert np.abs(scores.values[0, :, :-1] - full[i, :300][:, named]).max() < 1e-5
        rest = np.delete(full[i, :300], named, axis=1).max(axis=1)
        assert np.abs(scores.values[0, :, -1] - rest).max() < 1e-5
        count += 1
    assert count == 40
    logits = tmp_path / "logits"
    run(str(logits), spec=spec(scores="logits", runner_ups=None, limit=6))
    for i, (scores, _, _) in enumerate(open_evidence(logits).scores(map="softmax", temperature=2.0)):
        assert scores.temperature == 2.0
        expected = full[i] ** 0.5 / (full[i] ** 0.5).sum(axis=1, keepdims=True)
        assert np.abs(scores.values[0] - expected).max() < 1e-4


def test_scores_have_the_map_and_temperature_of_their_run(undisturbed: Path) -> None:
    with pytest.raises(InvalidInput, match=r"those of the run, softmax at temperature 1; .* --scores logits"):
        next(open_evidence(undisturbed).scores(temperature=2.0))


def test_the_bytes_are_those_of_any_other_run(undisturbed: Path, tmp_path: Path) -> None:
    ticks: list[Any] = []
    again = str(tmp_path / "again")
    assert not run(again, max_samples=5000).complete
    summary = run(again, progress=lambda *told: ticks.append(told))
    assert summary.complete
    assert ticks[-1] == (40 * 450, 40 * 450, summary.samples)
    assert contents(tmp_path / "again") == contents(undisturbed)
    assert run(again).samples == 0


def test_a_time_limit_ends_the_run_and_keeps_what_is_whole(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = str(tmp_path / "again")
    ticks: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: float(len(ticks)))  # a clock that a batch moves by one second
        summary = run(again, max_seconds=8.0, progress=lambda *told: ticks.append(told))
    assert 0 < summary.inputs_done < summary.inputs
    run(again)
    assert contents(tmp_path / "again") == contents(undisturbed)


PLACES = [
    "open .lock",
    "open manifest.json", "fsync manifest.json", "rename manifest.json", "named manifest.json",
    "draw 1", "draw 5", "write 9000",
    "fsync 000004-000007.parquet", "rename 000004-000007.parquet", "named 000004-000007.parquet",
    "fsync 000008-000011.scores.parquet", "rename 000008-000011.scores.parquet", "named 000008-000011.scores.parquet",
    "open 000012-000015.json", "fsync 000012-000015.json", "rename 000012-000015.json", "named 000012-000015.json",
    "draw 9", "rename 000036-000039.json", "named 000036-000039.json",
]  # fmt: skip
"""Where a run is killed, one after another in the same folder: each place lies beyond what was sealed before it."""


@pytest.mark.faults
def test_killed_in_every_place_and_resumed_to_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    home = tmp_path / "killed"
    command = [sys.executable, "-c", "import sys; from tests.runs.victim import serve; serve(sys.argv[1])", str(home)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    victim = subprocess.Popen(  # noqa: S603
        command, env=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert victim.stdin is not None
    assert victim.stdout is not None
    kept: dict[str, bytes] = {}
    for place in PLACES:
        print(place, file=victim.stdin, flush=True)
        said = victim.stdout.readline()
        if place.startswith("write"):
            assert said == f"{-signal.SIGXFSZ}\n"
            assert [p.stat().st_size for p in home.rglob("*scores*") if p.name[0] == "."] == [int(place.split()[1])]
        else:
            assert said == f"killed at {place}\n"
            assert victim.stdout.readline() == f"{-signal.SIGKILL}\n"
        whole = contents(home)
        assert kept.items() <= whole.items()
        sealed = {p.stem for p in (home / "shards").glob("[0-9]*.json")}
        kept = {name: data for name, data in whole.items() if Path(name).name.split(".")[0] in sealed}
    victim.communicate()
    assert run(str(home)).complete
    assert contents(home) == contents(undisturbed)


def test_another_specification_is_refused_with_the_difference(copy: Path) -> None:
    before = contents(copy)
    with pytest.raises(StoreError, match=r"sigma: 0\.25 in the folder, 0\.5 asked for"):
        run(str(copy), spec=spec(sigma=0.5))
    data = open_dataset("digits").select(limit=40)
    with pytest.raises(StoreError, match="another model"):
        sample(spec(), as_classifier(lambda b: linear(b) * 2, num_classes=10), data, copy)
    other = replace(data, ids=tuple(reversed(data.ids)))
    with pytest.raises(StoreError, match="other data"):
        sample(spec(), as_classifier(linear, num_classes=10), other, copy)
    assert contents(copy) == before


def test_damage_to_any_file_is_found_named_and_repaired(undisturbed: Path, copy: Path) -> None:
    expected = contents(undisturbed)
    damage = random.Random(1)  # noqa: S311
    names = [name for name in expected if name != ".lock"]
    for name in [*damage.sample(names, 8), "manifest.json"]:
        whole = expected[name]
        at = damage.randrange(len(whole))
        flipped = whole[:at] + bytes([whole[at] ^ 1 << damage.randrange(8)]) + whole[at + 1 :]
        for broken in (flipped, whole[:at], b""):
            (copy / name).write_bytes(broken)
            with pytest.raises(DamagedEvidence, match=Path(name).name.replace(".", r"\.")):
                run(str(copy))
            with pytest.raises(DamagedEvidence):
                open_evidence(copy).counts()
            with pytest.warns(BucklerWarning, match="set aside in .*" + Path(name).name):
                summary = run(str(copy), repair=True)
            assert summary.samples == (0 if name == "manifest.json" else 4 * 450)
            kept = [path.read_bytes() for path in (copy / "damaged").iterdir()]
            assert broken in kept
            shutil.rmtree(copy / "damaged")
            assert contents(copy) == expected
    (copy / "shards" / "000012-000015.parquet").unlink()
    with pytest.raises(DamagedEvidence, match="000012-000015"):
        run(str(copy))
    with pytest.warns(BucklerWarning, match="set aside"):
        run(str(copy), repair=True)
    shutil.rmtree(copy / "damaged")
    assert contents(copy) == expected


def test_a_file_that_cannot_be_read_is_not_damaged(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error is named, and repair touches nothing: the file may be whole."""
    before = contents(copy)

    def failing(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", failing)
        for attempt in (
            lambda: open_evidence(copy).counts(),
            lambda: run(str(copy)),
            lambda: run(str(copy), repair=True),
        ):
            with pytest.raises(StoreError, match=r"cannot read .*000000-000003\.parquet.*Input/output error") as caught:
                attempt()
            assert not isinstance(caught.value, DamagedEvidence)
    assert contents(copy) == before
    assert run(str(copy), repair=True).samples == 0


def test_votes_that_do_not_add_up_are_refused(copy: Path) -> None:
    path = copy / "shards" / "000000-000003.parquet"
    seal_path = copy / "shards" / "000000-000003.json"
    shard = next(open_evidence(copy).read_shards())
    more = shard.counts.copy()
    more[0, -1, 0] += 1
    pq.write_table(encode(replace(shard, counts=more), spec()), path)
    seal = read_sealed(seal_path)
    seal["files"]["counts"] = folder.measure(path)
    write_sealed(seal_path, seal)
    with pytest.raises(DamagedEvidence, match="do not add up"):
        open_evidence(copy).counts()


def test_repair_never_removes_another_run(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    before = contents(copy)
    with pytest.raises(StoreError, match="another run"):
        run(str(copy), spec=spec(sigma=0.5), repair=True)
    assert contents(copy) == before


def test_links_do_not_lead_out_of_the_folder(copy: Path, tmp_path: Path) -> None:
    shard = copy / "shards" / "000004-000007.parquet"
    shard.rename(tmp_path / "outside.parquet")
    shard.symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(DamagedEvidence, match="000004-000007"):
        open_evidence(copy).counts()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "shards").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="link"):
        run(str(tmp_path / "linked"))


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("dear to someone")
    with pytest.raises(StoreError, match=r"neither empty nor a run.*thesis\.txt"):
        run(str(tmp_path))
    with pytest.raises(StoreError, match="cannot"):
        run(str(tmp_path / "thesis.txt"))
    for missing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match="not a run"):
            open_evidence(missing)


def test_a_model_that_fails_on_one_input_keeps_the_rest(tmp_path: Path) -> None:
    x = open_dataset("digits").load(0, 40)
    x[21] = 1.0
    data = from_arrays(x)

    def fragile(batch: AnyArray) -> AnyArray:
        return np.where(batch.mean(axis=(2, 3)) > 0.8, np.nan, linear(batch))

    with pytest.raises(ClassifierError, match="'21'"):
        sample(spec(), as_classifier(fragile, num_classes=10), data, tmp_path / "run")
    evidence = open_evidence(tmp_path / "run")
    assert not evidence.complete
    assert evidence.counts().ids == data.ids[:20]


def test_chosen_columns() -> None:
    sums = np.array([[1.0, 5.0, 3.0, 0.0, 3.0], [9.0, 0.0, 0.0, 0.0, 1.0]])
    assert choose_columns(sums, None, 1).tolist() == [[1, 2, -1], [0, 4, -1]]
    assert choose_columns(sums, np.array([3, 0]), 1).tolist() == [[3, 1, 2, -1], [0, 4, 1, -1]]
    assert choose_columns(sums, None, 4).tolist() == [[0, 1, 2, 3, 4]] * 2


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    data = open_dataset("digits").select(limit=40)
    with pytest.raises(BucklerError, match="largest label"):
        sample(spec(num_classes=5), as_classifier(lambda b: linear(b)[:, :5], num_classes=5), data, tmp_path / "run")


def test_the_digest_is_of_what_was_drawn(tmp_path: Path) -> None:
    digests = set()
    for name, changes in (("as it is", {}), ("seed", {"seed": 1}), ("n", {"n": 401}), ("limit", {"limit": 11})):
        run(str(tmp_path / name), spec=spec(**{"limit": 12, **changes}))
        digests.add(open_evidence(tmp_path / name).digest())
    assert len(digests) == 4


def test_shards_that_overlap_are_damage(copy: Path) -> None:
    place = copy / "shards"
    seal = read_sealed(place / "000004-000007.json")
    for ending in (".parquet", ".scores.parquet"):
        shutil.copy(place / f"000004-000007{ending}", place / f"000002-000005{ending}")
    write_sealed(place / "000002-000005.json", {**seal, "first": 2})
    with pytest.raises(DamagedEvidence, match="overlaps another shard"):
        open_evidence(copy)
    with pytest.raises(DamagedEvidence, match="overlaps another shard"):
        run(str(copy))
    with pytest.warns(BucklerWarning, match="set aside"):
        assert run(str(copy), repair=True).complete
    assert open_evidence(copy).complete


SECOND = "000004-000007"


def test_a_seal_under_a_name_with_more_zeros_counts_for_no_shard(copy: Path) -> None:
    shutil.copy(copy / "shards" / "000000-000003.json", copy / "shards" / "0000000-0000003.json")
    assert open_evidence(copy).inputs_done == 40
    with pytest.raises(DamagedEvidence, match=r"0000000-0000003.json' is damaged: this run has no such shard"):
        run(str(copy))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run(str(tmp_path / "run"), spec=spec(limit=8))
    return tmp_path / "run"


def test_format_and_version_are_in_the_manifest_and_in_every_seal(home: Path) -> None:
    files = [home / "manifest.json", *(home / "shards").glob("*.json")]
    assert len(files) == 3
    for path in files:
        values = read_sealed(path)
        assert (values["format"], values["version"]) == (SEALED_FORMAT, __version__)


@pytest.mark.parametrize("name", ["manifest.json", f"shards/{SECOND}.json"])
@pytest.mark.parametrize("number", [SEALED_FORMAT - 1, SEALED_FORMAT + 1])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed as here", "sealed in another way"])
def test_another_format_is_refused_and_never_touched(home: Path, name: str, number: int, sealed: bool) -> None:
    values = {**read_sealed(home / name), "format": number, "version": "9.8.7", "more": [1]}
    write_sealed(home / name, values)
    if not sealed:
        text = json.loads((home / name).read_text())
        (home / name).write_text(json.dumps({**text, "seal": "made in another way"}))
    before = contents(home)
    for attempt in (
        lambda: open_evidence(home).counts(),
        lambda: run(str(home), spec=spec(limit=8)),
        lambda: run(str(home), spec=spec(limit=8), repair=True),
    ):
        with pytest.raises(StoreError, match=rf"format {number}, written by buckler '9\.8\.7'") as caught:
            attempt()
        assert not isinstance(caught.value, DamagedEvidence)
    assert contents(home) == before


def test_a_seal_of_another_format_is_left_where_it_does_not_belong(home: Path) -> None:
    write_sealed(home / "shards" / "000099-000100.json", {"format": SEALED_FORMAT + 1, "version": "9.8.7"})
    before = contents(home)
    with pytest.raises(StoreError, match=f"format {SEALED_FORMAT + 1}"):
        run(str(home), spec=spec(limit=8), repair=True)
    assert contents(home) == before


@pytest.mark.parametrize("change", [{"weather": "fine"}, {"noise": "lognormal"}])
def test_a_specification_with_something_unknown_is_damage(home: Path, change: dict[str, str]) -> None:
    manifest = read_sealed(home / "manifest.json")
    manifest["spec"] |= change
    manifest["owner"]["spec"] = hash_of(manifest["spec"])
    write_sealed(home / "manifest.json", manifest)
    with pytest.raises(DamagedEvidence, match=r"manifest\.json.*(weather|noise)"):
        open_evidence(home)


def test_a_specification_that_is_not_the_one_hashed_is_damage(home: Path) -> None:
    manifest = read_sealed(home / "manifest.json")
    manifest["spec"]["sigma"] = 0.5
    write_sealed(home / "manifest.json", manifest)
    with pytest.raises(DamagedEvidence, match="another hash"):
        open_evidence(home)


def test_the_size_of_shards_is_that_of_the_run(home: Path) -> None:
    assert run(str(home), spec=spec(limit=8, shard_inputs=None)).complete
    with pytest.raises(StoreError, match="shard_inputs: 4 in the folder, 1 asked for"):
        run(str(home), spec=spec(limit=8, shard_inputs=1))


def test_an_error_of_the_system_is_one_line_without_its_number() -> None:
    for problem, said in ((OSError(28, "No space left on device"), "No space left on device"), (OSError("odd"), "odd")):
        with pytest.raises(StoreError) as raised, writing("write 'a'"):
            raise problem
        assert str(raised.value) == f"cannot write 'a': {said}; what was finished is kept"
