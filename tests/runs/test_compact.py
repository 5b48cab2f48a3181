"""Shards merged into one: the same evidence before, after and at every moment in between."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from buckler.cli.app import run as command
from buckler.errors import BucklerWarning, DamagedEvidence, StoreError
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import sealed_names
from buckler.runs.store.sealed import read_sealed, write_sealed
from buckler.runs.store.writer import compact
from tests.runs.victim import run, spec

KILLER = Path(__file__).with_name("compact_killed.py")
SMALL = spec(limit=12)
NAMES = ["000000-000003", "000004-000007", "000008-000011"]


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(str(home), spec=SMALL).complete
    return home


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    shutil.copytree(undisturbed, tmp_path / "run")
    return tmp_path / "run"


def test_shards_behind_a_link_are_left_alone(copy: Path, tmp_path: Path) -> None:
    (copy / "shards").rename(tmp_path / "elsewhere")
    (copy / "shards").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    before = contents(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"shards' must be a folder, not a link"):
        compact(copy)
    assert contents(tmp_path / "elsewhere") == before
    with pytest.raises(StoreError, match=r"elsewhere' is not a run: it has no manifest\.json"):
        compact(tmp_path / "elsewhere")


def test_one_shard_with_the_same_evidence(undisturbed: Path, copy: Path) -> None:
    before = open_evidence(undisturbed)
    done = compact(copy)
    assert (done.before, done.after) == (3, 1)
    assert {p.name for p in (copy / "shards").iterdir()} == {
        f"000000-000011{ending}" for ending in (".json", ".parquet", ".scores.parquet")
    }
    after = open_evidence(copy)
    assert after.complete
    assert after.digest() == before.digest()
    for kept, merged in zip(before.scores(n=300), after.scores(n=300), strict=True):
        assert kept[0].ids == merged[0].ids
        assert (kept[0].values == merged[0].values).all()
        assert kept[1] is not None
        assert merged[1] is not None
        assert (kept[1].values == merged[1].values).all()
    assert (compact(copy).before, run(str(copy), spec=SMALL).samples) == (1, 0)


def test_the_digest_is_of_what_was_drawn(undisturbed: Path, tmp_path: Path) -> None:
    digests = {open_evidence(undisturbed).digest()}
    for name, changes in (("seed", {"seed": 1}), ("n", {"n": 401, "checkpoints": ()}), ("limit", {"limit": 11})):
        run(str(tmp_path / name), spec=spec(**{"limit": 12, **changes}))
        digests.add(open_evidence(tmp_path / name).digest())
    assert len(digests) == 4


def test_an_unfinished_run_is_merged_where_it_can_be_and_finished_later(undisturbed: Path, copy: Path) -> None:
    for path in (copy / "shards").glob("000004-*"):
        path.unlink()
    assert compact(copy) == compact(copy)
    assert sealed_names(copy) == ["000000-000003", "000008-000011"]
    assert run(str(copy), spec=SMALL, max_samples=4 * 450).complete
    assert compact(copy).after == 1
    assert open_evidence(copy).digest() == open_evidence(undisturbed).digest()


def test_begun_merged_and_gone_on_with(undisturbed: Path, tmp_path: Path) -> None:
    home = tmp_path / "run"
    assert not run(str(home), spec=SMALL, max_samples=8 * 450).complete
    assert compact(home).after == 1
    assert sealed_names(home) == ["000000-000007"]
    assert run(str(home), spec=SMALL).samples == 4 * 450
    assert compact(home).after == 1
    assert open_evidence(home).digest() == open_evidence(undisturbed).digest()


def test_merged_shards_have_a_bounded_size(undisturbed: Path, copy: Path) -> None:
    votes = 8 * 10 * 7 * 8  # of eight inputs, ten classes and seven rows each, at eight bytes
    scores = sum((copy / "shards" / f"{k}.scores.parquet").stat().st_size for k in NAMES[:2])
    assert compact(copy, largest=votes + scores - 1).after == 3
    assert compact(copy, largest=votes + scores).after == 2
    assert sealed_names(copy) == ["000000-000007", "000008-000011"]
    assert open_evidence(copy).digest() == open_evidence(undisturbed).digest()


def test_what_the_seals_said_of_each_part_is_kept(copy: Path) -> None:
    for name, where in zip(NAMES, ("here", "here", "there"), strict=True):
        path = copy / "shards" / f"{name}.json"
        seal = read_sealed(path)
        seal["parts"][0] |= {"replayed": 3, "differed": 1}
        seal["parts"][0]["drawn_by"]["environment"] = {"machine": where}
        write_sealed(path, seal)
    compact(copy)
    evidence = open_evidence(copy)
    assert [(part["first"], part["count"], part["drawn_by"]["environment"]) for part in evidence.parts] == [
        (0, 8, {"machine": "here"}),
        (8, 4, {"machine": "there"}),
    ]
    assert all(part["rows"] == SMALL.batch_size for part in evidence.parts)
    assert evidence.replayed == (9, 3)


def test_damage_is_refused_and_nothing_is_touched(copy: Path, tmp_path: Path) -> None:
    path = copy / "shards" / "000004-000007.scores.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    before = contents(copy)
    with pytest.raises(DamagedEvidence, match=r"000004-000007\.scores\.parquet"):
        compact(copy)
    assert contents(copy) == before
    with pytest.raises(StoreError, match="not a run"):
        compact(tmp_path)


def test_a_damaged_merged_shard_gives_way_to_its_parts(undisturbed: Path, copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "merged")
    compact(tmp_path / "merged")
    shutil.copytree(tmp_path / "merged" / "shards", copy / "shards", dirs_exist_ok=True)
    (copy / "shards" / "000000-000011.parquet").write_bytes(b"")
    with pytest.raises(DamagedEvidence, match="000000-000011"):
        run(str(copy), spec=SMALL)
    with pytest.warns(BucklerWarning, match="set aside"):
        assert run(str(copy), spec=SMALL, repair=True).samples == 0
    assert sealed_names(copy) == ["000000-000003", "000004-000007", "000008-000011"]
    assert open_evidence(copy).digest() == open_evidence(undisturbed).digest()


def test_shards_that_overlap_are_damage(copy: Path) -> None:
    place = copy / "shards"
    seal = read_sealed(place / "000004-000007.json")
    for ending in (".parquet", ".scores.parquet"):
        shutil.copy(place / f"000004-000007{ending}", place / f"000002-000005{ending}")
    write_sealed(place / "000002-000005.json", {**seal, "first": 2})
    with pytest.raises(DamagedEvidence, match="overlaps another shard"):
        open_evidence(copy)
    with pytest.raises(DamagedEvidence, match="overlaps another shard"):
        run(str(copy), spec=SMALL)
    with pytest.warns(BucklerWarning, match="set aside"):
        assert run(str(copy), spec=SMALL, repair=True).complete
    assert open_evidence(copy).complete


@pytest.mark.faults
def test_killed_at_every_step_nothing_is_lost_and_nothing_doubled(undisturbed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    told = subprocess.run(  # noqa: S603
        [sys.executable, str(KILLER), str(undisturbed), str(tmp_path)],
        check=True, env=env, capture_output=True, text=True, timeout=240,
    ).stdout  # fmt: skip
    steps: list[str] = json.loads(told)
    merged = "000000-000011"
    renames = [f"replace .tmp-{merged}{ending}" for ending in (".parquet", ".scores.parquet", ".json")]
    removals = [f"unlink {k}{end}" for k in NAMES for end in (".json", ".parquet", ".scores.parquet")]
    assert [step for step in steps if step in {*renames, *removals}] == renames + removals
    assert sum(step.startswith("fsync") for step in steps) >= len(renames) + 3
    expected = open_evidence(undisturbed)
    ids = expected.counts()[0].ids
    for number, step in enumerate(steps):
        home = tmp_path / str(number)
        evidence = open_evidence(home)
        assert evidence.complete, step
        assert evidence.counts()[0].ids == ids, step
        assert evidence.digest() == expected.digest(), step
        if number % 2:  # half of them are gone on with by the next merging, the others by the next writer
            assert compact(home).after == 1
        else:
            assert run(str(home), spec=SMALL).samples == 0
        left = {p.name.split(".")[0] for p in (home / "shards").iterdir()}
        assert left in ({merged}, set(NAMES)), step
        assert open_evidence(home).digest() == expected.digest(), step


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compact", str(copy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"before": 3, "after": 1}
    assert command(["compact", str(copy)]) == 0
    assert "1 files before, 1 now" in capsys.readouterr().out
    assert command(["compact", str(copy), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert command(["compact", str(copy / "shards")]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_certificates_are_the_same(undisturbed: Path, copy: Path, tmp_path: Path) -> None:
    def certificates(home: Path, name: str) -> Any:
        out = tmp_path / name
        assert command(["certify", str(home), "--out", str(out), "--quiet"]) == 0
        from buckler.runs.store.tables import read_certificates

        return read_certificates(out)

    compact(copy)
    assert certificates(copy, "a.parquet") == certificates(undisturbed, "b.parquet")
